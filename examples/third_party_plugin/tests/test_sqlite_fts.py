"""memslot's conformance kit on this backend, and what only this backend can be asked."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import anyio
import pytest
from memslot_sqlite_fts import SqliteFts

from memory import BackendError, MemoryAdapter, MemorySlot, open_memory
from memory.testing import FaultInjector, Fingerprint, MemoryContract

CONFIG = {
    "memory": {
        "backend": "sqlite_fts",
        "scope": {"run_id": "test", "persona_id": "ada"},
        "backends": {"sqlite_fts": {"lock_timeout_s": 0.3}},
    }
}


class TestSqliteFts(MemoryContract):
    config = CONFIG

    @pytest.fixture
    def fingerprint(self, adapter: MemoryAdapter) -> Fingerprint:
        """Everything in the file, read past the adapter."""
        assert isinstance(adapter, SqliteFts)

        def content() -> list[tuple[object, ...]]:
            with closing(sqlite3.connect(adapter.path)) as connection:
                return connection.execute(
                    "SELECT * FROM message JOIN word ON word.rowid = message.id"
                ).fetchall()

        return content

    @pytest.fixture
    def native_fault(self, adapter: MemoryAdapter) -> FaultInjector:
        """Another process locks the file. The adapter waits for it, then gives up: slow at first, then down."""
        assert isinstance(adapter, SqliteFts)

        @contextmanager
        def lock(kind: str) -> Iterator[None]:
            with closing(sqlite3.connect(adapter.path, isolation_level=None)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                yield

        return lock


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[MemorySlot]:
    async with open_memory({"memory": {**CONFIG["memory"], "data_dir": str(directory)}}) as memory:
        yield memory


async def say(directory: Path) -> None:
    async with opened(directory) as memory:
        await memory.after_turn(session_id="1", user="My parrot is called Kiwi.", assistant="Nice.")


async def ask(directory: Path) -> str:
    async with opened(directory) as memory:
        return await memory.before_turn("What is the parrot called?", session_id="2")


def test_what_was_said_outlives_the_process(tmp_path: Path) -> None:
    anyio.run(say, tmp_path)
    assert "Kiwi" in anyio.run(ask, tmp_path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "emptied": lambda file: os.truncate(file, 0),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "torn": lambda file: os.truncate(file, file.stat().st_size // 2),
    "removed": lambda file: file.unlink(),
    "replaced": lambda file: (file.rename(file.with_name("x")), file.write_bytes(b"SQLite format 3")),
}


@pytest.mark.parametrize("how", sorted(DAMAGE.keys() - {"removed"}))
def test_a_damaged_file_is_an_error_and_never_an_empty_memory(tmp_path: Path, how: str) -> None:
    anyio.run(say, tmp_path)
    file = tmp_path / "sqlite_fts.db"
    DAMAGE[how](file)
    left = file.read_bytes()
    with pytest.raises(BackendError, match=r"sqlite_fts\.db"):
        anyio.run(ask, tmp_path)
    assert file.read_bytes() == left, "whoever restores it may need it"


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_a_file_damaged_while_it_is_open_is_an_error(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        async with opened(tmp_path) as memory:
            await memory.after_turn(session_id="1", user="My parrot is called Kiwi.")
            DAMAGE[how](tmp_path / "sqlite_fts.db")
            health = await memory.health()
            assert health.status == "unavailable"
            assert "sqlite_fts.db" in str(health.warnings)
            with pytest.raises(BackendError, match=r"sqlite_fts\.db"):
                await memory.after_turn(session_id="1", user="My parrot is called Kiwi.")
            with pytest.raises(BackendError, match=r"sqlite_fts\.db"):
                await memory.before_turn("What is the parrot called?", session_id="2")

    anyio.run(run)


def test_two_that_start_at_once_share_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the file where there was none a moment before; it neither takes its place nor fails."""
    make = SqliteFts._make

    def overtaken(self: SqliteFts) -> None:
        monkeypatch.setattr(SqliteFts, "_make", make)
        anyio.run(say, tmp_path)
        make(self)

    monkeypatch.setattr(SqliteFts, "_make", overtaken)
    assert "Kiwi" in anyio.run(ask, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["sqlite_fts.db"]


def test_a_reset_leaves_no_text_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def plain(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)  # type: ignore[call-overload]
        connection.execute("PRAGMA secure_delete = OFF")  # as SQLite is built in some places
        return connection

    monkeypatch.setattr(sqlite3, "connect", plain)

    def on_disk() -> bool:
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        return any(b"zqkiwi" in file.read_bytes().lower() for file in files)

    async def run() -> None:
        async with opened(tmp_path) as memory:
            for number in range(20):
                await memory.after_turn(session_id="1", user=f"Parrot {number} is called ZQKiwi{number}.")
            other = memory.for_scope(persona_id="bob")
            await other.after_turn(session_id="1", user="My cat is called Tom.")
            assert on_disk(), "or this test proves nothing"
            assert memory.scope is not None
            assert (await memory.reset_scope(memory.scope)).verified
            assert not on_disk()
            assert "Tom" in await other.before_turn("What is the cat called?", session_id="2")

    anyio.run(run)
    assert not on_disk()


def test_an_event_that_comes_twice_is_kept_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as memory:
            first = await memory.after_turn(session_id="1", event_id="e", user="One.")
            again = await memory.after_turn(session_id="1", event_id="e", user="Two.")
            assert again.native_ids == first.native_ids
            assert again.warnings
            assert await memory.before_turn("two", session_id="2") == ""

    anyio.run(run)
