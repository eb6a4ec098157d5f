"""``memslot tools mcp``, driven by the SDK's own client over stdio and streamable HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_connected_server_and_client_session as connected

from memory import AdapterMode, ConfigError, MemoryScope, MemorySlot, ScopeError
from memory.hosts.mcp import running
from memory.hosts.mcp.server import build_server
from memory.plugins.config import load_config
from memory.runtime import MemoryItems, _serving
from memory.testing import FakeBackend, FakeNativeStore
from memory.testing._faults import FAKE_KEY

ADA = MemoryScope(run_id="mcp", persona_id="ada")
BOB = MemoryScope(run_id="mcp", persona_id="bob")
ALL = ["memory_search", "memory_store", "memory_get", "memory_modify", "memory_forget"]


@pytest.fixture
def store() -> FakeNativeStore:
    return FakeNativeStore()


@asynccontextmanager
async def client(
    store: FakeNativeStore, scope: MemoryScope = ADA, *, read_only: bool = False
) -> AsyncIterator[tuple[ClientSession, MemorySlot]]:
    async with (
        MemorySlot(FakeBackend(store), scope=scope) as slot,
        connected(build_server(MemoryItems(slot), read_only=read_only)) as session,
    ):
        yield session, slot


async def use(session: ClientSession, name: str, **arguments: Any) -> Any:
    result = await session.call_tool(name, arguments)
    assert not result.isError, result.content
    said = result.content[0].text
    return [] if said == "no memories were found" else json.loads(said)


async def refused(session: ClientSession, name: str, arguments: Any) -> str:
    result = await session.call_tool(name, arguments)
    assert result.isError
    return str(result.content[0].text)


async def test_five_tools_over_one_memory(store: FakeNativeStore) -> None:
    async with client(store) as (session, _):
        listed = (await session.list_tools()).tools
        assert [tool.name for tool in listed] == ALL
        assert [tool.name for tool in listed if tool.annotations.readOnlyHint] == [
            "memory_search",
            "memory_get",
        ]
        stored = await use(session, "memory_store", content="I like oolong.")
        assert stored["status"] == "committed"
        (memory,) = await use(session, "memory_search", query="What do I like?")
        assert memory["content"] == "I like oolong."
        assert memory["id"] == stored["id"]
        assert (await use(session, "memory_get", id=memory["id"]))["content"] == "I like oolong."
        assert (await use(session, "memory_modify", id=memory["id"], content="I like sencha."))["status"]
        assert (await use(session, "memory_get", id=memory["id"]))["content"] == "I like sencha."
        await use(session, "memory_forget", id=memory["id"])
        assert await use(session, "memory_search", query="What do I like?") == []
        assert "no memory of this id" in await refused(session, "memory_get", {"id": memory["id"]})


async def test_read_only_offers_and_changes_nothing(store: FakeNativeStore) -> None:
    async with client(store, read_only=True) as (session, slot):
        await slot.set_mode(AdapterMode(read_only=True))
        before = store.fingerprint()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["memory_search", "memory_get"]
        for name in ("memory_store", "memory_forget"):
            assert "there is no tool" in await refused(session, name, {"content": "x", "id": "x"})
        await use(session, "memory_search", query="anything")
        assert store.fingerprint() == before


async def test_one_scope_reaches_no_other(store: FakeNativeStore) -> None:
    async with client(store, BOB) as (session, _):
        stored = await use(session, "memory_store", content="Bob's secret.")
    async with client(store) as (session, _):
        assert await use(session, "memory_search", query="What is the secret?") == []
        assert "no memory of this id" in await refused(session, "memory_get", {"id": stored["id"]})
        await refused(session, "memory_forget", {"id": stored["id"]})
        await refused(session, "memory_modify", {"id": stored["id"], "content": "mine"})
    assert [row.text for row in store.rows.values()] == ["Bob's secret."]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("memory_search", {}, "query"),
        ("memory_search", {"query": "  "}, "blank"),
        ("memory_search", {"query": "x", "limit": 0}, "limit"),
        ("memory_search", {"query": "x", "scope": "bob"}, "scope"),
        ("memory_store", {"content": "x" * 20_001}, "content"),
        ("memory_store", {"content": {"a": ["b"] * 100}}, "content"),
        ("memory_get", {"id": None}, "id"),
        ("memory_drop", {}, "there is no tool"),
        (
            "memory_store",
            {"content": '<memory-context backend="b" scope="s">x</memory-context>'},
            "recalled context",
        ),
    ],
)
async def test_hostile_arguments_are_answered_and_repeated_nowhere(
    name: str, arguments: dict[str, Any], words: str, store: FakeNativeStore
) -> None:
    async with client(store) as (session, _):
        said = await refused(session, name, arguments)
        assert words in said
        assert len(said) < 300
        assert await use(session, "memory_search", query="anything") == []
    assert not store.rows


async def test_a_failing_memory_is_a_tool_result_and_never_looks_empty(store: FakeNativeStore) -> None:
    async with client(store) as (session, _):
        store.faults.add("500", times=None)
        said = await refused(session, "memory_search", {"query": "the planted words"})
        assert "planted" not in said
        assert FAKE_KEY not in said
        store.faults.clear()
        await use(session, "memory_search", query="the planted words")


# -- transports ---------------------------------------------------------------------------------------------


def configured(tmp_path: Path, **memory: Any) -> Path:
    settings = {"backend": "full_history", "scope": {"run_id": "mcp", "persona_id": "ada"}, **memory}
    path = tmp_path / "memory.yaml"
    path.write_text(json.dumps({"memory": settings}), encoding="utf-8")
    return path


NOISY = """
import os, sys
import conditions.full_history as module
loud = module.FullHistory.record_event
async def record_event(self, event):
    print("printed by a library")
    os.write(1, b"written by C\\n")
    return await loud(self, event)
