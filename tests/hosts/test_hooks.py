"""The hooks of Claude Code, Codex and Cursor as processes of their own, with the JSON their hosts document.

No ``claude``, ``codex`` or ``cursor`` runs here; two files beside this one run real ones. The MCP server runs as
the configuration of the host says.
"""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import anyio
import pytest
from host_pages import assert_on_the_page, verdict

from memory import BackendUnavailable, ConfigError, MemoryEvent, MemoryScope, MemorySlot, WriteReceipt
from memory.adapter import BackendRejected
from memory.hosts import hooks, table
from memory.hosts._coding_agents import ClaudeCodeFolder, CodexFolder, CursorFolder
from memory.hosts._installing import HookFolder
from memory.hosts.hooks import answer_hooks, socket_path
from memory.runtime import TurnPolicy, load_config, turns_of
from memory.storage.insert import insert
from memory.storage.outbox import Outbox
from memory.storage.store import open_store
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


def data_of(folder: HookFolder) -> Path:
    return folder.directory.parent / "data"


def reports(data: Path) -> list[dict[str, Any]]:
    """What hooks have reported and nobody has recorded, in order."""
    with closing(sqlite3.connect(data / "memslot.db")) as db:
        return [json.loads(row) for (row,) in db.execute("SELECT payload FROM outbox ORDER BY seq")]


def states(data: Path) -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(data / "memslot.db")) as db:
        return list(db.execute("SELECT state, error FROM outbox ORDER BY seq"))


def said_in(store: FakeNativeStore) -> list[str]:
    """The texts of every recorded turn, one string each."""
    turns: dict[str, list[str]] = {}
    for row in store.rows.values():
        turns.setdefault(row.labels["event_id"], []).append(row.text)
    return [" | ".join(texts) for texts in turns.values()]


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
def test_hooks_and_the_server_remember_across_sessions(folder):
    data, missing = data_of(folder), "memslot: the memory does not answer; nothing was recalled"
    if folder.name == "cursor":
        assert turn(folder, "I like oolong tea.", "Noted.", "one", f"{missing}\n") == {"continue": True}
    else:
        assert turn(folder, "I like oolong tea.", "Noted.", "one") == {"systemMessage": missing}
    assert reports(data)  # kept until a server is there
    with mcp_server(folder):
        run_hook(folder, "begins", "two")
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(_until, lambda: "I like oolong tea." not in str(reports(data)))
        shown = turn(folder, "Which tea do I like?", "Oolong.", "two")
        assert "I like oolong tea." in section_of(shown)
        assert "Let me look." not in section_of(shown)
        run_hook(folder, "shortens", "two")
        run_hook(folder, "ends", "two")
    with mcp_server(folder):
        shown = run_hook(folder, "asks", "three", prompt="What did you say of oolong?")
        assert "Oolong." in section_of(shown)
    assert not socket_path(data).exists()


@pytest.mark.thorough
@every_host
def test_what_the_conversation_still_holds_is_not_shown_again(folder):
    data = data_of(folder)
    turn(folder, "I like oolong tea.", "Noted.", "one", ANY)
    with mcp_server(folder), anyio.from_thread.start_blocking_portal() as portal:

        def is_shown(session: str) -> bool:
            return "I like oolong tea." in str(run_hook(folder, "asks", session, prompt="Which tea?"))

        run_hook(folder, "begins", "two")
        portal.call(_until, lambda: "I like oolong tea." not in str(reports(data)))
        # Nobody knows what Cursor does with a section later on.
        assert [is_shown("two") for _ in range(2)] == [True, folder.name == "cursor"]
        assert is_shown("three"), "another conversation"
        run_hook(folder, "shortens", "two")
        assert is_shown("two")


