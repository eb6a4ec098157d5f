"""An MCP server as a memory: the preset over a model of the reference server, and over itself where it is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from memory import BackendError, ConfigError, open_memory
from memory.backends.mcp.options import McpOptions
from memory.backends.mcp.servers import Servers, at, filled
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))
from profiles import Mcp

SERVER = Path(__file__).with_name("graph_server.py")
REAL = os.environ.get("MCP_SERVER_MEMORY", "")


def config(*command: str) -> dict[str, Any]:
    block = {"preset": "server-memory", "command": list(command)}
    return {"memory": {"backend": "mcp", "backends": {"mcp": block}}}


@pytest.mark.thorough
class TestPreset(MemoryContract):
    config = config(sys.executable, str(SERVER))
    profile = Mcp
    anyio_backends = ("asyncio",)


@pytest.mark.thorough
@pytest.mark.skipif(not REAL, reason="MCP_SERVER_MEMORY names no server")
class TestReferenceServer(MemoryContract):
    config = config(REAL)
    profile = Mcp
    anyio_backends = ("asyncio",)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_is_said_in_one_process_is_known_in_the_next(tmp_path: Path, loop: str) -> None:
    block = config(sys.executable, str(SERVER))["memory"]
    block |= {"data_dir": str(tmp_path), "scope": {"run_id": "r", "persona_id": "ada"}}

    async def talk() -> tuple[str, str]:
        async with open_memory({"memory": block}) as memory:
            receipt = await memory.after_turn(user="My parrot is called Kiwi.", session_id="1")
            assert receipt.status == "committed"
            assert len(receipt.native_ids) == 1
        async with open_memory({"memory": block}) as memory:
            known = await memory.before_turn("What is my parrot called?", session_id="2")
            bob = memory.for_scope(persona_id="bob")
            return known, await bob.before_turn("What is my parrot called?", session_id="2")

    known, foreign = anyio.run(talk, backend=loop)
    assert "Kiwi" in known
    assert foreign == ""


def test_what_a_failing_tool_says_reaches_no_error(tmp_path: Path) -> None:
    options = McpOptions.model_validate(config(sys.executable, str(SERVER))["memory"]["backends"]["mcp"])
    servers = Servers(options, tmp_path)
    assert options.delete is not None
    try:
        with pytest.raises(BackendError) as raised:
            servers.call("scope", options.delete, names=["boom"])
        assert str(raised.value) == "the tool delete_entities failed"
    finally:
        servers.close_all()


def test_processes_are_ended_where_there_are_too_many(tmp_path: Path) -> None:
    block = config(sys.executable, str(SERVER))["memory"]["backends"]["mcp"] | {"open_servers": 1}
    options = McpOptions.model_validate(block)
    servers = Servers(options, tmp_path)
    assert options.list_all is not None
    try:
        for scope in ("one", "two", "one"):
            assert servers.rows(scope, options.list_all) == []
            assert list(servers._open) == [scope]
    finally:
        servers.close_all()


def test_a_block_says_what_is_missing() -> None:
    block = {"memory": {"backend": "mcp", "backends": {"mcp": {"preset": None, "command": ["x"]}}}}
    with pytest.raises(ConfigError, match="give store, search, list_all, delete, or a preset: server-memory"):
        MemoryAdapterRegistry().create(load_config(block))


def test_templates_and_places() -> None:
    template = {"all": {"$each": {"n": "{name}", "o": ["{text}"]}}, "fixed": 1, "q": "{query}"}
    values = {"each": [{"name": "a", "text": "A {name}"}, {"name": "b", "text": "B"}], "query": "x"}
    made = filled(template, values)
    assert made == {"all": [{"n": "a", "o": ["A {name}"]}, {"n": "b", "o": ["B"]}], "fixed": 1, "q": "x"}
    assert at({"a": [{"b": 1}]}, "a.0.b") == 1
    assert at({"a": []}, "a.0.b") is None
    assert at([1], "") == [1]