module.FullHistory.record_event = record_event
from memory.cli import main
main()
"""


@pytest.mark.thorough
async def test_over_stdio_stdout_carries_the_protocol_alone_and_the_memory_lasts(tmp_path: Path) -> None:
    path = configured(tmp_path)
    with (tmp_path / "stderr").open("w+") as errors:
        for turn in range(2):
            server = StdioServerParameters(
                command=sys.executable, args=["-c", NOISY, "tools", "mcp", str(path)]
            )
            async with (
                stdio_client(server, errlog=errors) as (incoming, outgoing),
                ClientSession(incoming, outgoing) as session,
            ):
                initialized = await session.initialize()
                assert initialized.serverInfo.name == "memslot"
                assert [tool.name for tool in (await session.list_tools()).tools] == ALL[:2]
                if turn == 0:
                    await use(session, "memory_store", content="I like oolong.")
                found = await use(session, "memory_search", query="What do I like?")
                assert [row["content"] for row in found] == ["I like oolong."]
        errors.seek(0)
        printed = errors.read()
    assert "printed by a library" in printed
    assert "written by C" in printed


HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


@pytest.mark.thorough
async def test_over_stdio_what_a_client_says_wrongly_reaches_no_log(tmp_path: Path) -> None:
    lines = [
        "planted garbage",
        HELLO,
        {"jsonrpc": "2.0", "id": 2, "method": "nope", "params": {"a": "planted"}},
    ]
    said = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    command = [
        sys.executable,
        "-c",
        "from memory.cli import main; main()",
        "tools",
        "mcp",
        str(configured(tmp_path)),
    ]
    done = await anyio.run_process(command, input=said.encode())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer.get("id") for answer in answers} == {None, 1, 2}
    assert "planted" not in done.stderr.decode()
    assert "Failed to validate request" in done.stderr.decode()


@pytest.mark.thorough
def test_over_stdio_odd_clients_are_answered_and_the_server_lives_on(tmp_path: Path) -> None:
    def call(number: int, **arguments: Any) -> bytes:
        name = "memory_store" if "content" in arguments else "memory_search"
        return said(number, "tools/call", {"name": name, "arguments": arguments})

    def said(number: int | None, method: str, params: Any = None) -> bytes:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        if number is None:
            del message["id"]
        return json.dumps(message).encode() + b"\n"

    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    command = [sys.executable, "-m", "memslot", "tools", "mcp", str(configured(tmp_path))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def answer(*lines: bytes) -> dict[str, Any]:
            server.stdin.write(b"".join(lines))
            server.stdin.flush()
            found: dict[str, Any] = json.loads(server.stdout.readline())
            return found

        answer(b"\xef\xbb\xbf" + said(0, "initialize", about))
        server.stdin.write(said(None, "notifications/initialized"))
        assert not answer(call(1, content="I like oolong \ud83c tea"))["result"]["isError"]
        for number, limit in enumerate((5.0, None, 5), 2):
            found = answer(call(number, query="tea", limit=limit))["result"]
            assert "oolong" in found["content"][0]["text"]
        assert answer(call(7, query="tea", limit=5.5))["result"]["isError"]
        for number in range(10, 40):
            cancelled = said(None, "notifications/cancelled", {"requestId": number})
            found = answer(call(number, query="tea"), cancelled, said(number + 100, "ping"))
            while found["id"] != number + 100:  # answered before it was cancelled
                found = answer()
        odd = (b"not json\n", b"[]\n", b"\xff\xfe\n", b"\r\n", said(None, "notifications/roots/list_changed"))
        found = answer(*odd, said(50, "ping"))
        while found.get("id") != 50:  # the SDK may say that it could not read a message
            found = answer()
        server.stdin.close()
        assert server.wait(60) == 0


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_over_stdio_a_client_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from memory.cli import main; main()",
        "tools",
        "mcp",
        str(configured(tmp_path)),
    ]
    with open("/dev/full", "wb") as full:  # noqa: ASYNC230
        done = await anyio.run_process(
            command, input=json.dumps(HELLO).encode() + b"\n", stdout=full, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "error: the client cannot be written to (No space left on device)"
    ]


@pytest.fixture
def over_http(tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def serving(**options: Any) -> AsyncIterator[str]:
        config, urls, ready = load_config(configured(tmp_path)), list[str](), anyio.Event()

        def listening(url: str) -> None:
            urls.append(url)
            ready.set()

        async with anyio.create_task_group() as tasks:

            async def serve() -> None:
                await running.serve_http(config, 0, listening, **options)

            tasks.start_soon(serve)
            await ready.wait()
            yield urls[0]
            tasks.cancel_scope.cancel()

    return serving


async def test_over_http_many_clients_share_one_memory(over_http: Callable[..., Any]) -> None:
    async with over_http() as url:
        for turn in range(2):
            async with (
                streamable_http_client(url) as (incoming, outgoing, _),
                ClientSession(incoming, outgoing) as session,
            ):
                await session.initialize()
                if turn == 0:
                    await use(session, "memory_store", content="I like oolong.")
                found = await use(session, "memory_search", query="What do I like?")
                assert [row["content"] for row in found] == ["I like oolong."]


async def test_over_http_read_only_writes_nothing(over_http: Callable[..., Any]) -> None:
    async with (
        over_http(read_only=True) as url,
        streamable_http_client(url) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["memory_search"]


async def test_over_http_a_page_under_another_name_is_refused(over_http: Callable[..., Any]) -> None:
    import httpx

    async with over_http() as url, httpx.AsyncClient() as browser:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            answer = await browser.post(url, json=body, headers={**accept, **headers})
            assert answer.status_code in (403, 421)
        assert (await browser.get(url.replace("/mcp", "/"))).status_code == 404


async def test_over_http_requests_have_the_limits_of_memslot_serve(
    over_http: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    bounded = _serving.bounded_protocol
    monkeypatch.setattr(_serving, "bounded_protocol", lambda header_s, each: bounded(header_s / 20, each))
    async with over_http() as url, httpx.AsyncClient() as http:
        accept = {"accept": "application/json, text/event-stream"}
        large = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "x" * 3_000_000}}
        assert (await http.post(url, json=large, headers=accept)).status_code == 413
        address = httpx.URL(url)
        for head in (b"POST /mcp HTTP/1.1\r\nhost: x\r\n", b"GET /mcp HTTP/1.1\r\nx: " + b"x" * 1_000_000):
            async with await anyio.connect_tcp(str(address.host), address.port or 0) as line:
                with anyio.fail_after(30), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    await line.send(head)
                    while True:
                        await line.receive()


@pytest.mark.thorough
def test_over_http_nothing_of_signets_extra_is_needed() -> None:
    gone = "import sys; sys.modules.update(dict.fromkeys(['fastapi', 'httptools', 'prometheus_client']))"
    needed = "import memory.hosts.mcp.running, memory.runtime._serving, memory.runtime.signet.http"
    subprocess.run([sys.executable, "-c", f"{gone}; {needed}"], check=True)


async def test_what_cannot_be_served_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ScopeError, match=r"memory\.scope"):
        await running.serve_http(load_config(configured(tmp_path, scope=None)), 0, print)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="--port"):
        await running.serve_http(load_config(configured(tmp_path)), taken.getsockname()[1], print)


@pytest.mark.thorough
async def test_it_starts_although_the_node_is_down_and_its_tools_say_so(tmp_path: Path) -> None:
    """Six of eight starts against a dead node ended, and two hung for a minute."""
    file = tmp_path / "memory.yaml"
    block = {"honcho": {"base_url": "http://127.0.0.1:9", "timeout_s": 1}}
    scope = {"run_id": "r", "persona_id": "ada"}
    memory = {"backend": "honcho", "scope": scope, "data_dir": "kept", "backends": block}
    file.write_text(json.dumps({"memory": memory}))
    params = StdioServerParameters(
        command=sys.executable, args=["-c", "from memory.cli import main; main()", "tools", "mcp", str(file)]
    )
    with anyio.fail_after(60):
        async with stdio_client(params) as streams, ClientSession(*streams) as client:
            started = await client.initialize()
            assert "memory" in (started.instructions or "")
            for _ in range(2):
                result = await client.call_tool("memory_search", {"query": "tea"})
                assert result.isError


@pytest.mark.thorough
async def test_two_windows_share_a_memory_and_the_second_outlives_the_first(tmp_path: Path) -> None:
    file = tmp_path / "memory.yaml"
    scope = {"run_id": "r", "persona_id": "ada"}
    file.write_text(json.dumps({"memory": {"backend": "mem0", "scope": scope, "data_dir": "kept"}}))
    params = StdioServerParameters(
        command=sys.executable, args=["-c", "from memory.cli import main; main()", "tools", "mcp", str(file)]
    )

    async def found(client: ClientSession) -> str:
        result = await client.call_tool("memory_search", {"query": "bike"})
        assert not result.isError
        return str(result.content[0])

    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting})
    first = await anyio.open_process([params.command, *params.args], stderr=None)
    try:
        assert first.stdin is not None
        assert first.stdout is not None
        with anyio.fail_after(120):
            await first.stdin.send(f"{line}\n".encode())
            assert b"memslot" in await first.stdout.receive()
            async with stdio_client(params) as streams, ClientSession(*streams) as second:
                await second.initialize()
                assert "no memories were found" in await found(second)
                await second.call_tool("memory_store", {"content": "My bike is red."})
                assert "My bike is red." in await found(second)
                await first.stdin.aclose()
                await first.wait()
                assert "My bike is red." in await found(second)
    finally:
        await first.aclose()
