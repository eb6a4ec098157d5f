"""What memslot's conformance kit needs of this plugin."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from memory.testing import ConformanceProfile

NATIVE = {
    "HolographicMemoryProvider": ("_store.add_fact", "_retriever.search"),
    "MnemosyneMemoryProvider": ("_beam.remember", "_beam.recall"),
}
"""Where a fault is put inside a provider, so that one that swallows its errors is seen to."""


class Profile(ConformanceProfile):
    without_ids = {  # noqa: RUF012
        "native_id": "a provider answers one text",
        "event_ids": "a provider answers one text",
        "native_ids": "a provider has no call that reads a record",
    }
    rewrites = "a provider formats what it recalls, and may cut or merge it"
    limits_natively = False
    event_fields = ()
    concurrent_scopes = 8

    def native_rows(self, raw: Any) -> list[str]:
        return [raw["prefetch"]] if raw["prefetch"] else []

    def fingerprint(self, adapter: Any) -> dict[str, Any]:
        """Every row of every database below the homes, but for the words of full-text indexes."""
        found: dict[str, Any] = {}
        for file in sorted(adapter.directory.rglob("*.db")):
            with closing(sqlite3.connect(file)) as database:
                names = [
                    row[0]
                    for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                    if not row[0].startswith("sqlite_") and "_fts" not in row[0] and "fts_" not in row[0]
                ]
                found[str(file)] = {
                    name: database.execute(f'SELECT * FROM "{name}"').fetchall() for name in names
                }
        return found

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """SQLite fails as on a full disk below the provider's own code, or answers late."""
        patched = []
        for provider in adapter.providers.values():
            for path in NATIVE.get(type(provider).__name__, ("prefetch", "sync_turn")):
                *owners, name = path.split(".")
                owner: Any = provider
                for each in owners:
                    owner = getattr(owner, each)
                setattr(owner, name, _failing(kind, getattr(owner, name)))
                patched.append((owner, name))
        try:
            yield
        finally:
            for owner, name in patched:
                delattr(owner, name)


def _failing(kind: str, native: Any) -> Any:
    def call(*arguments: Any, **values: Any) -> Any:
        if kind == "late":
            time.sleep(0.5)
            return native(*arguments, **values)
        raise sqlite3.OperationalError(f"disk I/O error {arguments} {values}")

    return call
