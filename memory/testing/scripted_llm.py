"""A language model endpoint for tests: OpenAI-compatible, on the loopback, scripted by honest rules.

    with ScriptedLLM() as llm:
        client = OpenAI(base_url=llm.base_url, api_key="unused")

It serves ``chat/completions``, ``responses``, ``embeddings``, ``rerank`` and ``models``. Its answers come
from the text of the request alone (:mod:`memory.testing.scripted_rules`), so a test passes only if the code
under test really sent what the model needs to know. It does not stream.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from memory.testing import (
    scripted_rules_graphiti,
    scripted_rules_mem0,
    scripted_rules_memos,
    scripted_rules_nanobot,
)
from memory.testing.faults import FAKE_KEY, Faults
from memory.testing.scripted_api import ENDPOINTS, BadRequest, user_text
from memory.testing.scripted_rules import Rule, general_rules

__all__ = ["FAULT_KINDS", "RecordedRequest", "ScriptedLLM"]

FAULT_KINDS = (
    "401", "403", "429", "500", "timeout", "reset", "truncated", "bad_json", "empty", "invalid_body"
)  # fmt: skip
"""HTTP errors; ``timeout`` answers late; ``reset`` and ``truncated`` break the connection before and within
the body; ``bad_json`` and ``empty`` are 200 answers whose content is not JSON or is blank; ``invalid_body`` a
200 answer that is no JSON at all."""

_ERRORS = {
    "400": ("invalid_request_error", "bad_request"),
    "401": ("authentication_error", "invalid_api_key"),
    "403": ("permission_error", "forbidden"),
    "404": ("invalid_request_error", "not_found"),
    "429": ("rate_limit_error", "rate_limit_exceeded"),
    "500": ("server_error", "internal_error"),
}
_CLIENT_RULES = (
    *scripted_rules_mem0.rules,
    *scripted_rules_graphiti.rules,
    *scripted_rules_memos.rules,
    *scripted_rules_nanobot.rules,
)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it arrived: endpoint below ``/v1/``, parsed JSON body, and the fault it met."""

    path: str
    body: Any
    fault: str | None = None


class ScriptedLLM:
    """The server; a context manager that leaves no thread and no socket.

    Args:
        rules: tried before the built-in ones.

    Attributes:
        requests: every request so far, in order of arrival.
        faults: what is to go wrong.

    Raises:
        RuntimeError: on exit, if a rule raised; the request then got a 500.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules: tuple[Rule, ...] = (*rules, *_CLIENT_RULES, *general_rules)
        self.requests: list[RecordedRequest] = []
        self.faults = Faults(FAULT_KINDS)
        self._broken: list[Exception] = []
        self._stopping = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """For ``OpenAI(base_url=...)``, such as ``http://127.0.0.1:41234/v1``."""
        if self._server is None:
            raise RuntimeError("the scripted LLM is not running; use it in a with statement")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def bodies(self, path: str) -> list[Any]:
        """The bodies sent to one endpoint, such as ``chat/completions``."""
        return [request.body for request in self.requests if request.path == path]

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="scripted-llm")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, thread = self._server, self._thread
        assert server is not None
        assert thread is not None
        self._server = self._thread = None
        self._stopping.set()
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join()
        if self._broken and error is None:
            raise RuntimeError("a rule of the scripted LLM is broken") from self._broken[0]

    def _answer(self, method: str, path: str, data: bytes) -> _Answer:
        try:
            body = json.loads(data) if data else {}
        except ValueError:
            body = None
        fault = self.faults.take(path)
        self.requests.append(RecordedRequest(path, body, fault.kind if fault else None))
        if fault is not None and fault.kind == "timeout":
            self._stopping.wait(fault.delay_s)
        if fault is not None and fault.kind in _ERRORS:
            return _error(fault.kind, body, fault.retry_after_s if fault.kind == "429" else None)
        expected, endpoint = ENDPOINTS.get(path, ("", None))
        if endpoint is None or method != expected:
            return _error("404", body)
        if not isinstance(body, dict):
            return _error("400", body)
        try:
            answer = endpoint(body, self.rules)
        except BadRequest as problem:
            return _error("400", body, hint=str(problem))
        except Exception as problem:
            self._broken.append(problem)
            return _error("500", body)
        if fault is not None:
            return _spoil(fault.kind, answer)
        return _Answer(200, _dump(answer))


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    data: bytes
    retry_after_s: float | None = None
    send: int | None = None  # bytes of ``data`` after which the connection breaks


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _error(status: str, body: Any, retry_after_s: float | None = None, hint: str = "refused") -> _Answer:
    kind, code = _ERRORS[status]
    message = f"{hint} (key {FAKE_KEY}) while handling: {user_text(body)}"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return _Answer(int(status), _dump({"error": error}), retry_after_s)


def _spoil(kind: str, answer: dict[str, Any]) -> _Answer:
    """A 200 answer that went wrong."""
    if kind == "invalid_body":
        return _Answer(200, b"<html>upstream is having a moment</html>")
    if kind in ("bad_json", "empty"):
        content = "" if kind == "empty" else '{"memory": [{"id": "0", "text": '
        for choice in answer.get("choices", ()):
            choice["message"] |= {"content": content, "tool_calls": None}
        for item in answer.get("output", ()):
            item["content"] = [{"type": "output_text", "text": content, "annotations": []}]
        for name in ("data", "results"):
            if name in answer:
                answer[name] = [] if kind == "empty" else None
    data = _dump(answer)
    cut = {"reset": 0, "truncated": len(data) // 2}
    return _Answer(200, data, send=cut.get(kind))


class _Server(ThreadingHTTPServer):
    """Keeps track of its connections, so that closing never waits for an idle or abandoned one."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, owner: ScriptedLLM) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look its own name up here, which may ask a name server.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
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
    """One request per connection (HTTP/1.0), which keeps no thread waiting for the next."""

    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0].removeprefix("/v1/").strip("/")
        answer = self.server.owner._answer(self.command, path, data)
        if answer.send == 0:
            # Lingering for no time turns the close into a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.connection.close()
            return
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer.data)))
        self.send_header("x-request-id", f"req-{len(self.server.owner.requests)}")
        if answer.retry_after_s is not None:
            self.send_header("retry-after", str(answer.retry_after_s))
        self.end_headers()
        self.wfile.write(answer.data[: answer.send])

    def log_message(self, format: str, *args: Any) -> None:
        """Prompts are not for the console."""
