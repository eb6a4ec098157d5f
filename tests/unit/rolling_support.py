"""Events, a summariser to watch and a host, for tests of rolling_summary."""

import math
from datetime import UTC, datetime, timedelta

import anyio

from conditions._extractive import ExtractiveSummariser
from conditions._notebook import Draft
from conditions.rolling_summary import RollingSummary, RollingSummaryOptions
from memory import (
    BackendUnavailable,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    NativeQueryRequest,
    RetrieveRequest,
    SupportsNativeQuery,
    SupportsReadiness,
)
from memory.adapter import Utf8TokenCounter
from memory.adapter.stores import SqliteStore

ALICE = MemoryScope(run_id="run", persona_id="alice")
BOB = MemoryScope(run_id="run", persona_id="bob")
START = datetime(2026, 1, 1, 10, tzinfo=UTC)
COUNTER = Utf8TokenCounter()


def event(number, *texts, session="s1", scope=ALICE, context=None, day=0):
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

    def __init__(self, *, keeps=True):
        self.keeps = keeps
        self.calls: list[list[str]] = []
        self.faults = 0
        self.hold: anyio.Event | None = None
        self.closed = False

    async def summarise(self, memory, sources, lines):
        if self.hold is not None:
            await self.hold.wait()
        if self.faults:
            self.faults -= 1
            raise BackendUnavailable("down", diagnostics={"status": 503})
        said = [line.text for line in lines]
        self.calls.append(said)
        kept = [memory, *said] if self.keeps else []
        return Draft("\n".join(filter(None, kept)), f"[entry] {len(said)}")

    async def problem(self):
        return "down" if self.faults else None

    async def aclose(self):
        self.closed = True


class Host:
    """A slot over rolling_summary, and short names for what tests do with it."""

    def __init__(self, summariser=None, deadline_s=None, path=None, **options):
        chosen = RollingSummaryOptions(**options)
        self.summariser = summariser or ExtractiveSummariser(chosen.max_tokens, COUNTER)
        write_s = math.inf if deadline_s is None else deadline_s
        store = SqliteStore(path and path / "memslot.db")
        self.adapter = RollingSummary("rolling_summary", chosen, self.summariser, COUNTER, write_s, store)
        self.slot = MemorySlot(self.adapter)

    async def __aenter__(self):
        for scope in (ALICE, BOB):
            await self.slot.setup_scope(scope)
        return self

    async def __aexit__(self, *_):
        await self.slot.aclose()

    async def write(self, *events):
        return [await self.slot.record_event(event) for event in events]

    async def ready(self, scope=ALICE, timeout_s=5):
        readiness = self.slot.capability(SupportsReadiness)
        return await readiness.wait_until_ready(scope, timeout_s)

    async def state(self, scope=ALICE):
        readiness = self.slot.capability(SupportsReadiness)
        return await readiness.readiness(scope)

    async def ask(self, scope=ALICE, budget=None):
        return await self.slot.retrieve(
            RetrieveRequest(query="?", scope=scope, session_id="t", budget=budget or ContextBudget())
        )

    async def native(self, operation, scope=ALICE):
        query = self.slot.capability(SupportsNativeQuery)
        return (await query.native_query(NativeQueryRequest(scope=scope, operation=operation))).raw