@pytest.mark.thorough
def test_the_first_turn_of_a_session_waits_for_the_server_that_is_being_started(folder):
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
async def hooks_answered(
    backend: FakeBackend, data: Path, policy: TurnPolicy | None = None
) -> AsyncIterator[None]:
    async with (
        MemorySlot(backend, scope=MemoryScope(run_id="cc", persona_id="ada")) as slot,
        anyio.create_task_group() as tasks,
    ):
        turns_of(slot, policy)
        tasks.start_soon(answer_hooks, slot, data)
        yield
        tasks.cancel_scope.cancel()


def _ask(data: Path, line: bytes = b'{"do": "drain"}\n') -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path(data)))
        connection.sendall(line)
        return bytes(connection.makefile("rb").readline())


def _looked(data: Path) -> bool:
    """Whether a server answers there, as another window asks: it connects, and leaves."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(socket_path(data))) == 0


async def _until(true: Any) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)


@pytest.mark.thorough
async def test_fifty_hooks_at_once_are_fifty_stored(folder):
    async with anyio.create_task_group() as tasks:
        for at in range(50):
            tasks.start_soon(anyio.to_thread.run_sync, turn, folder, f"Said {at}.", f"Answer {at}.", f"s{at}")
    assert len(reports(data_of(folder))) == 100
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), data_of(folder)):
        await _until(lambda: not reports(data_of(folder)))
    assert sorted(said_in(store)) == sorted(f"Said {at}. | Answer {at}." for at in range(50))


def report(did: str, text: str = "", session: str = "s", **fields: Any) -> dict[str, Any]:
    known = {"host": "codex", "session_id": session, "did": did, "text": text, "turn": os.urandom(4).hex()}
    return {**known, "at": time.time(), **fields}


def asked(*words: str, **fields: Any) -> list[dict[str, Any]]:
    return [report("prompt", text, **fields) for text in words]


def put(data: Path, *given: dict[str, Any] | str) -> None:
    """Insert reports as the hook program does."""
    for row in given:
        payload = row if isinstance(row, str) else json.dumps(row)
        host, session = ("codex", "s") if isinstance(row, str) else (row["host"], row["session_id"])
        insert(data / "memslot.db", "hook", os.urandom(8).hex(), payload, destination=host, scope=session)


# What hosts report, in the order of reports from users, and the turns it comes to.
ORDERS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "queued": ([*asked("Q1", "Q2"), report("stop", "A1"), report("stop", "A2")], ["Q1 | A1", "Q2 | A2"]),
    "steered": ([report("prompt", "Q1"), report("prompt", "Q2"), report("stop", "A")], ["Q1 | Q2 | A"]),
    "steered, and going on": (
        [
            report("prompt", "Q1"),
            report("prompt", "Q2"),
            report("stop", "A"),
            report("prompt", "Q3"),
            report("stop", "B"),
        ],
        ["Q1 | Q2 | A", "Q3 | B"],
    ),
    "a blocked stop": (
        [
            report("prompt", "Q1"),
            report("stop", "not yet"),
            report("stop", "A1", again=True),
            report("prompt", "Q2"),
        ],
        ["Q1 | A1", "Q2"],
    ),
    "named, a blocked stop before a queued prompt is answered": (
        [
            *asked("Q1", host_turn="t1"),
            *asked("Q2", host_turn="t2"),
            report("stop", "not yet", host_turn="t1"),
            report("stop", "A1", host_turn="t1", again=True),
            *asked("Q3", host_turn="t3"),
            report("stop", "A2", host_turn="t2"),
            report("stop", "A3", host_turn="t3"),
        ],
        ["Q1 | A1", "Q2 | A2", "Q3 | A3"],
    ),
    "never answered": (
        [report("prompt", "Q1"), report("end"), report("prompt", "Q2"), report("stop", "A2")],
        ["Q1", "Q2 | A2"],
    ),
    "named, out of order": (
        [
            report("prompt", "Q1", host_turn="1"),
            report("prompt", "Q2", host_turn="2"),
            report("stop", "A2", host_turn="2"),
            report("stop", "A1", host_turn="1"),
        ],
        ["Q1 | A1", "Q2 | A2"],
    ),
    "named, one aborted": (
        [
            report("prompt", "Q1", host_turn="1"),
            report("answer", "half", host_turn="1"),
            report("stop", host_turn="1", completed=False),
            report("prompt", "Q2", host_turn="2"),
            report("answer", "A2", host_turn="2"),
            report("stop", host_turn="2"),
        ],
        ["Q1", "Q2 | A2"],
    ),
    "an answer after all was recorded": ([report("stop", "A late")], ["A late"]),
    "the host's own words": (
        [
            report("prompt", "<system-reminder>\nbackground task done\n</system-reminder>"),
            report("stop", "Noted"),
        ],
        ["Noted"],
    ),
}


async def test_prompts_that_the_configuration_names_are_not_the_users(tmp_path):
    """Each recalls nothing, and is not recorded; the answer to it is."""
    (tmp_path / "memslot.yaml").write_text("memory: {backend: full_history}\nhooks: {not_said: [HEARTBEAT]}")
    settings = load_config(tmp_path / "memslot.yaml").section("hooks", hooks.HookSettings)
    put(tmp_path, report("prompt", "HEARTBEAT 12:00"), report("stop", "Noted"), report("end"))
    store, policy = FakeNativeStore(), TurnPolicy(not_said=settings.not_said)
    async with hooks_answered(FakeBackend(store), tmp_path, policy):
        await _until(lambda: not reports(tmp_path))
    assert said_in(store) == ["Noted"]
    (tmp_path / "memslot.yaml").write_text("memory: {backend: full_history}\nhooks: {not_said: ['(']}")
    with pytest.raises(ConfigError, match=r"hooks\.not_said\.0: .*regular expression"):
        load_config(tmp_path / "memslot.yaml").section("hooks", hooks.HookSettings)


@pytest.mark.parametrize("order", ORDERS)
async def test_prompts_and_answers_are_paired_as_they_belong(tmp_path, order):
    given, turns = ORDERS[order]
    put(tmp_path, *given, report("end"))
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: not reports(tmp_path))
    assert said_in(store) == turns


def long_conversation(host: str) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Reports of 120 long turns, each tenth queued behind another and some stops blocked; and what the user saw."""
    rows: list[dict[str, Any]] = []
    seen = [(f"Sentence {at}.", f"Answer {at}. {'tea leaves water ' * 200}".strip()) for at in range(120)]

    def say(did: str, at: int, text: str, **more: Any) -> None:
        named = {"host_turn": f"t{at}"} if host != "claude-code" else {}
        if host == "cursor" and did == "stop":  # which reports the text before
            rows.append(report("answer", text, host=host, **named))
            text = ""
        rows.append(report(did, text, host=host, **named, **more))

    for at, (question, answer) in enumerate(seen):
        if at % 10 != 1:  # which was typed while the agent worked on the one before
            say("prompt", at, question)
        if at % 10 == 0:
            say("prompt", at + 1, seen[at + 1][0])
        if at % 15 == 0:
            say("stop", at, "I am not done.")
        say("stop", at, answer, again=at % 15 == 0)
    return rows, seen


