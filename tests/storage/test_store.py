"""The store: a file or a server, several processes, a deadline for every call, one sentence for every trouble."""

import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from itertools import chain

import anyio
import pytest
from postgres import NEEDS_POSTGRES
from things import THINGS

from memory.contract.errors import JournalError, StoreError
from memory.storage.store import SqliteStore
from memory.storage.tables import Tables

GRACE_S = 0.5


def put(name, number=1):
    return lambda db: db.execute(
        "INSERT INTO things VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET n = excluded.n", (name, number)
    )


def names(db):
    return [name for (name,) in db.execute("SELECT id FROM things ORDER BY id").fetchall()]


def fail(db):
    put("half")(db)
    raise ValueError("no")


def test_nothing_is_made_before_the_first_call(tmp_path):
    store = SqliteStore(tmp_path / "data" / "memslot.db", [THINGS])
    assert not store.begun
    store.close()
    assert not (tmp_path / "data").exists()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(SqliteStore(type(tmp_path)("memslot.db"), [THINGS])) as store:
        monkeypatch.chdir("/")
        store.call(put("x"))
    assert (tmp_path / "memslot.db").exists()


async def test_changes_are_kept_all_or_none(open_handle):
    store = open_handle(THINGS)
    await store.run(put("whole"))
    with pytest.raises(ValueError, match="no"):
        await store.run(fail)
    with pytest.raises(ValueError, match="no"):
        store.call(fail)
    assert store.call(names, writes=False) == ["whole"]


async def test_handles_share_what_is_kept(open_handle):
    one, other = open_handle(THINGS), open_handle(THINGS)
    await one.run(put("x"))
    one.close()
    assert await other.run(names, writes=False) == ["x"]
    with pytest.raises(StoreError, match="closed"):
        await one.run(put("y"))


# Files that cannot be used.


async def test_tables_of_another_version_are_refused(open_handle):
    newer = Tables("things", 2, THINGS.statements)
    await open_handle(newer).run(names, writes=False)
    with pytest.raises(
        StoreError, match=r"its things has version 2, and this memslot reads version 1; update"
    ):
        await open_handle(THINGS).run(names, writes=False)


def test_the_file_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "memslot.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (id)")
        db.commit()
    before = path.read_bytes()
    with (
        closing(SqliteStore(path, [THINGS])) as store,
        pytest.raises(StoreError, match="not a store of memslot") as caught,
    ):
        store.call(put("x"))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


async def test_a_locked_file_ends_at_the_deadline(tmp_path):
    path = tmp_path / "memslot.db"
    with closing(SqliteStore(path, [THINGS], within_s=0.2)) as store:
        store.call(put("x"))
        with locked(path):
            began = time.monotonic()
            with pytest.raises(StoreError, match="another process keeps it locked; end that process"):
                store.call(put("y"))
            with pytest.raises(StoreError, match="another process keeps it locked"):
                await store.run(put("y"))
            assert time.monotonic() - began < 2 * (0.2 + GRACE_S)
            assert store.call(names, writes=False) == ["x"]
        await store.run(put("y"))


async def test_a_lock_does_not_hold_the_event_loop_up(tmp_path):
    path = tmp_path / "memslot.db"
    with closing(SqliteStore(path, [THINGS], within_s=5.0)) as store:
        store.call(put("x"))
        turns = 0
        async with anyio.create_task_group() as tasks:
            with locked(path):
                tasks.start_soon(store.run, put("y"))
                for _ in range(20):
                    await anyio.sleep(0.005)
                    turns += 1
        assert turns == 20
        assert store.call(names, writes=False) == ["x", "y"]


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_file_that_goes_while_it_is_open(tmp_path, what):
    path = tmp_path / "memslot.db"
    with closing(SqliteStore(path, [THINGS])) as store:
        store.call(put("x"))
        path.rename(tmp_path / "gone")
        if what == "replaced":
            path.write_bytes(b"")
        with pytest.raises(StoreError, match="removed or replaced while it was open"):
            store.call(put("y"))


