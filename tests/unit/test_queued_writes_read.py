"""What a retrieval's trace says while writes are only queued: never that it has read them."""

import pytest
from journals import open_journal
from slot_support import ALICE, BOB, Obedient, ask, event

from memory import MemorySlot, SupportsBulkIngest, SupportsReadiness
from memory.adapter import SequentialBulk
from memory.contract.receipts import BackendReadiness
from memory.storage import outbox


class Queueing(SequentialBulk, Obedient):
    """Takes writes in, and says nothing of them when it reads."""

    status, state, claim, during = "queued", "ready", None, None

    async def record_event(self, event):
        if self.status == "down":
            raise ConnectionRefusedError("down")
        receipt = await Obedient.record_event(self, event)
        return receipt.model_copy(update={"status": self.status})

    async def retrieve(self, request):
        result = await super().retrieve(request)
        if self.during is not None:
            await self.during()
        return result.model_copy(
            update={"trace": result.trace.model_copy(update={"consistency": self.claim})}
        )

    async def readiness(self, scope):
        if self.during is not None:
            await self.during()
        return BackendReadiness(state=self.state)

    async def wait_until_ready(self, scope, timeout_s):
        return await self.readiness(scope)


def opened(adapter, **more):
    return MemorySlot(adapter, scope=ALICE, **more)


async def read(slot, scope=ALICE):
    return (await slot.retrieve(ask(scope=scope))).trace.consistency


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("status", ["queued", "pending"])
@pytest.mark.parametrize("wait", [False, True])
async def test_a_read_is_pending_from_a_queued_write_until_the_backend_is_ready(bulk, status, wait):
    adapter = Queueing()
    adapter.status, adapter.state = status, "unknown"
    async with opened(adapter) as slot:
        await slot.setup_scope(BOB)
        readiness = slot.capability(SupportsReadiness)

        async def look():
            await (readiness.wait_until_ready(ALICE, 0.5) if wait else readiness.readiness(ALICE))

        assert await read(slot) is None
        if bulk:
            await slot.capability(SupportsBulkIngest).record_events([event(1)])
        else:
            await slot.record_event(event(1))
        assert (await read(slot), await read(slot, BOB)) == ("pending", None)
        await look()
        assert await read(slot) == "pending"
        adapter.state = "ready"
        await look()
        assert await read(slot) is None


async def test_committed_writes_and_a_reset_leave_nothing_pending():
    adapter = Queueing()
    async with opened(adapter) as slot:
        await slot.record_event(event(1))
        await slot.reset_scope(ALICE)
        assert await read(slot) is None
        adapter.status = "committed"
        await slot.record_event(event(2))
        assert await read(slot) is None


async def test_a_backend_that_knows_better_is_believed():
    adapter = Queueing()
    async with opened(adapter) as slot:
        await slot.record_event(event(1))
        adapter.claim = "committed"
        assert await read(slot) == "committed"


async def test_a_write_while_the_backend_says_ready_stays_pending():
    adapter = Queueing()
    async with opened(adapter) as slot:
        await slot.record_event(event(1))

        async def write():
            adapter.during = None
            await slot.record_event(event(2))

        adapter.during = write
        await slot.capability(SupportsReadiness).readiness(ALICE)
        assert await read(slot) == "pending"


async def test_nothing_is_called_committed_while_the_journal_holds_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.0)
    adapter = Queueing()
    adapter.status, adapter.claim = "down", "committed"
    async with opened(adapter, journal=open_journal(tmp_path)) as slot:
        assert (await slot.record_event(event(1))).status == "queued"
        assert await read(slot) == "pending"
        adapter.status = "committed"

        async def deliver():
            adapter.during = None
            await slot.record_event(event(2))

        adapter.during = deliver  # delivered after the backend has read
        assert await read(slot) == "pending"
        assert len(adapter.rows) == 2
        assert await read(slot) == "committed"
