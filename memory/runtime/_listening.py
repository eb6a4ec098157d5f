"""Listening sockets, and the signals that stop a server cleanly."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING

from memory.contract.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn


def listening_socket(host: str, port: int, *, field: str) -> socket.socket:
    """Return a listening TCP socket with TCP_NODELAY.

    Without TCP_NODELAY, an answer in two parts waits 40 ms for the client's acknowledgement of the first
    part. asyncio does not set it on sockets of ``socket.create_server``, which have no protocol number.

    Args:
        host: a name or an address of this machine.
        port: 0 takes a free port.
        field: the option that sets host and port, for error messages.

    Raises:
        ConfigError: the port is taken, or there is no such address.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        what = getattr(error, "strerror", None) or "no such address"
        raise ConfigError(f"{field}: cannot listen on {host} port {port} ({what})") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def stop_at_signals(running: uvicorn.Server) -> None:
    """Let SIGTERM and SIGINT stop only the server. Outside the main thread this does nothing.

    uvicorn's own handler raises the signal again, which would end the process before its writes are sent. A
    signal that arrives before uvicorn installs its handler would end the process, too.
    """

    def end(number: int, _: object) -> None:
        running.force_exit = running.should_exit and number == signal.SIGINT
        running.should_exit = True

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        running.handle_exit = end  # type: ignore[assignment, method-assign]
