"""Sending many events: each call with its own deadline, and no receipt lost, however it ends."""

import anyio
import anyio.lowlevel
import pytest
from slot_support import ALICE, BOB, QUICK, Obedient, Sink, anyio_backend, event

from memory import (
    BackendTimeout,
    BackendUnavailable,
    InputError,
    MemorySlot,
    SupportsBulkIngest,
    WriteReceipt,
)
from memory.adapter import SequentialBulk

__all__ = ["anyio_backend"]  # fixtures

pytestmark = pytest.mark.anyio


class OneByOne(SequentialBulk, Obedient):
    async def record_event(self, event):
        return await Obedient.record_event(self, event)


class Batches(Obedient):
    """Stores ``stores`` events of a batch, then does as told; what it has stored can be looked up."""

    def __init__(self, **traits):
        super().__init__(**traits)
        self.batches = []
        self.stores = 1_000
        self.lookups = []

    async def record_events(self, events):
        self.batches.append([one.event_id for one in events])
        self.rows.extend(events[: self.stores])
        await self._obey(self.next_write)
        return [WriteReceipt(event_id=one.event_id, status="committed") for one in events]

    async def find_event(self, event):
        await self._obey(self.lookups)
        return (f"n-{event.event_id}",) if event in self.rows else None


async def go_on():
    await anyio.lowlevel.checkpoint()


def bulk_of(slot):
    return slot.capability(SupportsBulkIngest).record_events


def ids(receipts):
    return [one.event_id for one in receipts]


async def test_events_go_out_as_many_at_a_time_as_declared():
    adapter = Batches(bulk_size=2)
    async with MemorySlot(adapter, scope=ALICE) as slot:
        receipts = await bulk_of(slot)([event(number) for number in range(5)])
        assert await bulk_of(slot)([]) == []
    assert adapter.batches == [["e0", "e1"], ["e2", "e3"], ["e4"]]
    assert ids(receipts) == ["e0", "e1", "e2", "e3", "e4"]


@pytest.mark.parametrize("size", [0, -1])
async def test_a_size_that_would_send_nothing_is_refused(size):
    with pytest.raises(InputError, match=r"AdapterTraits\.bulk_size"):
        Batches(bulk_size=size)


async def test_a_late_bulk_write_keeps_the_receipts_of_what_was_written():
    adapter = OneByOne(bulk_size=1)
    adapter.next_write = [go_on, anyio.sleep_forever]
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK) as slot:
        with pytest.raises(BackendTimeout) as raised:
            await bulk_of(slot)([event(number) for number in range(4)])
    assert ids(raised.value.receipts) == ["e0"]
    assert adapter.calls == ["e0", "e1"]


async def test_a_batch_without_an_answer_that_is_stored_goes_as_written():
    adapter, sink = Batches(bulk_size=2), Sink()
    adapter.next_write = [anyio.sleep_forever, ConnectionResetError("lost")]
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK, trace_sink=sink) as slot:
        receipts = await bulk_of(slot)([event(number) for number in range(5)])
    assert adapter.batches == [["e0", "e1"], ["e2", "e3"], ["e4"]], "nothing is sent twice"
    assert [one.native_ids for one in receipts[:4]] == [("n-e0",), ("n-e1",), ("n-e2",), ("n-e3",)]
    assert all("look-up" in one.warnings[0] for one in receipts[:4])
    assert not receipts[4].warnings
    assert sink[-1].native_ids == ("n-e0", "n-e1", "n-e2", "n-e3")


async def test_a_batch_without_an_answer_that_is_stored_in_part_is_an_error_that_says_so():
    adapter = Batches(bulk_size=3)
    adapter.stores = 2
    adapter.next_write = [go_on, anyio.sleep_forever]
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK) as slot:
        with pytest.raises(BackendTimeout) as raised:
            await bulk_of(slot)([event(number) for number in range(9)])
    assert ids(raised.value.receipts) == ["e0", "e1", "e2", "e3", "e4"]
    assert adapter.batches == [["e0", "e1", "e2"], ["e3", "e4", "e5"]]


@pytest.mark.parametrize("failure", [ConnectionRefusedError("never sent"), ConnectionResetError("lost")])
async def test_only_a_lost_answer_is_looked_up_and_a_failing_look_up_claims_nothing(failure):
    adapter = Batches()
    adapter.next_write = [failure]
    adapter.lookups = [go_on, ConnectionResetError("lost too")]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        with pytest.raises(BackendUnavailable) as raised:
            await bulk_of(slot)([event(number) for number in range(3)])
    never_sent = isinstance(failure, ConnectionRefusedError)
    assert ids(raised.value.receipts) == ([] if never_sent else ["e0"])
    assert len(adapter.lookups) == (2 if never_sent else 0)


async def test_an_event_that_is_refused_costs_no_receipt_of_those_before_it():
    adapter = OneByOne()
    adapter.next_write = [go_on, go_on, InputError("metadata: too deep")]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        await slot.setup_scope(BOB)
        with pytest.raises(InputError, match="too deep") as raised:
            await bulk_of(slot)([event(0, BOB), event(1), event(2)])
    assert ids(raised.value.receipts) == ["e0", "e1"]
    assert InputError("another").receipts == ()


class Box:
    def __init__(self):
        self.kept, self.settled = [], []

    async def append(self, one):
        self.kept.append(one.event_id)

    async def reconcile(self, receipt):
        self.settled.append(receipt.event_id)


@pytest.mark.parametrize("bulk_size", [1, None])
async def test_the_outbox_forgets_what_a_failed_bulk_write_has_stored(bulk_size):
    adapter, box = OneByOne(bulk_size=bulk_size), Box()
    adapter.next_write = [go_on, go_on, ConnectionRefusedError("x")]
    async with MemorySlot(adapter, scope=ALICE, outbox=box) as slot:
        assert (await slot.health()).details["slot"]["last_write_at"] is None
        with pytest.raises(BackendUnavailable):
            await bulk_of(slot)([event(number) for number in range(4)])
        assert (await slot.health()).details["slot"]["last_write_at"] is not None
    assert box.kept == ["e0", "e1", "e2", "e3"]
    assert box.settled == ["e0", "e1"]
