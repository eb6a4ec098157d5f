"""What hosts keep of a scope beside its memory: labels of single memories, and where conversations left off. A
SQLite file that several processes may use at once, a server, or, without either, this process's own. No backend
keeps these things; they go when their scope is reset, overwritten on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from memory.contract._model import JsonObject
from memory.contract.errors import StoreError
from memory.contract.scope import MemoryScope
from memory.slot.sqlite_file import Database, Place, SqliteFile, SqliteLayout, digest_of, scope_key

T = TypeVar("T")

HOST_FILE = "hosts.db"
_LAYOUT = SqliteLayout(
    what="host store",
    application_id=0x6D656D68,
    version=1,
    alone=False,
    tables="""
CREATE TABLE IF NOT EXISTS kept (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one ON kept (kind, owner, id);
CREATE INDEX IF NOT EXISTS age ON kept (kind, seq);
CREATE INDEX IF NOT EXISTS scopes ON kept (scope);
""",
)
_PUT = """INSERT INTO kept (kind, owner, id, scope, value) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, owner, id) DO UPDATE SET scope = excluded.scope, value = excluded.value"""
_PRUNED_EVERY = 256
_RESETS = "resets"


class StoredObject(NamedTuple):
    """One object to keep.

    Attributes:
        kind, owner, name: what finds it again.
        value: JSON-ready.
        scope: with whose reset it goes; by default the owner's.
    """

    kind: str
    owner: MemoryScope
    name: str
    value: Mapping[str, object]
    scope: MemoryScope | None = None


class HostStore(AbstractContextManager["HostStore"]):
    """JSON objects by kind, owner and id.

    Args:
        memory: name of the backend; what is kept beside one is not shown beside another.
        place: the file, whose directory is made, or a server. None keeps everything in this process alone.
        max_objects: of one kind; the oldest go first.

    Attributes:
        place: where it is, for messages.
        on_server: whether other machines use it, too: what was read a moment ago may have changed since.

    Raises:
        StoreError: the file is damaged, another's, or of another version.
    """

    def __init__(self, memory: str, place: Place | None = None, *, max_objects: int = 100_000) -> None:
        self._memory = memory
        self._max_objects = max_objects
        self._puts = 0
        self._file: Database = (
            SqliteFile(place, _LAYOUT) if place is None or isinstance(place, Path) else place.open(_LAYOUT)
        )
        self._db = self._file.db
        self.place = self._file.place
        self.on_server = self._file.on_server

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    def close(self) -> None:
        """Give the file back. Idempotent."""
        self._file.close()

    def check(self) -> None:
        """Whether what is put is kept.

        Raises:
            StoreError: the file was removed, replaced or emptied, or the store is closed.
        """
        self._do(lambda: self._db.execute("SELECT 1 FROM kept LIMIT 1").fetchone())

    def get(self, kind: str, owner: MemoryScope, name: str) -> JsonObject | None:
        """One object, or None."""
        return self.get_many(kind, owner, [name]).get(name)

    def get_many(self, kind: str, owner: MemoryScope, names: Collection[str]) -> dict[str, JsonObject]:
        """Those objects of an owner that there are, by name."""
        if not names:
            return {}
        marks = ", ".join("?" * len(names))
        where = f"SELECT id, value FROM kept WHERE kind = ? AND owner = ? AND id IN ({marks})"
        values = (kind, self._key(owner), *names)
        rows = self._do(lambda: self._db.execute(where, values).fetchall())
        return {name: self._read(value) for name, value in rows}

    def all(self, kind: str, owner: MemoryScope | None = None) -> list[JsonObject]:
        """Every object of an owner, or of all of this backend, newest first."""
        begins = f"{self._memory} "
        whose, values = "substr(owner, 1, length(?)) = ?", [begins, begins]
        if owner:
            whose, values = "owner = ?", [self._key(owner)]
        where = f"SELECT value FROM kept WHERE kind = ? AND {whose} ORDER BY seq DESC"
        rows = self._do(lambda: self._db.execute(where, (kind, *values)).fetchall())
        return [self._read(value) for (value,) in rows]

    def put(self, *objects: StoredObject) -> None:
        """Keep objects, all or none, in place of those of the same kind, owner and name; each keeps its age."""
        values = [self._row(kept) for kept in objects]

        def keep() -> None:
            with self._file.transaction():
                self._db.executemany(_PUT, values)
                self._puts += 1
                if self._puts % _PRUNED_EVERY == 0:
                    last = "SELECT seq FROM kept WHERE kind = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
                    self._db.executemany(
                        f"DELETE FROM kept WHERE kind = ? AND seq <= ({last})",
                        [(kind, kind, self._max_objects) for kind in {kept.kind for kept in objects}],
                    )

        if values:
            self._do(keep)

    def swap(self, kept: StoredObject, before: Mapping[str, object] | None) -> bool:
        """Keep an object in place of what was read before, unless somebody else was first; whether it is kept.

        Of two that differ in nothing both are.
        """
        read = "" if before is None else json.dumps(before, ensure_ascii=False)

        def swap() -> None:
            with self._file.transaction():
                self._db.execute(f"{_PUT} WHERE kept.value = ?", (*self._row(kept), read))

        self._do(swap)
        return self.get(kept.kind, kept.owner, kept.name) == kept.value

    def drop(self, kind: str, owner: MemoryScope, name: str | None = None) -> None:
        """Take out one object of an owner, or every one, and leave nothing of them on the disk. Flushes to it."""
        names = () if name is None else (name,)
        where = "kind = ? AND owner = ?" + (" AND id = ?" if names else "")
        self._erase((f"DELETE FROM kept WHERE {where}", (kind, self._key(owner), *names)))

    def reset(self, scope: MemoryScope) -> None:
        """The scope was reset: nothing that goes with it is kept, or left on the disk, but that it was."""
        key = self._key(scope)
        count = (
            "INSERT INTO kept (kind, owner, id, scope, value) VALUES (?, '', ?, ?, '1') ON CONFLICT "
            "(kind, owner, id) DO UPDATE SET value = CAST(CAST(kept.value AS INTEGER) + 1 AS TEXT)"
        )
        # By a digest: whoever is forgotten leaves no name here.
        row = (_RESETS, digest_of(key), self._memory)
        self._erase(("DELETE FROM kept WHERE scope = ? OR owner = ?", (key, key)), (count, row))

    def resets(self, scope: MemoryScope | None = None) -> int:
        """How often a scope, or any, was reset since this file was begun, whichever process did it."""
        whose, value = ("id", digest_of(self._key(scope))) if scope else ("scope", self._memory)
        where = f"SELECT sum(CAST(value AS INTEGER)) FROM kept WHERE kind = ? AND owner = '' AND {whose} = ?"
        return int(self._file.sync(lambda: self._db.execute(where, (_RESETS, value)).fetchone()[0]) or 0)

    def _erase(self, *statements: tuple[str, tuple[str, ...]]) -> None:
        def erase() -> None:
            with self._file.transaction():
                for statement, values in statements:
                    self._db.execute(statement, values)
            self._file.fold_log()

        self._do(erase)

    def _do(self, call: Callable[[], T]) -> T:
        def checked() -> T:
            self._file.check()
            return call()

        return self._file.sync(checked)

    def _read(self, value: str) -> JsonObject:
        try:
            found = json.loads(value)
        except ValueError as error:
            raise StoreError(f"{self.place}: damaged; restore it, or remove it to begin a new one") from error
        return dict(found)

    def _row(self, kept: StoredObject) -> tuple[str, ...]:
        owner, scope = self._key(kept.owner), self._key(kept.scope or kept.owner)
        return kept.kind, owner, kept.name, scope, json.dumps(kept.value, ensure_ascii=False)

    def _key(self, scope: MemoryScope) -> str:
        return f"{self._memory} {scope_key(scope)}"


def was_begun(place: Place) -> bool:
    return not isinstance(place, Path) or place.exists()


def reset_host_file(place: Place, memory: str, scope: MemoryScope) -> tuple[str, ...]:
    """:meth:`HostStore.reset` of what hosts keep, where there is any; what stays in it all the same."""
    if not was_begun(place):
        return ()
    try:
        with HostStore(memory, place) as store:
            store.reset(scope)
    except StoreError as error:
        return (f"what hosts keep beside it: {error}",)
    return ()
