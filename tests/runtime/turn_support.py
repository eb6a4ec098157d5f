"""A memory that is slow, fails or hangs on demand, for tests of what hosts do with one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel

from memory import (
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    Message,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import AdapterTraits, BaseAdapter, ContextEntry, ResetReceipt

ADA, BOB = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="bob")
Order = Exception | Callable[[], Awaitable[None]] | None


class Moody(BaseAdapter):
    """Keeps events in a list. ``writes``, ``reads`` and ``set_ups`` say what the next calls meet; once they are
    used up, calls succeed, or meet ``always``.
    """

    backend_name = "moody"
    traits = AdapterTraits()

    def __init__(self) -> None:
        self.rows: list[MemoryEvent] = []
        self.tried: list[str] = []
        self.asked = 0
        self.set_up: list[str] = []
        self.writes: list[Order] = []
        self.reads: list[Order] = []
        self.set_ups: list[Order] = []
        self.always: Order = None

    def native_scope(self, scope: MemoryScope) -> dict[str, str]:
        return {"id": scope.label}

    async def _meet(self, orders: list[Order]) -> None:
        await anyio.lowlevel.checkpoint()
        order = orders.pop(0) if orders else self.always
        if isinstance(order, Exception):
            raise order
        if order is not None:
            await order()

    async def setup_scope(self, scope: MemoryScope) -> None:
        await self._meet(self.set_ups)
        self.set_up.append(scope.persona_id)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        self.tried.append(event.event_id)
        await self._meet(self.writes)
        self.rows.append(event)
        return WriteReceipt(event_id=event.event_id, status="committed", native_ids=(event.event_id,))

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        self.asked += 1
        await self._meet(self.reads)
        entries = tuple(
            ContextEntry(one.content, session_id=row.session_id, scope_ids={"id": row.scope.label})
            for row in self.rows
            if row.scope == request.scope
            for one in row.messages
        )
        return RetrieveResult(
            request=request,
            raw={"rows": len(entries)},
            entries=entries,
            trace=self.trace(request.scope, "rows.list"),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        self.rows = [one for one in self.rows if one.scope != scope]
        return ResetReceipt(scope=scope, verified=True)

    async def health(self) -> BackendHealth:
        return BackendHealth(status="ok", backend_name="moody", consistency_model="immediate")


class Sink(list[Any]):
    emit = list.append


def event(number: int, scope: MemoryScope = ADA, session: str = "s") -> MemoryEvent:
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=session,
        turn_id=str(number),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        messages=(Message(role="user", content=f"fact {number}"),),
    )


async def until(true: Callable[[], bool]) -> None:
    """Let others run until something holds; a test that never gets there fails by this limit."""
    with anyio.fail_after(30):
        while not true():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def forever() -> None:
    await anyio.sleep_forever()
