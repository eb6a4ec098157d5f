"""The connection to a SQLite file, shared by all of its handles in a process. It is closed before a fork."""

from __future__ import annotations

import _thread
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from memory.contract.errors import LifecycleError, StoreError
from memory.storage.insert import APPLICATION_ID, begin, create_file
from memory.storage.tables import Tables, make_missing

T = TypeVar("T")
Durability = Literal["process", "machine"]
"""``process``: a write survives the end of the process. ``machine``: also a power cut, at a flush each."""

_CHECKPOINT_AFTER = 1000  # writes
_FORK_S = 2.0


class Handle(Protocol):
    """The part of a handle that its file uses."""

    place: str
    error: type[StoreError]
    lost: str
    tables: tuple[Tables, ...]


def when_collected(handle: object, leave: Callable[[], None]) -> Callable[[], None]:
    """Call ``leave`` once: when the returned function is called, or after the handle is garbage-collected.

    Collection may interrupt any call, even one that holds the locks that ``leave`` takes. A new thread
    therefore calls ``leave`` then.
    """
    finalizer = weakref.finalize(handle, _thread.start_new_thread, leave, ())
    finalizer.atexit = False  # no thread can start at exit, and the process frees everything anyway

    def at_once() -> None:
        if finalizer.detach():
            leave()

    return at_once


class SharedFile:
    """The connection that all handles of a file share. One call uses it at a time."""

    _all: ClassVar[dict[Path, SharedFile]] = {}
    _registering: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.flushes = False
        self.due = False  # whether a checkpoint is due
        self._users = 0
        self._guard = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._made: set[Tables] = set()
        self._identity: os.stat_result | None = None
        self._writes = 0
        self._parked = False
        self._crossed_fork = False

    @classmethod
    def entered(cls, path: Path | None, durability: Durability) -> SharedFile:
        """The shared file of a path, with one more user."""
        with cls._registering:
            file = cls(None) if path is None else cls._all.setdefault(path.resolve(), cls(path))
            file.enter(durability)
        return file

    @property
    def connected(self) -> bool:
        """Whether a call has opened the connection."""
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

    def call(self, store: Handle, work: Callable[[Any], T], writes: bool, ends: float) -> T:
        if not self._guard.acquire(timeout=max(0.0, ends - time.monotonic())):
            raise store.error(f"{store.place}: other calls of this process keep it busy; {store.lost}")
        try:
            while True:
                try:
                    return self._carry_out(store, work, writes)
                except sqlite3.OperationalError as error:
                    # SQLite's own busy timeout applies to single statements, and does not cover some locks.
                    left = ends - time.monotonic()
                    if not is_busy(error) or left <= 0:
                        raise
                    time.sleep(min(left, random.uniform(0.001, 0.02)))
        finally:
            self._guard.release()

    def try_call(self, store: Handle, work: Callable[[Any], T], writes: bool) -> tuple[T] | None:
        """The result of ``work``, as a tuple; None if the call would have to wait."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            return (self._carry_out(store, work, writes),)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return None
        finally:
            self._guard.release()

    def _carry_out(self, store: Handle, work: Callable[[Any], T], writes: bool) -> T:
        db = self._db or self._connect(store)
        made = self._made.issuperset(store.tables)
        if not made:

            def make(db: sqlite3.Connection) -> None:
                begin(db)
                make_missing(db, store)

            _in_transaction(db, make)
            self._made.update(store.tables)
        self._check_identity(store)
        if made and not writes:
            return work(db)
        result = _in_transaction(db, work)
        self._writes += 1
        self.due = self._writes >= _CHECKPOINT_AFTER
        return result

    def _connect(self, store: Handle) -> sqlite3.Connection:
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
            db.execute("PRAGMA wal_autocheckpoint = 0")  # it would flush the disk during a write
            db.execute(f"PRAGMA synchronous = {'FULL' if self.flushes else 'NORMAL'}")
            self._identity = self.path.stat() if self.path else None
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _check_identity(self, store: Handle) -> None:
        """Refuse to use a file that was removed or replaced: SQLite would keep writing to the old one."""
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
        """Copy the log into the file. Any part that another process still reads stays for the next time."""
        if self._guard.acquire(timeout=max(0.0, ends - time.monotonic())):
            try:
                self._writes, self.due = 0, False
                if self._db is not None:
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error:
                pass  # such as a full disk; the log still holds everything
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
                    if not is_busy(error):
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

    # SQLite relies on a lock that a forked child does not inherit, so a fork closes the connection first.

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
        else:  # a thread that only the parent has was in the middle of a call
            self._crossed_fork, self._guard = True, threading.Lock()
            _never_closed.append(self._db)
            self._db = None


_never_closed: list[sqlite3.Connection | None] = []


def _before_fork() -> None:
    for file in list(SharedFile._all.values()):
        file.park()


def _after_fork_in_parent() -> None:
    for file in list(SharedFile._all.values()):
        file.unpark()


def _after_fork_in_child() -> None:
    SharedFile._registering = threading.Lock()
    for file in list(SharedFile._all.values()):
        file.unpark_in_child()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


def _in_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def is_busy(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", None) or str(error)
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in name