@pytest.mark.parametrize("host", HOSTS)
async def test_a_hundred_and_twenty_long_turns(tmp_path, host):
    rows, seen = long_conversation(host)
    put(tmp_path, *rows, report("end", host=host))
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: not reports(tmp_path))
    recorded = [
        (question, answer) for question, _, answer in (said.partition(" | ") for said in said_in(store))
    ]
    assert recorded == seen
    assert_on_the_page(host, 120, len(recorded), verdict(recorded, seen))


async def test_a_turn_waits_for_a_later_stop_and_a_prompt_for_its_answer(tmp_path):
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: _looked(tmp_path))
        put(tmp_path, report("prompt", "Q1"), report("prompt", "Q2"), report("stop", "A1"))
        put(
            tmp_path,
            report("prompt", "Q", "other", at=time.time() + 1),
            report("stop", "A", "other", at=time.time() + 1),
        )
        await anyio.to_thread.run_sync(_ask, tmp_path)
        assert said_in(store) == []
        put(tmp_path, report("stop", "A2"), report("end"), report("end", session="other"))
        await anyio.to_thread.run_sync(_ask, tmp_path)
        assert sorted(said_in(store)) == ["Q | A", "Q1 | A1", "Q2 | A2"]


@pytest.mark.parametrize(
    "poison",
    [
        report("prompt", "x", at=1e300),
        report("prompt", "x", turn="x" * 600),
        report("prompt", "x") | {"text": 5},
        "[" * 100_000,
        "null",
    ],
    ids=["a time beyond all", "too long an id", "no text", "nested too deeply", "no object"],
)
async def test_a_report_that_cannot_be_used_is_set_aside_and_blocks_no_other(tmp_path, poison):
    put(tmp_path, report("prompt", "x") | {"did": "begin"}, poison, report("end"))
    # A host that shortens a text leaves half of a pair.
    put(
        tmp_path,
        report("prompt", "half \ud83d tea", "t"),
        report("stop", "Yes.", "t"),
        report("end", "", "t"),
    )
    store = FakeNativeStore()
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: [state for state, _ in states(tmp_path)] == ["aside"] * len(states(tmp_path)))
    assert said_in(store) == ["half ? tea | Yes."]
    assert states(tmp_path)


