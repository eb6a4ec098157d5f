"""Closing: once, to its end, whoever fails or cancels; nothing under way is torn off, nothing is left behind."""

import threading

import anyio
import anyio.lowlevel
import pytest
from everything_support import ALICE, NAMES, Everything, calls
from slot_support import ask, event

from memory import BackendError, BackendTimeout, Deadlines, LifecycleError, MemorySlot
from memory.adapter import BackendAuthError, NativeWorker, release


class Closable(Everything):
    """Takes two steps to close; ``problems`` are raised between the two."""

    def __init__(self, **traits):
        super().__init__(**traits)
        self.begun = 0
        self.problems = []
        self.hold = None

    async def aclose(self):
        self.begun += 1
        await anyio.sleep(0.005)
        if self.hold is not None:
            await self.hold.wait()
        if self.problems:
            raise self.problems.pop(0)
        self.closed += 1


async def open_slot(adapter, **fields):
    slot = MemorySlot(adapter, **fields)
    await slot.setup_scope(ALICE)
    return slot


async def test_why_it_could_not_be_opened_is_told_though_closing_fails_as_well():
    class Refuses(Closable):
        async def native(self, name):
            raise BackendAuthError("no key")

    adapter = Refuses()
    adapter.problems = [OSError("closing")]
    with pytest.raises(BackendAuthError, match="no key"):
        async with MemorySlot(adapter, scope=ALICE):
            raise AssertionError("it was opened")
    assert adapter.begun == 1


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_cancelled_closing_goes_on_to_its_end(when):
    adapter = Closable()
    slot = await open_slot(adapter)
    with anyio.CancelScope() as scope:
        if when == "before":
            scope.cancel()
        else:
            scope.deadline = anyio.current_time() + 0.001
        await slot.aclose()
    assert (adapter.begun, adapter.closed) == (1, 1)


async def test_a_host_that_is_cancelled_leaves_no_open_adapter():
    adapter = Closable()
    with anyio.move_on_after(0.02):
        async with MemorySlot(adapter, scope=ALICE):
            await anyio.sleep_forever()
    assert adapter.closed == 1


async def test_a_second_closer_waits_for_the_first():
    adapter, ended = Closable(), []
    adapter.hold = anyio.Event()
    slot = await open_slot(adapter)

    async def close(name):
        await slot.aclose()
        ended.append((name, adapter.closed))

    async with anyio.create_task_group() as group:
        group.start_soon(close, 1)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(close, 2)
        await anyio.wait_all_tasks_blocked()
        await anyio.sleep(0.02)
        assert ended == []
        adapter.hold.set()
    assert sorted(ended) == [(1, 1), (2, 1)]
    assert adapter.begun == 1


async def test_a_closing_that_failed_is_tried_again_and_lets_no_call_in():
    adapter = Closable()
    adapter.problems = [RuntimeError("secret"), OSError("secret")]
    slot = await open_slot(adapter)
    for kind in ("RuntimeError", "OSError"):
        with pytest.raises(BackendError, match=f"aclose failed .*{kind}") as raised:
            await slot.aclose()
        assert "secret" not in str(raised.value)
        for name in NAMES:
            with pytest.raises(LifecycleError, match="closed"):
                await calls(slot)[name]()
    await slot.aclose()
    await slot.aclose()
    assert (adapter.begun, adapter.closed) == (3, 1)


async def test_a_closing_that_hangs_is_given_up_at_its_deadline():
    adapter = Closable()
    adapter.hold = anyio.Event()
    slot = await open_slot(adapter, deadlines=Deadlines(close_s=0.3))
    with pytest.raises(BackendTimeout, match=r"aclose did not end within 0\.3 s") as raised:
        await slot.aclose()
    assert raised.value.ambiguous, "it goes on"
    adapter.hold.set()
    slot._calls.deadlines = Deadlines()
    await slot.aclose()
    assert adapter.closed == 1


@pytest.mark.parametrize("name", NAMES)
async def test_what_is_under_way_ends_before_the_adapter_is_released(name):
    adapter, order, go_on = Closable(), [], anyio.Event()
    slot = await open_slot(adapter)

    async def native(_):
        await go_on.wait()
        order.append(f"call ended, {adapter.begun} closings begun")

    adapter.native = native
    async with anyio.create_task_group() as group:
        group.start_soon(calls(slot)[name])
        await anyio.wait_all_tasks_blocked()
        group.start_soon(slot.aclose)
        await anyio.sleep(0.02)
        go_on.set()
    assert order == ["call ended, 0 closings begun"]
    assert adapter.closed == 1


async def test_what_still_waits_when_the_adapter_is_released_never_reaches_it():
    adapter = Closable(max_concurrency=1)
    slot = await open_slot(adapter, deadlines=Deadlines(close_s=0.3))
    seen, errors, go_on = [], [], anyio.Event()

    async def native(name):
        seen.append(name)
        await go_on.wait()

    async def waits(call):
        try:
            await call()
        except LifecycleError as error:
            errors.append(str(error))

    adapter.native = native
    async with anyio.create_task_group() as group:
        group.start_soon(slot.retrieve, ask())
        await anyio.wait_all_tasks_blocked()
        group.start_soon(waits, lambda: slot.record_event(event()))
        group.start_soon(waits, lambda: slot.retrieve(ask()))
        group.start_soon(waits, slot.health)
        await anyio.wait_all_tasks_blocked()
        await slot.aclose()
        go_on.set()
    assert seen == ["retrieve"]
    assert len(errors) == 3
    assert "nothing was sent" in errors[0]


async def test_every_step_is_taken_and_the_first_error_told():
    taken = []

    def step(name, error=None):
        async def take():
            await anyio.lowlevel.checkpoint()
            taken.append(name)
            if error is not None:
                raise error

        return take

    with anyio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(ZeroDivisionError):
            await release(step("a", ZeroDivisionError()), step("b", KeyError()), step("c"))
    assert taken == ["a", "b", "c"]


async def test_the_last_call_of_a_worker_runs_after_one_that_hung_past_the_closing():
    worker, begun, go_on, ran = NativeWorker(name="memslot-hung"), threading.Event(), threading.Event(), []

    def hang():
        begun.set()
        go_on.wait(60)

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, hang)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    assert not await worker.aclose(lambda: ran.append("closed"), timeout_s=0.02)
    assert ran == []
    (thread,) = (each for each in threading.enumerate() if each.name.startswith("memslot-hung"))
    go_on.set()
    thread.join(60)
    assert ran == ["closed"]
