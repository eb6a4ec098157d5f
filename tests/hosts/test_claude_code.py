"""The plugin folder of Claude Code: its hooks as processes of their own, with the JSON Claude Code documents.

No ``claude`` runs here. The MCP server of the plugin does, as its ``.mcp.json`` says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from memory import ConfigError, MemoryScope, MemorySlot
from memory.hosts._installing import ClaudeCodeFolder
from memory.hosts.claude_code import answer_hooks, socket_path, spool_directory
from memory.runtime import TurnMemory
from memory.testing import FakeBackend, FakeNativeStore

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="hooks use a Unix socket")
COMMON = {"transcript_path": "/nowhere.jsonl", "cwd": "/nowhere", "permission_mode": "default"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClaudeCodeFolder]:
    runtime = tempfile.mkdtemp(dir="/tmp")  # a socket's path may have some hundred characters only
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    memory = {"backend": "full_history", "scope": {"run_id": "cc", "persona_id": "ada"}, "data_dir": "data"}
    (tmp_path / "memslot.yaml").write_text(json.dumps({"memory": memory}), encoding="utf-8")
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "settings.json").write_text('{"model": "opus"}', encoding="utf-8")
    folder = ClaudeCodeFolder(tmp_path / "claude")
    folder.install(tmp_path / "memslot.yaml")
    yield folder
    shutil.rmtree(runtime)


def hook(folder: ClaudeCodeFolder, name: str, session: str = "s1", **event: Any) -> Any:
    """Run one hook as ``hooks.json`` says; what it printed as JSON, or None."""
    plugin = folder.directory / "memslot" / "memslot"
    hooks = json.loads((plugin / "hooks" / "hooks.json").read_text("utf-8"))["hooks"]
    (entry,) = hooks[name]
    (command,) = entry["hooks"]
    done = subprocess.run(
        command["command"],
        shell=True,
        input=json.dumps({"session_id": session, "hook_event_name": name, **COMMON, **event}),
        env={**os.environ, "CLAUDE_PLUGIN_ROOT": str(plugin)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return json.loads(done.stdout) if done.stdout else None


@contextmanager
def mcp_server(folder: ClaudeCodeFolder) -> Iterator[None]:
    """The plugin's MCP server, as ``.mcp.json`` says; ready when it answers ``initialize``."""
    plugin = folder.directory / "memslot" / "memslot"
    server = json.loads((plugin / ".mcp.json").read_text("utf-8"))["mcpServers"]["memory"]
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    with subprocess.Popen(
        [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "memslot"
        yield
        process.stdin.close()
        process.wait(timeout=60)


def turn(folder: ClaudeCodeFolder, said: str, answered: str, session: str) -> Any:
    shown = hook(folder, "UserPromptSubmit", session, prompt=said)
    hook(folder, "Stop", session, last_assistant_message=answered, stop_hook_active=False)
    return shown


def test_hooks_and_the_server_of_the_plugin_remember_across_sessions(folder: ClaudeCodeFolder) -> None:
    spool = spool_directory(folder.directory.parent / "data")
    shown = turn(folder, "I like oolong tea.", "Noted.", "one")
    assert "does not answer" in shown["systemMessage"]
    assert len(list(spool.glob("*.json"))) == 1  # kept until a server is there
    with mcp_server(folder):
        hook(folder, "SessionStart", "two", source="startup")
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(_until, lambda: not list(spool.glob("*.json")))
        shown = turn(folder, "Which tea do I like?", "Oolong.", "two")
        section = shown["hookSpecificOutput"]["additionalContext"]
        assert "I like oolong tea." in section
        hook(folder, "PreCompact", "two", trigger="auto", custom_instructions="")
        hook(folder, "SessionEnd", "two", reason="exit")
    with mcp_server(folder):
        shown = hook(folder, "UserPromptSubmit", "three", prompt="What did you say of oolong?")
        assert "Oolong." in shown["hookSpecificOutput"]["additionalContext"]
    assert not socket_path(spool).exists()


async def _until(true: Any) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)


def test_fifty_hooks_at_once_are_fifty_stored(folder: ClaudeCodeFolder) -> None:
    spool = spool_directory(folder.directory.parent / "data")

    async def play() -> FakeNativeStore:
        store = FakeNativeStore()
        scope = MemoryScope(run_id="cc", persona_id="ada")
        async with MemorySlot(FakeBackend(store), scope=scope) as slot, TurnMemory(slot) as memory:
            async with anyio.create_task_group() as tasks:
                for at in range(50):
                    tasks.start_soon(
                        anyio.to_thread.run_sync, turn, folder, f"Said {at}.", f"Answer {at}.", f"s{at}"
                    )
            assert len(list(spool.glob("*.json"))) == 50
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer_hooks, memory, spool)
                await _until(lambda: not list(spool.glob("*.json")))
                tasks.cancel_scope.cancel()
        return store

    store = anyio.run(play)
    assert {row.text for row in store.rows.values()} >= {f"Said {at}." for at in range(50)}
    assert len({row.labels["event_id"] for row in store.rows.values()}) == 50


async def test_what_cannot_be_recorded_stays_and_what_cannot_be_read_is_put_aside(
    folder: ClaudeCodeFolder,
) -> None:
    spool = spool_directory(folder.directory.parent / "data")
    await anyio.to_thread.run_sync(turn, folder, "I like oolong tea.", "Noted.", "one")
    (spool / "0-bad.json").write_text("{", encoding="utf-8")
    store = FakeNativeStore()
    store.faults.add("401", times=1, endpoint="insert")
    scope = MemoryScope(run_id="cc", persona_id="ada")
    async with (
        MemorySlot(FakeBackend(store), scope=scope) as slot,
        TurnMemory(slot) as memory,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(answer_hooks, memory, spool)
        await _until(lambda: store.faults.fired)
        assert len(list(spool.glob("*.json"))) == 1
        await anyio.to_thread.run_sync(hook, folder, "SessionStart")
        await _until(lambda: not list(spool.glob("*.json")))
        tasks.cancel_scope.cancel()
    assert [row.text for row in store.rows.values()] == ["I like oolong tea.", "Noted."]
    assert [path.name for path in spool.glob("*.unreadable")] == ["0-bad.unreadable"]


def test_a_prompt_that_was_interrupted_is_not_recorded(folder: ClaudeCodeFolder) -> None:
    hook(folder, "UserPromptSubmit", prompt="Never answered.")
    turn(folder, "Answered.", "Yes.", "s1")
    spool = spool_directory(folder.directory.parent / "data")
    (kept,) = spool.glob("*.json")
    assert json.loads(kept.read_text("utf-8"))["user"] == "Answered."
    assert oct(kept.stat().st_mode)[-3:] == "600"
    assert oct(spool.stat().st_mode)[-3:] == "700"


def test_it_is_named_in_the_settings_and_leaves_nothing_behind(folder: ClaudeCodeFolder) -> None:
    settings = folder.directory / "settings.json"
    content = json.loads(settings.read_text("utf-8"))
    assert content["enabledPlugins"] == {"memslot@memslot": True}
    assert content["model"] == "opus"
    turn(folder, "I like oolong tea.", "Noted.", "one")
    assert any("not recorded" in line for line in folder.uninstall())
    assert json.loads(settings.read_text("utf-8")) == {"model": "opus"}
    assert [path.name for path in folder.directory.rglob("*")] == ["settings.json"]
    settings.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not JSON"):
        folder.install(folder.directory.parent / "memslot.yaml")
