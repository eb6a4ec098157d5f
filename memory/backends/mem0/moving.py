"""From the one collection of earlier versions to a partition for each scope.

What is to be moved is copied first, into partitions that are complete or not there. Only when all of it is copied
is it deleted where it was. Interrupted anywhere, the next start does it again, and rows that were copied before are
copied over themselves.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mem0.memory.main import _build_session_scope

from memory.backends.mem0 import layout
from memory.backends.mem0.ids import row_ids
from memory.backends.mem0.opening import open_history

__all__ = ["Moved", "move"]

Ids = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """How much was moved."""

    memories: int
    scopes: int

    def __str__(self) -> str:
        return f"{self.memories} memories of {self.scopes} scopes"


@dataclass(slots=True)
class _Scope:
    """What the old files hold of a scope: row numbers by collection, and ids of its memories, deleted ones too."""

    rows: dict[str, list[int]] = field(default_factory=dict)
    memories: list[str] = field(default_factory=list)


def move(
    store: Path,
    collection: str,
    history: Path | None,
    *,
    length: Callable[[int], None],
    place: Callable[[Mapping[str, str], bool], Path],
) -> Moved | None:
    """Move what is there; None where nothing was. Rows that name no user and run are no scope's, and stay.

    Args:
        store: Qdrant's directory.
        collection: the one of memories; that of entities is beside it.
        history: mem0's, to be divided as well, or None where all scopes go on sharing it.
        length: told the length of the vectors found; raises where it is not the embedder's.
        place: given ids, and whether there are entities, says where the partition is, made if there was none.

    Raises:
        sqlite3.Error, OSError, pickle.UnpicklingError: the old files cannot be read, or the new ones not written.
    """
    names = [collection, layout.entity_collection(collection)]
    files = {name: layout.collection_file(store, name) for name in names}
    scopes: dict[Ids, _Scope] = {}
    others = dict.fromkeys(names, 0)
    for name, file in files.items():
        for number, point in _points(file):
            ids = row_ids(point.payload or {})
            if name == collection:
                length(len(point.vector.get("", ()) if isinstance(point.vector, dict) else point.vector))
            if not (ids["user_id"] and ids["run_id"]):
                others[name] += 1
                continue
            scope = scopes.setdefault(tuple(ids.items()), _Scope())
            scope.rows.setdefault(name, []).append(number)
            if name == collection:
                scope.memories.append(str(point.id))
    old = history if history is not None and history.exists() else None
    if old is not None:
        _prepare(old, scopes)
    for ids_of, scope in scopes.items():
        ids = dict(ids_of)
        partition = place(ids, names[1] in scope.rows)
        for name, numbers in scope.rows.items():
            _copy_rows(files[name], layout.collection_file(partition, name), numbers)
        if old is not None:
            _copy_history(old, partition / layout.HISTORY, scope.memories, _build_session_scope(ids))
    if old is not None and scopes:
        _forget(old, scopes)
    for name, file in files.items():
        numbers = [number for scope in scopes.values() for number in scope.rows.get(name, ())]
        _leave_only_others(file, numbers, others[name])
    _unlist(store, [name for name in names if not files[name].exists()])
    memories = sum(len(scope.rows.get(collection, ())) for scope in scopes.values())
    return Moved(memories, len(scopes)) if scopes else None


def _points(file: Path) -> Iterator[tuple[int, Any]]:
    """Qdrant's points with their row numbers, in the order they were written."""
    if not file.exists():
        return
    with _connected(file) as connection:
        for number, point in connection.execute("SELECT rowid, point FROM points ORDER BY rowid"):
            yield number, pickle.loads(point)


def _copy_rows(source: Path, target: Path, numbers: list[int]) -> None:
    with _connected(target) as connection:
        connection.execute("ATTACH ? AS old", (str(source),))
        with connection:
            connection.executemany(
                "INSERT OR REPLACE INTO points SELECT id, point FROM old.points WHERE rowid = ?",
                ((number,) for number in numbers),
            )


def _prepare(history: Path, scopes: dict[Ids, _Scope]) -> None:
    """The old history in mem0's present form, quick to search; scopes of which it alone tells are added."""
    open_history(history, shared=True).close()
    with _connected(history) as connection, connection:
        connection.execute("CREATE INDEX IF NOT EXISTS memslot_by_memory ON history (memory_id)")
        for table in ("messages", "memslot_deleted"):
            for (session,) in connection.execute(f"SELECT DISTINCT session_scope FROM {table}"):
                ids = _session_ids(session)
                if ids.get("user_id") and ids.get("run_id"):
                    scopes.setdefault(tuple(row_ids(ids).items()), _Scope())
        for ids_of, scope in scopes.items():
            scope.memories += [
                row[0]
                for row in connection.execute(
                    "SELECT memory_id FROM memslot_deleted WHERE session_scope = ?",
                    (_build_session_scope(dict(ids_of)),),
                )
            ]


def _session_ids(session: str | None) -> dict[str, str]:
    """The reverse of mem0's ``_build_session_scope``."""
    parts = (part.partition("=") for part in (session or "").split("&"))
    return {name: unquote(value) for name, _, value in parts}


def _copy_history(source: Path, target: Path, memories: list[str], session: str) -> None:
    with _connected(target) as connection:
        connection.execute("ATTACH ? AS old", (str(source),))
        with connection:
            connection.executemany(
                "INSERT OR IGNORE INTO history SELECT * FROM old.history WHERE memory_id = ?",
                ((one,) for one in memories),
            )
            for table in ("messages", "memslot_deleted"):
                connection.execute(
                    f"INSERT OR IGNORE INTO {table} SELECT * FROM old.{table} WHERE session_scope = ?",
                    (session,),
                )


def _forget(history: Path, scopes: Mapping[Ids, _Scope]) -> None:
    """Delete what was copied; the file too, if nothing else is in it."""
    with _connected(history) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        with connection:
            for ids_of, scope in scopes.items():
                session = (_build_session_scope(dict(ids_of)),)
                connection.executemany(
                    "DELETE FROM history WHERE memory_id = ?", ((one,) for one in scope.memories)
                )
                for table in ("messages", "memslot_deleted"):
                    connection.execute(f"DELETE FROM {table} WHERE session_scope = ?", session)
        tables = ("history", "messages", "memslot_deleted")
        left = any(connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables)
    if not left:
        history.unlink()


def _leave_only_others(file: Path, numbers: list[int], others: int) -> None:
    if not file.exists():
        return
    if not others:
        file.unlink()
        shutil.rmtree(file.parent)
        return
    with _connected(file) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        with connection:
            connection.executemany("DELETE FROM points WHERE rowid = ?", ((number,) for number in numbers))


def _unlist(store: Path, names: list[str]) -> None:
    """Take collections off Qdrant's list. Last: one that is listed without its file is an empty one."""
    listing = store / "meta.json"
    if not listing.exists():
        return
    try:
        content = json.loads(listing.read_bytes())
    except ValueError:  # nobody needs it any more
        return
    listed = [name for name in names if content["collections"].pop(name, None)]
    if listed:
        copy = listing.with_suffix(".json.tmp")
        copy.write_text(json.dumps(content), encoding="utf-8")
        os.replace(copy, listing)


@contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file)
    try:
        yield connection
    finally:
        connection.close()
