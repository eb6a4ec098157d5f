"""One scope's partition of the embedded store: its files.

    <path>/qdrant/.lock                                one owner at a time
    <path>/qdrant/scopes/<collection>/<scope>/         a partition:
        scope.json                                       whose it is
        meta.json, collection/*/storage.sqlite           Qdrant's
        history.db                                       mem0's
        logs.json                                        which files' logs there are, while it is written to
        rows                                             how many memories it holds, and how many are lost

One that lacks a file, or has an empty one, was damaged from outside; it is never taken for a new one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
from contextlib import suppress
from pathlib import Path

from memory import BackendError, IsolationError
from memory.adapter import Durability, IdAlphabet
from memory.backends.mem0.translate import Ids

HISTORY = "history.db"
_MARK = "scope.json"
_LOGS = "logs.json"
_LOG_BEGINS = b"\x37\x7f\x06"  # https://sqlite.org/walformat.html
# In small letters, which every file system keeps apart. No name starts with a dot.
NAMES = IdAlphabet(safe="-", escape="_", separator="_x", max_length=120)


def entity_collection(collection: str) -> str:
    return f"{collection}_entities"


def collection_file(collection: str) -> str:
    """Where Qdrant keeps the rows of a collection, below a partition."""
    return f"collection/{collection}/storage.sqlite"


class RowCount:
    """How many memories a partition holds, so that a log that was cut never reads as healthy. Noted after they
    are inserted and before they are deleted: wherever the process ends, no fewer are stored."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "rows"
        self.lost = 0  # acknowledged, and missing when it was opened, until somebody removes the file

    def compare(self, stored: int) -> None:
        with suppress(FileNotFoundError, ValueError):
            noted, lost = map(int, self._path.read_bytes().split())
            self.lost = lost + max(0, noted - stored)
        self.note(stored)

    def note(self, rows: int) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.write(file, b"%012d %012d\n" % (rows, self.lost))
        finally:
            os.close(file)

    def warnings(self) -> list[str]:
        if not self.lost:
            return []
        return [
            f"{self.lost} acknowledged memories of {self._path.parent.name} are gone; restore the partition from a "
            f"copy, or remove its file {self._path.name} to go on without them"
        ]


class Logs:
    """The write-ahead logs of a partition's SQLite files: a commit waits for the disk once instead of several
    times.

    Until a file is closed, what was written may be in its log alone, and SQLite takes a file without its log for
    what it was before. So the partition notes which logs there are: those of a killed process are missed. One that
    ends without closing anything lets SQLite close the files, so the note goes with whoever made it.
    """

    def __init__(self, directory: Path, durability: Durability) -> None:
        self._directory = directory
        self._durability = durability
        self._connections: dict[str, sqlite3.Connection] = {}
        self._begun: set[str] = set()
        self.dropped = False
        self._ending: weakref.finalize[..., Logs] | None = None

    def keep(self, file: str, connection: sqlite3.Connection) -> None:
        """The file, below the directory, has no other connection as long as this one is open."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durability == 'machine' else 'NORMAL'}")
        self._connections[file] = connection

    def opened(self) -> None:
        """The files are open: the logs a killed process left have been read, and may be gone."""
        (self._directory / _LOGS).unlink(missing_ok=True)

    def begin(self) -> None:
        """Before a write. Every log has a beginning before it is noted."""
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
        """Before the files are closed; or ``dropped`` while they are open: what takes their place is another."""
        self.dropped = self.dropped or dropped
        if self._ending is not None:
            self._ending.detach()
        if not self.dropped:
            (self._directory / _LOGS).unlink(missing_ok=True)


def _forget(note: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork of it has not ended for all
        note.unlink(missing_ok=True)


def mark(directory: Path, ids: Ids) -> None:
    (directory / _MARK).write_text(json.dumps(dict(ids)), encoding="utf-8")


def check(directory: Path, ids: Ids, collection: str) -> None:
    """Look at a partition's files before they are opened."""
    for name in (_MARK, "meta.json", collection_file(collection), HISTORY):
        path = directory / name
        if not path.exists() and name != HISTORY:  # which ``history_path`` puts elsewhere
            raise damaged(directory, f"{name} is missing")
        if path.exists() and path.stat().st_size == 0:
            raise damaged(directory, f"{name} is empty")
    try:
        noted: list[str] = json.loads((directory / _LOGS).read_bytes())
    except (FileNotFoundError, ValueError):  # killed while it was noted, so nothing is in the logs yet
        noted = []
    for name in noted:
        if not _begins(directory / f"{name}-wal"):
            raise damaged(directory, f"{name}-wal is missing or empty")
    try:
        marked = json.loads((directory / _MARK).read_bytes())
    except ValueError:
        raise damaged(directory, f"{_MARK} is unreadable") from None
    if marked != ids:
        raise IsolationError(f"the partition at {directory} is of another scope; nothing was done")


def _begins(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            return file.read(len(_LOG_BEGINS)) == _LOG_BEGINS
    except FileNotFoundError:
        return False


def damaged(directory: Path, what: str) -> BackendError:
    text = f"the partition at {directory} is damaged: {what}; restore it from a backup, or reset the scope"
    return BackendError(text, sent=False)
