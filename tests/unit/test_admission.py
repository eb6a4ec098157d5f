"""A native call's place among others: what it holds, gives back, and says of having been sent."""

import anyio
import pytest
from slot_support import ALICE, Obedient, event

from memory import Deadlines, MemorySlot, WriteReceipt
from memory.adapter import NativeWorker, ShieldedCalls


class TwoCalls(Obedient):
    """Makes two native calls for a write; the second finds its queue taken."""

    def __init__(self, queue):
        super().__init__()
        self.shielded, self.worker = ShieldedCalls(), NativeWorker(name="memslot-two-calls")
        self.queue = queue
        self.holding, self.go_on = anyio.Event(), anyio.Event()

    async def hold(self):
        self.holding.set()
        await self.go_on.wait()

    async def record_event(self, event):
        if self.queue == "worker":
            await self.worker.run(lambda: self.rows.append(event))
        else:
            await self.shielded.run("first", self.native)
        await self.shielded.run("second", self.native)
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def native(self):
        self.rows.append("noted")


@pytest.mark.parametrize("queue", ["worker", "shielded"])
async def test_a_write_given_up_between_two_native_calls_may_be_stored(queue):
    adapter = TwoCalls(queue)
    slot = MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(write_s=1.0))
    async with slot, anyio.create_task_group() as group:
        group.start_soon(adapter.shielded.run, "second", adapter.hold)
        await adapter.holding.wait()
        receipt = await slot.record_event(event())
        adapter.go_on.set()
    assert len(adapter.rows) == 1, "the first call was made, the second given up in its queue"
    assert receipt.status == "unknown"
