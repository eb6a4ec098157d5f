"""Listening sockets, limits on their connections, and the signals that stop a server cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from memory.contract.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

_MAX_HEAD_BYTES = 65_536  # the limit of h11


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


def bounded_protocol(header_s: float, max_per_address: int) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits on connections.

    It closes a connection that sends no complete head within ``header_s`` seconds, or a head over 64 KiB. It
    also closes connections of an address beyond ``max_per_address``.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    connections: Counter[str] = Counter()

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            peer = transport.get_extra_info("peername")
            self._address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
            self._deadline: asyncio.TimerHandle | None = None
            self._head_bytes: int | None = None  # received so far; None between heads
            connections[self._address] += 1
            super().connection_made(transport)
            if connections[self._address] > max_per_address:
                transport.abort()
            else:
                self._begin_deadline()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._end_deadline()
            elif self._deadline is None and (before is None or before.response_complete):
                self._begin_deadline()
            if self._head_bytes is not None:
                self._head_bytes += len(data)
                if self._head_bytes > _MAX_HEAD_BYTES:
                    self.transport.abort()

        # Only httptools calls these two methods. It has no limit for heads.
        def on_message_begin(self) -> None:
            self._head_bytes = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._head_bytes = None
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_deadline()
            connections[self._address] -= 1
            if not connections[self._address]:
                del connections[self._address]
            super().connection_lost(exc)

        def _begin_deadline(self) -> None:
            self._deadline = self.loop.call_later(header_s, self.transport.abort)

        def _end_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded


def stop_at_signals(
    running: uvicorn.Server, leave_s: float = 0.0, leaving: Callable[[], None] = lambda: None
) -> None:
    """Let SIGTERM and SIGINT stop only the server. Outside the main thread this does nothing.

    uvicorn's own handler raises the signal again, which would end the process before its writes are sent. A
    signal that arrives before uvicorn installs its handler would end the process, too.

    Args:
        running: the server.
        leave_s: seconds for which it goes on answering. A second signal stops it at once.
        leaving: called at each signal.
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
    """Let SIGINT cancel only the body. Outside the main thread, or if not ``wanted``, this does nothing."""
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
