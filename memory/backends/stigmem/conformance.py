"""Stigmem's declarations for the conformance kit."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from memory.testing import HttpConformance


class StigmemConformance(HttpConformance):
    """A Stigmem node.

    ``STIGMEM_DB`` is its SQLite file. Without it, the kit skips checks that need the file.
    """

    concurrent_scopes = 8
    clean_up = True
    database = "STIGMEM_DB"
    native_query = ("facts", {})

    def native_rows(self, raw: Any) -> list[Any]:
        return [hit for hit in raw["facts"] if hit.get("from_card") is not True]

    def fingerprint(self, adapter: Any) -> Any:
        """Every fact and the id of every key, read from the file, not from the node."""
        database = sqlite3.connect(f"file:{os.environ[self.database]}?mode=ro", uri=True)
        with closing(database):
            return [
                database.execute(f"SELECT {columns} ORDER BY id").fetchall()
                for columns in ("* FROM facts", "id FROM api_keys")
            ]
