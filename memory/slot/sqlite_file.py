"""What the journal and the host store ask of a database, and a SQLite file that is never empty where it was
full."""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from memory.contract.errors import StoreError
from memory.contract.scope import MemoryScope
from memory.slot.files import Losses
from memory.storage.store import Durability

T = TypeVar("T")

_BUSY_S = 5.0
_COUNT = struct.Struct("<Q")
_COUNTER = "CREATE TABLE changes (count INTEGER NOT NULL); INSERT INTO changes VALUES (0);"
_OPEN: weakref.WeakSet[SqliteFile] = weakref.WeakSet()


@dataclass(frozen=True)
class SqliteLayout:
    """What kind of file it is.

    Attributes:
        what: for messages, such as ``journal``.
        application_id: SQLite's mark of what a file is for.
        version: of the tables.
        tables: statements that make them, in the words that a server's are made of as well; repeatable where
            several processes use the file.
        alone: whether one process owns the file; else several use it at once. One that is owned counts its changes
            in ``<name>-count``, so that a log that was removed or cut is noticed.
        full: what a full disk means for what was to be kept.
        error: raised where the file cannot be used.
    """

    what: str
    application_id: int
    version: int
    tables: str
    alone: bool = True
    full: str = "nothing was kept"
    error: type[StoreError] = StoreError


class SqliteFile:
    """The open file: one call of it at a time, and errors that say what to do.

    Args:
        path: its directory is made. None keeps everything in this process alone.
        layout: its tables.
        durability: ``process`` survives the end of the process, ``machine`` a power cut as well.

    Attributes:
        db: its connection.
        closed: whether it was closed.
        place: its name.

    Raises:
        StoreError: as ``layout.error``: it is another's, of another version, damaged, or in use.
    """

    on_server = False

    def __init__(self, path: Path | None, layout: SqliteLayout, durability: Durability = "process") -> None:
        self.closed = False
        self.place = path.name if path else "this process, until it ends"
        self._layout = layout
        self._path = path or Path(layout.what)
        self._guard = threading.Lock()
        log = self._path.with_name(f"{self._path.name}-wal")
        log_was_there = bool(path and _size(log))
        if path is None:
            self.db = sqlite3.connect(":memory:", check_same_thread=False)
            self.db.executescript(layout.tables)
        else:
            self.db = _connect(path, durability, layout)
        # Of one that nobody closed; Python 3.13 complains of it.
        self._ending = weakref.finalize(self, self.db.close)
        if path is not None:
            _OPEN.add(self)
        # SQLite would go on writing to a file that nobody can open again.
        self._seen: dict[Path, os.stat_result | None] = dict.fromkeys((path, log) if path else ())
        self._changes: _Changes | None = None
        try:
            self._explained(self.check)
            if path and layout.alone:
                self._changes = self._explained(lambda: _Changes(self.db, path, layout, log_was_there))
        except StoreError:
            self.close()
            raise
        self._page_bytes: int = self.db.execute("PRAGMA page_size").fetchone()[0]

    def close(self) -> None:
        """Give the file back. Waits for the call under way. Idempotent."""
        with self._guard:
            self.closed = True
            if self._ending.detach():
                self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes of the body that are there all or not at all, and counted."""
        with self.db:
            yield
            if self._changes is not None:
                self._changes.add()
        if self._changes is not None:
            self._changes.committed()

    @staticmethod
    def beside(path: Path) -> tuple[Path, ...]:
        """The files that belong to one at ``path``, in the order in which they may be deleted before it."""
        names = (f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-count", f"{path.name}.lost")
        return tuple(path.with_name(name) for name in names)

    def warnings(self) -> list[str]:
        """What is not as it should be, for health; ``degraded`` as long as there is one."""
        return self._changes.warnings() if self._changes is not None else []

    def sync(self, call: Callable[[], T]) -> T:
        """``call`` at once, as soon as the file is free.

        Raises:
            StoreError: the file was closed, or cannot be used.
        """
        with self._guard:
            return self._explained(call)

    def check(self) -> None:
        """See that the files are those that were opened.

        Raises:
            StoreError: one was removed, replaced or emptied.
        """
        for path, before in self._seen.items():
            try:
                there = path.stat()
            except FileNotFoundError:
                there = None
            # The log of a shared file is emptied by whoever folds it into the file.
            full = before is not None and before.st_size > 0 and (self._layout.alone or path == self._path)
            if before is not None and (
                there is None or not os.path.samestat(there, before) or (full and not there.st_size)
            ):
                raise self._layout.error(
                    f"{path.name}: removed, replaced or emptied while it was open; restore it and start again"
                )
            self._seen[path] = there

    def reaches(self, mb: int) -> bool:
        """Whether what it holds takes ``mb`` megabytes or more."""
        pages: int = self.db.execute("PRAGMA page_count").fetchone()[0]
        free: int = self.db.execute("PRAGMA freelist_count").fetchone()[0]
        return (pages - free) * self._page_bytes >= mb * 1024 * 1024

    def rewrite(self) -> None:
        """Leave no free page and no log of what was removed."""
        self.db.execute("VACUUM")
        self.fold_log()
        self._seen = dict.fromkeys(self._seen)
        self.check()

    def fold_log(self) -> None:
        """Leave no log of what was there before."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _explained(self, call: Callable[[], T]) -> T:
        if self.closed:
            raise self._layout.error(f"{self._path.name}: the {self._layout.what} is closed")
        try:
            return call()
        except (OSError, sqlite3.Error) as error:
            path = Path(getattr(error, "filename", None) or self._path)
            raise _in_words(path, error, self._layout) from error


