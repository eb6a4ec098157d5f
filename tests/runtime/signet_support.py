"""A Signet server over the fake backend, in this process; and the daemon's recorded pairs."""

import json
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from memory import MemoryScope, MemorySlot
from memory.runtime import TurnMemory, TurnPolicy
from memory.runtime.signet.server import RuntimeAdapterServer
from memory.runtime.signet.sessions import TokenGrant
from memory.runtime.signet.settings import ServeSettings
from memory.storage.kept import HostStore
from memory.testing import FakeBackend

BASE = MemoryScope(run_id="r", persona_id="ada")
PAIRS = Path(__file__).parent / "pairs"


def pair(name):
    """A recorded request and its answer, by the beginning of its file's name."""
    (file,) = PAIRS.glob(f"{name}_*.json")
    found = json.loads(file.read_text("utf-8"))
    return found


class Daemon:
    """A server and a client of it; ``post`` and the like answer (status, body)."""

    def __init__(self, server, http, backend):
        self.server = server
        self.http = http
        self.backend = backend
        self.memory = server.endpoints.memory

    async def send(self, method, path, body=None, headers=None):
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.http.request(method, path, content=content, headers=dict(headers or {}))
        return answer.status_code, answer.json()

    async def post(self, path, body=None, **headers):
        return await self.send("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    async def hook(self, name, **body):
        status, answer = await self.post(f"/api/hooks/{name}", {"harness": "test", **body})
        assert status == 200, answer
        return dict(answer)

    async def routes(self, **headers):
        """Method and path of every route, as the running application describes them."""
        status, schema = await self.send("GET", "/openapi.json", headers=headers)
        assert status == 200, schema
        found = [(name.upper(), path) for path, methods in schema["paths"].items() for name in methods]
        assert len(found) > 15, "the description is not that of the whole daemon"
        return found

    async def drain(self):
        assert await self.memory.drain(20)


@asynccontextmanager
async def daemon(backend=None, policy=None, host_file=None, tokens=None, read_only=frozenset(), **options):
    grants = {token: TokenGrant(scope, token in read_only) for token, scope in (tokens or {}).items()}
    adapter = backend or FakeBackend()
    policy = policy or TurnPolicy(exclude_session=True)
    async with MemorySlot(adapter, scope=BASE, store=host_file) as slot, TurnMemory(slot, policy) as memory:
        store = HostStore(slot.backend_name, host_file)
        server = RuntimeAdapterServer(memory, ServeSettings(**options), store=store, tokens=grants)
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3850") as http:
            try:
                yield Daemon(server, http, adapter)
            finally:
                store.close()
