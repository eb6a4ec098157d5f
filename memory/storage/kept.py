"""JSON objects that hosts keep beside a scope's memory, such as labels and states of conversations.

No backend stores them. A reset of their scope removes them and overwrites them on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from memory.contract._model import JsonObject
from memory.contract.errors import StoreError
from memory.contract.scope import MemoryScope
from memory.storage.store import SqliteStore, Store, digest_of, open_store, scope_key
from memory.storage.tables import Tables

T = TypeVar("T")

KEPT = Tables(
    "host store",
    1,
    """
CREATE TABLE IF NOT EXISTS kept (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS kept_names ON kept (kind, owner, id);
CREATE INDEX IF NOT EXISTS kept_age ON kept (kind, seq);
CREATE INDEX IF NOT EXISTS kept_scopes ON kept (scope);
""",
)
_PUT = """INSERT INTO kept (kind, owner, id, scope, value) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, owner, id) DO UPDATE SET scope = excluded.scope, value = excluded.value"""
_PRUNED_EVERY = 256
_RESETS = "resets"
# Adds to a scope's count of resets. The row's lock lets a reset and put_since happen only one after the other.
_COUNT = """INSERT INTO kept (kind, owner, id, scope, value) VALUES (?, '', ?, ?, ?)
ON CONFLICT (kind, owner, id) DO UPDATE SET
value = CAST(CAST(kept.value AS INTEGER) + CAST(excluded.value AS INTEGER) AS TEXT)"""


class StoredObject(NamedTuple):
    """One object to keep.

    Attributes:
        kind, owner, name: together identify the object.
        value: JSON-ready.
        scope: a reset of this scope removes the object; by default the owner.
    """

    kind: str
    owner: MemoryScope
    name: str
    value: Mapping[str, object]
    scope: MemoryScope | None = None


class HostStore(AbstractContextManager["HostStore"]):
    """JSON objects by kind, owner and name. Every method blocks.

    Args:
        memory: name of the backend. Objects beside one backend are not visible beside another.
        place: the directory of the store, or a store. None keeps everything in this process.
        max_objects: upper bound for each kind; the oldest go first.

    Attributes:
        place: the location, for messages.
        on_server: whether other machines can use the store, so that earlier reads may be outdated.
    """

    def __init__(self, memory: str, place: Path | Store | None = None, *, max_objects: int = 100_000) -> None:
        self._memory = memory
        self._max_objects = max_objects
        self._puts = 0
        source = SqliteStore(None) if place is None else open_store(place)
        self._store = source.handle(KEPT)
        source.close()
        self.place = self._store.place
        self.on_server = self._store.shared

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the handle on the store. Idempotent."""
        self._store.close()

    def check(self) -> None:
        """Raise StoreError if the store cannot keep objects."""
        self._store.call(lambda db: db.execute("SELECT 1 FROM kept LIMIT 1").fetchone())

    def get(self, kind: str, owner: MemoryScope, name: str) -> JsonObject | None:
        """One object, or None."""
        return self.get_many(kind, owner, [name]).get(name)

    def get_many(self, kind: str, owner: MemoryScope, names: Collection[str]) -> dict[str, JsonObject]:
        """The named objects of an owner that exist, by name."""
        if not names:
            return {}
        where = f"kind = ? AND owner = ? AND id IN ({', '.join('?' * len(names))})"
        rows = self._read(f"SELECT id, value FROM kept WHERE {where}", kind, self._key(owner), *names)
        return {name: self._parsed(value) for name, value in rows}

    def all(self, kind: str, owner: MemoryScope | None = None) -> list[JsonObject]:
        """Every object of a kind, of one owner or of all owners of this backend, newest first."""
        begins = f"{self._memory} "
        whose, values = "substr(owner, 1, length(?)) = ?", [begins, begins]
        if owner:
            whose, values = "owner = ?", [self._key(owner)]
        rows = self._read(
            f"SELECT value FROM kept WHERE kind = ? AND {whose} ORDER BY seq DESC", kind, *values
        )
        return [self._parsed(value) for (value,) in rows]

    def put(self, *objects: StoredObject) -> None:
        """Keep all of these objects, or none. An object replaces its namesake and keeps that one's age."""
        if objects:
            self._store.call(self._keeping(objects))

    def put_since(self, resets: int, kept: StoredObject) -> int:
        """Keep an object unless :meth:`resets` of its owner has changed. Returns how often it was reset."""
        count, keep = self._counted(kept.owner, 0), self._keeping([kept])

        def compare(db: Any) -> int:
            db.execute(*count)
            found = db.execute(
                "SELECT value FROM kept WHERE kind = ? AND owner = '' AND id = ?", count[1][:2]
            )
            now = int(found.fetchone()[0])
            if now == resets:
                keep(db)
            return now

        return self._store.call(compare)

    def _keeping(self, objects: Sequence[StoredObject]) -> Callable[[Any], None]:
        rows = []
        for kept in objects:
            owner, scope = self._key(kept.owner), self._key(kept.scope or kept.owner)
            rows.append((kept.kind, owner, kept.name, scope, json.dumps(kept.value, ensure_ascii=False)))
        self._puts += 1
        kinds = {kept.kind for kept in objects} if self._puts % _PRUNED_EVERY == 0 else ()

        def keep(db: Any) -> None:
            db.executemany(_PUT, rows)
            for kind in kinds:
                last = "SELECT seq FROM kept WHERE kind = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
                db.execute(
                    f"DELETE FROM kept WHERE kind = ? AND seq <= ({last})", (kind, kind, self._max_objects)
                )

        return keep

    def drop(self, kind: str, owner: MemoryScope, name: str | None = None) -> None:
        """Remove one object of an owner, or all of a kind, from the disk for good."""
        names = () if name is None else (name,)
        where = "kind = ? AND owner = ?" + (" AND id = ?" if names else "")
        self._erase((f"DELETE FROM kept WHERE {where}", (kind, self._key(owner), *names)))

    def reset(self, scope: MemoryScope) -> None:
        """Remove everything that belongs to a scope that was reset, and count the reset."""
        key = self._key(scope)
        gone = "DELETE FROM kept WHERE scope = ? OR owner = ?"
        self._erase(self._counted(scope, 1), (gone, (key, key)))

    def _counted(self, scope: MemoryScope, more: int) -> tuple[str, tuple[str, ...]]:
        # A digest, so that a forgotten person leaves no name here.
        return _COUNT, (_RESETS, digest_of(self._key(scope)), self._memory, str(more))

    def resets(self, scope: MemoryScope | None = None) -> int:
        """How often a scope, or any scope, was reset since the store was created, by any process."""
        if not self._store.begun:
            return 0
        whose, value = ("id", digest_of(self._key(scope))) if scope else ("scope", self._memory)
        where = f"SELECT sum(CAST(value AS INTEGER)) FROM kept WHERE kind = ? AND owner = '' AND {whose} = ?"
        return int(self._read(where, _RESETS, value)[0][0] or 0)

    def _read(self, statement: str, *values: str) -> list[Any]:
        return list(self._store.call(lambda db: db.execute(statement, values).fetchall(), writes=False))

    def _erase(self, *statements: tuple[str, tuple[str, ...]]) -> None:
        self._store.call(lambda db: [db.execute(statement, values) for statement, values in statements])
        self._store.fold()

    def _parsed(self, value: str) -> JsonObject:
        try:
            found = json.loads(value)
        except ValueError as error:
            raise StoreError(f"{self.place}: damaged; restore it, or remove it to begin a new one") from error
        return dict(found)

    def _key(self, scope: MemoryScope) -> str:
        return f"{self._memory} {scope_key(scope)}"


def reset_host_store(place: Path | Store, memory: str, scope: MemoryScope) -> tuple[str, ...]:
    """Call :meth:`HostStore.reset` if anything was kept. Returns what could not be removed. Blocks."""
    with closing(open_store(place)) as store:
        begun = store.begun
    if not begun:
        return ()
    try:
        with HostStore(memory, place) as hosts:
            hosts.reset(scope)
    except StoreError as error:
        return (f"what hosts keep beside it: {error}",)
    return ()
