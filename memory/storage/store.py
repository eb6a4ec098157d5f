"""One database per memory: a SQLite file in ``data_dir``, or PostgreSQL behind the same calls.

Several processes of one machine may use a SQLite file at once; SQLite guards it. Every call has a deadline on our
side, so a lock, a hung server or a silent network ends in a :class:`StoreError` that says what to do.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from memory.contract.errors import LifecycleError, StoreError
from memory.contract.scope import MemoryScope
from memory.storage.insert import APPLICATION_ID, FILE_NAME, WITHIN_S, begin, create_file, make

T = TypeVar("T")
Durability = Literal["process", "machine"]
"""What an acknowledged write survives: the end of the process at any moment, or a power cut as well, which costs a
disk flush for each write."""

_CHECKPOINT_AFTER = 1000  # writes
_FORK_S = 2.0


@dataclass(frozen=True)
class Tables:
    """A group of tables that one module owns.

    Attributes:
        what: its name, for messages and for the table of versions.
        version: of the statements.
        statements: SQLite's words, each repeatable (``IF NOT EXISTS``), split by semicolons.
    """

    what: str
    version: int
    statements: str


class Database(Protocol):
    """What a call may use: statements in SQLite's words, with ``?`` for values that are no ``bool``."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class Store(ABC):
    """A handle on a database; opening is left to the first call. Handles of one place share its connections.

    Args:
        tables: what the calls use; created where it is missing.
        error: raised where the database cannot be used.
        lost: what a failed write means, for messages.
        within_s: seconds that a call may take.

    Attributes:
        place: where it is, for messages; never with a password.
        shared: whether other machines use it, too.
        closed: whether the handle was closed.
    """

    place: str
    shared: bool

    def __init__(
        self,
        tables: Iterable[Tables] = (),
        *,
        error: type[StoreError] = StoreError,
        lost: str = "nothing was kept",
        within_s: float = WITHIN_S,
    ) -> None:
        self.tables = tuple(tables)
        self.error = error
        self.lost = lost
        self.within_s = within_s
        self.closed = False

    @abstractmethod
    def handle(
        self,
        *tables: Tables,
        error: type[StoreError] = StoreError,
        lost: str = "nothing was kept",
        durability: Durability = "process",
        within_s: float | None = None,
    ) -> Store:
        """One more handle on the same place, to be closed by its owner."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether there may be something in it. Opens nothing."""

    @abstractmethod
    def call(self, work: Callable[[Any], T], *, writes: bool = True, within_s: float | None = None) -> T:
        """Run ``work`` on the database and wait for it.

        Args:
            work: gets a :class:`Database`. It may run twice, so it changes nothing but the database.
            writes: whether ``work`` changes anything. All its changes are kept, or none.
            within_s: seconds, in place of the handle's own.

        Raises:
            StoreError: as the handle's ``error``. ``maybe_done`` says whether the changes may be kept all the same.
            LifecycleError: the database was in use while this process was forked.
        """

    @abstractmethod
    async def run(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        """As :meth:`call`, without blocking the event loop. What has begun goes to its end, cancelled or not."""

    @abstractmethod
    def fold(self) -> bool:
        """Leave nothing of erased rows beside the tables; whether that was possible. Blocks."""

    @abstractmethod
    def close(self) -> None:
        """Give the handle back; the last one closes the connections. Idempotent."""

    def _check_open(self) -> None:
        if self.closed:
            raise self.error(f"{self.place}: the store is closed")


def open_store(place: Path | Store) -> Store:
    """The store in a directory, or a handle on one that is known already."""
    return SqliteStore(place / FILE_NAME) if isinstance(place, Path) else place.handle()


class SqliteStore(Store):
    """A SQLite file in WAL mode, for this user alone (0600, directories 0700), erased rows overwritten.

    Args:
        path: the file; None keeps everything in this process, for as long as the handle lives.
        durability: the strongest of all handles on a file counts.
    """

    shared = False

    def __init__(
        self,
        path: Path | None,
        tables: Iterable[Tables] = (),
        *,
        error: type[StoreError] = StoreError,
        lost: str = "nothing was kept",
        durability: Durability = "process",
        within_s: float = WITHIN_S,
    ) -> None:
        super().__init__(tables, error=error, lost=lost, within_s=within_s)
        self.path = path and path.absolute()
        self.place = "this process, until it ends" if self.path is None else str(self.path)
        self._durability = durability
        self._file: _File | None = None
        self._opening = threading.Lock()
        self._given_back: Any = None

    def handle(
        self,
        *tables: Tables,
        error: type[StoreError] = StoreError,
        lost: str = "nothing was kept",
        durability: Durability = "process",
        within_s: float | None = None,
    ) -> SqliteStore:
        handle = SqliteStore(
            self.path,
            tables,
            error=error,
            lost=lost,
            durability=durability,
            within_s=self.within_s if within_s is None else within_s,
        )
        if self.path is None:
            self._opened().enter(durability)
            handle._open(self._opened())
        return handle

    @property
    def begun(self) -> bool:
        """Whether the file exists, or a store in this process was used."""
        if self.path is None:
            return self._file is not None and self._file.connected
        return self._file is not None or self.path.exists()

    def call(self, work: Callable[[Any], T], *, writes: bool = True, within_s: float | None = None) -> T:
        self._check_open()
        ends = time.monotonic() + (self.within_s if within_s is None else within_s)
        try:
            result = self._opened().call(self, work, writes, ends)
        except (OSError, sqlite3.Error) as error:
            raise self._in_words(error) from error
        if writes and self._opened().due:
            self._opened().checkpoint(ends)
        return result

    async def run(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        file = self._file
        # A commit without a flush takes microseconds, a tenth of the way to a thread and back.
        if file is not None and not file.flushes and not file.due:
            try:
                done = file.try_call(self, work, writes)
            except (OSError, sqlite3.Error) as error:
                raise self._in_words(error) from error
            if done is not None:
                return done[0]
        with anyio.CancelScope(shield=True):
            result = await anyio.to_thread.run_sync(lambda: self.call(work, writes=writes))
        return result

    def fold(self) -> bool:
        self._check_open()
        try:
            return self._opened().fold(time.monotonic() + self.within_s)
        except (OSError, sqlite3.Error) as error:
            raise self._in_words(error) from error

    def close(self) -> None:
        self.closed = True
        if self._given_back is not None:
            self._given_back()

    def _opened(self) -> _File:
        if self._file is None:
            with self._opening:
                if self._file is None:
                    self._open(_File.entered(self.path, self._durability))
        return self._file  # type: ignore[return-value]

    def _open(self, file: _File) -> None:
        self._file = file
        # A handle that nobody closes gives the file back when it is collected.
        self._given_back = weakref.finalize(self, file.leave)

    def _in_words(self, error: Exception) -> StoreError:
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            why = f"another process keeps it locked; end that process, or try again; {self.lost}"
        elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            why = "damaged, or not a SQLite file; restore it from a copy, or move it away"
        elif name.startswith("SQLITE_FULL") or name == "SQLITE_IOERR_WRITE":
            # A full disk, a quota and a limit on the size of files come as either of the two.
            why = f"the disk or a quota is full; free some space; {self.lost}"
        elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            why = f"this user cannot write it; make the file and its directory writable; {self.lost}"
        elif isinstance(error, OSError):
            why = (
                f"it cannot be used ({error.strerror}); make the file and its directory writable; {self.lost}"
            )
        else:
            why = f"it cannot be used ({name}); {self.lost}"
        return self.error(f"{self.place}: {why}")


class _File:
    """The connection that all handles of a file share. One call at a time uses it."""

    _all: ClassVar[dict[Path, _File]] = {}
    _registering: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.flushes = False
        self.due = False  # a checkpoint is
        self._users = 0
        self._guard = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._made: set[Tables] = set()
        self._identity: os.stat_result | None = None
        self._writes = 0
        self._parked = False
        self._crossed_fork = False

    @classmethod
    def entered(cls, path: Path | None, durability: Durability) -> _File:
        """The file of a path, for one more user."""
        with cls._registering:
            file = cls(None) if path is None else cls._all.setdefault(path.resolve(), cls(path))
            file.enter(durability)
        return file

    @property
    def connected(self) -> bool:
        """Whether a call has used it."""
        return self._db is not None

    def enter(self, durability: Durability) -> None:
        self._users += 1
        if durability == "machine" and not self.flushes:
            self.flushes = True
            with self._guard:
                if self._db is not None:
                    self._db.execute("PRAGMA synchronous = FULL")

    def leave(self) -> None:
        with self._registering:
            self._users -= 1
            if self._users:
                return
            for path in [path for path, file in self._all.items() if file is self]:
                del self._all[path]
        with self._guard:
            self._disconnect()

    def call(self, store: SqliteStore, work: Callable[[Any], T], writes: bool, ends: float) -> T:
        if not self._guard.acquire(timeout=max(0.0, ends - time.monotonic())):
            raise store.error(f"{store.place}: other calls of this process keep it busy; {store.lost}")
        try:
            while True:
                try:
                    return self._carry_out(store, work, writes)
                except sqlite3.OperationalError as error:
                    # SQLite's own waiting counts no deadline over several statements, and misses some locks.
                    left = ends - time.monotonic()
                    if not _is_busy(error) or left <= 0:
                        raise
                    time.sleep(min(left, random.uniform(0.001, 0.02)))
        finally:
            self._guard.release()

    def try_call(self, store: SqliteStore, work: Callable[[Any], T], writes: bool) -> tuple[T] | None:
        """The result of ``work`` at once; None where that would wait for somebody."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            return (self._carry_out(store, work, writes),)
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            return None
        finally:
            self._guard.release()

    def _carry_out(self, store: SqliteStore, work: Callable[[Any], T], writes: bool) -> T:
        db = self._db or self._connect(store)
        made = self._made.issuperset(store.tables)
        if not made:
            self._make(db, store)
        self._check_identity(store)
        if made and not writes:
            return work(db)
        db.execute("BEGIN IMMEDIATE")
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._writes += 1
        self.due = self._writes >= _CHECKPOINT_AFTER
        return result

    def _connect(self, store: SqliteStore) -> sqlite3.Connection:
        if self._crossed_fork:
            raise LifecycleError(
                f"{store.place}: it was in use while this process was forked; open the memory in the child"
            )
        if self.path is not None:
            create_file(self.path)
        db = sqlite3.connect(
            ":memory:" if self.path is None else self.path,
            check_same_thread=False,
            isolation_level=None,
            timeout=0.0,
        )
        try:
            db.execute("PRAGMA secure_delete = ON")
            application = db.execute("PRAGMA application_id").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and application != APPLICATION_ID:
                raise store.error(
                    f"{store.place}: not a store of memslot; move it away, or set another data_dir"
                )
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA wal_autocheckpoint = 0")  # it would flush the disk in the middle of a write
            db.execute(f"PRAGMA synchronous = {'FULL' if self.flushes else 'NORMAL'}")
            self._identity = self.path.stat() if self.path else None
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _make(self, db: sqlite3.Connection, store: SqliteStore) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            begin(db)
            for tables in store.tables:
                known = "SELECT version FROM versions WHERE what = ?"
                found = db.execute(known, (tables.what,)).fetchone()
                if found is None:
                    make(db, tables.what, tables.version, tables.statements)
                elif found[0] != tables.version:
                    raise store.error(wrong_version(store.place, tables, found[0]))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._made.update(store.tables)

    def _check_identity(self, store: SqliteStore) -> None:
        """SQLite would go on reading and writing a file that nobody can open again."""
        if self._identity is not None and self.path is not None:
            try:
                same = os.path.samestat(os.stat(self.path), self._identity)
            except FileNotFoundError:
                same = False
            if not same:
                raise store.error(
                    f"{store.place}: removed or replaced while it was open; restore it, and start again"
                )

    def checkpoint(self, ends: float) -> None:
        """Copy the log into the file. What another process keeps from being copied is left for the next time."""
        if self._guard.acquire(timeout=max(0.0, ends - time.monotonic())):
            try:
                self._writes, self.due = 0, False
                if self._db is not None:
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error:
                pass  # a full disk, say; the log holds everything
            finally:
                self._guard.release()

    def fold(self, ends: float) -> bool:
        while True:
            with self._guard:
                if self._db is None:
                    return True
                try:
                    busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                except sqlite3.OperationalError as error:
                    if not _is_busy(error):
                        raise
                    busy = 1
            if not busy:
                return True
            if time.monotonic() >= ends:
                return False
            time.sleep(0.02)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        self._made.clear()
        if db is not None:
            db.close()

    # SQLite counts on a lock that a forked child does not have. So no connection goes through a fork: it is closed
    # before, and both sides open one of their own when they need it.

    def park(self) -> None:
        self._parked = self._guard.acquire(timeout=_FORK_S)
        if self._parked and self.path is not None:
            self._disconnect()

    def unpark(self) -> None:
        if self._parked:
            self._parked = False
            self._guard.release()

    def unpark_in_child(self) -> None:
        if self._parked:
            self.unpark()
        else:  # another thread is in the middle of a call, and does not exist here
            self._crossed_fork, self._guard = True, threading.Lock()
            _never_closed.append(self._db)
            self._db = None


_never_closed: list[sqlite3.Connection | None] = []


def _before_fork() -> None:
    for file in list(_File._all.values()):
        file.park()


def _after_fork_in_parent() -> None:
    for file in list(_File._all.values()):
        file.unpark()


def _after_fork_in_child() -> None:
    _File._registering = threading.Lock()
    for file in list(_File._all.values()):
        file.unpark_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def _is_busy(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", None) or str(error)
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in name


def wrong_version(place: str, tables: Tables, found: int) -> str:
    """The sentence for tables that another version of memslot made."""
    mend = "update memslot" if found > tables.version else "use the memslot that made it"
    return (
        f"{place}: its {tables.what} has version {found}, and this memslot reads version {tables.version}; "
        f"{mend}, or set another place"
    )


@lru_cache(1024)
def scope_key(scope: MemoryScope) -> str:
    """A scope as a text that no other scope has, and that can be read again."""
    return json.dumps(scope.model_dump(exclude_none=True), sort_keys=True, separators=(",", ":"))


def scope_of(key: str) -> MemoryScope:
    """The scope that :func:`scope_key` wrote."""
    return MemoryScope(**json.loads(key))


def digest_of(text: str) -> str:
    """32 hexadecimal digits by which a changed text is noticed."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
