"""Entries of processes that have the standard library alone."""

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import pytest

from memory.storage.entries import OUTBOX, Lane, list_entries
from memory.storage.insert import insert
from memory.storage.outbox import Outbox
from memory.storage.store import SqliteStore

PROGRAM = """
import sys
from memory.storage.insert import insert
insert(sys.argv[1], "turn", sys.argv[2], '{"said": "tea"}')
heavy = {"pydantic", "anyio", "asyncio"} & sys.modules.keys()
assert not heavy, heavy
"""


@pytest.mark.thorough
def test_fifty_processes_at_once_store_fifty_rows(tmp_path):
    path = tmp_path / "data" / "memslot.db"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    processes = [subprocess.Popen([*command, f"k{number}"]) for number in range(50)]
    assert [process.wait(60) for process in processes] == [0] * 50
    with closing(SqliteStore(path, [OUTBOX])) as store:
        assert {entry.key for entry in list_entries(store)} == {f"k{number}" for number in range(50)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_was_inserted_is_delivered(tmp_path):
    path = tmp_path / "memslot.db"
    assert insert(path, "turn", "a", '{"said": "tea"}', destination="d", scope="{}", persona="p")
    assert not insert(path, "turn", "a", '{"said": "coffee"}', destination="d", scope="{}")
    with closing(SqliteStore(path, [OUTBOX])) as store:
        [entry] = list_entries(store)
        assert (entry.payload, entry.persona, entry.state, entry.readable) == (
            '{"said": "tea"}',
            "p",
            "waiting",
            True,
        )
        assert await Outbox(store, "turn").counts() == {Lane(entry.destination, entry.scope): 1}


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "memslot.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (id)")
        db.commit()
    with pytest.raises(sqlite3.DatabaseError, match="not a store of memslot"):
        insert(path, "turn", "a", "{}")
