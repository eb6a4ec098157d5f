"""Every native partition of a memory, with its location, engine and embedder.

An embedded store, or a server collection that memslot created, is checked against this table when it opens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any

from memory.contract.errors import ConfigError, StoreError
from memory.storage.store import Store
from memory.storage.tables import Tables

PARTITIONS = Tables(
    "partitions",
    1,
    """
CREATE TABLE IF NOT EXISTS partitions (
    backend TEXT NOT NULL,
    scope TEXT NOT NULL,
    location TEXT NOT NULL,
    engine TEXT NOT NULL,
    embedder TEXT NOT NULL DEFAULT '',
    dimensions INTEGER,
    query_prefix TEXT NOT NULL DEFAULT '',
    document_prefix TEXT NOT NULL DEFAULT '',
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (backend, scope)
);
""",
)
_COLUMNS = "scope, location, engine, embedder, dimensions, query_prefix, document_prefix"


@dataclass(frozen=True)
class Partition:
    """One native partition.

    Attributes:
        scope: the adapter's name for its scope; each scope has one partition.
        location: a directory relative to ``data_dir``, or a collection of a server.
        engine: the engine that made it, such as ``qdrant`` or ``kuzu 0.11.3``.
        embedder: name of the model that made its vectors; empty if it holds none.
        dimensions: length of its vectors; None if it holds none.
        query_prefix, document_prefix: texts that the embedder puts before a query or a document.
    """

    scope: str
    location: str
    engine: str
    embedder: str = ""
    dimensions: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""


class Partitions:
    """The partitions of one backend. Every method blocks. The owner of the store closes it."""

    def __init__(self, store: Store, backend: str) -> None:
        self._store = store
        self._backend = backend

    def listed(self, scope: str) -> Partition | None:
        """The partition of a scope, or None if none is listed. Creates no file."""
        found = self._read("AND scope = ?", scope)
        return found[0] if found else None

    def all(self) -> list[Partition]:
        """Every partition of the backend, oldest first. Creates no file."""
        return self._read("")

    def open(
        self, wanted: Partition, *, exists: bool, is_empty: Callable[[], bool] = lambda: False
    ) -> Partition:
        """Check a partition against the table before it is opened, and list it if it is new.

        Args:
            wanted: the partition as configured.
            exists: whether the engine has it.
            is_empty: tells whether it holds no row; called only if the embedder differs.

        Raises:
            StoreError: it is listed, but the engine does not have it.
            ConfigError: it was made with another embedder or vector length, and holds rows.
        """
        known = self.listed(wanted.scope)
        if known is None:
            return self.note(wanted)
        if not exists:
            raise StoreError(
                f"{self._backend}: {known.location} is listed in {self._store.place} and missing; restore it from "
                "a copy, or reset the scope to begin a new one"
            )
        if difference := _difference(known, wanted):
            if not is_empty():
                raise ConfigError(
                    f"{self._backend}: {known.location} was made with {difference}; configure the former, or reset "
                    "the scope and record its events again"
                )
            return self.note(wanted)
        return known

    def note(self, partition: Partition) -> Partition:
        """List a partition, in place of the one that was listed for its scope."""
        changed = ", ".join(
            f"{field.name} = excluded.{field.name}" for field in fields(Partition) if field.name != "scope"
        )
        statement = (
            f"INSERT INTO partitions (backend, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (backend, scope) DO UPDATE SET {changed}"
        )
        row = (self._backend, *astuple(partition))
        self._store.call(lambda db: db.execute(statement, row))
        return partition

    def drop(self, scope: str) -> None:
        """Remove a scope's partition from the table, after the partition was deleted. Idempotent."""
        if self._store.begun:
            where = (self._backend, scope)
            self._store.call(
                lambda db: db.execute("DELETE FROM partitions WHERE backend = ? AND scope = ?", where)
            )

    def _read(self, condition: str, *values: Any) -> list[Partition]:
        if not self._store.begun:
            return []
        statement = (
            f"SELECT {_COLUMNS} FROM partitions WHERE backend = ? {condition} ORDER BY created_at, scope"
        )
        rows = self._store.call(
            lambda db: db.execute(statement, (self._backend, *values)).fetchall(), writes=False
        )
        return [Partition(*row) for row in rows]


def _difference(known: Partition, wanted: Partition) -> str:
    """The first difference that changes search results, as ``name one, and name two is configured``."""
    for name in ("embedder", "dimensions", "query_prefix", "document_prefix"):
        before, now = getattr(known, name), getattr(wanted, name)
        if before != now:
            what = name.replace("_", " ")
            return f"{what} {before!r}, and {what} {now!r} is configured"
    return ""
