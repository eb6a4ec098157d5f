"""A real HTTP/1.1 server on the loopback, in threads, with faults that no framework plays."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote

_POLL_S = 0.02  # how long a server takes to notice that it shall stop


@dataclass(frozen=True)
class LoopbackRequest:
    """One request as it arrived.

    Attributes:
        method: such as ``POST``.
        path: the decoded path, without the query.
        params: the query's parameters; the last one of each name counts.
        headers: the headers, with names in lower case.
        body: the body's bytes.
    """

    method: str
    path: str
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
        RuntimeError: on exit, if ``respond`` raised. Its request got a 500.
    """

    keep_alive: ClassVar[bool] = True

    def __init__(self, port: int = 0) -> None:
        self.connections = 0
        self._port = port
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
        return self._running.server_port

    @property
    def url(self) -> str:
        """Such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._running = _Running(self, self._port)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop()
        if self._broken and error is None:
            raise RuntimeError(f"{type(self).__name__} is broken") from self._broken[0]

    @contextmanager
    def down(self) -> Iterator[None]:
        """End all connections and stop listening. Afterwards the server returns on the same port."""
        self._port = self.port
        self._stop()
        try:
            with socket.socket() as held:  # a bound socket keeps others from taking the port
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("127.0.0.1", self._port))
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


class _Running(ThreadingHTTPServer):
    """The running server: a thread that accepts connections, and one for each connection."""

    daemon_threads = False  # so that closing waits for them
    request_queue_size = 256

    def __init__(self, owner: HttpServer, port: int) -> None:
        self.owner = owner
        self._open: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Connection)
        self._acceptor = threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name=type(owner).__name__
        )
        self._acceptor.start()

    def stop_listening(self) -> None:
        self.shutdown()
        self._acceptor.join()
        self.socket.close()

    def stop(self) -> None:
        self.stop_listening()
        for connection in list(self._open):
            with suppress(OSError):  # its peer has left
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.owner.connections += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection. A shutdown before it would make a reset an orderly end."""
        self._open.discard(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a peer has left."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the second part of an answer waits 40 ms for the first
    wbufsize = -1
    server: _Running
    _doomed = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # the method for requests such as GET
            return self._serve
        raise AttributeError(name)

    def log_message(self, *said: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        if self._doomed:
            return self._reset()
        path, _, query = self.path.partition("?")
        request = LoopbackRequest(
            method=self.command,
            path=unquote(path),
            params=dict(parse_qsl(query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("content-length", 0))),
        )
        answer = self.server.owner._answer(request)
        if answer is None:
            return self._reset()
        self._doomed = answer.drop
        kind = "text/plain; charset=utf-8" if isinstance(answer.body, str) else "application/json"
        headers = {"content-type": kind, **{k.lower(): v for k, v in answer.headers.items()}}
        if answer.status != 204:
            headers["content-length"] = str(len(answer.data))
        if not self.server.owner.keep_alive:
            headers["connection"] = "close"
        self.send_response_only(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.data[: answer.send])
        if answer.send is not None:
            self.close_connection = True

    def _reset(self) -> None:
        # A linger time of zero turns the close into a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close_connection = True
