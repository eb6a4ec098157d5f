"""Real Signet plugins play a conversation against ``memslot serve``.

No Signet package can be installed; plugins are built from the public repository. ``SIGNET_OPENCODE_PLUGIN`` names a
built ``signet.mjs``, ``SIGNET_OPENCLAW_PLUGIN`` a built ``index.js``; node runs them. ``SIGNET_MCP_SERVER`` names
the daemon's ``mcp-stdio.ts``, which bun runs.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("signet_plugins.mjs")
PLUGINS = {"opencode": "SIGNET_OPENCODE_PLUGIN", "openclaw": "SIGNET_OPENCLAW_PLUGIN"}


@pytest.fixture
def plugin(request):
    variable = PLUGINS["opencode" if "opencode" in request.node.name else "openclaw"]
    built = os.environ.get(variable)
    if not built or shutil.which("node") is None:
        pytest.skip(f"{variable} names no built plugin, or node is not installed")
    return built


@pytest.fixture
def url(plugin, served):
    return served


@pytest.fixture
def served(tmp_path):
    config = tmp_path / "serve.yaml"
    scope = {"run_id": "r", "persona_id": "ada"}
    config.write_text(json.dumps({"memory": {"backend": "mem0", "scope": scope, "data_dir": str(tmp_path)}}))
    command = [
        sys.executable,
        "-c",
        "from memory.cli import main; main()",
        "serve",
        str(config),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
            process.terminate()
            assert process.wait(300) == 0
        finally:
            process.kill()


def played(kind, plugin, url, directory):
    done = subprocess.run(
        ["node", str(DRIVER), kind, plugin, url],
        capture_output=True, text=True, timeout=300, cwd=directory,
        env={**os.environ, "HOME": str(directory)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    return outcome


def test_opencode_remembers_across_sessions(plugin, url, tmp_path):
    outcome = played("opencode", plugin, url, tmp_path)
    assert outcome["warnings"] == []
    assert outcome["first"] == ""
    assert "The pot is blue" in outcome["searched"]
    assert outcome["got"] == "The pot is blue"
    assert "The pot is blue" in outcome["listed"]
    assert outcome["modified"] == "Memory updated."
    assert outcome["compacting"].startswith("Summarize this session")
    for remembered in ("My favourite tea is oolong.", "The pot is green", "We spoke of tea."):
        assert remembered in outcome["second"]
    assert "The pot is green" in outcome["again"], "it was shown to one request"
    assert "The pot is green" in outcome["elsewhere"], "from a second project"
    assert outcome["forgotten"] == "Memory forgotten."
    assert "The pot is green" not in outcome["third"]


def test_openclaw_remembers_across_sessions(plugin, url, tmp_path):
    outcome = played("openclaw", plugin, url, tmp_path)
    assert all("/api/marketplace/" in warning for warning in outcome["warnings"])
    assert outcome["first"] == ""
    assert "The pot is blue" in outcome["searched"]
    assert "My favourite tea is oolong." in outcome["second"]
    assert "The pot is green" in outcome["second"]
    assert "<signet-memory" in outcome["second"]


@pytest.mark.thorough
async def test_signets_mcp_server_stores_finds_and_forgets(tmp_path, served):
    script = os.environ.get("SIGNET_MCP_SERVER")
    if not script or shutil.which("bun") is None:
        pytest.skip("SIGNET_MCP_SERVER names no mcp-stdio.ts of Signet's, or bun is not installed")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    env = {**os.environ, "SIGNET_DAEMON_URL": served, "SIGNET_WORKSPACE": "/home/user/tea"}
    server = StdioServerParameters(command="bun", args=[script], env=env)
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            return bool(result.isError), result.content[0].text

        failed, stored = await call("memory_store", content="the ibex likes salt", tags="goat")
        assert not failed
        item_id = json.loads(stored)["id"]
        assert "the ibex likes salt" in (await call("memory_search", query="ibex"))[1]
        assert (await call("memory_modify", id=item_id, content="the ibex loves salt", reason="more"))[
            0
        ] is False
        assert json.loads((await call("memory_get", id=item_id))[1])["content"] == "the ibex loves salt"
        assert (await call("memory_forget", id=item_id, reason="gone"))[0] is False
        assert (await call("memory_get", id=item_id))[0] is True
        assert "the ibex loves salt" not in (await call("memory_search", query="ibex"))[1]
