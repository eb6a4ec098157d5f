"""Waiting for facts, where waiting a while would race with a busy machine."""

import asyncio
import threading
from contextlib import contextmanager

import anyio

MAX_WAIT_S = 60.0
_HELD_S = 3600.0


async def until(true):
    """Let others run until something holds; a test that never gets there fails by this limit."""
    with anyio.fail_after(MAX_WAIT_S):
        while not true():  # noqa: ASYNC110 (of another thread, too)
            await anyio.sleep(0.001)


async def given_up(call, *arguments):
    """Make a call and, once it can only wait, give it up."""
    async with anyio.create_task_group() as group:
        group.start_soon(call, *arguments)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


def past(deadline_s):
    """For a native call on a thread: returns once the calling asyncio loop has seen its deadline pass."""
    loop, passed = asyncio.get_running_loop(), threading.Event()

    def wait():
        loop.call_soon_threadsafe(loop.call_later, deadline_s + 0.2, passed.set)
        assert passed.wait(MAX_WAIT_S)

    return wait


@contextmanager
def held(server, endpoint):
    """The next request of an endpoint is carried out; its answer leaves the server once the event is set."""
    go_on, native, faults = threading.Event(), server.sleep, vars(server)["faults"]

    def sleep(seconds):
        if seconds == _HELD_S:
            assert go_on.wait(2 * MAX_WAIT_S), "nobody let the answer go"
        else:
            native(seconds)

    server.sleep = sleep
    faults.add("late", endpoint=endpoint, delay_s=_HELD_S)
    try:
        yield go_on
    finally:
        go_on.set()
