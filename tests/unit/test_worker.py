"""The native worker: one call at a time where one is allowed, even when a caller has abandoned."""

import threading
import time

import anyio
import pytest

from memory import BackendUnavailable
from memory.adapter import NativeWorker
from memory.contract.admission import Admission


async def test_results_and_errors_come_back():
    worker = NativeWorker()
    assert await worker.run(lambda: 41 + 1) == 42
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 / 0)
    assert await worker.aclose()


async def test_an_sdk_may_run_an_event_loop_of_its_own():
    """A call runs in its caller's context, but no event loop runs in its thread."""

    async def native():
        await anyio.sleep(0.001)
        return 42

    worker = NativeWorker()
    for backend in ("asyncio", "trio"):
        assert await worker.run(lambda: anyio.run(native, backend=backend)) == 42  # noqa: B023
    await worker.aclose()


async def test_an_abandoned_call_keeps_its_worker():
    worker = NativeWorker()
    begun, go_on, order = threading.Event(), threading.Event(), []
    admission = Admission()
    admission.dropped = True  # another part of the call, which never had its turn

    def abandoned():
        begun.set()
        order.append("begun")
        go_on.wait(60)
        order.append("ended")

    async with anyio.create_task_group() as group:
        with admission.active():
            group.start_soon(worker.run, abandoned)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    assert (admission.sent, admission.over) == (True, False)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, lambda: order.append("next"))
        await anyio.sleep(0.02)  # time to begin, were its worker free
        go_on.set()
    assert order == ["begun", "ended", "next"]
    await worker.aclose()


async def test_a_call_given_up_while_waiting_never_runs():
    worker = NativeWorker()
    ran = []
    release = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, release.wait)
        await anyio.sleep(0.01)
        given_up = Admission()
        with anyio.move_on_after(0.01), given_up.active():
            await worker.run(lambda: ran.append(1))
        assert (given_up.sent, given_up.over) == (False, True), "the write it was for may go again"
        release.set()
    await worker.idle()
    assert ran == []
    await worker.aclose()


async def abandoned_call(worker, order):
    """A call whose caller is gone, and that goes on until the event is set; then it is in ``order`` as ended."""
    begun, go_on = threading.Event(), threading.Event()

    def call():
        begun.set()
        go_on.wait(60)
        order.append("ended")

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, call)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    return go_on


async def test_closing_leaves_no_thread_and_refuses_calls():
    worker = NativeWorker(threads=3, name="leaktest")
    daemon = await worker.run(lambda: threading.current_thread().daemon)
    assert await worker.aclose()
    assert await worker.aclose()
    assert daemon, "a call that hangs holds up no exit"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("leaktest")]
    with pytest.raises(BackendUnavailable, match="closed"):
        await worker.run(int)


async def test_the_last_call_runs_once_and_on_the_worker():
    worker = NativeWorker(name="lasttest")
    ran = []
    begun = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, lambda: (begun.set(), time.sleep(0.03), ran.append("abandoned")))
        while not begun.is_set():  # noqa: ASYNC110 (set on the worker)
            await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    assert await worker.aclose(lambda: ran.append(threading.current_thread().name))
    assert await worker.aclose(lambda: ran.append("again"))
    assert ran == ["abandoned", "lasttest-0"]


async def test_a_failing_last_call_still_ends_the_threads():
    worker = NativeWorker(name="lasttest")
    with pytest.raises(ZeroDivisionError):
        await worker.aclose(lambda: 1 / 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lasttest")]


async def test_a_closer_that_is_cancelled_closes_all_the_same():
    """Else a client is left open, or closed under a call that still uses it."""
    worker = NativeWorker()
    order = []
    go_on = await abandoned_call(worker, order)
    threading.Timer(0.02, go_on.set).start()
    with anyio.CancelScope() as cancelled:
        cancelled.cancel()
        assert await worker.aclose(lambda: order.append("closed"))
        order.append("returned")
    assert order == ["ended", "closed", "returned"]


async def test_a_call_of_a_closed_worker_was_never_sent():
    """Else a write refused by an adapter that is closed would be "unknown", and looked up in vain."""
    worker = NativeWorker(name="memslot-test")
    await worker.aclose()
    with pytest.raises(BackendUnavailable) as caught:
        await worker.run(lambda: 1)
    assert not caught.value.ambiguous
