"""Shielded calls: a write that was abandoned still ends before the switch to read-only, and never overtakes."""

import asyncio

import anyio
import pytest
from slot_support import ALICE, Obedient, event, given_up

from memory import AdapterMode, BackendUnavailable, ConfigError, Deadlines, MemorySlot, WriteReceipt
from memory.adapter import BaseAdapter, NativeWorker, ShieldedCalls
from memory.contract import _loops


async def test_results_and_errors_come_back():
    calls = ShieldedCalls()

    async def answer():
        return 42

    async def fail():
        raise ZeroDivisionError

    assert await calls.run("a", answer) == 42
    with pytest.raises(ZeroDivisionError):
        await calls.run("a", fail)
    assert not calls.busy("a")


async def test_a_call_that_was_given_up_goes_on_and_holds_back_the_next_of_its_key():
    calls, seen, go_on = ShieldedCalls(), [], anyio.Event()

    async def slow():
        await go_on.wait()
        seen.append("slow")

    async def remember(name):
        seen.append(name)

    await given_up(calls.run, "a", slow)
    assert calls.busy("a")
    await calls.run("b", lambda: remember("other key"))
    go_on.set()
    await calls.run("a", lambda: remember("next"))
    assert seen == ["other key", "slow", "next"]


async def test_a_call_given_up_while_waiting_never_starts():
    calls, seen, go_on = ShieldedCalls(), [], anyio.Event()

    async def start():
        seen.append("started")

    for call in (go_on.wait, start):
        await given_up(calls.run, "a", call)
    go_on.set()
    await calls.idle()
    await anyio.wait_all_tasks_blocked()
    assert seen == []


def test_a_call_that_the_end_of_the_loop_cut_off_has_not_answered():
    """None in its place would read as what the backend said."""

    async def cut_off():
        calls = ShieldedCalls()
        asking = asyncio.ensure_future(calls.run("a", anyio.sleep_forever))
        await anyio.wait_all_tasks_blocked()
        for task in set(_loops._tasks):
            task.cancel()  # as asyncio.run does with all that is left
        await asking

    with pytest.raises(BackendUnavailable, match="event loop ended"):
        asyncio.run(cut_off())


async def test_in_the_background_one_call_of_a_key_is_under_way():
    calls, begun, end = ShieldedCalls(), [], anyio.Event()

    async def work(name):
        begun.append(name)
        await end.wait()

    for key, name in (("a", "first"), ("a", "second"), ("b", "other")):
        calls.begin(key, lambda name=name: work(name))
    await anyio.wait_all_tasks_blocked()
    assert sorted(begun) == ["first", "other"]
    end.set()
    await calls.idle()
    assert not calls.busy()


class SlowWriter(Obedient):
    """Writes take longer than their deadline, as over HTTP, and are carried out all the same."""

    backend_name = "slow_writer"

    def __init__(self, **traits):
        super().__init__(**traits)
        self.shielded = ShieldedCalls()
        self.stored = []
        self.go_on = anyio.Event()

    async def record_event(self, event):
        async def write():
            await self.go_on.wait()
            self.stored.append(event.event_id)

        await self.shielded.run(event.scope, write)
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def aclose(self):
        await BaseAdapter.aclose(self)


@pytest.mark.parametrize("end", ["switch", "close"])
async def test_switching_and_closing_wait_for_writes_that_were_given_up(end):
    adapter, seen = SlowWriter(), []
    slot = MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(write_s=0.3))

    async def finish():
        await (slot.set_mode(AdapterMode(read_only=True)) if end == "switch" else slot.aclose())
        seen.extend(adapter.stored)

    async with slot:
        assert (await slot.record_event(event())).status == "unknown"
        async with anyio.create_task_group() as group:
            group.start_soon(finish)
            await anyio.wait_all_tasks_blocked()
            assert adapter.stored == []
            adapter.go_on.set()
    assert seen == ["e1"]


async def test_an_adapter_for_asyncio_alone_is_refused_on_trio(anyio_backend):
    slot = MemorySlot(SlowWriter(asyncio_only=True), scope=ALICE)
    if anyio_backend == "asyncio":
        async with slot:
            return
    with pytest.raises(ConfigError, match="slow_writer runs on asyncio only; run the host on asyncio"):
        async with slot:
            pass


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
