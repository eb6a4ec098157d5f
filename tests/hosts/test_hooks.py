"""The hooks of Claude Code, Codex and Cursor as processes of their own, with the JSON their hosts document.

No ``claude``, ``codex`` or ``cursor`` runs here; test_codex.py has a real Codex. The MCP server runs as the
host's configuration says.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import tomllib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import anyio
import pytest

from memory import ConfigError, MemoryEvent, MemoryScope, MemorySlot, WriteReceipt
from memory.hosts import _table, hooks
from memory.hosts._installing import ClaudeCodeFolder, CodexFolder, CursorFolder, HookFolder
from memory.hosts.hooks import answer_hooks, socket_path
from memory.runtime import TurnMemory, spool_directory
from memory.testing import FakeBackend, FakeNativeStore

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="hooks use a Unix socket")
CONVERSATION = {"conversation_id": "s1", "generation_id": "g1", "model": "m", "cursor_version": "3.20.17"}
EVENTS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "claude-code": {
        "begins": ("SessionStart", {"source": "startup"}),
        "asks": ("UserPromptSubmit", {}),
        "ends": ("SessionEnd", {"reason": "exit"}),
        "answers": ("Stop", {"stop_hook_active": False}),
        "shortens": ("PreCompact", {"trigger": "auto", "custom_instructions": ""}),
    },
    "cursor": {
        "begins": ("sessionStart", {"composer_mode": "agent", "is_background_agent": False}),
        "asks": ("beforeSubmitPrompt", {"attachments": []}),
        "answers": ("afterAgentResponse", {}),
        "stops": ("stop", {"status": "completed", "loop_count": 0}),
        "shortens": ("preCompact", {"trigger": "auto", "context_usage_percent": 90}),
        "ends": ("sessionEnd", {"reason": "completed", "duration_ms": 1}),
    },
}
EVENTS["codex"] = EVENTS["claude-code"]
HOSTS = {"claude-code": ClaudeCodeFolder, "codex": CodexFolder, "cursor": CursorFolder}
every_host = pytest.mark.parametrize("host", HOSTS, indirect=True)


@pytest.fixture
def host(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "claude-code"))


@pytest.fixture
def folder(host: str, tmp_path: Path) -> HookFolder:
    memory = {"backend": "full_history", "scope": {"run_id": "cc", "persona_id": "ada"}, "data_dir": "data"}
    (tmp_path / "memslot.yaml").write_text(json.dumps({"memory": memory}), encoding="utf-8")
    directory = tmp_path / "it's the agent's"
    directory.mkdir()
    folder = HOSTS[host](directory)
    folder.install(tmp_path / "memslot.yaml")
    return folder


def spool_of(folder: HookFolder) -> Path:
    return spool_directory(folder.directory.parent / "data")


def command_of(folder: HookFolder, name: str) -> str:
    """The command of an event, where the host looks for it."""
    plugin = folder.folder / "memslot"
    file = (
        plugin / "hooks" / "hooks.json" if folder.name == "claude-code" else folder.directory / "hooks.json"
    )
    (entry,) = json.loads(file.read_text("utf-8"))["hooks"][name]
    return str(entry["command"] if folder.name == "cursor" else entry["hooks"][0]["command"])


def run_hook(
    folder: HookFolder, kind: str, session: str = "s1", *, stderr: str = "", **event: Any
) -> dict[str, Any] | None:
    """Run one hook with the JSON its host documents; what it printed, or None."""
    name, given = EVENTS[folder.name][kind]
    given = {"hook_event_name": name, "transcript_path": None, **given, **event}
    given |= (
        {**CONVERSATION, "conversation_id": session}
        if folder.name == "cursor"
        else {"session_id": session, "cwd": "/nowhere", "permission_mode": "default"}
    )
    done = subprocess.run(
        command_of(folder, name),
        shell=True,
        input=json.dumps(given),
        env={**os.environ, "CLAUDE_PLUGIN_ROOT": str(folder.folder / "memslot")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert stderr is ANY or done.stderr == stderr
    return json.loads(done.stdout) if done.stdout else None


def section_of(shown: Any) -> str:
    return str(shown.get("additional_context") or shown["hookSpecificOutput"]["additionalContext"])


@contextmanager
def mcp_server(folder: HookFolder) -> Iterator[None]:
    """The host's MCP server, as its configuration says; ready when it answers ``initialize``."""
    if folder.name == "codex":
        server = tomllib.loads((folder.directory / "config.toml").read_text("utf-8"))["mcp_servers"][
            "memslot"
        ]
    elif folder.name == "cursor":
        server = json.loads((folder.directory / "mcp.json").read_text("utf-8"))["mcpServers"]["memslot"]
    else:
        written = (folder.folder / "memslot" / ".mcp.json").read_text("utf-8")
        server = json.loads(written)["mcpServers"]["memory"]
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


