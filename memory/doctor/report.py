"""The result of each check, the synthetic personas, and notices about long calls."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

import anyio

from memory.contract._model import Frozen
from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope

# Check -> the earlier check that it depends on, in order.
NEEDS = {
    "plugin": "config",
    "health": "plugin",
    "setup": "health",
    "capabilities": "setup",
    "models": "setup",
    "write": "models",
    "readiness": "write",
    "write_read": "readiness",
    "isolation": "write",
    "read_only": "write",
    "reset": "plugin",
    "close": "plugin",
}
CHECKS = ("config", *NEEDS)

CheckStatus = Literal["passed", "failed", "pending", "skipped"]


class CheckResult(Frozen):
    """The result of one check: ``pending`` has no evidence in time or at all, ``skipped`` was not tried."""

    name: str
    status: CheckStatus
    evidence: str  # in words
    latency_ms: float | None = None  # None if it was not tried
    fix: str | None = None  # None if the evidence names the fix, or nothing is wrong


class DoctorReport(Frozen):
    source: str  # the file, or ``config``
    provider: str | None  # None if the file could not be read
    kind: str | None  # None if the plugin could not be loaded
    label: str | None  # the provider's name with its control and fallback components; None as for ``kind``
    checks: tuple[CheckResult, ...]
    write_s: int | None = None  # the deadline that an extracting model needs; None if none was timed

    @property
    def ok(self) -> bool:
        return not self.failed and not self.pending

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if check.status == "failed")

    @property
    def pending(self) -> tuple[str, ...]:
        """Checks without evidence, which have neither failed nor passed."""
        return tuple(check.name for check in self.checks if check.status == "pending")


class Waiting(Frozen):
    """A slow call that is under way; ``elapsed_s`` and ``limit_s`` count from its beginning."""

    check: str
    what: str
    elapsed_s: float
    limit_s: float


def new_word() -> str:
    return f"oolong{uuid.uuid4().hex[:10]}"


@dataclass
class Trial:
    """A persona with one fact to remember. The question names ``shop``; only the answer holds ``marker``."""

    scope: MemoryScope  # unique to this run of the doctor
    shop: str
    marker: str
    set_up: bool = False  # the backend may hold data of the scope
    written: bool = False
    seen: bool = False  # its own memory has shown the marker

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        run = f"memslot-doctor-{uuid.uuid4().hex[:12]}"
        first, second = (
            cls(MemoryScope(run_id=run, persona_id=persona), f"Hakone{uuid.uuid4().hex[:8]}", new_word())
            for persona in ("doctor-a", "doctor-b")
        )
        return first, second

    @property
    def name(self) -> str:
        return self.scope.persona_id

    @property
    def question(self) -> str:
        return f"Which is my favourite tea at {self.shop}?"

    def event(self) -> MemoryEvent:
        return MemoryEvent(
            event_id=uuid.uuid4().hex,
            scope=self.scope,
            session_id="doctor",
            turn_id="1",
            timestamp=datetime.now(UTC),
            messages=(
                Message(role="user", content=f"My favourite tea at {self.shop} is {self.marker}."),
                Message(role="assistant", content=f"I will remember that you like {self.marker}."),
            ),
        )


def request(scope: MemoryScope, question: str) -> RetrieveRequest:
    budget = ContextBudget(max_tokens=2000, max_items=10)
    return RetrieveRequest(query=question, scope=scope, session_id="doctor", budget=budget)


def shows(result: RetrieveResult, word: str, *, raw: bool = False) -> bool:
    """Whether a word appears in the section or an entry; with ``raw``, also in the native payload."""
    shown = [result.formatted_context, *(entry.text for entry in result.entries)]
    if raw:
        shown.append(json.dumps(result.raw, ensure_ascii=False, default=str))
    return any(word.casefold() in text.casefold() for text in shown)


_FIRST_NOTICE_S = 2.0
_NEXT_NOTICE_S = 5.0


class WaitNotices:
    """Tracks the call under way, and reports a slow one: after 2 s, then every 5 s."""

    def __init__(self, report: Callable[[Waiting], None] | None) -> None:
        self.check = ""
        self.report = report
        self._call: tuple[float, Waiting] | None = None  # (start by the loop's clock, call)

    @contextmanager
    def waiting_for(self, what: str, limit_s: float) -> Iterator[None]:
        waiting = Waiting(check=self.check, what=what, elapsed_s=0.0, limit_s=limit_s)
        self._call = anyio.current_time(), waiting
        try:
            yield
        finally:
            self._call = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Report long calls while the body runs. Errors of the body and of ``report`` pass unchanged."""
        problem: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                yield
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            problem = group.exceptions[0]
        if problem is not None:
            raise problem

    async def _watch(self) -> None:
        reported: tuple[float, Waiting] | None = None
        reported_at = 0.0
        while self.report is not None:
            await anyio.sleep(_FIRST_NOTICE_S / 4)
            call, now = self._call, anyio.current_time()
            if call is None or now - call[0] < _FIRST_NOTICE_S:
                continue
            if call is not reported or now - reported_at >= _NEXT_NOTICE_S:
                reported, reported_at = call, now
                self.report(call[1].model_copy(update={"elapsed_s": now - call[0]}))
