"""What the ABI's tests share: an agent, and a node that fails at chosen requests."""

import socket
from contextlib import contextmanager

from stigmem_double import StigmemDouble

from memory.stigmem.abi import StigmemAbi
from memory.stigmem.writers import Surfaces

AGENT = "stigmem://node/agent/coder"
OTHER = "stigmem://node/agent/reviewer"
USER = "stigmem://node/user/alice"

surfaces = Surfaces(AGENT, "node")


class FaultyNode(StigmemDouble):
    """A double with faults at some of its requests, counted from 1: ``{2: "503"}``; ``late`` is never in time."""

    def __init__(self, faults=None):
        super().__init__()
        self.planned = dict(faults or {})

    def respond(self, request):
        if fault := self.planned.get(len(self.requests) + 1):
            self.faults.add(fault)
        return super().respond(request)

    @property
    def posted(self):
        """Relations of the facts that were sent, in order."""
        return [sent.json["relation"] for sent in self.requests if sent.path == "/v1/facts"]


def agent(node, **options):
    """A middleware agent at ``node``, quick to retry."""
    options = {"retry_pause_s": 0.01, **options}
    return StigmemAbi(node.url if node else closed_port(), None, AGENT, **options)


def closed_port():
    """A URL nobody listens at; a port that was free a moment ago may be another process's by now."""
    return "http://127.0.0.1:9"


@contextmanager
def silent_port():
    """A URL where connections are taken and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
