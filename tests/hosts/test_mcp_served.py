"""MCP beside Signet's endpoints, in one process of ``memslot serve``: each token has its own memory by both."""

import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import metadata
from typing import Any

import anyio
import httpx
import pytest
from mcp_client import Client, over_http

from memory import MemoryScope, MemorySlot
from memory.runtime import ServeSettings
from memory.runtime._serving import answer
from memory.testing import FakeBackend

TOKENS = {name: f"token-of-{name}-0000000" for name in ("ada", "eve")}
ASK = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[str]:
    urls: list[str] = []
    ready = anyio.Event()

    def listening(url: str) -> None:
        urls.append(url)
        ready.set()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    scope = MemoryScope(run_id="r", persona_id="nobody")
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with MemorySlot(FakeBackend(), scope=scope) as slot, anyio.create_task_group() as tasks:
                tasks.start_soon(answer, slot, ServeSettings(**settings), listener, listening)
                await ready.wait()
                yield urls[0]
                tasks.cancel_scope.cancel()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def session(url: str, who: str) -> AbstractAsyncContextManager[Client]:
    return over_http(f"{url}/mcp", {"authorization": f"Bearer {TOKENS[who]}"})


async def found(of: Client) -> list[str]:
    return [row["content"] for row in await of.use("memory_search", query="iguana")]


async def test_a_token_has_one_memory_by_mcp_and_by_signet_and_reaches_no_other():
    tokens = [{"token": token, "persona_id": name} for name, token in TOKENS.items()]
    async with served(tokens=tokens) as url:
        async with session(url, "ada") as ada:
            await ada.use("memory_store", content="the iguana Rex")
            assert await found(ada) == ["the iguana Rex"]
        async with session(url, "eve") as eve:
            assert await found(eve) == []
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            for name, count in (("ada", 1), ("eve", 0)):
                headers = {"authorization": f"Bearer {TOKENS[name]}"}
                done = await http.post("/api/memory/recall", json={"query": "iguana"}, headers=headers)
                assert len(done.json()["results"]) == count


async def test_arguments_in_a_string_are_read_and_a_page_under_another_name_is_refused():
    headers = {"accept": "application/json, text/event-stream"}
    async with served() as url, httpx.AsyncClient(timeout=30) as http:
        call = {"name": "memory_search", "arguments": '{"query": "tea"}'}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        answer = (await http.post(f"{url}/mcp", json=body, headers=headers)).json()
        assert answer["result"]["content"][0]["text"] == "no memories were found"
        for name in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            refused = await http.post(f"{url}/mcp", json=ASK, headers={**headers, **name})
            assert refused.status_code in (400, 403, 421)


@pytest.mark.parametrize("why", ["missing", "not tested"])
async def test_without_an_mcp_that_can_be_used_everything_else_is_served(why, monkeypatch, caplog):
    for module in ("running", "server"):
        monkeypatch.delitem(sys.modules, f"memory.hosts.mcp.{module}", raising=False)
    if why == "missing":
        monkeypatch.setitem(sys.modules, "mcp", None)
    else:
        monkeypatch.setattr(metadata, "version", lambda name: "99.0")
    tokens = [{"token": TOKENS["ada"], "persona_id": "ada"}]
    headers = {"authorization": f"Bearer {TOKENS['ada']}"}
    async with served(tokens=tokens) as url, httpx.AsyncClient(base_url=url, headers=headers) as http:
        assert (await http.get("/health/ready")).status_code == 200
        assert (await http.post("/mcp", json=ASK)).status_code == 404
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["mcp 99.0 is installed" in line for line in warnings] == ([True] if why == "not tested" else [])


async def test_a_token_is_answered_from_its_own_memory_whatever_session_it_names():
    tokens = [{"token": token, "persona_id": name} for name, token in TOKENS.items()]
    async with served(tokens=tokens) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        accept = {"accept": "application/json, text/event-stream", "mcp-session-id": "of-an-earlier-server"}
        ada, eve = ({**accept, "authorization": f"Bearer {token}"} for token in TOKENS.values())

        async def call(headers: dict[str, str], name: str, **arguments: str) -> str:
            params = {"name": name, "arguments": arguments}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answer = await http.post("/mcp", json=asked, headers=headers)
            assert answer.status_code == 200
            assert "mcp-session-id" not in answer.headers, "a session that nobody ends would cost memory"
            return answer.text

        await call(ada, "memory_store", content="the iguana Rex")
        assert "Rex" in await call(ada, "memory_search", query="iguana")
        assert "Rex" not in await call(eve, "memory_search", query="iguana")
        assert (await http.post("/mcp", json=ASK, headers=accept)).status_code == 401
        large = json.dumps({**ASK, "params": "x" * 3_000_000})
        assert (await http.post("/mcp", content=large, headers=ada)).status_code == 413


async def test_without_tokens_a_page_of_elsewhere_is_refused():
    async with served() as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        accept = {"accept": "application/json, text/event-stream"}
        for other in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            assert (await http.post("/mcp", json=ASK, headers={**accept, **other})).status_code == 403


async def test_mcp_reaches_what_hooks_and_tools_reach():
    """All projects of a token: found, read, changed and forgotten; what it stores is found by them."""
    tokens = [{"token": TOKENS["ada"], "persona_id": "ada"}]
    async with (
        served(tokens=tokens) as url,
        session(url, "ada") as ada,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):
        headers = {"authorization": f"Bearer {TOKENS['ada']}"}

        async def post(path: str, **body: Any) -> dict[str, Any]:
            answer: dict[str, Any] = (await http.post(path, json=body, headers=headers)).json()
            return answer

        async def call(tool: str, **arguments: Any) -> tuple[bool, Any]:
            failed, text = await ada.call(tool, arguments)
            return failed, json.loads(text) if text[:1] in "[{" else text

        stored = await post("/api/memory/remember", content="the iguana eats kale", project="/zoo")
        assert await found(ada) == ["the iguana eats kale"]
        assert (await call("memory_get", id=stored["id"]))[1]["content"] == "the iguana eats kale"
        assert (await call("memory_modify", id=stored["id"], content="the iguana eats figs"))[0] is False
        assert await found(ada) == ["the iguana eats figs"]
        _, rex = await call("memory_store", content="the iguana is Rex")
        hook = {"harness": "t", "sessionKey": "s", "userMessage": "Which iguana?", "project": "/park"}
        assert "the iguana is Rex" in (await post("/api/hooks/user-prompt-submit", **hook))["inject"]
        for item_id in (stored["id"], rex["id"]):
            assert (await call("memory_forget", id=item_id))[0] is False
            failed, why = await call("memory_get", id=item_id)
            assert (failed, "there is no memory of this id" in why) == (True, True)
        answer = await post("/api/memory/recall", query="iguana", project="/zoo")
        assert item_id not in [row["id"] for row in answer["results"]]


@pytest.mark.thorough
async def test_strict_walls_hold_for_mcp():
    tokens = [{"token": TOKENS["ada"], "persona_id": "ada"}]
    async with served(tokens=tokens, isolate="strict") as url, session(url, "ada") as ada:
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            body = {"content": "the iguana eats kale", "project": "/zoo"}
            headers = {"authorization": f"Bearer {TOKENS['ada']}"}
            stored = (await http.post("/api/memory/remember", json=body, headers=headers)).json()
        assert await found(ada) == []
        for tool in ("memory_get", "memory_forget"):
            await ada.refused(tool, {"id": stored["id"]})
