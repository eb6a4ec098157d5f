"""The control conditions' declarations for the conformance kit."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from memory.testing import FAKE_KEY, ConformanceProfile


class NothingCanFail(ConformanceProfile):
    """Controls that return a text of their configuration."""

    cannot_fail = "a text of the configuration is all there is"


class InTables(ConformanceProfile):
    """Controls that keep rows in the memory's store, which may fail."""

    answers_at_once = "a write and a read are one statement of a local database"

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        def fail(*given: Any, **named: Any) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO), f"{FAKE_KEY} {given}")

        store = adapter.tables.store
        store.run = store.call = fail
        try:
            yield
        finally:
            del store.run, store.call

    def fingerprint(self, adapter: Any) -> Any:
        def rows(db: Any) -> Any:
            tables = ("condition_scopes", "condition_events", "condition_history")
            return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

        return adapter.tables.store.call(rows)


class RollingSummary(InTables):
    """A control whose only document is a summary."""

    without_ids: ClassVar = {"native_id": "a summary is one text"}
    rewrites = "a summary keeps what it takes for important"
    native_query = ("memory", {})

    def native_rows(self, raw: Any) -> list[Any]:
        return [raw["memory"]]
