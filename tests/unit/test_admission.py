"""A native call's place among others: what it holds, gives back, and says of having been sent."""

import anyio
import pytest
from slot_support import ALICE, Obedient, event, given_up

from memory import BackendTimeout, Deadlines, MemorySlot, WriteReceipt
from memory.adapter import NativeWorker, ShieldedCalls, yield_turn
from memory.contract.admission import Admission, LlmUse, awaiting_turn, count_llm_call


async def run(admission, call):
    with admission.active():
        return await call()


async def test_a_call_given_up_while_it_waits_for_its_second_place_gives_the_first_back():
    scope, everywhere = anyio.Semaphore(1), anyio.Semaphore(0)
    admission = Admission([scope, everywhere])
    await given_up(admission.enter)
    assert scope.value == 1
    assert not admission.leave()
    everywhere.release()
    await admission.enter()
    assert (scope.value, everywhere.value) == (0, 0)


async def test_places_are_given_back_once():
    limit = anyio.Semaphore(1)
    admission = Admission([limit])
    await admission.enter()
    assert admission.leave()
    assert not admission.leave()
    assert limit.value == 1


async def test_a_call_is_the_current_one_while_it_is_made_and_no_longer():
    outer, inner = Admission(), Admission()

    async def call():
        assert Admission.current() is inner

    async def around():
        await run(inner, call)
        assert Admission.current() is outer

    await run(outer, around)
    assert Admission.current() not in (outer, inner)


def test_answers_of_a_model_are_counted_for_the_call_they_belong_to_alone():
    outer, inner = LlmUse(), LlmUse()
    with outer.counting():
        with inner.counting():
            count_llm_call(3)
            count_llm_call(4)
        count_llm_call(None)
        count_llm_call(5)
    count_llm_call(6)
    assert inner == LlmUse(2, 7)
    assert outer == LlmUse(2, None)


async def test_a_pause_lends_its_place_and_has_it_back_after():
    limit, seen = anyio.Semaphore(1), []
    admission = Admission([limit])
    await admission.enter()

    async def other():
        async with limit:
            seen.append("other")

    async def call():
        await yield_turn(0.005)
        seen.append(limit.value)

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await run(admission, call)
    assert seen == ["other", 0]
    assert admission.leave()


async def test_a_pause_without_a_place_takes_none():
    limit = anyio.Semaphore(1)
    await run(Admission([limit]), lambda: yield_turn(0))
    assert limit.value == 1


async def test_what_was_given_up_in_a_queue_was_sent_only_if_something_had_begun():
    first, second = Admission(), Admission()

    async def wait():
        with awaiting_turn():
            await anyio.sleep_forever()

    async def begin_then_wait():
        with awaiting_turn():
            pass
        await wait()

    async def wait_twice():
        with awaiting_turn(last=False):
            pass
        await wait()

    third = Admission()
    for admission, call in ((first, wait), (second, begin_then_wait), (third, wait_twice)):
        await given_up(run, admission, call)
    assert (first.sent, second.sent, third.sent) == (False, True, False)


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


async def test_a_write_given_up_before_its_only_native_call_is_not_stored():
    adapter = TwoCalls("shielded")
    slot = MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(write_s=0.3))
    async with slot, anyio.create_task_group() as group:
        group.start_soon(adapter.shielded.run, "first", adapter.hold)
        await adapter.holding.wait()
        with pytest.raises(BackendTimeout) as raised:
            await slot.record_event(event())
        adapter.go_on.set()
    assert not raised.value.ambiguous
    assert adapter.rows == []