def turn(folder: HookFolder, said: str, answered: str, session: str, stderr: Any = "") -> Any:
    shown = run_hook(folder, "asks", session, prompt=said, stderr=stderr)
    if folder.name == "cursor":
        run_hook(folder, "answers", session, text="Let me look.")
        run_hook(folder, "answers", session, text=answered)
        run_hook(folder, "stops", session)
    else:
        run_hook(folder, "answers", session, last_assistant_message=answered)
    return shown


@pytest.mark.thorough
@every_host
def test_hooks_and_the_server_remember_across_sessions(folder: HookFolder) -> None:
    spool, missing = spool_of(folder), "memslot: the memory does not answer; nothing was recalled"
    if folder.name == "cursor":
        assert turn(folder, "I like oolong tea.", "Noted.", "one", f"{missing}\n") == {"continue": True}
    else:
        assert turn(folder, "I like oolong tea.", "Noted.", "one") == {"systemMessage": missing}
    assert len(list(spool.glob("*.json"))) == 1  # kept until a server is there
    with mcp_server(folder):
        run_hook(folder, "begins", "two")
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(_until, lambda: not list(spool.glob("*.json")))
        shown = turn(folder, "Which tea do I like?", "Oolong.", "two")
        assert "I like oolong tea." in section_of(shown)
        assert "Let me look." not in section_of(shown)
        run_hook(folder, "shortens", "two")
        run_hook(folder, "ends", "two")
    with mcp_server(folder):
        shown = run_hook(folder, "asks", "three", prompt="What did you say of oolong?")
        assert "Oolong." in section_of(shown)
    assert not socket_path(spool).exists()


@pytest.mark.thorough
@every_host
def test_what_the_conversation_still_holds_is_not_shown_again(folder: HookFolder) -> None:
    spool = spool_of(folder)
    turn(folder, "I like oolong tea.", "Noted.", "one", ANY)
    with mcp_server(folder), anyio.from_thread.start_blocking_portal() as portal:

        def is_shown(session: str) -> bool:
            return "I like oolong tea." in str(run_hook(folder, "asks", session, prompt="Which tea?"))

        run_hook(folder, "begins", "two")
        portal.call(_until, lambda: not list(spool.glob("*.json")))
        # Nobody knows what Cursor does with a section later on.
        assert [is_shown("two") for _ in range(2)] == [True, folder.name == "cursor"]
        assert is_shown("three"), "another conversation"
        run_hook(folder, "shortens", "two")
        assert is_shown("two")


def test_the_first_turn_of_a_session_waits_for_the_server_that_is_being_started(folder: HookFolder) -> None:
    turn(folder, "I like oolong tea.", "Noted.", "one")
    settings = folder.hook.with_name("settings.json")
    settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), "start_s": 60.0}), "utf-8")
    with ThreadPoolExecutor() as pool:
        run_hook(folder, "begins", "two")
        asked = pool.submit(run_hook, folder, "asks", "two", prompt="Which tea do I like?")
        with mcp_server(folder):
            shown = asked.result()
    assert shown is not None
    assert "systemMessage" not in shown


@asynccontextmanager
async def hooks_answered(backend: FakeBackend, spool: Path) -> AsyncIterator[None]:
    async with (
        MemorySlot(backend, scope=MemoryScope(run_id="cc", persona_id="ada")) as slot,
        TurnMemory(slot) as memory,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(answer_hooks, memory, spool)
        yield
        tasks.cancel_scope.cancel()


def _ask(spool: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path(spool)))
        connection.sendall(b'{"do": "drain"}\n')
        connection.makefile("rb").readline()


async def _until(true: Any) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)


@pytest.mark.thorough
def test_fifty_hooks_at_once_are_fifty_stored(folder: HookFolder) -> None:
    spool = spool_of(folder)

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
    folder: HookFolder,
) -> None:
    spool = spool_of(folder)
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
        await anyio.to_thread.run_sync(run_hook, folder, "begins")
        await _until(lambda: not list(spool.glob("*.json")))
        tasks.cancel_scope.cancel()
    assert [row.text for row in store.rows.values()] == ["I like oolong tea.", "Noted."]
    assert [path.name for path in spool.glob("*.unreadable")] == ["0-bad.unreadable"]


SAID = {
    "host": "codex",
    "turn": "t1",
    "session_id": "s",
    "user": "I like tea.",
    "assistant": "Yes.",
    "at": 1.7e9,
}


