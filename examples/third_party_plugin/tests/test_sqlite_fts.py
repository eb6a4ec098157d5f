"""memslot's conformance kit on this backend, and what only this backend can be asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import anyio
import pytest
from memslot_sqlite_fts import SqliteFts

from memory import open_memory
from memory.adapter import MemoryAdapter
from memory.testing.contract import Fingerprint, MemoryContract, NativeFault

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
    def native_fault(self, adapter: MemoryAdapter) -> NativeFault:
        """Another process locks the file. The adapter waits for it, then gives up: slow at first, then down."""
        assert isinstance(adapter, SqliteFts)

        @contextmanager
        def lock(kind: str) -> Iterator[None]:
            with closing(sqlite3.connect(adapter.path, isolation_level=None)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                yield

        return lock


def test_what_was_said_outlives_the_process(tmp_path) -> None:
    config = {"memory": {**CONFIG["memory"], "data_dir": str(tmp_path)}}

    async def say() -> None:
        async with open_memory(config) as memory:
            await memory.after_turn(session_id="1", user="My parrot is called Kiwi.", assistant="Nice.")

    async def ask() -> str:
        async with open_memory(config) as memory:
            return await memory.before_turn("What is the parrot called?", session_id="2")

    anyio.run(say)
    assert "Kiwi" in anyio.run(ask)


def test_an_event_that_comes_twice_is_kept_once(tmp_path) -> None:
    config = {"memory": {**CONFIG["memory"], "data_dir": str(tmp_path)}}

    async def go() -> None:
        async with open_memory(config) as memory:
            first = await memory.after_turn(session_id="1", event_id="e", user="One.")
            again = await memory.after_turn(session_id="1", event_id="e", user="Two.")
            assert again.native_ids == first.native_ids
            assert again.warnings
            assert await memory.before_turn("two", session_id="2") == ""

    anyio.run(go)
