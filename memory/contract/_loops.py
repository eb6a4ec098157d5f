"""Tells which event loop is running, for the few places where it matters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from anyio.lowlevel import checkpoint as anyio_checkpoint
from anyio.lowlevel import current_token

_tasks: set[Any] = set()


def running_loop() -> object:
    """The running event loop as a comparable object: asyncio's loop or trio's token."""
    asyncio = sys.modules.get("asyncio")  # an import would be a quarter of the cost of importing memory
    try:  # every call asks for it, and this costs a tenth of anyio's answer
        return asyncio.get_running_loop() if asyncio else current_token().native_token
    except RuntimeError:
        return current_token().native_token


def loop_or_none() -> object | None:
    """:func:`running_loop`, or None if no loop runs in this thread."""
    try:
        return running_loop()
    except RuntimeError:
        return None


def on_trio() -> bool:
    return type(running_loop()).__module__.startswith("trio")


def start_task(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` in a task that outlives the task that starts it. ``work`` must let no error out."""
    if on_trio():
        sys.modules["trio"].lowlevel.spawn_system_task(work, context=copy_context())
    else:
        task = sys.modules["asyncio"].ensure_future(work())
        _tasks.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(_tasks.discard)


async def checkpoint() -> None:
    """Let other tasks run, and let a cancellation take effect."""
    if on_trio():
        await anyio_checkpoint()
    else:
        await sys.modules["asyncio"].sleep(0)  # a third of the cost of anyio's checkpoint
