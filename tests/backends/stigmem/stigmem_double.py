"""A Stigmem node on the loopback: real sockets, HTTP/1.1 with kept connections, faults on demand.

In the test's own process::

    with StigmemDouble() as node:
        client = StigmemNode(node.url)

or, for tests that count this process's files and threads, in a process of its own:
:class:`memory.testing.LoopbackProcess`.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import stigmem_node_routes  # noqa: F401 (registers the routes)
from stigmem_node_model import ADMIN_KEY, NodeModel

from memory.testing import LoopbackAnswer, LoopbackRequest, LoopbackServer
from memory.testing.loopback import CONTROL

__all__ = ["ADMIN_KEY", "StigmemDouble"]


class StigmemDouble(LoopbackServer):
    """A node in this process.

    Args:
        auth, multi_tenant: as for :class:`NodeModel`.

    Attributes:
        node: the state, for looking and for breaking.
        fault: None, or what goes wrong with every request, in the node's own words: ``down`` (plain-text 500 that
            repeats what was sent, and the connection goes), ``stall`` (half a second late), ``reset`` (no answer at
            all), ``busy`` (503 in JSON), ``quota`` (429), ``garbage`` (200 with HTML), ``redirect`` (elsewhere).
        fault_left: how many requests the fault still hits; None for all.
    """

    def __init__(self, *, auth: bool = False, multi_tenant: bool = False) -> None:
        super().__init__()
        self.node = NodeModel(auth=auth, multi_tenant=multi_tenant)
        self.fault: str | None = None
        self.fault_left: int | None = None
        self.stall_s = 0.5
        self._lock = threading.Lock()

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        """The node's answer, or what goes wrong instead."""
        if request.path.startswith(CONTROL):
            return super().respond(request)
        with self._lock:
            fault = self.fault
            if fault is not None and self.fault_left is not None:
                self.fault_left -= 1
                if self.fault_left <= 0:
                    self.fault = self.fault_left = None
        if fault is None:
            return super().respond(request)
        self.requests.append(request)
        if fault == "stall":
            self.pause(self.stall_s)
            return self._handled(request)
        return None if fault == "reset" else self._spoil(fault, request)

    def handle(self, request: LoopbackRequest) -> LoopbackAnswer:
        asked = {"params": dict(request.params), "headers": dict(request.headers), "json": request.json}
        answer = self.node.handle(request.method, request.path, asked)
        failed = isinstance(answer.body, str) and answer.status >= 500
        return LoopbackAnswer(answer.status, answer.body, answer.headers, drop=failed)

    def _spoil(self, fault: str, request: LoopbackRequest) -> LoopbackAnswer:
        if fault == "down":
            sent = json.dumps({"json": request.json, "headers": dict(request.headers)}, ensure_ascii=False)
            return LoopbackAnswer(500, f"Internal Server Error while handling {sent}", drop=True)
        if fault == "busy":
            return LoopbackAnswer(503, {"detail": f"database is locked: {request.json}"})
        if fault == "quota":
            told = {
                "error": "quota_exceeded",
                "dimension": "fact_write",
                "principal": "p",
                "retry_after": 3.5,
            }
            return LoopbackAnswer(429, told, {"retry-after": "4"})
        if fault == "garbage":
            return LoopbackAnswer(200, "<html>a proxy says hello</html>")
        assert fault == "redirect", fault
        return LoopbackAnswer(307, "", {"location": f"http://localhost:{self.port}/elsewhere"})

    def state(self) -> Any:
        """Facts and keys."""
        return {"facts": self.node.facts, "keys": sorted(self.node.keys)}
