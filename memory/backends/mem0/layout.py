"""The files of a partition: where they lie, that all of them are there, and that they come and go as a whole.

    <path>/qdrant/.lock                                one owner at a time
    <path>/qdrant/scopes/<collection>/<scope>/         a partition:
        scope.json                                       whose it is
        meta.json, collection/*/storage.sqlite           Qdrant's
        history.db                                       mem0's
        logs.json                                        which files' logs there are, while it is written to

A partition is made beside its place and moved there when it is complete, and moved away before it is deleted. So
one that lacks a file, or has an empty one, was damaged from outside; it is never taken for a new one.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import uuid
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from memory import BackendError
from memory.adapter import IdAlphabet, IsolationError

HISTORY = "history.db"
TOMBSTONES = "CREATE TABLE IF NOT EXISTS memslot_deleted (memory_id TEXT PRIMARY KEY, session_scope TEXT)"
"""Beside mem0's tables in its history: whose memories are gone, so that their history can be told and cleared."""
_MARK = "scope.json"
_META = "meta.json"
_LOGS = "logs.json"
_LOG_BEGINS = b"\x37\x7f\x06"  # https://sqlite.org/walformat.html
# In small letters, which every file system keeps apart. No name starts with a dot.
_NAMES = IdAlphabet(safe="-", escape="_", separator="_x", max_length=120)


def entity_collection(collection: str) -> str:
    """mem0's name for the collection of entities beside one of memories."""
    return f"{collection}_entities"


def collection_file(directory: Path, collection: str) -> Path:
    """Where Qdrant keeps the rows of a collection."""
    return directory / "collection" / collection / "storage.sqlite"


def partitions_path(store: Path, collection: str) -> Path:
    """Where the partitions of a collection lie."""
    return store / "scopes" / _NAMES.encode(collection)


def partition_path(partitions: Path, ids: Mapping[str, str]) -> Path:
    """Where the partition of a scope lies."""
    return partitions / _NAMES.encode(ids["user_id"], ids["run_id"], ids.get("agent_id"))


def sweep(partitions: Path) -> None:
    """Delete what was interrupted while it was made or deleted."""
    for left in partitions.glob(".*"):
        shutil.rmtree(left)


@contextmanager
def staged(directory: Path, ids: Mapping[str, str]) -> Iterator[Path]:
    """Make a partition: a directory to fill, which is complete at the end of the body or was never there."""
    making = directory.with_name(f".new-{uuid.uuid4().hex}")
    making.mkdir()
    try:
        yield making
        (making / _MARK).write_text(json.dumps(dict(ids)), encoding="utf-8")
        for path in (making / _MARK, making / _META, making):
            _flush(path)
        making.rename(directory)
        _flush(directory.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def remove(directory: Path) -> None:
    """Delete a partition, if there is one."""
    going = directory.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        directory.rename(going)
    except FileNotFoundError:
        return
    _flush(directory.parent)
    shutil.rmtree(going)


class Logs:
    """The write-ahead logs of a partition's SQLite files: a commit waits for the disk once, where SQLite's default
    waits several times.

    Until a file is closed, what was written may be in its log alone, and SQLite takes a file without its log for
    what it was before. So the partition notes which logs there are: those of a killed process are missed. One that
    ends without closing anything lets SQLite close the files, so the note goes with whoever made it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._connections: dict[str, sqlite3.Connection] = {}
        self._begun: set[str] = set()
        self.dropped = False
        self._ending: weakref.finalize[..., Logs] | None = None

    def keep(self, file: str | Path, connection: sqlite3.Connection) -> None:
        """Keep one for a file below the directory, which has no other connection as long as this one is open."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        self._connections[str(file)] = connection

    def begin(self) -> None:
        """To be called before a write. Every log has a beginning before it is noted."""
        if self.dropped:
            raise BackendError("the scope was reset meanwhile; nothing was stored", sent=False)
        if len(self._begun) == len(self._connections):
            return
        for name in self._connections.keys() - self._begun:
            self._connections[name].execute("PRAGMA user_version=1")
            self._begun.add(name)
        note = self._directory / _LOGS
        note.write_text(json.dumps(sorted(self._begun)), encoding="utf-8")
        if self._ending is None:
            self._ending = weakref.finalize(self, _forget, note, os.getpid())

    def end(self, *, dropped: bool = False) -> None:
        """To be called before the files are closed, which moves the logs into them; or ``dropped`` while they are
        open, so that what takes their place is another partition."""
        self.dropped = self.dropped or dropped
        if self._ending is not None:
            self._ending.detach()
        if not self.dropped:
            (self._directory / _LOGS).unlink(missing_ok=True)


def _forget(note: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork of it has not ended for all
        note.unlink(missing_ok=True)


def check(directory: Path, ids: Mapping[str, str], collection: str) -> None:
    """Look at a partition's files before they are opened.

    Raises:
        BackendError: one is missing or empty.
        IsolationError: they are another scope's.
    """
    for name in (_MARK, _META, collection_file(Path(), collection), HISTORY):
        path = directory / name
        if not path.exists() and name != HISTORY:  # which ``history_path`` puts elsewhere
            raise damaged(directory, f"{name} is missing")
        if path.exists() and path.stat().st_size == 0:
            raise damaged(directory, f"{name} is empty")
    for name in _noted(directory):
        if not _begins(directory / f"{name}-wal"):
            raise damaged(directory, f"{name}-wal is missing or empty")
    try:
        marked = json.loads((directory / _MARK).read_bytes())
    except ValueError:
        raise damaged(directory, f"{_MARK} is unreadable") from None
    if marked != ids:
        raise IsolationError(f"the partition at {directory} is of another scope; nothing was done")


def _noted(directory: Path) -> list[str]:
    try:
        names: list[str] = json.loads((directory / _LOGS).read_bytes())
    except (FileNotFoundError, ValueError):  # killed while it was noted, so nothing is in the logs yet
        return []
    return names


def _begins(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            return file.read(len(_LOG_BEGINS)) == _LOG_BEGINS
    except FileNotFoundError:
        return False


def damaged(directory: Path, what: str) -> BackendError:
    """The error for files that are not as they were left."""
    return BackendError(
        f"the partition at {directory} is damaged: {what}; restore it from a backup, or reset the scope",
        sent=False,
    )


def _flush(path: Path) -> None:
    """Onto the disk, names of a directory included, where the system can."""
    try:
        file = os.open(path, os.O_RDONLY)
    except PermissionError:  # a directory, on Windows
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
