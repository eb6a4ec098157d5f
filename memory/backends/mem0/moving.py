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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mem0.memory.main import _build_session_scope

from memory.backends.mem0 import layout
from memory.backends.mem0.ids import row_ids
from memory.backends.mem0.opening import open_history

_OF_A_SCOPE = {
    "points": "rowid IN (SELECT mine FROM found WHERE scope = ifnull(:scope, scope))",
    "history": "memory_id IN (SELECT mine FROM found WHERE scope = ifnull(:scope, scope))",
    **dict.fromkeys(
        ("messages", "memslot_deleted"),
        "session_scope IN (SELECT scope FROM found WHERE scope = ifnull(:scope, scope))",
    ),
}
"""Table -> which of its rows are a scope's, or any one's where ``:scope`` is NULL."""


def move(
    store: Path,
    collection: str,
    history: Path | None,
    *,
    length: Callable[[int], None],
    place: Callable[[Mapping[str, str], bool], Path],
) -> str | None:
    """Move what is there, and say how much; None where nothing was. Rows that name no user and run are no scope's,
    and stay.

    Args:
        store: Qdrant's directory.
        collection: the one of memories; that of entities is beside it.
        history: mem0's, to be divided as well, or None where all scopes go on sharing it.
        length: told the length of the vectors found; raises where it is not the embedder's.
        place: given ids, and whether there are entities, says where the partition is, made if there was none.

    Raises:
        sqlite3.Error, OSError, pickle.UnpicklingError: the old files cannot be read, or the new ones not written.
    """
    names = (collection, layout.entity_collection(collection))
    parts = [layout.collection_file(Path(), name) for name in names]
    files = {part: store / part for part in parts}
    points = [list(_points(files[part], length)) for part in parts]
    found: dict[Path, list[tuple[str, Any]]] = {  # scope, and a row's number or the id of a memory
        part: [(scope, number) for scope, number, _ in rows] for part, rows in zip(parts, points, strict=True)
    }
    if history is not None and history.exists():
        past = Path(layout.HISTORY)
        files[past] = history
        found[past] = [(scope, native_id) for scope, _, native_id in points[0]] + _told(history)
    scopes = {part: {scope for scope, _ in rows} for part, rows in found.items()}
    every = sorted(set().union(*scopes.values()))
    with ExitStack() as stack:
        old = {
            part: stack.enter_context(_connected(file, found[part]))
            for part, file in files.items()
            if file.exists()
        }
        for scope in every:
            partition = place(_ids_of(scope), scope in scopes[parts[1]])
            for part, connection in old.items():
                if scope in scopes[part]:
                    _copy(connection, partition / part, scope)
        for part in reversed(old):  # the history first: without its memories nobody could tell whose it is
            if _leave_only_others(old[part]):
                continue
            old[part].close()
            files[part].unlink()
            if part in parts:
                shutil.rmtree(files[part].parent)
    _unlist(store, [name for name, part in zip(names, parts, strict=True) if not files[part].exists()])
    return f"{len(points[0])} memories of {len(every)} scopes" if every else None


def _points(file: Path, length: Callable[[int], None]) -> Iterator[tuple[str, int, str]]:
    """Scope, row number and id of Qdrant's points, where they are a scope's."""
    if not file.exists():
        return
    with closing(sqlite3.connect(file)) as connection:
        for number, stored in connection.execute("SELECT rowid, point FROM points ORDER BY rowid"):
            point = pickle.loads(stored)
            length(len(point.vector.get("", ()) if isinstance(point.vector, dict) else point.vector))
            ids = row_ids(point.payload or {})
            scope = _build_session_scope(ids)
            if ids == _ids_of(scope):
                yield scope, number, str(point.id)


def _told(history: Path) -> list[tuple[str, Any]]:
    """The scopes, and deleted memories, of which the old history alone tells, once it has mem0's present form."""
    open_history(history, shared=True).close()
    with closing(sqlite3.connect(history)) as connection, connection:
        connection.execute("CREATE INDEX IF NOT EXISTS memslot_by_memory ON history (memory_id)")
        rows = connection.execute(
            "SELECT session_scope, memory_id FROM memslot_deleted UNION SELECT session_scope, NULL FROM messages"
        )
        return [(scope, native_id) for scope, native_id in rows if _ids_of(scope)]


def _ids_of(scope: str | None) -> dict[str, str]:
    """The reverse of mem0's ``_build_session_scope``; empty where it names no user or no run."""
    parts = (part.partition("=") for part in (scope or "").split("&"))
    ids = {name: unquote(value) for name, _, value in parts}
    return row_ids(ids) if ids.get("user_id") and ids.get("run_id") else {}


@contextmanager
def _connected(file: Path, found: Iterable[tuple[str, Any]]) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TEMP TABLE found (scope TEXT, mine)")
        connection.executemany("INSERT INTO found VALUES (?, ?)", found)
        connection.execute("CREATE INDEX temp.by_scope ON found (scope)")
        connection.commit()
        yield connection


def _tables(connection: sqlite3.Connection) -> dict[str, str]:
    names = {name for (name,) in connection.execute("SELECT name FROM main.sqlite_master")}
    return {table: mine for table, mine in _OF_A_SCOPE.items() if table in names}


def _copy(connection: sqlite3.Connection, target: Path, scope: str) -> None:
    connection.execute("ATTACH ? AS new", (str(target),))
    with connection:
        for table, mine in _tables(connection).items():
            connection.execute(
                f"INSERT OR REPLACE INTO new.{table} SELECT * FROM main.{table} WHERE {mine} ORDER BY rowid",
                {"scope": scope},
            )
    connection.execute("DETACH new")


def _leave_only_others(connection: sqlite3.Connection) -> bool:
    """Delete what was copied; False where nothing else is in the file, which may go as a whole."""
    tables, anyone = _tables(connection), {"scope": None}
    looks = (f"SELECT 1 FROM {table} WHERE ({mine}) IS NOT TRUE LIMIT 1" for table, mine in tables.items())
    if not any(connection.execute(look, anyone).fetchone() for look in looks):
        return False
    connection.execute("PRAGMA secure_delete=ON")
    with connection:
        for table, mine in tables.items():
            connection.execute(f"DELETE FROM {table} WHERE {mine}", anyone)
    return True


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
