"""An adapter that does as it is told, for tests of the slot's own rules."""

import anyio
import anyio.lowlevel
from said import said

from memory import (
    BackendHealth,
    Deadlines,
    MemoryScope,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import AdapterTraits, BaseAdapter, ContextEntry, ResetReceipt

ALICE = MemoryScope(run_id="r", persona_id="alice")
BOB = MemoryScope(run_id="r", persona_id="bob")
QUICK = Deadlines(write_s=0.05, retrieve_s=0.05, health_s=0.05, query_s=0.05, close_s=1.0)


class Obedient(BaseAdapter):
    """Stores rows in a list; ``next_write`` and ``next_read`` are raised, awaited or answered first."""

    backend_name = "obedient"

    def __init__(self, **traits):
        self.traits = AdapterTraits(**traits)
        self.rows = []
        self.calls = []
        self.next_write = []
        self.next_read = []
        self.closed = 0

    def native_scope(self, scope):
        return {"id": scope.label}

    async def _obey(self, orders):
        if orders:
            order = orders.pop(0)
            if isinstance(order, BaseException):
                raise order
            await order()

    async def record_event(self, event):
        self.calls.append(event.event_id)
        await self._obey(self.next_write)
        self.rows.append(event)
        return WriteReceipt(
            event_id=event.event_id,
            status="committed",
            native_ids=(f"n-{event.event_id}",),
            trace=self.trace(event.scope, "rows.append"),
        )

    async def retrieve(self, request):
        await self._obey(self.next_read)
        entries = tuple(
            ContextEntry(message.content, native_id=event.event_id, scope_ids={"id": event.scope.label})
            for event in self.rows
            if event.scope == request.scope
            for message in event.messages
        )
        return RetrieveResult(
            request=request,
            raw={"rows": len(entries)},
            entries=entries,
            trace=self.trace(request.scope, "rows.list"),
        )

    async def reset_scope(self, scope):
        self.rows = [event for event in self.rows if event.scope != scope]
        return ResetReceipt(scope=scope, verified=True)

    async def health(self):
        await self._obey(self.next_read)
        return BackendHealth(status="ok", backend_name="obedient", consistency_model="immediate")

    async def aclose(self):
        self.closed += 1


class Lookup(Obedient):
    found = None

    async def find_event(self, event):
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


class Sink(list):
    emit = list.append


def event(number=1, scope=ALICE, text="hello"):
    return said(scope, text, number=number, session_id="s", turn_id=str(number))


def ask(scope=ALICE, **fields):
    return RetrieveRequest(query="q", scope=scope, session_id="s", **fields)


async def forever():
    await anyio.sleep_forever()
