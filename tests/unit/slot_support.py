"""An adapter that does as it is told, for tests of the slot's own rules."""

import anyio
import anyio.lowlevel
from said import said
from waits import given_up as given_up
from waits import until as until

from memory import (
    BackendHealth,
    Deadlines,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import HTTPX_ERRORS, AdapterTraits, BaseAdapter, ContextEntry

ALICE = MemoryScope(run_id="r", persona_id="alice")
BOB = MemoryScope(run_id="r", persona_id="bob")
# What is to hang hangs until then; what is to answer has this long, also on a busy machine.
QUICK = Deadlines(write_s=0.3, retrieve_s=0.3, health_s=0.3, query_s=0.3, close_s=5.0)


class Obedient(BaseAdapter):
    """Stores rows in a list. What ``next_write``, ``next_read`` and ``next_setup`` hold is raised or awaited first,
    one for each call; then ``always``, where there is one.
    """

    backend_name = "obedient"
    names_sessions = False

    def __init__(self, **traits):
        self.traits = AdapterTraits(errors=HTTPX_ERRORS, **traits)
        self.rows = []
        self.calls = []
        self.next_write = []
        self.next_read = []
        self.next_setup = []
        self.always = None
        self.set_up = []
        self.asked = self.closed = 0

    def native_scope(self, scope):
        return {"id": scope.label}

    async def _obey(self, orders):
        order = orders.pop(0) if orders else self.always
        if isinstance(order, BaseException):
            raise order
        if order is not None:
            await order()

    async def setup_scope(self, scope):
        await self._obey(self.next_setup)
        self.set_up.append(scope.persona_id)

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
        self.asked += 1
        await self._obey(self.next_read)
        entries = tuple(
            ContextEntry(
                message.content,
                native_id=event.event_id,
                session_id=event.session_id if self.names_sessions else None,
                scope_ids={"id": event.scope.label},
            )
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