@pytest.mark.parametrize(
    "poison",
    [
        json.dumps({**SAID, "at": 1e300}),
        json.dumps({**SAID, "session_id": "x" * 600}),
        json.dumps({**SAID, "user": 5}),
        "[" * 100_000,
        None,
    ],
    ids=["a time beyond all", "too long an id", "no text", "nested too deeply", "a directory"],
)
async def test_a_turn_that_cannot_be_used_ends_no_server_and_loses_no_words(
    tmp_path: Path, poison: str | None
) -> None:
    first = tmp_path / "1.json"
    first.mkdir() if poison is None else first.write_text(poison, encoding="utf-8")
    # A host that shortens a text leaves half of a pair.
    (tmp_path / "2.json").write_text(json.dumps({**SAID, "turn": "t2", "user": "half \ud83d tea"}), "utf-8")
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: not (tmp_path / "2.json").exists())
    assert [row.text for row in store.rows.values()] == ["half ? tea", "Yes."]
    assert os.listdir(tmp_path) == ["1.json" if poison is None else "1.unreadable"]


async def test_a_spool_that_another_window_empties_ends_no_server(tmp_path: Path) -> None:
    class Meanwhile(FakeBackend):
        async def record_event(self, event: MemoryEvent) -> WriteReceipt:
            for name in os.listdir(tmp_path):
                if name.endswith(".json"):
                    os.unlink(tmp_path / name)
            return await super().record_event(event)

    for number in (1, 2):
        (tmp_path / f"{number}.json").write_text(json.dumps({**SAID, "turn": f"t{number}"}), encoding="utf-8")
    store = FakeNativeStore()
    async with hooks_answered(Meanwhile(store), tmp_path):
        await _until(lambda: store.rows)
        (tmp_path / "3.json").write_text(json.dumps({**SAID, "turn": "t3"}), encoding="utf-8")
        await anyio.to_thread.run_sync(_ask, tmp_path)
        await _until(lambda: len(store.rows) == 4)


