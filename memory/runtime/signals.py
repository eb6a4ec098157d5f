"""Ending a server of uvicorn at a signal, with time for what comes after it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uvicorn

__all__ = ["end_at_signals"]


def end_at_signals(running: uvicorn.Server) -> None:
    """Let SIGTERM and SIGINT end a server, and nothing else. For the main thread; elsewhere this does nothing.

    uvicorn raises the signal that ended it again, which would end the process before its writes are sent; and one
    that comes before uvicorn listens for it would end the process, too.
    """

    def end(*_: object) -> None:
        running.should_exit = True

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
