"""Signals: they end a server with time for what comes after it, and an answer without ending the chat."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

if TYPE_CHECKING:
    import uvicorn


def stop_at_signals(
    running: uvicorn.Server, leave_s: float = 0.0, leaving: Callable[[], None] = lambda: None
) -> None:
    """Let SIGTERM and SIGINT end a server, and nothing else. For the main thread; elsewhere this does nothing.

    Args:
        running: the server.
        leave_s: seconds it goes on answering; a second signal ends it at once.
        leaving: called at the first signal.

    uvicorn's own handler raises the signal that ended it again, which would end the process before its writes are
    sent; and one that comes before uvicorn listens for it would end the process, too.
    """

    first = True

    def stop() -> None:
        running.should_exit = True

    def end(number: int, _: object) -> None:
        nonlocal first
        leaving()
        if first and leave_s:
            later = threading.Timer(leave_s, stop)
            later.daemon = True
            later.start()
        else:
            running.force_exit = running.should_exit and number == signal.SIGINT
            stop()
        first = False

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        running.handle_exit = end  # type: ignore[assignment, method-assign]


@asynccontextmanager
async def cancelled_at_interrupt(wanted: bool = True) -> AsyncIterator[anyio.CancelScope]:
    """What is done inside is cancelled by SIGINT, which then ends nothing else. For the main thread alone."""
    with anyio.CancelScope() as scope:
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield scope
            return

        async def watch(*, task_status: TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                task_status.started()
                async for _ in signals:
                    scope.cancel()

        before = signal.getsignal(signal.SIGINT)
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(watch)
                yield scope
                tasks.cancel_scope.cancel()
        finally:
            signal.signal(signal.SIGINT, before)
