"""The synthetic personas, what is written for them, what counts as having seen it, and what a long call is for."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import anyio

from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.doctor.report import Waiting

_SESSION = "doctor"


def new_word() -> str:
    return f"oolong{uuid.uuid4().hex[:10]}"


@dataclass
class Trial:
    """A persona with one thing to remember.

    Attributes:
        scope: its own, of this run of doctor alone.
        shop: a word that the question and the answer share.
        marker: a word of the answer alone: where it is seen, what was written has been shown.
        set_up: whether the backend may hold something of it.
        written: whether its event was handed over.
        seen: whether its own memory showed the marker.
    """

    scope: MemoryScope
    shop: str
    marker: str
    set_up: bool = False
    written: bool = False
    seen: bool = False

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
        """What the persona is asked; the marker is not in it."""
        return f"Which is my favourite tea at {self.shop}?"

    def event(self) -> MemoryEvent:
        return MemoryEvent(
            event_id=uuid.uuid4().hex,
            scope=self.scope,
            session_id=_SESSION,
            turn_id="1",
            timestamp=datetime.now(UTC),
            messages=(
                Message(role="user", content=f"My favourite tea at {self.shop} is {self.marker}."),
                Message(role="assistant", content=f"I will remember that you like {self.marker}."),
            ),
        )


def request(scope: MemoryScope, question: str) -> RetrieveRequest:
    budget = ContextBudget(max_tokens=2000, max_items=10)
    return RetrieveRequest(query=question, scope=scope, session_id=_SESSION, budget=budget)


def shows(result: RetrieveResult, word: str, *, raw: bool = False) -> bool:
    """Whether a word stands in the section or an entry; with ``raw``, in the native payload as well."""
    shown = [result.formatted_context, *(entry.text for entry in result.entries)]
    if raw:
        shown.append(json.dumps(result.raw, ensure_ascii=False, default=str))
    return any(word.casefold() in text.casefold() for text in shown)


_FIRST_NOTICE_S = 2.0
_NEXT_NOTICE_S = 5.0


@dataclass(frozen=True)
class _Call:
    what: str
    limit_s: float
    since: float


class Patience:
    """Knows which call is under way, and tells of those that take their time: after 2 s, then every 5 s."""

    def __init__(self, report: Callable[[Waiting], None] | None) -> None:
        self.check = ""
        self.report = report
        self._call: _Call | None = None

    @contextmanager
    def waiting_for(self, what: str, limit_s: float) -> Iterator[None]:
        """Around one call, which ends after ``limit_s`` seconds by itself."""
        self._call = _Call(what, limit_s, anyio.current_time())
        try:
            yield
        finally:
            self._call = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Tell of long calls while the body runs. What the body or ``report`` raises comes out as it is."""
        problem: BaseException | None = None

        async def watch() -> None:
            nonlocal problem
            try:
                await self._watch()
            except Exception as error:
                problem = error
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                problem = error
            finally:
                tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _watch(self) -> None:
        reported: _Call | None = None
        reported_at = 0.0
        while self.report is not None:
            await anyio.sleep(_FIRST_NOTICE_S / 4)
            call, now = self._call, anyio.current_time()
            if call is None or now - call.since < _FIRST_NOTICE_S:
                continue
            if call is not reported or now - reported_at >= _NEXT_NOTICE_S:
                reported, reported_at = call, now
                elapsed_s = now - call.since
                self.report(
                    Waiting(check=self.check, what=call.what, elapsed_s=elapsed_s, limit_s=call.limit_s)
                )