def test_erased_rows_leave_no_words(tmp_path):
    path = tmp_path / "memslot.db"
    secret = "the words of somebody" * 10
    with closing(SqliteStore(path, [THINGS])) as store:
        store.call(put(secret))
        store.call(lambda db: db.execute("DELETE FROM things"))
        assert store.fold()
        for file in tmp_path.iterdir():
            assert secret.encode() not in file.read_bytes()


# Processes.

WRITER = """
import sys
from pathlib import Path
from memory.storage.store import SqliteStore
from memory.storage.tables import Tables
from memory.storage.tables import Tables
from memory.storage.tables import Tables
THINGS = Tables("things", 1, "CREATE TABLE IF NOT EXISTS things (id TEXT PRIMARY KEY, n INTEGER NOT NULL);")
store = SqliteStore(Path(sys.argv[1]), [THINGS])
for n in range(int(sys.argv[3])):
    store.call(lambda db: db.execute("INSERT INTO things VALUES (?, 1)", (f"{sys.argv[2]}-{n}",)))
    print(f"{sys.argv[2]}-{n}", flush=True)
"""


def writer(path, name, count):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_processes_make_and_use_one_file_at_once(tmp_path):
    path = tmp_path / "data" / "memslot.db"
    processes = [writer(path, name, 30) for name in "abcd"]
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    with closing(SqliteStore(path, [THINGS])) as store:
        assert store.call(names, writes=False) == sorted(chain.from_iterable(said))


def forked(call):
    """What a forked child did: ``True`` where ``call`` raised nothing."""
    child = os.fork()
    if child == 0:
        try:
            call()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_both_sides_of_a_fork_go_on(open_handle):
    store = open_handle(THINGS)
    store.call(put("before"))
    assert forked(lambda: store.call(put("child")))
    store.call(put("parent"))
    assert store.call(names, writes=False) == ["before", "child", "parent"]


# Servers that hang.


@contextmanager
def silent_server(after=0):
    """Accepts, says ``after`` bytes, and then nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
                if after:
                    connection.sendall(b"R" + b"\0" * (after - 1))
            except OSError:
                return
            connections.append(connection)

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()
    for connection in connections:
        connection.close()


@NEEDS_POSTGRES
@pytest.mark.parametrize("after", [0, 7])
async def test_a_server_that_says_nothing_ends_at_the_deadline(after):
    from memory.storage.postgres import PostgresStore

    with silent_server(after) as port:
        url = f"postgresql://me:secret@127.0.0.1:{port}/db"
        with closing(PostgresStore(url, [THINGS], within_s=0.3, error=JournalError)) as store:
            began = time.monotonic()
            with pytest.raises(JournalError, match=r"no answer|cannot be reached") as caught:
                await store.run(put("x"))
            assert time.monotonic() - began < 0.3 + GRACE_S
            assert not caught.value.maybe_done
            assert "secret" not in str(caught.value)


@NEEDS_POSTGRES
async def test_a_server_that_stops_in_the_middle_ends_at_the_deadline(state_url):
    from memory.storage.postgres import PostgresStore

    with closing(PostgresStore(state_url, [THINGS])) as store:
        await store.run(put("x"))
        for _ in range(int(os.environ.get("MEMSLOT_ROUNDS", "3"))):
            store.within_s = 0.3
            began = time.monotonic()
            with pytest.raises(StoreError, match=r"no answer within 0\.3 s"):
                await store.run(lambda db: db.execute("SELECT pg_sleep(20)"))
            assert time.monotonic() - began < 0.3 + GRACE_S
            store.within_s = 5.0
            await store.run(put("y"))
        assert await store.run(names, writes=False) == ["x", "y"]
    assert [thread.name for thread in threading.enumerate() if thread.name == "memslot-postgres"] == []


@NEEDS_POSTGRES
async def test_connections_that_the_server_closed_are_made_again(state_url):
    from postgres import ask

    from memory.storage.postgres import PostgresStore

    with closing(PostgresStore(state_url, [THINGS])) as store:
        await store.run(put("x"))
        ask(
            state_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'memslot'",
        )
        await store.run(put("y"))
        assert await store.run(names, writes=False) == ["x", "y"]
