"""A Stigmem node on the loopback: real sockets, HTTP/1.1 with kept connections, faults on demand.

In the test's own process::

    with StigmemDouble() as node:
        client = StigmemNode(node.url)

or, for tests that count this process's files and threads, as a process of its own: :class:`DoubleProcess`.
"""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parent))

import stigmem_node_routes  # noqa: F401 (registers the routes)
from stigmem_node_model import ADMIN_KEY, Answer, NodeModel

__all__ = ["ADMIN_KEY", "DoubleProcess", "StigmemDouble"]


class StigmemDouble:
    """A node in this process.

    Args:
        auth, multi_tenant: as for :class:`NodeModel`.

    Attributes:
        node: the state, for looking and for breaking.
        requests: every request so far: ``method``, ``path``, ``params``, ``headers``, ``json``.
        fault: None, or what goes wrong with every request: ``down`` (plain-text 500 that repeats what was sent, and
            the connection goes), ``stall`` (half a second late), ``reset`` (no answer at all), ``busy`` (503 in
            JSON), ``quota`` (429), ``garbage`` (200 with HTML), ``redirect`` (to another origin).
        fault_left: how many requests the fault still hits; None for all.
    """

    def __init__(self, *, auth: bool = False, multi_tenant: bool = False) -> None:
        self.node = NodeModel(auth=auth, multi_tenant=multi_tenant)
        self.requests: list[dict[str, Any]] = []
        self.fault: str | None = None
        self.fault_left: int | None = None
        self.stall_s = 0.5
        self.connections = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Such as ``http://127.0.0.1:41234``."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._stop.clear()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="stigmem-double"
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._stop.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()
        self._server = None

    def answer(self, method: str, path: str, request: dict[str, Any]) -> Answer | None:
        """What to send, or None to hang up."""
        with self._lock:
            self.requests.append({"method": method, "path": path, **request})
            fault = self.fault
            if fault is not None and self.fault_left is not None:
                self.fault_left -= 1
                if self.fault_left <= 0:
                    self.fault = self.fault_left = None
        if fault == "stall":
            self._stop.wait(self.stall_s)
        if fault == "reset":
            return None
        if fault == "down":
            sent = json.dumps({"json": request["json"], "headers": request["headers"]}, ensure_ascii=False)
            return Answer(500, f"Internal Server Error while handling {sent}")
        if fault == "busy":
            return Answer(503, {"detail": f"database is locked: {request['json']}"})
        if fault == "quota":
            told = {
                "error": "quota_exceeded",
                "dimension": "fact_write",
                "principal": "p",
                "retry_after": 3.5,
            }
            return Answer(429, told, {"retry-after": "4"})
        if fault == "garbage":
            return Answer(200, "<html>a proxy says hello</html>")
        if fault == "redirect":
            return Answer(307, "", {"location": f"http://localhost:{self.url.rpartition(':')[2]}/elsewhere"})
        with self._lock:
            return self.node.handle(method, path, request)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 256

    def __init__(self, owner: StigmemDouble) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer would look its own name up

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
        """A client that hung up is no news."""

    def hang_up(self) -> None:
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def _serve(self) -> None:
        length = int(self.headers.get("content-length", 0))
        data = self.rfile.read(length)
        parts = urlsplit(self.path)
        request = {
            "params": dict(parse_qsl(parts.query, keep_blank_values=True)),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "json": json.loads(data) if data else None,
        }
        path = unquote(parts.path)
        answer = self._control(path, request) or self.server.owner.answer(self.command, path, request)
        if answer is None:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.connection.close()
            return
        plain = isinstance(answer.body, str)
        body = answer.body.encode() if plain else json.dumps(answer.body, ensure_ascii=False).encode()
        self.send_response(answer.status)
        self.send_header(
            "content-type", "text/plain; charset=utf-8" if plain and body else "application/json"
        )
        if answer.status != 204:
            self.send_header("content-length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if plain and answer.status >= 500:
            self.close_connection = True  # as the node does, and without a word of warning in the headers
        self.end_headers()
        if answer.status != 204:
            self.wfile.write(body)
        self.wfile.flush()

    def _control(self, path: str, request: dict[str, Any]) -> Answer | None:
        """``/_double/...``: how another process looks at this one and breaks it."""
        owner = self.server.owner
        if path == "/_double/fault":
            owner.fault, owner.fault_left = request["json"]["kind"], None
            return Answer(200, {})
        if path == "/_double/state":
            return Answer(200, {"facts": owner.node.facts, "keys": sorted(owner.node.keys)})
        if path == "/_double/requests":
            return Answer(200, owner.requests)
        return None

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Memories are not for the console."""


class DoubleProcess:
    """The double in a process of its own, so that its sockets and threads are not ours."""

    def __init__(self, *, auth: bool = False, multi_tenant: bool = False) -> None:
        flags = [name for name, on in (("auth", auth), ("multi_tenant", multi_tenant)) if on]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def fault(self, kind: str | None) -> None:
        """Break every request from now on, or (None) none."""
        self._call("/_double/fault", {"kind": kind})

    def state(self) -> Any:
        """Facts and keys."""
        return self._call("/_double/state", {})

    def requests(self) -> Any:
        """Every request so far."""
        return self._call("/_double/requests", {})

    def _call(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)

    def close(self) -> None:
        """End the process by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def main() -> None:
    with StigmemDouble(auth="auth" in sys.argv, multi_tenant="multi_tenant" in sys.argv) as double:
        sys.stdout.write(double.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