async def test_what_is_refused_is_set_aside_and_what_fails_is_recorded_once_it_can_be(tmp_path):
    class Moody(FakeBackend):
        down = True

        async def record_event(self, event: MemoryEvent) -> WriteReceipt:
            if "refused" in event.messages[0].content:
                raise BackendRejected("no", backend_name="fake")
            if self.down:
                raise BackendUnavailable("down", backend_name="fake", sent=False)
            return await super().record_event(event)

    store = FakeNativeStore()
    backend = Moody(store)
    for session, words in (("a", "refused"), ("b", "kept")):
        put(
            tmp_path,
            report("prompt", words, session),
            report("stop", "A", session),
            report("end", "", session),
        )
    async with hooks_answered(backend, tmp_path):
        await _until(lambda: [state for state, _ in states(tmp_path)] == ["aside"] * 3 + ["waiting"] * 3)
        assert {error for _, error in states(tmp_path)} == {"BackendRejected", "BackendUnavailable"}
        backend.down = False
        await _until(lambda: len(states(tmp_path)) == 3)
    assert said_in(store) == ["kept | A"]


async def test_a_turn_whose_server_dies_after_writing_it_is_recorded_once(tmp_path):
    class Dies(FakeBackend):
        written = anyio.Event()

        async def record_event(self, event: MemoryEvent) -> WriteReceipt:
            await super().record_event(event)
            self.written.set()
            await anyio.sleep_forever()
            raise AssertionError

    store = FakeNativeStore()
    put(tmp_path, report("prompt", "I like tea.", "t"), report("stop", "Noted.", "t"), report("end", "", "t"))
    dies = Dies(store)
    async with hooks_answered(dies, tmp_path):
        with anyio.fail_after(30):
            await dies.written.wait()
    assert len(states(tmp_path)) == 3  # what was reported stays until the server knows that it is written
    async with hooks_answered(FakeBackend(store), tmp_path):
        await _until(lambda: not states(tmp_path))
    assert said_in(store) == ["I like tea. | Noted."]


async def test_odd_requests_and_odd_files_end_nothing(tmp_path):
    (tmp_path / "hooks").write_text("not a directory", "utf-8")
    (tmp_path / "hooks.sock").mkdir()
    store = FakeNativeStore()
    put(tmp_path, report("prompt", "Q"), report("stop", "A"), report("end"))
    async with hooks_answered(FakeBackend(store), tmp_path):
        await anyio.sleep(0.2)
        (tmp_path / "hooks.sock").rmdir()
        await _until(lambda: said_in(store) == ["Q | A"])
        for line in (b"[]\n", b"null\n", b"{\n", b'{"do": "recall"}\n', b"\xff\n", b'{"do": 1}\n'):
            await anyio.to_thread.run_sync(_ask, tmp_path, line)
        assert json.loads(await anyio.to_thread.run_sync(_ask, tmp_path)) == {"left": 0}


