"""A language model endpoint for tests: OpenAI-compatible, on the loopback, scripted by honest rules.

Its answers come from the text of the request alone (:mod:`memory.adapter._scripted_rules`), so a test passes only
if the code under test really sent what the model needs to know. It does not stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory.adapter._scripted_rules import Rule, general_rules
from memory.testing._faults import FAKE_KEY, FaultKind, Faults
from memory.testing._http_server import HttpServer, LoopbackAnswer, LoopbackRequest
from memory.testing._scripted_api import ENDPOINTS, BadRequest, user_text
from memory.testing._scripted_rules_clients import rules as client_rules
from memory.testing._scripted_rules_graphiti import rules as graphiti_rules

LLM_FAULTS: tuple[FaultKind, ...] = (
    "401", "403", "404", "409", "422", "429", "500",
    "reset", "late", "truncated", "unreadable", "bad_content", "empty",
)  # fmt: skip

_ERRORS = {
    "400": ("invalid_request_error", "bad_request"),
    "401": ("authentication_error", "invalid_api_key"),
    "403": ("permission_error", "forbidden"),
    "404": ("invalid_request_error", "not_found"),
    "409": ("invalid_request_error", "conflict"),
    "422": ("invalid_request_error", "unprocessable_entity"),
    "429": ("rate_limit_error", "rate_limit_exceeded"),
    "500": ("server_error", "internal_error"),
}


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it arrived: endpoint below ``/v1/``, and parsed JSON body."""

    path: str
    body: Any


class ScriptedLLM(HttpServer):
    """The server; a context manager that leaves no thread and no socket.

    Args:
        rules: tried before the built-in ones.
        port: on the loopback; 0 takes a free one.
        record: keep every request; not for an endpoint that runs for days.

    Attributes:
        requests: every request so far, in order of arrival.
        faults: what is to go wrong.

    Raises:
        RuntimeError: on exit, if a rule raised; the request then got a 500.
    """

    keep_alive = False  # keeps no thread waiting for the next request

    def __init__(self, rules: Sequence[Rule] = (), *, port: int = 0, record: bool = True) -> None:
        super().__init__(port)
        self.rules: tuple[Rule, ...] = (*rules, *client_rules, *graphiti_rules, *general_rules)
        self.requests: list[RecordedRequest] = []
        self._record, self._received = record, 0
        self.faults = Faults(LLM_FAULTS)

    @property
    def base_url(self) -> str:
        """For ``OpenAI(base_url=...)``, such as ``http://127.0.0.1:41234/v1``."""
        return f"{self.url}/v1"

    def bodies(self, path: str) -> list[Any]:
        """The bodies sent to one endpoint, such as ``chat/completions``."""
        return [request.body for request in self.requests if request.path == path]

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """The model's answer, with a request id."""
        path = request.path.removeprefix("/v1/").strip("/")
        answer = self._answered(request.method, path, request.json if request.body else {})
        if answer is None:
            return None
        return replace(answer, headers={**answer.headers, "x-request-id": f"req-{self._received}"})

    def _answered(self, method: str, path: str, body: Any) -> LoopbackAnswer | None:
        fault = self.faults.take(path)
        self._received += 1
        if self._record:
            self.requests.append(RecordedRequest(path, body))
        if fault is not None and fault.kind == "late":
            self.sleep(fault.delay_s)
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
        return LoopbackAnswer(200, answer) if fault is None else _spoil(fault.kind, answer)


def _error(status: str, body: Any, wait_s: float | None = None, hint: str = "refused") -> LoopbackAnswer:
    kind, code = _ERRORS[status]
    message = f"{hint} (key {FAKE_KEY}) while handling: {user_text(body)}"
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = {} if wait_s is None else {"retry-after": str(wait_s)}
    return LoopbackAnswer(int(status), {"error": error}, headers)


def _spoil(kind: str, answer: dict[str, Any]) -> LoopbackAnswer | None:
    if kind == "unreadable":
        return LoopbackAnswer(200, b"<html>upstream is having a moment</html>")
    if kind == "reset":
        return None
    if kind in ("bad_content", "empty"):
        content = "" if kind == "empty" else '{"memory": [{"id": "0", "text": '
        for choice in answer.get("choices", ()):
            choice["message"] |= {"content": content, "tool_calls": None}
        if "data" in answer:
            answer["data"] = [] if kind == "empty" else None
    whole = LoopbackAnswer(200, answer)
    return replace(whole, send=len(whole.data) // 2) if kind == "truncated" else whole
