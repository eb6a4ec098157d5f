"""A real HTTP/1.1 server on the loopback, in threads of the test's own process: sockets, kept connections, resets.

What stands on it: :class:`~memory.testing._loopback.LoopbackServer`, to model a backend's server, and the scripted
language model.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True)
class LoopbackRequest:
    """One request as it arrived.

    Attributes:
        method: such as ``POST``.
        path: decoded, without the query.
        raw_path: with its escapes.
        params: of the query, the last of each name.
        headers: names in lower case.
        body: bytes.
    """

    method: str
    path: str
    raw_path: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @cached_property
    def json(self) -> Any:
        """The body's JSON, or None where there is none."""
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
    """What to send back.

    Attributes:
        status: HTTP status.
        body: a string is sent as plain text, bytes as they are, anything else as JSON; 204 has none.
        headers: further headers.
        drop: the next request on this connection is reset, as by servers that fail half-way.
        send: bytes of the body after which the connection breaks; None sends all.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    send: int | None = None

    @cached_property
    def data(self) -> bytes:
        """The body as it is sent."""
        if self.status == 204:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode("utf-8", "replace")
        return json.dumps(self.body, ensure_ascii=False).encode("utf-8", "replace")

    @property
    def content_type(self) -> str:
        """Plain text for strings, JSON otherwise."""
        return "text/plain; charset=utf-8" if isinstance(self.body, str) else "application/json"


class HttpServer:
    """The sockets; a context manager that leaves no thread and no connection. Subclasses write :meth:`respond`.

    Args:
        port: on the loopback; 0 takes a free one.

    Attributes:
        connections: how many were opened so far.
        keep_alive: whether a connection serves more than one request.

    Raises:
        RuntimeError: on exit, if ``respond`` raised; the request then got a 500.
    """

    keep_alive: ClassVar[bool] = True

    def __init__(self, port: int = 0) -> None:
        self.connections = 0
        self._address = ("127.0.0.1", port)
        self._broken: list[Exception] = []
        self._stopping = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """Answer one request, or None to break the connection. Called on the connection's thread."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """Of the running server."""
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} is not running; use it in a with statement")
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if self._broken and error is None:
            raise RuntimeError(f"{type(self).__name__} is broken") from self._broken[0]

    @contextmanager
    def down(self) -> Iterator[None]:
        """Meanwhile nobody listens, and open connections are gone; then the server is back on the same port."""
        self._address = ("127.0.0.1", self.port)
        self._stop()
        try:
            with socket.socket() as kept:  # bound and deaf, so that nobody else is given the port meanwhile
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind(self._address)
                yield
        finally:
            self._start()

    def _start(self) -> None:
        self._stopping.clear()
        self._server = _Server(self, self._address)
        name = type(self).__name__
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=name)
        self._thread.start()

    def _stop(self) -> None:
        server, thread = self._server, self._thread
        assert server is not None
        assert thread is not None
        self._server = self._thread = None
        self._stopping.set()
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join()

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than the server runs."""
        self._stopping.wait(seconds)

    def _answer(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        try:
            return self.respond(request)
        except Exception as problem:
            self._broken.append(problem)
            return LoopbackAnswer(500, "Internal Server Error", drop=True)


class _Server(ThreadingHTTPServer):
    """Keeps track of its connections, so that closing never waits for an idle or abandoned one."""

    daemon_threads = False
    request_queue_size = 256

    def __init__(self, owner: HttpServer, address: tuple[str, int]) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look its own name up here, which may ask a name server.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
            self.owner.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news: timeouts are what the faults are for."""

    def hang_up(self) -> None:
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        self._doomed = False
        self.protocol_version = "HTTP/1.1" if self.server.owner.keep_alive else "HTTP/1.0"
        super().setup()

    def _serve(self) -> None:
        if self._doomed:
            return self._break()
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path)
        request = LoopbackRequest(
            method=self.command,
            path=unquote(parts.path),
            raw_path=parts.path,
            params=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=data,
        )
        answer = self.server.owner._answer(request)
        if answer is None:
            return self._break()
        headers = {"content-type": answer.content_type, **{k.lower(): v for k, v in answer.headers.items()}}
        if answer.status != 204:
            headers["content-length"] = str(len(answer.data))
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.data[: answer.send])
        self.wfile.flush()
        if answer.send is not None:
            self.close_connection = True
        self._doomed = answer.drop

    def _break(self) -> None:
        self.close_connection = True
        # Lingering for no time turns the close into a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Memories and prompts are not for the console."""
