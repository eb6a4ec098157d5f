"""``memslot import``: conversations from elsewhere stand in the memory once, in order, with their times."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from cli_support import error_line, invoke
from slot_support import ALICE, Lookup, Obedient

from memory import MemorySlot, RetrieveRequest, open_memory
from memory.contract.formatting import Utf8TokenCounter
from memory.runtime._importing import Source, dry_run, import_conversations
from memory.storage.kept import HostStore
from memory.storage.store import SqliteStore

CONFIG = """
memory:
  condition: full_history
  conditions: {full_history: {}}
  scope: {run_id: r, persona_id: bob}
  data_dir: data
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def _chats(path, count, turns=2):
    """An export of OpenAI's layout in which each question says a number of its own."""
    rows = [
        {
            "id": f"talk-{talk}",
            "messages": [
                {"role": role, "content": f"{role} says {talk}-{turn}"}
                for turn in range(turns)
                for role in ("user", "assistant")
            ],
        }
        for talk in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def _stored(config, persona="bob"):
    """What a fresh process finds, oldest first: (session, time, texts)."""

    async def read():
        async with open_memory(config) as memory:
            scope = memory.scope.model_copy(update={"persona_id": persona})
            await memory.setup_scope(scope)
            result = await memory.retrieve(RetrieveRequest(query="all", scope=scope, session_id="s"))
        return [(entry.timestamp, entry.text) for entry in result.entries]

    return asyncio.run(read())


def _report(*arguments):
    result = invoke("import", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_turn_stands_in_the_memory_once_and_in_order(tmp_path, config):
    report = _report(_chats(tmp_path / "chats.jsonl", 3), "--into", config)
    assert (report["conversations"], report["events"], report["written"]) == (3, 6, 6)
    texts = [text for _, text in _stored(config)]
    assert [f"{talk}-{turn}" for talk in range(3) for turn in range(2)] == [
        text.rsplit(" ", 1)[1] for text in texts if "user says" in text
    ]


def test_a_second_import_writes_only_what_a_newer_export_adds(tmp_path, config):
    _report(_chats(tmp_path / "chats.jsonl", 3), "--into", config)
    again = _report(tmp_path / "chats.jsonl", "--into", config)
    assert (again["written"], again["earlier"]) == (0, 6)
    newer = _report(_chats(tmp_path / "chats.jsonl", 4, turns=3), "--into", config)
    assert (newer["written"], newer["earlier"]) == (6, 6)
    texts = [text for _, text in _stored(config)]
    assert len(texts) == len(set(texts))


def test_times_of_the_file_are_kept_and_missing_ones_are_counted(tmp_path, config):
    lines = [
        {"session": "a", "role": "user", "content": "Oolong.", "time": "2020-05-01T10:00:00+02:00"},
        {"session": "c", "role": "user", "content": "Sencha.", "time": "2020-05-01T01:00:00-07:00"},
        {"session": "b", "role": "user", "content": "Assam."},
    ]
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    os.utime(file, (1_600_000_000, 1_600_000_000))
    assert _report(file, "--into", config)["undated"] == 1
    times = {text: at for at, text in _stored(config)}
    for tea in ("Oolong", "Sencha"):  # the same moment in two zones
        assert [at.isoformat() for text, at in times.items() if tea in text] == ["2020-05-01T08:00:00+00:00"]
    assert [at.timestamp() for text, at in times.items() if "Assam" in text] == [1_600_000_000]


def test_a_conversation_of_another_user_goes_into_that_users_memory(tmp_path, config):
    lines = [
        {"session": user, "role": "user", "content": f"{user} drinks tea", "user": user}
        for user in ("ann", "bea")
    ]
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    _report(file, "--into", config)
    assert [["ann" in text for _, text in _stored(config, who)] for who in ("ann", "bea", "bob")] == [
        [True],
        [False],
        [],
    ]


@pytest.mark.parametrize("adapter", [Obedient, Lookup])
async def test_an_event_without_an_answer_stays_in_doubt_until_the_next_import_has_asked(tmp_path, adapter):
    source = Source(_chats(tmp_path / "chats.jsonl", 1, turns=4), ALICE)
    memory = adapter()

    async def imported():
        async with MemorySlot(memory, scope=ALICE) as slot:
            with (
                closing(SqliteStore(tmp_path / "memslot.db")) as place,
                HostStore("obedient", place) as store,
            ):
                report = dry_run(source, Utf8TokenCounter())
                await import_conversations(source, slot, store, report, lambda *_: None)
        return report.written, report.earlier, len(report.unknown), report.complete

    memory.next_write = [ConnectionResetError("lost")]
    first = await imported()
    assert (first[2], first[3]) == (1, False)
    assert await imported() == (1, 3, 0, True), "sent again, as it is not there"
    assert await imported() == (0, 4, 0, True)
    assert len({row.event_id for row in memory.rows}) == len(memory.rows) == 4


def test_an_export_goes_in_again_as_it_was_recorded(tmp_path, config):
    lines = [
        {
            "session": "a",
            "role": "user",
            "content": f"{user} drinks tea",
            "user": user,
            "time": "2020-05-01T10:00:00Z",
        }
        for user in ("ann", "bea")
    ]
    chats, export, other = tmp_path / "chats.jsonl", tmp_path / "past.jsonl", tmp_path / "other.yaml"
    chats.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    config.write_text(CONFIG + "  journal: true\n", encoding="utf-8")
    other.write_text(CONFIG.replace("data_dir: data", "data_dir: other"), encoding="utf-8")
    _report(chats, "--into", config)
    assert invoke("export", config, "--out", export).exit_code == 0
    report = _report(export, "--into", other)
    assert (report["events"], report["written"]) == (2, 2)
    assert _report(export, "--into", other)["earlier"] == 2
    assert [_stored(other, who) for who in ("ann", "bea")] == [_stored(config, who) for who in ("ann", "bea")]
    with export.open("a", encoding="utf-8") as file:
        file.write('{"event": {}, "status": "committed"}\n{"status": "committed"}\n')
    assert [problem["place"] for problem in _report(export, "--into", other)["problems"]] == [
        "past.jsonl, line 4",
        "past.jsonl, line 5",
    ]


def test_a_dry_run_counts_and_writes_nothing(tmp_path, config):
    report = _report(_chats(tmp_path / "chats.jsonl", 2), "--into", config, "--dry-run")
    assert (report["kinds"], report["events"], report["written"]) == ({"openai": 2}, 4, 0)
    said = invoke("import", tmp_path / "chats.jsonl", "--into", config, "--dry-run").stdout
    assert said.startswith("chats.jsonl, read as openai: 2 conversations, 4 events, ")
    assert report["tokens"] > 0
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_read_is_listed_and_the_rest_imported(tmp_path, config):
    file = _chats(tmp_path / "chats.jsonl", 2)
    file.write_text(file.read_text("utf-8") + '{"id": "talk-9", "messages": [{"role"\n', encoding="utf-8")
    report = _report(file, "--into", config)
    assert report["written"] == 4
    assert [
        "line 5" in problem["place"] or "line 3" in problem["place"] for problem in report["problems"]
    ] == [True]
    shown = invoke("import", file, "--into", config)
    assert "skipped: chats.jsonl, line 3" in shown.stdout
    assert "user says" not in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json"], "does not exist"),
        (["empty.json"], "is empty"),
        (["chats.jsonl", "--as", "chat"], "--as chat: is one of"),
    ],
)
def test_bad_input_gets_one_line(tmp_path, config, arguments, said):
    (tmp_path / "empty.json").touch()
    _chats(tmp_path / "chats.jsonl", 1)
    name, *more = arguments
    assert said in error_line(invoke("import", tmp_path / name, "--into", config, *more), 2)
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
def test_an_import_that_is_killed_goes_on_without_duplicates(tmp_path, config):
    file = _chats(tmp_path / "chats.jsonl", 600)
    command = [sys.executable, "-m", "memslot", "import", str(file), "--into", str(config), "--json"]
    counts = []
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + 60
            size = _bytes(tmp_path / "data")
            while process.poll() is None and _bytes(tmp_path / "data") < size + 60_000:
                assert time.monotonic() < until
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        counts.append(len(_stored(config)))
    assert counts[0] < 1200, "the first kill came too late to show anything"
    report = _report(file, "--into", config)
    assert report["written"] + report["earlier"] == report["events"] == 1200
    said = [text for _, text in _stored(config)]
    assert len(said) == len(set(said))
    assert sum("user says" in text for text in said) == 1200


def _bytes(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
