"""A real HTTP server on the loopback, which models a backend's server in tests.

``handle`` holds the normal behaviour of the modelled server. This module holds the failures of any HTTP server.
The kit counts the threads and sockets of its process, so the server may run in another (:class:`LoopbackProcess`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from memory.testing._faults import FAKE_KEY, FaultKind, Faults
from memory.testing._http_server import HttpServer, LoopbackAnswer, LoopbackRequest

CONTROL = "/_loopback/"  # paths for the test that started the server in another process
HTTP_FAULTS: tuple[FaultKind, ...] = (
    "401", "403", "404", "409", "422", "429", "500", "503", "redirect",
    "reset", "late", "lost", "truncated", "unreadable",
)  # fmt: skip
# The answer of a ``500`` is plain text, and its connection ends without notice.


class LoopbackServer(HttpServer):
    """Records requests and plays faults. Subclass it and write :meth:`handle`.

        class Notes(LoopbackServer):
            def handle(self, request):
                return LoopbackAnswer(201 if request.path == "/notes" else 404, {"id": "1"})

    Attributes:
        requests: every request so far, in order of arrival.
        faults: the ordered faults. An ``endpoint`` is a pattern of method and path, such as ``POST /notes/*``.
    """

    fault_kinds: ClassVar[Sequence[FaultKind]] = HTTP_FAULTS

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[LoopbackRequest] = []
        self.faults = Faults(self.fault_kinds)
        self._handling = threading.RLock()

    def handle(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """Answer one request, or None to hang up. Called for one request at a time."""
        raise NotImplementedError

    def error(self, status: int, request: LoopbackRequest) -> LoopbackAnswer:
        """The answer of a fault. It repeats the request, as real servers do. Override it for another shape."""
        detail = f"refused (key {FAKE_KEY}) while handling: {request.text}"
        if status == 422:
            return LoopbackAnswer(422, {"detail": [{"loc": ["body"], "msg": detail, "input": request.json}]})
        return LoopbackAnswer(status, {"detail": detail})

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """The answer of :meth:`handle`, or of the fault that is due."""
        if request.path.startswith(CONTROL):
            return LoopbackAnswer(200, self._control(request.path.removeprefix(CONTROL), request.json))
        fault = self.faults.take(f"{request.method} {request.path}")
        self.requests.append(request)
        kind = fault.kind if fault else ""
        if kind == "redirect":
            return LoopbackAnswer(307, "", {"location": f"http://localhost:{self.port}/elsewhere"})
        if kind == "500":
            sent = f"Internal Server Error (key {FAKE_KEY}): {dict(request.headers)} {request.text}"
            return LoopbackAnswer(500, sent, drop=True)
        if fault and kind.isdecimal():
            refusal = self.error(int(kind), request)
            wait = {"retry-after": f"{fault.retry_after_s:g}"} if kind == "429" else {}
            return replace(refusal, headers={**refusal.headers, **wait})
        if kind == "reset":
            return None
        with self._handling:
            answer = self.handle(request)
        if not fault or answer is None:
            return answer
        if kind == "late":
            self.sleep(fault.delay_s)
            return answer
        if kind == "unreadable":
            return LoopbackAnswer(200, b'<html>a proxy says hello {"', {"content-type": "application/json"})
        return None if kind == "lost" else replace(answer, send=len(answer.data) // 2)

    def state(self) -> object:
        """The server's content as JSON values, for fingerprints. Override it."""
        return None

    def _control(self, what: str, given: dict[str, Any]) -> Any:
        """Requests of :class:`LoopbackProcess`: look at the server, and order faults."""
        if what == "requests":
            names = ("method", "path", "params", "json")
            return [{name: getattr(request, name) for name in names} for request in self.requests]
        if what == "fault":
            self.faults.add(**given)
        elif what == "clear":
            self.faults.clear()
        elif what == "set":
            for name, value in given.items():
                setattr(self, name, value)
        else:
            with self._handling:
                return self.state()
        return None


class LoopbackProcess(AbstractContextManager["LoopbackProcess"]):
    """Runs ``server(**arguments)`` in another process, until :meth:`close` or the end of this process.

    Args:
        server: a class at the top level of its module. It may import the modules beside it.
        arguments: of the server, as JSON values.

    Attributes:
        url: the server's address.
    """

    def __init__(self, server: type[LoopbackServer], **arguments: object) -> None:
        order = {"file": inspect.getfile(server), "name": server.__qualname__, "arguments": arguments}
        command = [sys.executable, "-m", __name__, json.dumps(order)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.close()
            raise RuntimeError(f"{server.__name__} did not start; its message is on stderr")

    def __exit__(self, *_: object) -> None:
        self.close()

    def fault(self, kind: FaultKind, **how: object) -> None:
        """Order a fault; see :meth:`memory.testing._faults.Faults.add`."""
        self._call("fault", {"kind": kind, **how})

    def clear_faults(self) -> None:
        """Cancel all ordered faults."""
        self._call("clear", {})

    @contextmanager
    def failing(self, kind: FaultKind, **how: object) -> Iterator[None]:
        """Let every request meet this fault while the context is open."""
        self.fault(kind, **{"times": None, **how})
        try:
            yield
        finally:
            self.clear_faults()

    def state(self) -> Any:
        """The server's :meth:`LoopbackServer.state`."""
        return self._call("state", {})

    def requests(self) -> list[dict[str, Any]]:
        """Every request so far: ``method``, ``path``, ``params``, ``json``."""
        return list(self._call("requests", {}))

    def set(self, **attributes: object) -> None:
        """Set attributes of the server."""
        self._call("set", attributes)

    def close(self) -> None:
        """End the process by closing its input. Idempotent."""
        self._process.communicate(timeout=10)

    def _call(self, what: str, body: Any) -> Any:
        request = urllib.request.Request(f"{self.url}{CONTROL}{what}", json.dumps(body).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)


def _main(order: dict[str, Any]) -> None:
    file = Path(order["file"])
    sys.path.insert(0, str(file.parent))
    sys.modules.pop(file.stem, None)  # another module of that name may be loaded
    module = importlib.import_module(file.stem)
    with getattr(module, order["name"])(**order["arguments"]) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
