"""``memslot tools stigmem mcp``, driven by the SDK's own client."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from abi_support import AGENT, closed_port
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.memory import create_connected_server_and_client_session as connected
from stigmem_double import StigmemDouble

from memory.stigmem.client import StigmemNode
from memory.stigmem.tool_server import build_server

TOOLS = ["assert_fact", "query_facts", "recall", "resolve_contradiction", "subscribe_scope", "lint_scope"]
TEA = {"entity": "user:alice", "relation": "preference:tea", "value": {"type": "text", "v": "oolong, always"}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def tools(url: str) -> AsyncIterator[ClientSession]:
    async with (
        StigmemNode(url, timeout_s=5, retry_pause_s=0.01) as node,
        connected(build_server(node, "agent:openclaw")) as session,
    ):
        yield session


async def use(session: ClientSession, name: str, **arguments: Any) -> Any:
    result = await session.call_tool(name, arguments)
    answer = json.loads(result.content[0].text)
    assert not result.isError, answer
    return answer


async def refused(session: ClientSession, name: str, **arguments: Any) -> str:
    result = await session.call_tool(name, arguments)
    assert result.isError
    return str(json.loads(result.content[0].text)["error"])


async def test_facts_are_asserted_found_and_recalled(double: StigmemDouble) -> None:
    async with tools(double.url) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS
        stored = await use(session, "assert_fact", **TEA, confidence=0.4)
        assert stored["source"] == "agent:openclaw"
        found = await use(session, "query_facts", entity="user:alice")
        assert [(fact["id"], fact["value"]["v"]) for fact in found["facts"]] == [
            (stored["id"], "oolong, always")
        ]
        assert not found["truncated"]
        recalled = await use(session, "recall", query="Does alice drink oolong?")
        assert [hit["fact"]["id"] for hit in recalled["content"]] == [stored["id"]]
        assert recalled["instructions"] == []
        assert "instruction" in recalled["directive"]
        named = await use(session, "assert_fact", **{**TEA, "relation": "memory:role"}, source=AGENT)
        assert named["source"] == AGENT
    assert not any("stigmem-session" in sent.headers for sent in double.requests)


@pytest.mark.parametrize("later", [False, True])
async def test_a_contradiction_is_named_and_resolved(double: StigmemDouble, later: bool) -> None:
    double.node.lints_later = later
    async with tools(double.url) as session:
        for tea in ("oolong", "sencha"):
            await use(session, "assert_fact", **{**TEA, "value": {"type": "text", "v": tea}})
        assert (await use(session, "query_facts", entity="user:alice"))["facts"] == []
        both = await use(session, "query_facts", entity="user:alice", include_contradicted=True)
        found = await use(session, "lint_scope", scope="company", checks=["contradiction"])
        (finding,) = found["findings"]
        conflict = finding["detail"].removeprefix("unresolved conflict ")
        once = {"conflict_id": conflict, "winning_fact_id": both["facts"][0]["id"]}
        assert (await use(session, "resolve_contradiction", **once))["conflict_status"] == "resolved"
        assert (await use(session, "lint_scope", scope="company", checks=["contradiction"]))["findings"] == []
        assert "409" in await refused(session, "resolve_contradiction", **once)


async def test_a_scope_is_followed_without_a_loss(double: StigmemDouble) -> None:
    async with tools(double.url) as session:
        begun = await use(session, "subscribe_scope", scope="company")
        assert begun["facts"] == []
        for number in range(5):
            await use(session, "assert_fact", **{**TEA, "relation": f"preference:{number}"})
        await use(session, "assert_fact", **{**TEA, "relation": "preference:0", "value": {"type": "null"}})
        seen, cursor = [], begun["cursor"]
        for _ in range(4):
            part = await use(session, "subscribe_scope", scope="company", cursor=cursor, limit=2)
            assert not part["truncated"]
            seen += [fact["relation"] for fact in part["facts"]]
            cursor = part["cursor"]
        ours = [relation for relation in seen if relation.startswith("preference:")]
        assert ours == [*(f"preference:{number}" for number in range(5)), "preference:0"]
        for row in double.node.facts[-3:]:
            row["timestamp"] = double.node.facts[-1]["timestamp"]  # as what a node stores in one transaction
        latest = double.node.facts[-4]["timestamp"]
        part = await use(session, "subscribe_scope", scope="company", cursor=latest, limit=1)
        assert len(part["facts"]) == 3
        team = await use(session, "subscribe_scope", scope="team")
        await use(session, "assert_fact", **TEA, scope="team")
        assert len((await use(session, "subscribe_scope", scope="team", cursor=team["cursor"]))["facts"]) == 1


async def test_a_wrong_call_names_the_field_and_reaches_no_node(double: StigmemDouble) -> None:
    async with tools(double.url) as session:
        for name, arguments, problem in (
            ("assert_fact", {**TEA, "entity": "Alice"}, "entity: is not a URI"),
            ("assert_fact", {**TEA, "confidnce": 1}, "confidnce"),
            ("assert_fact", {**TEA, "relation": "intent:goal", "confidence": 0.5}, "confidence must be 1.0"),
            ("assert_fact", {**TEA, "value": {"type": "number", "v": "abc"}}, "must be an int or a float"),
            ("query_facts", {"limit": 501}, "limit"),
            ("recall", {"query": "?"}, "query: holds no word"),
            ("resolve_contradiction", {"conflict_id": "c"}, "winning_fact_id: give this or new_value"),
            ("subscribe_scope", {"scope": "everybody"}, "scope"),
            ("nothing", {}, "there is no tool"),
        ):
            assert problem in await refused(session, name, **arguments)
    assert not double.requests


async def test_a_failed_job_and_a_node_that_is_down_are_errors(double: StigmemDouble) -> None:
    async with tools(double.url) as session:
        double.faults.add("500")
        assert "stigmem: " in await refused(session, "lint_scope", scope="company")
    async with tools(closed_port()) as session:
        for name, arguments in (
            ("query_facts", {}),
            ("recall", {"query": "tea"}),
            ("assert_fact", TEA),
            ("subscribe_scope", {"scope": "company"}),
        ):
            assert "stigmem: " in await refused(session, name, **arguments)


@pytest.mark.thorough
@pytest.mark.parametrize("down", [False, True])
async def test_the_command_serves_by_the_environment_alone(
    double: StigmemDouble, down: bool, tmp_path: Path
) -> None:
    errors = (tmp_path / "errors").open("w+")
    environ = {**os.environ, "STIGMEM_SOURCE_ENTITY": "agent:openclaw"}
    environ |= {"STIGMEM_URL": closed_port() if down else double.url, "STIGMEM_API_KEY": ""}
    command = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from memory.cli import main; main()", "tools", "stigmem", "mcp"],
        env=environ,
    )
    async with (
        stdio_client(command, errlog=errors) as (incoming, outgoing),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        if down:
            assert "stigmem: " in await refused(session, "query_facts")
            assert "stigmem: " in await refused(session, "lint_scope", scope="company")
        else:
            assert (await use(session, "assert_fact", **TEA))["source"] == "agent:openclaw"
    errors.seek(0)
    said = errors.read()
    errors.close()
    assert ("node probe" in said) == down
    assert "unexpected" not in said
