"""The model of a MemOS server on the loopback.

with MemosDouble() as server:
    config = {"url": server.url, ...}
"""

from memos_model import MemosModel

from memory.testing import FAKE_KEY, LoopbackAnswer, LoopbackServer

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
        late_s: how long an add takes before it is carried out, while others go on.
        latency_s: how long every answer takes, for figures; the real server takes 20 to 70 ms.
    """

    def __init__(self, **flags):
        super().__init__()
        self.model = MemosModel(**flags)
        self.crash: str | None = None
        self.late_s = 0.0
        self.latency_s = 0.0

    def respond(self, request):
        if request.path == "/product/add":
            self.sleep(self.late_s)
        return super().respond(request)

    def handle(self, request):
        name = _ROUTES.get((request.method, request.path))
        if name is None:
            return LoopbackAnswer(404, {"detail": "Not Found"})
        if name == self.crash:
            body = {"code": 500, "message": f"failed on {request.text} (key {FAKE_KEY})", "data": None}
            return LoopbackAnswer(500, body, drop=True)
        self.sleep(self.latency_s)
        self.model.work()
        status, answer = getattr(self.model, name)(request.json or dict(request.params))
        return LoopbackAnswer(status, answer)

    def error(self, status, request):
        message = f"refused (key {FAKE_KEY}) while handling: {request.text}"
        body = {"code": status, "message": message, "data": None}
        if status == 422:
            body["detail"] = [
                {"type": "missing", "loc": ["body", "query"], "msg": message, "input": request.json}
            ]
        return LoopbackAnswer(status, body)

    def sent(self, path):
        """Bodies of the requests to a route, in order."""
        return [request.json for request in self.requests if request.path == path]

    def state(self):
        """Every memory, and how many tasks wait."""
        self.model.work()
        return {"rows": [vars(row) for row in self.model.rows], "waiting": len(self.model.queue)}
