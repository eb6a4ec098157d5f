"""Events, a summariser to watch and a host, for tests of rolling_summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from conditions._extractive import ExtractiveSummariser
from conditions._notebook import Draft, Line, Source
from conditions.rolling_summary import RollingSummary, RollingSummaryOptions
from memory import (
    BackendReadiness,
    BackendUnavailable,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    NativeQueryRequest,
    RetrieveRequest,
    RetrieveResult,
    SupportsNativeQuery,
    SupportsReadiness,
    WriteReceipt,
)
from memory.adapter import Utf8TokenCounter
from memory.adapter.stores import SqliteStore

ALICE = MemoryScope(run_id="run", persona_id="alice")
BOB = MemoryScope(run_id="run", persona_id="bob")
START = datetime(2026, 1, 1, 10, tzinfo=UTC)
COUNTER = Utf8TokenCounter()


def event(
    number: int,
    *texts: str,
    session: str = "s1",
    scope: MemoryScope = ALICE,
    context: str | None = None,
    day: int = 0,
) -> MemoryEvent:
    roles = ("user", "assistant")
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=session,
        turn_id=str(number),
        timestamp=START + timedelta(days=day, minutes=number),
        messages=tuple(
            Message(role=roles[index % 2], content=text) for index, text in enumerate(texts or ("x",))
        ),
        context=context,
    )


class Noting:
    """A summariser that notes what it is given: the memory becomes all lines so far, or none of them."""

    label = "noting"

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self.calls: list[list[str]] = []
        self.faults = 0
        self.hold: anyio.Event | None = None
        self.closed = False

    async def summarise(self, memory: str, sources: Mapping[str, Source], lines: list[Line]) -> Draft:
        if self.hold is not None:
            await self.hold.wait()
        if self.faults:
            self.faults -= 1
            raise BackendUnavailable("down", diagnostics={"status": 503})
        said = [line.text for line in lines]
        self.calls.append(said)
        kept = [memory, *said] if self.keeps else []
        return Draft("\n".join(filter(None, kept)), f"[entry] {len(said)}")

    async def problem(self) -> str | None:
        return "down" if self.faults else None

    async def aclose(self) -> None:
        self.closed = True


class Host:
    """A slot over rolling_summary, and short names for what tests do with it."""

    def __init__(
        self,
        summariser: Any = None,
        deadline_s: float | None = None,
        path: Path | None = None,
        **options: Any,
    ) -> None:
        chosen = RollingSummaryOptions(**options)
        self.summariser = summariser or ExtractiveSummariser(chosen.max_tokens, COUNTER)
        write_s = math.inf if deadline_s is None else deadline_s
        store = SqliteStore(path and path / "memslot.db")
        self.adapter = RollingSummary("rolling_summary", chosen, self.summariser, COUNTER, write_s, store)
        self.slot = MemorySlot(self.adapter)

    async def __aenter__(self) -> Host:
        for scope in (ALICE, BOB):
            await self.slot.setup_scope(scope)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.slot.aclose()

    async def write(self, *events: MemoryEvent) -> list[WriteReceipt]:
        return [await self.slot.record_event(event) for event in events]

    async def ready(self, scope: MemoryScope = ALICE, timeout_s: float = 5) -> BackendReadiness:
        readiness = self.slot.capability(SupportsReadiness)
        assert readiness is not None
        return await readiness.wait_until_ready(scope, timeout_s)

    async def state(self, scope: MemoryScope = ALICE) -> BackendReadiness:
        readiness = self.slot.capability(SupportsReadiness)
        assert readiness is not None
        return await readiness.readiness(scope)

    async def ask(self, scope: MemoryScope = ALICE, budget: ContextBudget | None = None) -> RetrieveResult:
        return await self.slot.retrieve(
            RetrieveRequest(query="?", scope=scope, session_id="t", budget=budget or ContextBudget())
        )

    async def native(self, operation: str, scope: MemoryScope = ALICE) -> Any:
        query = self.slot.capability(SupportsNativeQuery)
        assert query is not None
        return (await query.native_query(NativeQueryRequest(scope=scope, operation=operation))).raw
