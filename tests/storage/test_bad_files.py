"""A store file that cannot be used, seen through the public door: one sentence with its path and the fix."""

import os
import resource
import signal
import sqlite3
from contextlib import closing, contextmanager

import pytest

from memory import MemslotError, open_memory_sync

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
NOBODY = 65534


def config(directory):
    block = {"backend": "full_history", "journal": True, "data_dir": str(directory)}
    scope = {"run_id": "r", "persona_id": "ada"}
    return {"memory": {**block, "scope": scope, "deadlines": {"write_s": 0.5}}}


def write(directory):
    """What the host is told; empty where the turn was kept."""
    try:
        with open_memory_sync(config(directory)) as memory:
            memory.after_turn(user="I like oolong." * 20_000, session_id="s")
    except MemslotError as error:
        return str(error)
    return ""


@contextmanager
def locked(file):
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def read_only(file):
    """The child is nobody, where the tests run as root: root may write everything."""
    for path in (*file.parent.iterdir(), file.parent):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield
    file.parent.chmod(0o755)


@contextmanager
def no_database(file):
    for suffix in ("-wal", "-shm"):
        file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
    file.write_bytes(b"a long enough text that is no database" * 100)
    yield


@contextmanager
def newer(file):
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE versions SET version = 99")
        db.commit()
    yield


@contextmanager
def on_a_full_disk(file):
    yield


def in_child(work):
    read, pipe = os.pipe()
    if not os.fork():
        signal.alarm(20)
        os.write(pipe, work().encode())
        os._exit(0)
    os.close(pipe)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.wait()
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("trouble", "fix"),
    [
        (locked, "another process keeps it locked; end that process, or try again"),
        (read_only, "this user cannot write it; make the file and its directory writable"),
        (on_a_full_disk, "the disk or a quota is full; free some space"),
        (no_database, "damaged, or not a SQLite file; restore it from a copy, or move it away"),
        (newer, "and this memslot reads version 1; update memslot, or set another place"),
    ],
)
def test_one_sentence_names_the_file_and_the_fix(tmp_path, trouble, fix):
    directory = tmp_path / "data"
    assert write(directory) == ""
    for above in (directory, *directory.parents):
        if above.stat().st_uid == os.geteuid() and above.name.startswith(("pytest", "popen", "test", "data")):
            above.chmod(0o755)

    def work():
        if trouble is read_only and os.geteuid() == 0:
            os.setuid(NOBODY)
        if trouble is on_a_full_disk:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        return write(directory)

    with trouble(directory / "memslot.db"):
        said = in_child(work)
    assert str(directory / "memslot.db") in said
    assert fix in said
    assert said.count("\n") == 0


@pytest.mark.parametrize("table", ["outbox", "condition_events"])
def test_a_row_that_cannot_be_read_is_named_and_blocks_no_other(tmp_path, table):
    with open_memory_sync(config(tmp_path)) as memory:
        for number in range(3):
            memory.after_turn(user=f"I like tea {number}.", session_id="s", event_id=f"e{number}")
    column = "payload" if table == "outbox" else "event"
    with closing(sqlite3.connect(tmp_path / "memslot.db")) as db:
        waits = ", state = 'waiting'" if table == "outbox" else ""
        db.execute(f"UPDATE {table} SET {column} = '{{torn'{waits} WHERE seq = 2")
        db.commit()
    with open_memory_sync(config(tmp_path)) as memory:
        shown = memory.before_turn("tea", session_id="q")
        health = memory.run(lambda slot: slot.health())
    assert health.status == "degraded"
    assert any("2" in warning for warning in health.warnings), health.warnings
    wanted = [True, table == "outbox", True]
    assert [f"tea {number}" in shown for number in range(3)] == wanted