async def test_of_two_windows_exactly_one_answers_and_the_other_takes_over(tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "_AGAIN_S", 0.05)
    stores = [FakeNativeStore(), FakeNativeStore()]
    ended, gone = anyio.Event(), anyio.Event()

    async def first() -> None:
        async with hooks_answered(FakeBackend(stores[0]), tmp_path):
            await ended.wait()
        gone.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await _until(lambda: _looked(tmp_path))
        async with hooks_answered(FakeBackend(stores[1]), tmp_path):
            for number in range(20):
                put(tmp_path, report("prompt", f"Q{number}", f"s{number}"), report("end", "", f"s{number}"))
            await anyio.to_thread.run_sync(_ask, tmp_path)
            assert [len(store.rows) for store in stores] == [20, 0]
            ended.set()
            await gone.wait()
            await _until(lambda: _looked(tmp_path))
            put(tmp_path, report("prompt", "later"), report("end"))
            await anyio.to_thread.run_sync(_ask, tmp_path)
            assert said_in(stores[1]) == ["later"]


async def test_a_window_that_looks_who_is_there_is_no_line_of_the_log(tmp_path, caplog):
    async with hooks_answered(FakeBackend(), tmp_path):
        await _until(lambda: _looked(tmp_path))
        await anyio.to_thread.run_sync(_ask, tmp_path)
    assert [record for record in caplog.records if record.name == "memslot.hosts"] == []


@every_host
def test_a_hook_reports_and_nobody_else_may_read_it(folder):
    stderr = {"cursor": "memslot: the memory does not answer; nothing was recalled\n"}.get(folder.name, "")
    turn(folder, "Answered.", "Yes.", "s1", stderr)
    found = reports(data_of(folder))
    assert [(row["host"], row["did"]) for row in found][:1] == [(folder.name, "prompt")]
    assert "Yes." in found[-2 if folder.name == "cursor" else -1]["text"]
    assert oct((data_of(folder) / "memslot.db").stat().st_mode)[-3:] == "600"
    assert oct(data_of(folder).stat().st_mode)[-3:] == "700"


def test_a_host_that_leaves_stdin_open_or_sends_a_byte_order_mark_is_answered(folder):
    given = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "I like } tea."})
    command = command_of(folder, "UserPromptSubmit")
    env = {**os.environ, "CLAUDE_PLUGIN_ROOT": str(folder.folder / "memslot")}
    with subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as hook:
        assert hook.stdin is not None
        hook.stdin.write(b"\xef\xbb\xbf" + given[:30].encode())
        hook.stdin.flush()
        time.sleep(0.1)
        hook.stdin.write(given[30:].encode())
        hook.stdin.flush()
        assert hook.wait(30) == 0
    with subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as hook:
        assert hook.wait(30) == 0  # a host that says nothing
    assert [row["text"] for row in reports(data_of(folder))] == ["I like } tea."]


def test_what_is_installed_has_a_timeout_and_imports_the_standard_library_alone(folder):
    (entry,) = json.loads((folder.folder / "memslot/hooks/hooks.json").read_text("utf-8"))["hooks"]["Stop"]
    assert 0 < entry["hooks"][0]["timeout"] <= 60
    assert "-I -S" in entry["hooks"][0]["command"]


