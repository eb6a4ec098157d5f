"""Sending events: the receipt is true whatever the backend does, and none is lost, however the call ends."""

import json
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest
from journals import keep, open_journal
from slot_support import ALICE, BOB, QUICK, Lookup, Obedient, Sink, ask, event

from memory import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Deadlines,
    InputError,
    MemorySlot,
    ScopeError,
    SupportsBulkIngest,
    WriteReceipt,
)
from memory.adapter import BackendProtocolError, NativeWorker, SequentialBulk, ShieldedCalls


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
        self.batches.append([event.event_id for event in events])
        self.rows.extend(events[: self.stores])
        await self._obey(self.next_write)
        return [WriteReceipt(event_id=event.event_id, status="committed") for event in events]

    async def find_event(self, event):
        await self._obey(self.lookups)
        return (f"n-{event.event_id}",) if event in self.rows else None


async def go_on():
    await anyio.lowlevel.checkpoint()


def answered(status):
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(status, request=request))


AMBIGUOUS = [
    *map(answered, (408, 500, 502, 503, 504)),
    ConnectionResetError("lost"),
    httpx.ReadTimeout("late"),
    json.JSONDecodeError("an answer that is none", "", 0),
    BackendProtocolError("an answer of another shape"),
    KeyError("id"),
    ValueError("nobody foresaw"),
    RuntimeError("nobody foresaw"),
]
REFUSED = [*map(answered, (400, 401, 403, 404, 409, 422, 429)), ConnectionRefusedError("nobody listens")]


@pytest.mark.parametrize("failure", AMBIGUOUS, ids=repr)
async def test_a_write_that_may_be_stored_is_looked_up_else_unknown(failure):
    blind, seeing, forgetful = Obedient(), Lookup(), Lookup()
    seeing.found = ("n1",)
    for adapter, status in ((blind, "unknown"), (seeing, "committed"), (forgetful, "unknown")):
        adapter.next_write = [failure]
        async with MemorySlot(adapter, scope=ALICE) as slot:
            receipt = await slot.record_event(event())
        assert receipt.status == status
        assert receipt.warnings
        assert adapter.calls == ["e1"], "nothing is sent again"


@pytest.mark.parametrize("consistency", ["eventual", "async_derived"])
async def test_what_is_found_is_no_more_than_queued_where_memories_are_derived_from_it(consistency):
    """Its row is there, which says nothing of what a model makes of it, nor of what is read now."""
    adapter = Lookup(consistency=consistency)
    adapter.found = ("n1",)
    adapter.next_write = [ConnectionResetError("lost")]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        receipt = await slot.record_event(event())
        assert (await slot.retrieve(ask())).trace.consistency == "pending"
    assert receipt.status == "queued"
    assert receipt.native_ids == ("n1",)


@pytest.mark.parametrize("failure", REFUSED, ids=repr)
async def test_a_write_that_is_certainly_not_stored_raises(failure):
    adapter = Lookup(write_retries=2)
    adapter.found = BaseException("is not asked")
    adapter.next_write = [failure]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        with pytest.raises(BackendError) as raised:
            await slot.record_event(event())
    assert not raised.value.ambiguous
    assert adapter.calls == ["e1"]


@pytest.mark.parametrize("again", [*REFUSED, InputError("x: no"), ScopeError("x: no")], ids=repr)
@pytest.mark.parametrize("kind", [Obedient, Lookup])
async def test_what_a_retry_says_does_not_undo_that_the_first_was_sent(kind, again):
    adapter = kind(write_retries=3)
    adapter.next_write = [ConnectionResetError("lost"), again]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        receipt = await slot.record_event(event())
        assert (receipt.status, receipt.trace.attempts) == ("unknown", 2)
        assert "ConnectionResetError" in receipt.warnings[0]
        assert (await slot.health()).details["slot"]["unknown_writes"] == 1
    assert adapter.calls == ["e1", "e1"], "a refusal is not tried again"


def wrong_receipts():
    yield lambda event: None
    yield lambda event: WriteReceipt(event_id="another", status="committed")
    yield lambda event: WriteReceipt(event_id=event.event_id, status="stored")
    yield lambda event: WriteReceipt(event_id=event.event_id, status="committed", native_ids=(1,))


@pytest.mark.parametrize("receipt", list(wrong_receipts()))
async def test_a_receipt_that_is_none_says_nothing_of_the_write(receipt):
    class Odd(Obedient):
        async def record_event(self, event):
            await super().record_event(event)
            return receipt(event)

    async with MemorySlot(Odd(), scope=ALICE) as slot:
        returned = await slot.record_event(event())
    assert returned.status == "unknown"
    assert "BackendProtocolError" not in returned.warnings[0], "a warning is a sentence"


def bulk_of(slot):
    return slot.capability(SupportsBulkIngest).record_events


def ids(receipts):
    return [receipt.event_id for receipt in receipts]