def _leave_to_the_parent() -> None:
    """In a forked child SQLite still counts on the lock: closed there, on its way out as well, the connection would
    remove the log that the parent goes on writing to. So it is closed to all, and its connection never ends."""
    for file in list(_OPEN):
        file.closed = True
        file._guard = threading.Lock()  # a thread that the child does not have may have held it
        if file._ending.detach():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(file.db))
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


class _Changes:
    """How many changes were acknowledged, in a file beside the store: SQLite takes a log that was cut for a short
    one, and a store whose log is gone for an older one."""

    def __init__(self, db: sqlite3.Connection, path: Path, layout: SqliteLayout, log_was_there: bool) -> None:
        self._db = db
        self._file = path.with_name(f"{path.name}-count")
        self.losses = Losses(path, "changes")
        self._behind = False  # the count in the file is not the current one
        self._count: int = db.execute("SELECT count FROM changes").fetchone()[0]
        noted: int = _COUNT.unpack(self._file.read_bytes())[0] if _size(self._file) == _COUNT.size else 0
        gone = max(0, noted - self._count)
        if gone and not log_was_there:
            raise layout.error(
                f"{path.name}: {gone} acknowledged changes are missing, as where its log ({path.name}-wal) was "
                f"removed or an older copy was put in its place; restore both, or remove {self._file.name} to go "
                "on without them"
            )
        if gone:
            self.losses.add(gone, noted)
        if self._count != noted:
            self._note()

    def add(self) -> None:
        """One more, in the transaction it belongs to."""
        self._db.execute("UPDATE changes SET count = count + 1")

    def committed(self) -> None:
        """It was: a full disk refuses a change only now."""
        self._count += 1
        self._note()

    def warnings(self) -> list[str]:
        behind = f"{self._file.name} cannot be written, so losses may pass unnoticed; make it writable or remove it"
        return [*self.losses.warnings(), *([behind] if self._behind else [])]

    def _note(self) -> None:
        self._behind = True  # what is committed is committed; the next change counts it as well
        with suppress(OSError):
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                self._behind = os.write(file, _COUNT.pack(self._count)) < _COUNT.size
            finally:
                os.close(file)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _connect(path: Path, durability: Durability, layout: SqliteLayout) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made_by = time.monotonic() + (0.0 if layout.alone else _BUSY_S)
        while path.exists() and not path.stat().st_size:
            if time.monotonic() >= made_by:
                raise layout.error(
                    f"{path.name}: emptied from outside, or cut short when it was made; "
                    "remove it to begin a new one"
                )
            time.sleep(0.01)  # another process may be about to make it
        db = sqlite3.connect(path, check_same_thread=False, timeout=0.0 if layout.alone else _BUSY_S)
    except (OSError, sqlite3.Error) as error:
        raise _in_words(path, error, layout) from error
    try:
        _open(db, path, durability, layout)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise _in_words(path, error, layout) from error
        raise
    return db


