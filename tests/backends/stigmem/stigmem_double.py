"""A Stigmem node on the loopback: real sockets, HTTP/1.1 with kept connections, faults on demand.

In the test's own process::

    with StigmemDouble() as node:
        client = StigmemNode(node.url)

or, for tests that count this process's files and threads, in a process of its own:
:class:`memory.testing.LoopbackProcess`.
"""

import stigmem_double_more  # noqa: F401 (both register routes)
import stigmem_node_routes  # noqa: F401
from stigmem_node_model import NodeModel

from memory.testing import LoopbackAnswer, LoopbackServer


class StigmemDouble(LoopbackServer):
    """A node in this process.

    Args:
        auth, multi_tenant: as for :class:`NodeModel`.

    Attributes:
        node: the state, for looking and for breaking.
    """

    def __init__(self, *, auth=False, multi_tenant=False):
        super().__init__()
        self.node = NodeModel(auth=auth, multi_tenant=multi_tenant)

    retry_after_s = 0.01
    """What a 429 says in its body."""

    def handle(self, request):
        asked = {"params": dict(request.params), "headers": dict(request.headers), "json": request.json}
        answer = self.node.handle(request.method, request.path, asked)
        failed = isinstance(answer.body, str) and answer.status >= 500
        return LoopbackAnswer(answer.status, answer.body, answer.headers, drop=failed)

    def error(self, status, request):
        """In the node's own words."""
        if status == 503:
            return LoopbackAnswer(503, {"detail": f"database is locked: {request.json}"})
        if status == 429:
            details = {
                "error": "quota_exceeded",
                "dimension": "fact_write",
                "principal": "p",
                "retry_after": self.retry_after_s,
            }
            return LoopbackAnswer(429, details)
        return super().error(status, request)

    def state(self):
        """Facts and keys."""
        return {"facts": self.node.facts, "keys": sorted(self.node.keys)}
