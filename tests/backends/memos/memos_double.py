"""The model of a MemOS server on the loopback: in the test's own process, or as one of its own.

with MemosDouble() as server:
    config = {"url": server.url, ...}
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from memos_model import MemosModel

from memory.testing import FAKE_KEY, LoopbackAnswer, LoopbackRequest, LoopbackServer

__all__ = ["MemosDouble", "MemosProcess"]

_ROUTES = {
    ("POST", "/product/add"): "add",
    ("POST", "/product/search"): "search",
    ("POST", "/product/get_memory"): "get_memory",
    ("POST", "/product/delete_memory"): "delete_memory",
    ("POST", "/product/feedback"): "feedback",
    ("GET", "/product/scheduler/allstatus"): "all_status",
    ("GET", "/product/scheduler/status"): "task_status",
    ("GET", "/health"): "health",
}


class MemosDouble(LoopbackServer):
    """A MemOS server.

    Args:
        flags: of :class:`MemosModel`.

    Attributes:
        model: the state, for looking and for breaking.
        crash: the route that fails unhandled: 500 in JSON, and the connection's next request is reset.
    """

    def __init__(self, **flags: Any) -> None:
        super().__init__()
        self.model = MemosModel(**flags)
        self.crash: str | None = None

    def handle(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        if request.path.startswith("/_double/"):
            return LoopbackAnswer(200, self._control(request))
        name = _ROUTES.get((request.method, request.path))
        if name is None:
            return LoopbackAnswer(404, {"detail": "Not Found"})
        if name == self.crash:
            told = {"code": 500, "message": f"failed on {request.text} (key {FAKE_KEY})", "data": None}
            return LoopbackAnswer(500, told, drop=True)
        self.model.work()
        status, answer = getattr(self.model, name)(request.json or dict(request.params))
        return LoopbackAnswer(status, answer)

    def error(self, status: int, request: LoopbackRequest) -> LoopbackAnswer:
        message = f"refused (key {FAKE_KEY}) while handling: {request.text}"
        told: dict[str, Any] = {"code": status, "message": message, "data": None}
        if status == 422:
            told["detail"] = [
                {"type": "missing", "loc": ["body", "query"], "msg": message, "input": request.json}
            ]
        return LoopbackAnswer(status, told)

    def sent(self, path: str) -> list[Any]:
        """Bodies of the requests to a route, in order."""
        return [request.json for request in self.requests if request.path == path]

    def _control(self, request: LoopbackRequest) -> Any:
        """How another process looks at this one and breaks it."""
        if request.path == "/_double/fault":
            self.faults.clear()
            if request.json["kind"]:
                self.faults.add(request.json["kind"], times=None, endpoint="* /[!_]*", delay_s=0.5)
            return {}
        self.model.work()
        waiting = sum(task.status == "waiting" for task in self.model.tasks)
        rows = [[row.cube_id, row.id, row.memory, row.metadata] for row in self.model.rows]
        return {"rows": rows, "waiting": waiting}


class MemosProcess:
    """The double in a process of its own, so that its sockets and threads are not ours.

    Args:
        flags: of :class:`MemosModel`.
    """

    def __init__(self, **flags: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(flags)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def fault(self, kind: str | None) -> None:
        """Break every request from now on, or (None) none."""
        self._call("fault", {"kind": kind})

    def state(self) -> Any:
        """Every memory, and how many tasks wait."""
        return self._call("state", {})

    def _call(self, name: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url}/_double/{name}", json.dumps(body).encode(), method="POST"
        )
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
    with MemosDouble(**json.loads(sys.argv[1])) as double:
        sys.stdout.write(double.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