def _open(db: sqlite3.Connection, path: Path, durability: Durability, layout: SqliteLayout) -> None:
    if layout.alone:
        # Held from the first statement to the end of the process: a second one is refused here, not half-way.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA secure_delete = ON")
    statements = "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master"
    application, version, tables = (db.execute(statement).fetchone()[0] for statement in statements)
    if tables and application != layout.application_id:
        raise layout.error(f"{path.name}: this SQLite file is no {layout.what} of memslot; give another path")
    if tables and version != layout.version:
        raise layout.error(
            f"{path.name}: a {layout.what} of version {version}; this memslot reads version {layout.version}"
        )
    db.execute("PRAGMA journal_mode = WAL")
    if layout.alone:
        db.execute("PRAGMA wal_autocheckpoint = 0")  # it flushes; done on a thread instead
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'machine' else 'NORMAL'}")
    if not tables:
        db.executescript(
            f"BEGIN IMMEDIATE; {layout.tables} {_COUNTER if layout.alone else ''} "
            f"PRAGMA application_id = {layout.application_id}; PRAGMA user_version = {layout.version}; COMMIT;"
        )
        return
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise layout.error(
            f"{path.name}: the {layout.what} is damaged; restore it, or save what sqlite3's .recover can read"
        )


def _in_words(path: Path, error: Exception, layout: SqliteLayout) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        why = f"another process has this {layout.what} open; give each process its own"
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        why = f"damaged, or no {layout.what} of memslot ({name})"
    elif name.startswith("SQLITE_FULL") or name == "SQLITE_IOERR_WRITE":
        # A full disk, a quota and a limit on the size of files come as either of the two.
        why = f"it cannot be written, most likely because the disk or a quota of it is full; {layout.full}"
    elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        why = f"its directory or file must not be written to by this user; {layout.full}"
    elif name.startswith("SQLITE_IOERR"):
        why = f"the disk failed ({name}); {layout.full}"
    else:
        why = f"the {layout.what} cannot be used ({name})"
    return layout.error(f"{path.name}: {why}")


@lru_cache(1024)
def scope_key(scope: MemoryScope) -> str:
    """A scope as a text that no other scope has, and that can be read again."""
    return json.dumps(scope.model_dump(exclude_none=True), sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


class Database(Protocol):
    """An open database; methods as of :class:`~memory.slot.sqlite_file.SqliteFile`. ``db`` executes statements of
    both dialects, within :meth:`sync` alone, whose values are marked by ``?`` and are no ``bool``."""

    closed: bool
    on_server: bool  # other machines use it, too; what is given to ``sync`` may be called twice then
    place: str  # for messages, never with a password
    db: Any

    def sync(self, call: Callable[[], T]) -> T: ...
    def transaction(self) -> AbstractContextManager[None]: ...
    def check(self) -> None: ...
    def reaches(self, mb: int) -> bool: ...
    def rewrite(self) -> None: ...
    def fold_log(self) -> None: ...
    def warnings(self) -> list[str]: ...
    def close(self) -> None: ...


class JournalDatabase(Database, Protocol):
    """One that an event loop may wait for: what ``run`` has begun is not left without its end."""

    async def run(self, call: Callable[[], T]) -> T: ...


class StateServer(Protocol):
    """A server that keeps what lies in files elsewhere; ``place`` as of :class:`Database`."""

    place: str

    def open(self, layout: SqliteLayout) -> JournalDatabase:
        """Its tables, made where there are none; raises ``layout.error``."""


Place: TypeAlias = Path | StateServer
