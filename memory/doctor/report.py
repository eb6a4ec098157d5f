"""The result of each check, and the synthetic personas."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

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