def test_what_an_agent_says_to_its_helper_is_nobodys_words(folder):
    assert run_hook(folder, "asks", prompt="Read every file.", agent_id="helper-1") is None
    assert run_hook(folder, "answers", last_assistant_message="Read.", agent_id="helper-1") is None
    assert not data_of(folder).exists()


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
def test_foreign_settings_stay(folder, host):
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
        read = tomllib.loads if name.endswith("toml") else json.loads
        assert read(file.read_text("utf-8")) == read(first[name].decode()) != read(text)
        assert oct(file.stat().st_mode)[-3:] == "640"
    if host != "claude-code":
        hooks = json.loads((folder.directory / "hooks.json").read_text("utf-8"))["hooks"]
        assert [len(hooks[event]) for event in folder.events] == [
            2 if event.lower() == "stop" else 1 for event in folder.events
        ]
    assert any("removed" in line for line in folder.uninstall())
    left = {file.name: file.read_text("utf-8") for file in folder.directory.iterdir()}
    assert left.keys() == FOREIGN[host].keys()
    for name, text in FOREIGN[host].items():
        read = tomllib.loads if name.endswith("toml") else json.loads
        assert read(left[name]) == {key: value for key, value in read(text).items() if value}
    assert "nothing of memslot" in folder.uninstall()[0]


def test_a_server_that_cannot_start_is_said_at_once(folder, monkeypatch):
    config = folder.directory.parent / "memslot.yaml"
    assert not [line for line in folder.install(config) if "to be installed" in line]
    monkeypatch.setattr(table.metadata, "version", lambda name: "99.0")
    assert [line for line in folder.install(config) if "pip install 'mcp>=1.25,<3'" in line]


def test_what_was_changed_meanwhile_stays_changed(folder):
    settings = folder.directory / "settings.json"
    content = json.loads(settings.read_text("utf-8"))
    assert content["enabledPlugins"] == {"memslot@memslot": True}
    settings.write_text(json.dumps({**content, "model": "opus"}, indent=4), encoding="utf-8")
    shutil.rmtree(folder.folder)  # by hand, before
    folder.uninstall()
    assert settings.read_text("utf-8") == '{\n    "model": "opus"\n}'


def test_reports_that_are_not_recorded_outlive_what_was_installed(folder):
    turn(folder, "I like oolong tea.", "Noted.", "one")
    folder.uninstall()
    assert len(reports(data_of(folder))) == 2
    assert list(folder.directory.iterdir()) == []


@every_host
@pytest.mark.parametrize(
    "broken", ["{", "[]", '{"hooks": [], "mcpServers": 1, "enabledPlugins": 1}', b"\xff"]
)
def test_a_file_that_is_not_the_hosts_is_left_alone_and_named(folder, host, broken):
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
def test_a_server_of_the_same_name_is_not_replaced(folder, name, text):
    folder.uninstall()
    (folder.directory / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"already.*(mend|take)"):
        folder.install(folder.directory.parent / "memslot.yaml")
    folder.uninstall()
    assert {file.name: file.read_text("utf-8") for file in folder.directory.iterdir()} == {name: text}


@pytest.mark.parametrize("host", ["cursor"], indirect=True)
def test_a_linked_file_stays_a_link(folder):
    folder.uninstall()
    real = folder.directory.parent / "dotfiles.json"
    real.write_text("{}\n", "utf-8")
    (folder.directory / "mcp.json").symlink_to(real)
    folder.install(folder.directory.parent / "memslot.yaml")
    assert (folder.directory / "mcp.json").is_symlink()
    assert "memslot" in real.read_text("utf-8")
    folder.uninstall()
    assert real.read_text("utf-8") == "{}\n"


async def test_a_prompt_that_waits_for_its_answer_is_no_trouble_of_the_outbox(tmp_path):
    put(tmp_path, report("prompt", "A long task."))
    with closing(sqlite3.connect(tmp_path / "memslot.db")) as db, db:
        db.execute("UPDATE outbox SET recorded_at = '2020-01-01T00:00:00.000Z'")
    store = open_store(tmp_path)
    assert (await Outbox(store, "hook").trouble()).warnings() == []
    with closing(sqlite3.connect(tmp_path / "memslot.db")) as db, db:
        db.execute("UPDATE outbox SET attempts = 1")
    assert len((await Outbox(store, "hook").trouble()).warnings()) == 1
    store.close()