async def test_events_go_out_as_many_at_a_time_as_declared():
    adapter = Batches(bulk_size=2)
    async with MemorySlot(adapter, scope=ALICE) as slot:
        receipts = await bulk_of(slot)([event(number) for number in range(5)])
        assert await bulk_of(slot)([]) == []
    assert adapter.batches == [["e0", "e1"], ["e2", "e3"], ["e4"]]
    assert ids(receipts) == ["e0", "e1", "e2", "e3", "e4"]


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
    assert [receipt.native_ids for receipt in receipts[:4]] == [("n-e0",), ("n-e1",), ("n-e2",), ("n-e3",)]
    assert all("look-up" in receipt.warnings[0] for receipt in receipts[:4])
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
        receipts = await bulk_of(slot)([event(number) for number in range(9)])
    assert ids(receipts) == [f"e{number}" for number in range(9)]
    assert adapter.batches[2:] == [["e5", "e6", "e7"], ["e8"]], "only what is missing is sent again"


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


class Outlasting(Obedient):
    """Writes as a native call that ends after its deadline, and can be asked for what it stored."""

    def __init__(self, way):
        super().__init__(write_retries=1)
        self.shielded, self.worker, self.way = ShieldedCalls(), NativeWorker(2, "memslot-outlasting"), way
        self.go_on = threading.Event()

    async def record_event(self, event):
        if self.way == "worker":
            await self.worker.run(lambda: self.go_on.wait(60) and self.rows.append(event.event_id))
        else:
            await self.shielded.run("key" if self.way == "keyed" else None, lambda: self.store(event))
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def store(self, event):
        await anyio.to_thread.run_sync(self.go_on.wait, 60)
        self.rows.append(event.event_id)

    async def find_event(self, event):
        return (f"n-{event.event_id}",) if event.event_id in self.rows else None


@pytest.mark.parametrize("way", ["worker", "keyed", "shielded"])
async def test_a_look_up_waits_for_the_write_that_outlasted_its_deadline(way):
    adapter = Outlasting(way)
    async with MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(write_s=0.2)) as slot:
        assert (await slot.record_event(event())).status == "unknown", "the write ends near its deadline"
        slot._calls.deadlines = Deadlines()
        async with anyio.create_task_group() as group:
            group.start_soon(after, 0.05, adapter.go_on.set)
            receipt = await slot.record_event(event())
        assert (receipt.status, receipt.native_ids) == ("committed", ("n-e1",))
        assert adapter.rows == ["e1"], "it was not sent again"


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.thorough) for way in ("worker", "keyed")] + ["shielded"]
)
async def test_a_look_up_of_a_write_that_does_not_end_says_nothing_and_a_later_one_waits_for_it(way):
    adapter = Outlasting(way)
    deadlines = Deadlines(write_s=0.5, query_s=0.5)
    async with MemorySlot(adapter, scope=ALICE, deadlines=deadlines) as slot:
        await slot.setup_scope(BOB)
        assert (await slot.record_event(event())).status == "unknown"
        assert await slot.delivery.find_event(event(scope=BOB)) is None, (
            "another scope's look-up does not wait"
        )
        with pytest.raises(BackendTimeout, match="earlier write"):
            await slot.delivery.find_event(event())
        slot._calls.deadlines = Deadlines()
        async with anyio.create_task_group() as group:
            group.start_soon(after, 0.01, adapter.go_on.set)
            assert await slot.delivery.find_event(event()) == ("n-e1",)


async def after(seconds, act):
    await anyio.sleep(seconds)
    act()


async def test_a_look_up_does_not_wait_for_a_read_that_outlasted_its_deadline():
    """A read changes nothing, and one that hangs would leave every lost write unknown."""

    class Reading(Lookup):
        shielded, go_on, found = ShieldedCalls(), anyio.Event(), ("n",)

        async def retrieve(self, request):
            await self.shielded.run(None, self.go_on.wait)

    adapter = Reading()
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK) as slot:
        with pytest.raises(BackendTimeout):
            await slot.retrieve(ask())
        assert await slot.delivery.find_event(event()) == ("n",)
        adapter.go_on.set()


async def test_what_no_backend_can_keep_is_not_kept_for_it(tmp_path):
    """Acknowledged, it would wait for ever."""

    class Narrow(Obedient):
        def native_scope(self, scope):
            if scope != ALICE:
                raise ScopeError("no such scope here")
            return super().native_scope(scope)

    async with MemorySlot(Narrow(), scope=ALICE) as slot:
        with pytest.raises(ScopeError):
            await slot.delivery.keep(event(1, BOB))
    async with MemorySlot(Narrow(), scope=ALICE, journal=open_journal(tmp_path)) as slot:
        with pytest.raises(ScopeError):
            await slot.delivery.keep(event(1, BOB))
        assert list(slot.delivery.journal.entries()) == []


async def test_a_caller_that_has_given_up_keeps_nothing_in_the_journal(tmp_path):
    """Kept behind its back, an event would be delivered that nobody was told of."""
    with open_journal(tmp_path) as journal:
        with anyio.CancelScope() as given_up:
            given_up.cancel()
            await keep(journal, event(1))
        assert given_up.cancelled_caught
        assert list(journal.entries()) == []
