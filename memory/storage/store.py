"""One database per memory: a SQLite file in ``data_dir``, or PostgreSQL behind the same calls.

Every call has a deadline: a lock, a hung server or a silent network ends in a :class:`StoreError`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread

from memory.contract.errors import StoreError
from memory.contract.scope import MemoryScope
from memory.storage.insert import FILE_NAME, WITHIN_S
from memory.storage.shared_file import Durability, SharedFile, when_collected
from memory.storage.tables import Tables

T = TypeVar("T")
# SQLite reports a full disk, a quota or a limit on file sizes by any of these names.
_NO_ROOM = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}


class Database(Protocol):
    """Runs statements in SQLite's dialect, with ``?`` for values. A value must not be a ``bool``."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class HandleOptions(TypedDict, total=False):
    """Options of a handle.

    Attributes:
        error: the class to raise if the database cannot be used.
        lost: the consequence of a failed write, for messages.
        durability: of a file; the strongest of all its handles applies. A server decides on its own.
        within_s: seconds that a call may take.
    """

    error: type[StoreError]
    lost: str
    durability: Durability
    within_s: float


class Store(ABC):
    """A handle on a database. Its first call opens the database. Handles on one place share connections.

    Args:
        tables: the tables that the calls use; created if missing.
        options: see :class:`HandleOptions`.
    """

    place: str  # for messages, never with a password
    shared: bool  # whether other machines can use the database

    def __init__(self, tables: Iterable[Tables] = (), **options: Unpack[HandleOptions]) -> None:
        self.tables = tuple(tables)
        self.error = options.get("error", StoreError)
        self.lost = options.get("lost", "nothing was kept")
        self.durability: Durability = options.get("durability", "process")
        self.within_s = options.get("within_s", WITHIN_S)
        self.closed = False
        self._give_back: Callable[[], None] | None = None

    def handle(self, *tables: Tables, **options: Unpack[HandleOptions]) -> Store:
        """A further handle on the same place. The caller closes it."""
        options.setdefault("within_s", self.within_s)
        return self._another(tables, options)

    @abstractmethod
    def _another(self, tables: tuple[Tables, ...], options: HandleOptions) -> Store: ...

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether the database may hold something. Opens nothing."""

    @abstractmethod
    def call(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        """Run ``work`` on the database and wait for it. Either all of its changes are kept, or none.

        Args:
            work: gets a :class:`Database`. It may run twice, so it must change nothing but the database.
            writes: whether ``work`` changes anything.

        Raises:
            StoreError: of the handle's class ``error``; ``maybe_done`` says whether changes may be kept.
            LifecycleError: the database was in use while this process was forked.
        """

    @abstractmethod
    async def run(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        """As :meth:`call`, but without blocking the event loop. A call that has begun cannot be cancelled."""

    @abstractmethod
    def fold(self) -> bool:
        """Remove erased rows from the write-ahead log, too. Returns whether that was possible. Blocks."""

    def close(self) -> None:
        """Close the handle. The last handle closes the connections. Idempotent."""
        self.closed = True
        if self._give_back is not None:
            self._give_back()

    def _check_open(self) -> None:
        if self.closed:
            raise self.error(f"{self.place}: the store is closed")


def open_store(place: Path | Store) -> Store:
    """The store in a directory, or a further handle on a store."""
    return SqliteStore(place / FILE_NAME) if isinstance(place, Path) else place.handle()


class SqliteStore(Store):
    """A SQLite file in WAL mode, for this user only (0600, directories 0700). Erased rows are overwritten.

    Args:
        path: the file; None keeps everything in this process, for as long as a handle lives.
        tables, options: as for :class:`Store`.
    """

    shared = False

    def __init__(
        self, path: Path | None, tables: Iterable[Tables] = (), **options: Unpack[HandleOptions]
    ) -> None:
        super().__init__(tables, **options)
        self.path = path and path.absolute()
        self.place = "this process, until it ends" if self.path is None else str(self.path)
        self._file: SharedFile | None = None
        self._opening = threading.Lock()

    def _another(self, tables: tuple[Tables, ...], options: HandleOptions) -> SqliteStore:
        handle = SqliteStore(self.path, tables, **options)
        if self.path is None:
            self._opened().enter(handle.durability)
            handle._take(self._opened())
        return handle

    @property
    def begun(self) -> bool:
        """Whether the file exists, or a store in this process was used."""
        if self.path is None:
            return self._file is not None and self._file.connected
        return self._file is not None or self.path.exists()

    def call(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        self._check_open()
        ends = time.monotonic() + self.within_s
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
        # A commit without a flush takes microseconds, a tenth of the cost of using a thread.
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

    def _opened(self) -> SharedFile:
        if self._file is None:
            with self._opening:
                if self._file is None:
                    self._take(SharedFile.entered(self.path, self.durability))
        return self._file  # type: ignore[return-value]

    def _take(self, file: SharedFile) -> None:
        self._file = file
        # An unclosed handle gives the file back when it is garbage-collected.
        self._give_back = when_collected(self, file.leave)

    def _in_words(self, error: Exception) -> StoreError:
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            why = f"another process keeps it locked; end that process, or try again; {self.lost}"
        elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            why = "damaged, or not a SQLite file; restore it from a copy, or move it away"
        elif name in _NO_ROOM:
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


@lru_cache(1024)
def scope_key(scope: MemoryScope) -> str:
    """A scope as a unique text that :func:`scope_of` can read."""
    return json.dumps(scope.model_dump(exclude_none=True), sort_keys=True, separators=(",", ":"))


def scope_of(key: str) -> MemoryScope:
    """The scope that :func:`scope_key` wrote."""
    return MemoryScope(**json.loads(key))


def digest_of(text: str) -> str:
    """32 hexadecimal digits that reveal a changed text."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
