"""A real HTTP/1.1 server on the loopback: uvicorn in threads, with faults that no framework plays."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl

from memory.contract.errors import ConfigError


@dataclass(frozen=True)
class LoopbackRequest:
    """One request as it arrived.

    Attributes:
        method: such as ``POST``.
        path: the decoded path, without the query.
        raw_path: the path with its escapes.
        params: the query's parameters; the last one of each name counts.
        headers: the headers, with names in lower case.
        body: the body's bytes.
    """

    method: str
    path: str
    raw_path: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @cached_property
    def json(self) -> Any:
        """The body's JSON, or None if the body is empty or not JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """The body as text, for an answer that repeats it."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True)
class LoopbackAnswer:
    """An answer of the server.

    Attributes:
        status: HTTP status.
        body: sent as plain text (str), as it is (bytes) or as JSON (anything else). A 204 has no body.
        headers: further headers.
        drop: reset the next request on this connection, as a server does that fails half-way.
        send: break the connection after this many bytes of the body. None sends all.
    """

    status: int = 200
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    send: int | None = None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the body."""
        if self.status == 204:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        text = self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)
        return text.encode("utf-8", "replace")


class HttpServer:
    """The server as a context manager. It leaves no thread and no connection. Subclasses write :meth:`respond`.

    Args:
        port: a port on the loopback. 0 takes a free one.

    Attributes:
        connections: the number of connections so far.
        keep_alive: whether a connection serves more than one request.

    Raises:
        ConfigError: uvicorn is not installed.
        RuntimeError: on exit, if ``respond`` raised. Its request got a 500.
    """

    keep_alive: ClassVar[bool] = True

    def __init__(self, port: int = 0) -> None:
        self.connections = 0
        self._address = ("127.0.0.1", port)
        self._broken: list[Exception] = []
        self._stopping = threading.Event()
        self._running: _Running | None = None

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """Answer one request. None breaks the connection. Each request has its own thread."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The port of the running server."""
        if self._running is None:
            raise RuntimeError(f"{type(self).__name__} is not running; use it in a with statement")
        return self._running.port

    @property
    def url(self) -> str:
        """Such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._running = _Running(self, self._address)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop()
        if self._broken and error is None:
            raise RuntimeError(f"{type(self).__name__} is broken") from self._broken[0]

    @contextmanager
    def down(self) -> Iterator[None]:
        """End all connections and stop listening. Afterwards the server returns on the same port."""
        self._address = ("127.0.0.1", self.port)
        self._stop()
        try:
            with _bound(self._address):  # a bound socket keeps others from taking the port
                yield
        finally:
            self.__enter__()

    def stop_listening(self) -> None:
        """Refuse new connections. Open ones stay."""
        if self._running is not None:
            self._running.stop_listening()

    def sleep(self, seconds: float) -> None:
        """Wait, at most until the server stops."""
        self._stopping.wait(seconds)

    def _stop(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        self._stopping.set()
        running.stop()

    def _answer(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        try:
            return self.respond(request)
        except Exception as problem:
            self._broken.append(problem)
            return LoopbackAnswer(500, "Internal Server Error", drop=True)


class _Running:
    def __init__(self, owner: HttpServer, address: tuple[str, int]) -> None:
        try:
            from uvicorn import Config
            from uvicorn.protocols.http.h11_impl import H11Protocol
            from uvicorn.server import ServerState
        except ImportError as error:
            raise ConfigError("a server on the loopback needs uvicorn: pip install uvicorn") from error
        connections: dict[Any, asyncio.Transport] = {}
        alive: set[asyncio.Transport] = set()  # a peer that has left has no address to find it by
        self._connections, self._alive = connections, alive

        class Protocol(H11Protocol):
            """Keeps its connections, so that the application can break them."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                connections[transport.get_extra_info("peername")] = transport
                alive.add(transport)
                owner.connections += 1

            def connection_lost(self, problem: Exception | None) -> None:
                alive.discard(self.transport)
                connections.pop(self.transport.get_extra_info("peername"), None)
                super().connection_lost(problem)

        self._owner = owner
        self._doomed: set[asyncio.Transport] = set()
        self._socket = _bound(address)
        self.port = int(self._socket.getsockname()[1])
        config = Config(
            self._serve, http=Protocol, interface="asgi3", loop="asyncio", ws="none", lifespan="off",
            log_config=None, access_log=False, proxy_headers=False, server_header=False, date_header=False,
            timeout_keep_alive=3600,
        )  # fmt: skip
        config.load()
        self._state = ServerState()
        self._protocol = lambda: Protocol(config, self._state, app_state={})
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(256, thread_name_prefix=type(owner).__name__)
        self._ended = asyncio.Event()
        started, run = threading.Event(), self._loop.run_until_complete
        self._thread = threading.Thread(target=lambda: run(self._live(started)), name=type(owner).__name__)
        self._thread.start()
        started.wait()

    def stop_listening(self) -> None:
        closed = threading.Event()  # an answer's thread waits for it
        self._loop.call_soon_threadsafe(self._listening.close)
        self._loop.call_soon_threadsafe(closed.set)
        closed.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._threads.shutdown()
        self._loop.close()
        self._socket.close()

    async def _live(self, started: threading.Event) -> None:
        self._listening = await self._loop.create_server(self._protocol, sock=self._socket, backlog=256)
        started.set()
        await self._ended.wait()
        # A connection accepted a moment ago is still a task. Closing the listener now would leak its socket.
        if self._listening.is_serving():
            self._loop.remove_reader(self._socket)
        for _ in range(3):
            await asyncio.sleep(0)
        self._listening.close()
        while self._alive or self._state.tasks or len(asyncio.all_tasks()) > 1:
            for transport in list(self._alive):
                transport.abort()
            await asyncio.sleep(0.002)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        transport = self._connections.get(scope["client"])
        if transport is None or transport in self._doomed:
            return await _reset(transport)
        body, message = b"", {"more_body": True}
        while message.get("more_body"):
            message = await receive()  # without more_body if the client has left
            body += message.get("body", b"")
        request = LoopbackRequest(
            method=scope["method"],
            path=scope["path"],
            raw_path=scope["raw_path"].decode(),
            params=dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            body=body,
        )
        answer = await self._loop.run_in_executor(self._threads, self._owner._answer, request)
        if answer is None:
            return await _reset(transport)
        if answer.drop:
            self._doomed.add(transport)
        kind = "text/plain; charset=utf-8" if isinstance(answer.body, str) else "application/json"
        headers = {"content-type": kind, **{k.lower(): v for k, v in answer.headers.items()}}
        if answer.status != 204:
            headers["content-length"] = str(len(answer.data))
        if not self._owner.keep_alive:
            headers["connection"] = "close"
        sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": sent})
        whole = answer.send is None
        await send({"type": "http.response.body", "body": answer.data[: answer.send], "more_body": not whole})
        if not whole:
            transport.close()
            await asyncio.sleep(0)


async def _reset(transport: asyncio.Transport | None) -> None:
    if transport is not None:
        # A linger time of zero turns the close into a reset.
        end = transport.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        transport.abort()
        await asyncio.sleep(0)  # let uvicorn notice, or it complains about the missing answer


def _bound(address: tuple[str, int]) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Without it, the second part of an answer waits 40 ms for the acknowledgement of the first.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
