"""How commands end: one clear line that names field and fix, and an exit code that says whose fault it is."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest
from cli_support import error_line, invoke

import memory
from memory.storage.insert import insert

MEMSLOT = [sys.executable, "-c", "from memory.cli import main; main()"]


@pytest.mark.parametrize(("kind", "said"), [("directory", "cannot be read"), ("binary", "not UTF-8")])
def test_an_unreadable_configuration_is_one_line(tmp_path, kind, said):
    path = tmp_path / "config.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"memory: \xff\xfe")
    assert said in error_line(invoke("tools", "config", "show", path), 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), None),
        (("view", "a", "b"), "give the file of one memory, the directory of results, or both"),
        (("tools",), None),
        (("tools", "data"), None),
        (("journal",), None),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, said):
    result = invoke(*arguments)
    if said is None:
        assert result.exit_code == 0
        assert "Usage: memslot" in result.stdout
    else:
        assert said in error_line(result, 2)


@pytest.mark.parametrize("memory", ["mem0", "graphiti", "rolling_summary"])
def test_a_models_name_alone_is_its_block(tmp_path, monkeypatch, memory):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "config.yaml"
    for llm, said in (
        ("gpt-4.1-mini", r"llm\.(api_key is missing|base_url: is required)"),
        ("7", "must be a map"),
    ):
        path.write_text(f"memory: {{backend: {memory}, backends: {{{memory}: {{llm: {llm}}}}}}}", "utf-8")
        assert re.search(said, invoke("doctor", path).stdout)


def test_an_unexpected_error_names_type_and_place_only(monkeypatch):
    def fail(self):
        raise KeyError("what the user said, and sk-secret")

    monkeypatch.setattr("memory.plugins.registry.MemoryAdapterRegistry.rows", fail)
    result = invoke("doctor")
    line = error_line(result, 1)
    assert line.startswith("unexpected KeyError in test_cli_errors.py:")
    assert "sk-secret" not in result.output
    for arguments in (("--debug", "doctor"), ("doctor", "--debug")):
        result = invoke(*arguments)
        assert result.exit_code == 1
        assert "Traceback" in result.stderr
        assert "sk-secret" in result.stderr, "who asks for the traceback gets it"


def test_a_full_disk_is_told_in_words(monkeypatch):
    def fail(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("memory.plugins.registry.MemoryAdapterRegistry.rows", fail)
    assert error_line(invoke("doctor"), 1).startswith("No space left on device; ")


def test_an_error_within_a_group_is_the_error(monkeypatch):
    def fail(self):
        raise ExceptionGroup("tasks", [ExceptionGroup("tasks", [memory.BackendTimeout("no answer in 3 s")])])

    monkeypatch.setattr("memory.plugins.registry.MemoryAdapterRegistry.rows", fail)
    assert error_line(invoke("doctor"), 1) == "no answer in 3 s"


def test_version():
    assert invoke("--version").stdout == f"memslot {memory.__version__}\n"


@pytest.mark.thorough
@pytest.mark.parametrize("command", [("doctor",), ("doctor", "--json"), ("doctor", "nowhere.yaml")])
def test_whoever_stops_reading_hears_no_complaint(command):
    writer = subprocess.Popen([*MEMSLOT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stderr is not None
    writer.stdout.close()
    with writer.stderr:
        assert writer.stderr.read() == b""
    assert writer.wait(timeout=300) == 1


@pytest.mark.thorough
def test_output_that_cannot_be_encoded_is_escaped(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [*MEMSLOT, "setup", str(tmp_path / "茶.yaml")]
    done = subprocess.run(command, capture_output=True, check=True, env=environment, timeout=300)
    assert rb"\u8336.yaml" in done.stdout


def test_entries_of_every_kind_are_listed_retried_and_forgotten(tmp_path):
    config = tmp_path / "memory.yaml"
    config.write_text("memory: {condition: no_memory, data_dir: data, journal: true}")
    for number in range(3):
        insert(tmp_path / "data" / "memslot.db", "turn", f"t{number}", "{}")
    from contextlib import closing

    from memory.storage.store import SqliteStore

    with closing(SqliteStore(tmp_path / "data" / "memslot.db")) as store:
        store.call(lambda db: db.execute("UPDATE outbox SET state = 'aside' WHERE seq < 3"))

    def listed():
        return json.loads(invoke("journal", "list", config, "--json").stdout)

    assert [(row["number"], row["kind"], row["status"]) for row in listed()["entries"]] == [
        (1, "turn", "aside"),
        (2, "turn", "aside"),
        (3, "turn", "waiting"),
    ]
    assert json.loads(invoke("journal", "retry", config, "2", "--json").stdout) == {"retried": [2]}
    assert listed()["counts"] == {"aside": 1, "waiting": 2}
    assert json.loads(invoke("journal", "forget", config, "--number", "1", "--json").stdout) == {
        "forgotten": [1]
    }
    assert [row["number"] for row in listed()["entries"]] == [2, 3]