async def test_a_window_that_looks_who_is_there_is_no_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every other window does, each five seconds."""
    async with hooks_answered(FakeBackend(), tmp_path):
        await _until(lambda: hooks._answers(socket_path(tmp_path)))
        await anyio.to_thread.run_sync(_ask, tmp_path)
    assert [record for record in caplog.records if record.name == "memslot.hosts"] == []


@every_host
def test_a_prompt_that_was_interrupted_is_not_recorded(folder: HookFolder) -> None:
    stderr = {"cursor": "memslot: the memory does not answer; nothing was recalled\n"}.get(folder.name, "")
    run_hook(folder, "asks", prompt="Never answered.", stderr=stderr)
    if folder.name == "cursor":
        run_hook(folder, "answers", text="Half an answer.")
        run_hook(folder, "stops", status="aborted")
    turn(folder, "Answered.", "Yes.", "s1", stderr)
    (kept,) = spool_of(folder).glob("*.json")
    written = json.loads(kept.read_text("utf-8"))
    assert (written["host"], written["user"], written["assistant"]) == (folder.name, "Answered.", "Yes.")
    assert oct(kept.stat().st_mode)[-3:] == "600"
    assert oct(spool_of(folder).stat().st_mode)[-3:] == "700"


def test_what_an_agent_says_to_its_helper_is_nobodys_words(folder: HookFolder) -> None:
    assert run_hook(folder, "asks", prompt="Read every file.", agent_id="helper-1") is None
    assert run_hook(folder, "answers", last_assistant_message="Read.", agent_id="helper-1") is None
    assert not spool_of(folder).exists()


# -- what stands in the host's own files -------------------------------------------------------------------

FOREIGN = {
    "claude-code": {"settings.json": '{"model": "opus",\n "enabledPlugins": {}, "x": "\u00e9"}'},
    "codex": {
        "hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}\n',
        "config.toml": '# mine\nmodel = "gpt-5"\n\n[mcp_servers.other]\ncommand = "other"',
    },
    "cursor": {
        "hooks.json": '{\n\t"version": 1,\n\t"hooks": {"stop": [{"command": "./mine.sh"}]}\n}\n',
        "mcp.json": '{"mcpServers": {"mine": {"command": "mine", "args": ["a", "b"]}}}',
    },
}


@every_host
def test_foreign_settings_stay_and_come_back_byte_for_byte(folder: HookFolder, host: str) -> None:
    folder.uninstall()
    assert list(folder.directory.iterdir()) == []
    for name, text in FOREIGN[host].items():
        (folder.directory / name).write_bytes(text.encode())
        (folder.directory / name).chmod(0o640)
    config = folder.directory.parent / "memslot.yaml"
    folder.install(config)
    first = {name: (folder.directory / name).read_bytes() for name in FOREIGN[host]}
    folder.install(config)
    for name, text in FOREIGN[host].items():
        file = folder.directory / name
        assert file.read_bytes() == first[name] != text.encode()
        assert oct(file.stat().st_mode)[-3:] == "640"
    if host != "claude-code":
        hooks = json.loads((folder.directory / "hooks.json").read_text("utf-8"))["hooks"]
        assert [len(hooks[event]) for event in folder.events] == [
            2 if event.lower() == "stop" else 1 for event in folder.events
        ]
    assert any("removed" in line for line in folder.uninstall())
    assert {file.name: file.read_bytes() for file in folder.directory.iterdir()} == {
        name: text.encode() for name, text in FOREIGN[host].items()
    }
    assert "nothing of memslot" in folder.uninstall()[0]


def test_a_server_that_cannot_start_is_said_at_once(
    folder: HookFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder.directory.parent / "memslot.yaml"
    assert not [line for line in folder.install(config) if "to be installed" in line]
    monkeypatch.setattr(_table.metadata, "version", lambda name: "99.0")
    assert [line for line in folder.install(config) if "pip install 'mcp>=1.25,<2'" in line]


def test_what_was_changed_meanwhile_stays_changed(folder: HookFolder) -> None:
    settings = folder.directory / "settings.json"
    content = json.loads(settings.read_text("utf-8"))
    assert content["enabledPlugins"] == {"memslot@memslot": True}
    settings.write_text(json.dumps({**content, "model": "opus"}, indent=4), encoding="utf-8")
    shutil.rmtree(folder.folder)  # by hand, before
    folder.uninstall()
    assert settings.read_text("utf-8") == '{\n    "model": "opus"\n}'


def test_turns_wait_in_the_order_in_which_they_ended_whatever_the_clock_says(folder: HookFolder) -> None:
    turn(folder, "First.", "Yes.", "s1", ANY)
    (first,) = spool_of(folder).glob("*.json")
    # As a clock that was set back since would have left it.
    first.rename(first.with_name(f"{time.time_ns() + 3600 * 10**9:020}{first.name[20:]}"))
    turn(folder, "Second.", "Yes.", "s1", ANY)
    waiting = sorted(spool_of(folder).glob("*.json"))
    assert [json.loads(file.read_text("utf-8"))["user"] for file in waiting] == ["First.", "Second."]


def test_turns_that_are_not_recorded_outlive_what_was_installed(folder: HookFolder) -> None:
    turn(folder, "I like oolong tea.", "Noted.", "one")
    run_hook(folder, "asks", prompt="Never answered.")
    assert any("1 turns" in line and "not recorded" in line for line in folder.uninstall())
    assert [path.suffix for path in spool_of(folder).rglob("*")] == [".json"]
    assert list(folder.directory.iterdir()) == []


@every_host
@pytest.mark.parametrize(
    "broken", ["{", "[]", '{"hooks": [], "mcpServers": 1, "enabledPlugins": 1}', b"\xff"]
)
def test_a_file_that_is_not_the_hosts_is_left_alone_and_named(
    folder: HookFolder, host: str, broken: str | bytes
) -> None:
    folder.uninstall()
    name = list(FOREIGN[host])[-1]
    text = broken if isinstance(broken, bytes) else broken.encode()
    (folder.directory / name).write_bytes(text)
    with pytest.raises(ConfigError, match=rf"{name}.*"):
        folder.install(folder.directory.parent / "memslot.yaml")
    assert {file.name: file.read_bytes() for file in folder.directory.iterdir()} == {name: text}


@pytest.mark.parametrize(
    ("host", "name", "text"),
    [
        ("codex", "config.toml", '[mcp_servers.memslot]\ncommand = "mine"\n'),
        ("cursor", "mcp.json", '{"mcpServers": {"memslot": {"command": "mine"}}}'),
    ],
    indirect=["host"],
)
def test_a_server_of_the_same_name_is_not_replaced(folder: HookFolder, name: str, text: str) -> None:
    folder.uninstall()
    (folder.directory / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"already.*(mend|take)"):
        folder.install(folder.directory.parent / "memslot.yaml")
    folder.uninstall()
    assert {file.name: file.read_text("utf-8") for file in folder.directory.iterdir()} == {name: text}


@pytest.mark.parametrize("host", ["cursor"], indirect=True)
def test_a_linked_file_stays_a_link(folder: HookFolder) -> None:
    folder.uninstall()
    real = folder.directory.parent / "dotfiles.json"
    real.write_text("{}\n", "utf-8")
    (folder.directory / "mcp.json").symlink_to(real)
    folder.install(folder.directory.parent / "memslot.yaml")
    assert (folder.directory / "mcp.json").is_symlink()
    assert "memslot" in real.read_text("utf-8")
    folder.uninstall()
    assert real.read_text("utf-8") == "{}\n"
