"""``memslot setup`` into an agent that then remembers: between its answers and the first session nothing is done.

The agents that are programs, Nanobot, Hermes and Codex are set up in the tests of each.
"""

import json
import sys
from pathlib import Path

import anyio
import pytest
from mcp_client import over_stdio
from setting_up import set_up
from test_hooks import HOSTS, mcp_server, run_hook, section_of, turn

pytestmark = pytest.mark.thorough

LIKES, ASKS = "I like oolong tea.", "Which tea do I like?"


@pytest.mark.parametrize("name", HOSTS)
def test_an_agent_with_hooks_remembers(name, tmp_path):
    folder = HOSTS[name](tmp_path / {"claude-code": ".claude"}.get(name, f".{name}"))
    folder.directory.mkdir()
    assert str(folder.folder) in set_up(tmp_path, name)
    with mcp_server(folder):
        assert LIKES not in str(turn(folder, LIKES, "Noted.", "one"))
    with mcp_server(folder):
        assert LIKES in section_of(run_hook(folder, "asks", "two", prompt=ASKS))
    folder.uninstall()
    assert list(folder.directory.iterdir()) == []


async def test_a_client_of_its_tools_remembers(tmp_path):
    printed = await anyio.to_thread.run_sync(set_up, tmp_path, "mcp")
    (line,) = (line for line in printed.splitlines() if line.startswith("{"))
    server = json.loads(line)["mcpServers"]["memory"]
    command = str(Path(sys.executable).with_name(server["command"]))
    found = ""
    for name, given in (("memory_store", {"content": LIKES}), ("memory_search", {"query": ASKS})):
        async with over_stdio([command, *server["args"]]) as (session, _):
            _, found = await session.call(name, given)
    assert LIKES in found
