"""What memslot's conformance kit needs of this plugin."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from memory.testing import ConformanceProfile


class Profile(ConformanceProfile):
    lists_in_order = True
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012
    concurrent_scopes = 8  # each bank makes some sixty tables when it is opened first

    def fingerprint(self, adapter: Any) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every bank, read past the adapter."""
        found = {}
        for file in sorted(adapter.directory.glob("*/mnemosyne.db")):
            with closing(sqlite3.connect(file)) as database:
                found[file.parent.name] = database.execute("SELECT * FROM working_memory").fetchall()
        return found

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """SQLite fails as on a full disk, or answers late."""

        def fail() -> None:
            if kind == "late":
                time.sleep(0.5)
            else:
                raise sqlite3.OperationalError("disk I/O error")

        healthy, adapter.before_call = adapter.before_call, fail
        try:
            yield
        finally:
            adapter.before_call = healthy
