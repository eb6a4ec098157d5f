"""A wrong key, a page of HTML and an answer that never ends are each one sentence, and nothing is stored."""

import socket
import threading

import anyio
import pytest
from installed import installed
from variants import plain

from memory import (
    MemoryScope,
    MemslotError,
    NativeQueryRequest,
    SupportsNativeQuery,
    SupportsReadiness,
    open_memory,
)
from memory.testing import LoopbackAnswer
from memory.testing._http_server import HttpServer

SCOPE = MemoryScope(run_id="run", persona_id="alice")
PROVIDERS = [
    ("mem0", "llm"),
    ("mem0", "embedder"),
    ("simple_rag", "embedder"),
    ("graphiti", "llm"),
    ("graphiti", "embedder"),
    ("graphiti", "embedder of triplets"),
    ("rolling_summary", "llm"),
]
NEEDS = {"mem0": "mem0", "simple_rag": "mem0", "graphiti": "graphiti_core"}


class Endless:
    """A server that begins every answer with 200 and then sends white space for ever."""

    def __init__(self):
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _answer(self, connection):
        with connection:
            try:
                connection.recv(65_536)
                head = (
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                connection.sendall(head)
                while not self._closing.wait(0.02):
                    connection.sendall(b"1\r\n \r\n")
            except OSError:
                return  # the client left

    def close(self):
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def endless():
    server = Endless()
    yield server
    server.close()


async def assert_nothing_stored(memory, provider):
    query = memory.capability(SupportsNativeQuery)
    assert query is not None
    listed = "memory" if provider == "rolling_summary" else "count"
    raw = (await query.native_query(NativeQueryRequest(scope=SCOPE, operation=listed))).raw
    assert not any(raw.values() if isinstance(raw, dict) else raw), raw


async def complaint(tmp_path, provider, block, server, seconds):
    """What the user is told: by an error, or else by the receipt, the readiness and health."""
    if (module := NEEDS.get(provider)) and not installed(module):
        pytest.skip(f"{module} is not installed")
    scripted = {"model": "m", "base_url": server.base_url, "api_key": "sk-wrong"}
    block, _, triplets = block.partition(" of ")
    options = {block: scripted}
    if triplets:
        options["ingest"] = "triplet"
    if block == "embedder":
        options["dimensions"] = 64  # so that the opening asks nothing
    if provider == "graphiti":
        options = {"llm": scripted, **options}
    if provider == "rolling_summary":
        options["summariser"] = "llm"
        options["llm"] = {**scripted, "timeout_s": seconds}
    field = "condition" if provider in ("simple_rag", "rolling_summary") else "backend"
    settings = {
        field: provider,
        f"{field}s": {provider: options},
        "data_dir": str(tmp_path),
        "journal": False,
        "deadlines": {"write_s": seconds, "retrieve_s": seconds, "health_s": seconds},
    }
    try:
        async with open_memory({"memory": settings}, scope=SCOPE) as memory:
            try:
                fact = {"source": "Ada", "relation": "HAS", "target": "dog", "fact": "The dog is Biscuit."}
                said = "My dog is called Biscuit."
                receipt = await memory.after_turn(user=said, session_id="s", metadata={"triplets": [fact]})
            except MemslotError:
                await assert_nothing_stored(memory, provider)
                raise
            assert (provider, receipt.status) == ("rolling_summary", "pending")
            readiness = memory.capability(SupportsReadiness)
            said = (await readiness.wait_until_ready(SCOPE, 2.0)).detail
            await assert_nothing_stored(memory, provider)
            health = await memory.health()
            assert health.status != "ok"
            return "; ".join([said, *health.warnings])
    except MemslotError as error:
        return str(error)


@pytest.mark.parametrize(("provider", "block"), plain("rolling_summary", of=PROVIDERS))
async def test_an_answer_that_never_ends_ends_at_the_deadline(tmp_path, endless, provider, block):
    with anyio.fail_after(120):
        said = await complaint(tmp_path, provider, block, endless, 2.0)
    assert "timed out after" in said or "did not answer within" in said, said
    assert "\n" not in said
    assert "Biscuit" not in said


class Page(HttpServer):
    """A web page at every address."""

    def respond(self, request):
        return LoopbackAnswer(200, b"<html>It works!</html>", {"content-type": "text/html"})

    @property
    def base_url(self):
        return f"{self.url}/v1"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("401", "401"),
        *dict.fromkeys(("unreadable", "page"), "did not answer with JSON; check base_url").items(),
    ],
)
@pytest.mark.parametrize(("provider", "block"), plain("mem0", "rolling_summary", of=PROVIDERS))
async def test_a_wrong_key_and_a_page_of_html_are_named(tmp_path, llm, provider, block, fault, why):
    if fault == "page":
        with Page() as page:
            said = await complaint(tmp_path, provider, block, page, 20.0)
    else:
        endpoint = "chat/completions" if block == "llm" else "embeddings"
        llm.faults.add(fault, times=None, endpoint=endpoint)
        said = await complaint(tmp_path, provider, block, llm, 20.0)
        assert llm.faults.fired
    if provider == "rolling_summary" and fault != "401":  # it asks without the SDK
        why = "but not with JSON; check the server's address"
    assert why in said, said
    assert "\n" not in said
    assert "Biscuit" not in said
