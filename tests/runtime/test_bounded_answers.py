"""No client of ours reads an answer without end; each by its real library, against a server on the loopback."""

import gzip
import json
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest
from openai import APIConnectionError, AsyncOpenAI, OpenAI

import memory
from memory import Message
from memory.adapter import BackendProtocolError, _bounded
from memory.adapter.http import JsonHttp, http_client
from memory.adapter.models import counted_openai
from memory.runtime import AdapterClient, create_provider
from memory.testing import LoopbackAnswer
from memory.testing._http_server import HttpServer

MAX_BYTES = 1_000_000


class Server(HttpServer):
    body = b""
    encoding = ""

    def respond(self, request):
        packed = {"content-encoding": self.encoding} if self.encoding else {}
        return LoopbackAnswer(200, self.body, {"content-type": "application/json", **packed})


@pytest.fixture(autouse=True)
def low_bound(monkeypatch):
    monkeypatch.setattr(_bounded, "MAX_ANSWER_BYTES", MAX_BYTES)


@pytest.fixture
def server():
    with Server() as running:
        yield running


async def json_http(url):
    http = JsonHttp(url, backend="test")
    try:
        return await http.request("GET", "/")
    finally:
        await http.aclose()


async def signet(url):
    async with AdapterClient(url, harness="test") as client:
        return await client.health()


def model(kind):
    async def ask(url):
        options = {
            "model": "m",
            "base_url": url,
            "api_key": "k",
            "max_retries": 0,
        }
        provider = create_provider(kind, options)
        try:
            return await provider.complete([Message(role="user", content="tea?")])
        finally:
            await provider.aclose()

    return ask


async def of_an_sdk(url):
    """The client that Graphiti is given."""
    options = {"backend": "graphiti", "max_retries": 0}
    async with AsyncOpenAI(api_key="k", base_url=url) as bare, counted_openai(bare, **options) as client:
        return await causing(client.chat.completions.create(model="m", messages=[]))


async def of_a_synchronous_sdk(url):
    """The client that mem0 is given."""
    options = {"backend": "mem0", "max_retries": 0}
    with OpenAI(api_key="k", base_url=url) as bare, counted_openai(bare, **options) as client:
        ask = partial(client.embeddings.create, model="m", input="tea")
        return await causing(anyio.to_thread.run_sync(ask))


async def causing(call):
    """What the SDK raises is chained to our error."""
    with pytest.raises(APIConnectionError) as raised:
        await call
    raise raised.value.__cause__ or raised.value


async def plain(url):
    async with http_client(url, backend="test", timeout_s=10) as http:
        return (await http.get("/")).json()


CLIENTS = {
    "plain": plain,
    "openai in graphiti": of_an_sdk,
    "openai in mem0": of_a_synchronous_sdk,
    "json_http": json_http,
    "signet": signet,
    "openai": model("openai"),
    "anthropic": model("anthropic"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("encoding", ["gzip", ""])
async def test_an_answer_that_is_packed_or_without_end_is_given_up(server, client, encoding):
    """What is packed may hold a thousand times as much."""
    server.body, server.encoding = b'"' + b"x" * 2_000_000 + b'"', encoding
    if encoding:
        server.body = gzip.compress(server.body, 1)
    with pytest.raises(
        BackendProtocolError, match="it is packed" if encoding else f"longer than {MAX_BYTES}"
    ):
        await CLIENTS[client](server.url)


async def test_an_answer_as_long_as_the_bound_is_read_and_none_that_is_longer(server):
    server.body, server.encoding = b'"' + b"x" * (MAX_BYTES - 2) + b'"', ""
    assert len(await json_http(server.url)) == MAX_BYTES - 2
    server.body += b" "
    with pytest.raises(BackendProtocolError, match=f"longer than {MAX_BYTES} bytes"):
        await json_http(server.url)


async def test_what_a_synchronous_client_reads_within_the_bound_is_whole(server):
    server.body = json.dumps(
        {"data": [{"embedding": [0.5] * 40_000, "index": 0, "object": "embedding"}]}
    ).encode()
    url = server.url
    with OpenAI(api_key="k", base_url=url) as bare, counted_openai(bare) as client:
        answer = client.embeddings.create(model="m", input="tea", encoding_format="float")
    assert answer.data[0].embedding == [0.5] * 40_000


def test_every_client_of_httpx_is_made_in_one_place():
    """One that is made elsewhere has no bound."""
    root = Path(memory.__file__).parents[1]
    made = {
        path.relative_to(root).as_posix()
        for folder in ("memory", "conditions")
        for path in (root / folder).rglob("*.py")
        if "httpx.AsyncClient(" in path.read_text(encoding="utf-8")
    }
    assert made == {"memory/adapter/_bounded.py"}
