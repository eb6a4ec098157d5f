"""MemOS' declarations for the conformance kit."""

from __future__ import annotations

from typing import Any, ClassVar

from memory.backends.memos.answers import items
from memory.testing import HttpConformance


class MemosConformance(HttpConformance):
    """A MemOS server that keeps running between specs.

    ``MEMOS_DB`` is the address of its PostgreSQL. Without it, the kit skips checks that need the database.
    """

    native_query = ("get_memory", {})
    without_ids: ClassVar = {"native_ids": "of raw memories, which MemOS replaces by what it makes of them"}
    rewrites = "MemOS makes memories of what is said"
    concurrent_scopes = 8
    clean_up = True
    ready_timeout_s = 60.0
    database = "MEMOS_DB"

    def native_rows(self, raw: Any) -> list[Any]:
        return [item for _, _, item in items(raw, "search")]

    def fingerprint(self, adapter: Any) -> Any:
        return self.rows("SELECT id, user_name, memory, properties::text FROM memos.memories ORDER BY id")
