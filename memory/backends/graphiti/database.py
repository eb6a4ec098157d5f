"""One scope's Kuzu database: the lock on its directory, its files, its connection. Synchronous, one call at a
time. Kuzu locks per process, takes an emptied file for a new one, and may not return from one with a hole in
it: hence a lock of our own, taken first, and a note of the state its files were left in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # on Windows, where an open file cannot be opened again
    fcntl = None  # type: ignore[assignment]

import kuzu
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import SCHEMA_QUERIES
from graphiti_core.graph_queries import get_fulltext_indices

from memory import BackendError, BackendUnavailable
from memory.adapter import FileLock, StoreError, trim_heap
from memory.backends.graphiti.files import OWNERSHIP, SaveLog, StateFile, fingerprint

Statement = tuple[str, dict[str, Any]]  # a query and its parameters

_FILE = "graph.kuzu"
_MAGIC = b"KUZU"
_LARGEST_BYTES = 1 << 34  # address space per database; the default of 8 TB leaves room for a dozen of them
_INDEXES = {create.split("'")[1]: create for create in get_fulltext_indices(GraphProvider.KUZU)}  # by table
_CHECKPOINT_BYTES = 1 << 24  # of the log, as Kuzu would on its own, unseen
_UNUSED = slice(28, 32)  # of the header; Kuzu writes there whatever its memory held, also where nobody wrote


class Database:
    """Its files: ``graph.kuzu`` and what Kuzu puts beside it; ``lock``; ``new.kuzu`` while it is made;
    ``saves``; and ``state``: ``open``; ``checkpoint``, while its log is moved into it; ``closed`` with a
    fingerprint; or ``replace``, where ``new.kuzu`` is complete and to take its place."""

    def __init__(self, directory: Path, buffer_mb: int) -> None:
        self._directory = directory
        self._path = directory / _FILE
        self._new = directory / "new.kuzu"
        self._noted = StateFile(directory)
        self._note = self._noted.write
        self._buffer_mb = buffer_mb
        self._lock = FileLock(directory / "lock", what=f"the graph at {directory}", instead=OWNERSHIP)
        self._saves = SaveLog(directory / f"{_FILE}.wal", directory / "saves")
        self.warnings = self._saves.warnings
        self._tables: set[str] = set()
        self._connection: Connection | None = None
        self._file: os.stat_result | None = None
        self._changed = False

    def open(self, tables: Iterable[str] = ()) -> None:
        """Idempotent. ``tables`` are to have a full-text index, besides those named before."""
        if not self._tables.issuperset(tables):
            self._release(checkpoint=True)  # what lacks is made before it is opened again
            self._tables.update(tables)
        self._ready()
        self.check()

    def _ready(self) -> Connection:
        if self._connection is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                self._connection = self._opened()
            except BaseException as error:
                self._release()
                self._lock.release()
                ours = isinstance(error, (BackendError, OSError, StoreError))
                if ours or not isinstance(error, Exception):
                    raise
                raise self._unusable("cannot be opened by Kuzu; if its file is damaged,") from error
        return self._connection

    def _opened(self) -> Connection:
        state = self._noted.read()
        if not state and not self._path.exists():
            state = self._replace(_blank(frozenset(self._tables)))
        elif state.get("state") == "replace":
            state = self._put_in_place(state)
        else:
            self._verify(state)
            if state.get("state") == "open":
                self._saves.check()
        indexed = set(state.get("indexed", ()))
        unclosed = any(file.stat().st_size for file in self._logs())  # there is something to be restored
        if unclosed or not self._tables <= indexed:
            self._tables |= indexed
            self._mend()
        self._note("open", indexed=sorted(self._tables))
        self._saves.begin()
        connection = self._connection = Connection(self._path, self._buffer_mb)  # a failure closes it
        # Closed without a word, it would also write down what a failed save has left in memory.
        connection.rows("CALL force_checkpoint_on_close=false", {})
        self._file = self._path.stat()
        return connection

    def check(self) -> None:
        """Raise where the file is no more the one that was opened."""
        if self._file is None:
            return
        try:
            there = self._path.stat()
        except FileNotFoundError:
            raise self._unusable("was removed while it was open;") from None
        if not os.path.samestat(there, self._file) or not there.st_size:
            raise self._unusable("was replaced or emptied while it was open;")

    def rows(self, query: str, parameters: dict[str, Any]) -> Any:
        return self._ready().rows(query, parameters)

    def save(self, statements: Sequence[Statement]) -> Any:
        """All of them in one transaction, or none; the rows of the last. What a rollback leaves in Kuzu's memory
        cannot be written again and ends the process at times, so a save that fails lets go of the database."""
        connection = self._ready()
        self.check()
        self._changed = True
        try:
            connection.rows("BEGIN TRANSACTION", {})
            rows = [connection.rows(query, parameters) for query, parameters in statements][-1:]
            try:
                connection.rows("COMMIT", {})
            except Exception as error:
                raise BackendUnavailable("Kuzu failed to commit; it may or may not be stored") from error
            self._saves.record()
            if self._saves.length > _CHECKPOINT_BYTES:
                self._checkpoint(connection)
                self._note("open", indexed=sorted(self._tables))
        except BaseException:
            self._release()
            raise
        return rows[0] if rows else []

    def reset(self, tables: Iterable[str] = ()) -> None:
        """A blank file in place of what there is, where what Kuzu deletes would stay readable."""
        self._tables.update(tables)
        self._release()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        self._refuse_foreign()
        self._replace(_blank(frozenset(self._tables)))
        self._saves.forget()
        self._ready()

    def close(self) -> None:
        """Write everything down, close, and give the directory back. Idempotent."""
        self._release(checkpoint=True)
        self._lock.release()
        trim_heap()

    def _release(self, *, checkpoint: bool = False) -> None:
        written = False
        if checkpoint and self._connection is not None:
            with suppress(RuntimeError, BackendError):  # whoever opens it next looks
                self.check()  # Kuzu finds its log by name, and would remove that of who made the graph anew
                if self._changed:
                    self._checkpoint(self._connection)
                self.check()
                written = True
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = None
        self._changed = False
        if written:
            with suppress(OSError):
                self._note("closed", indexed=sorted(self._tables), **fingerprint(self._path, _UNUSED))

    def _checkpoint(self, connection: Connection) -> None:
        """Move the log into the file. Killed meanwhile, Kuzu finds its way by itself, and no log is missed."""
        self._note("checkpoint", indexed=sorted(self._tables))
        connection.rows("CHECKPOINT", {})
        self._saves.begin()

    def _replace(self, blank: bytes) -> dict[str, Any]:
        self._new.write_bytes(blank)
        return self._put_in_place(self._note("replace", indexed=sorted(self._tables)))

    def _put_in_place(self, state: dict[str, Any]) -> dict[str, Any]:
        if self._new.exists():
            self._new.replace(self._path)
        for file in (*self._logs(), *self._directory.glob(f"{self._new.name}.*")):
            file.unlink()
        self._saves.begin()
        return self._note("open", indexed=state.get("indexed", []))

    def _mend(self) -> None:
        """Make the full-text indexes anew, in a copy that takes the place of the file once it is complete.
        What Kuzu restores from the log of a process that did not close is not in these indexes: it is not
        found by its words, and to change it ends this process with a segmentation fault. And a log that drops
        an index cannot be restored, so that a kill meanwhile would cost the graph."""
        for file in self._directory.glob(f"{self._new.name}*"):
            file.unlink()
        for file in (self._path, *self._logs()):
            shutil.copyfile(file, self._new.with_name(self._new.name + file.name.removeprefix(_FILE)))
        with closing(Connection(self._new, self._buffer_mb)) as connection:
            connection.index(self._tables)
        self._put_in_place(self._note("replace", indexed=sorted(self._tables)))

    def _logs(self) -> list[Path]:
        return list(self._directory.glob(f"{_FILE}.*"))

    def _verify(self, state: dict[str, Any]) -> None:
        magic = self._refuse_foreign()
        if magic is None:
            raise self._unusable("was removed;")
        if magic != _MAGIC:
            raise self._unusable("was emptied or overwritten;")
        if state.get("state") == "closed":
            noted = {name: state.get(name) for name in ("bytes", "crc32")}
            if noted != fingerprint(self._path, _UNUSED):
                meant = f"if that was meant, remove {self._noted.path}; else"
                raise self._unusable(f"was changed from outside; {meant}")

    def _refuse_foreign(self) -> bytes | None:
        """The first bytes of the file, unless a program without our lock has it open; None where there is
        none. Not while we have it open: who closes a file gives up every lock of this process on it."""
        try:
            with self._path.open("r+b") as file:
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file.read(len(_MAGIC))
        except FileNotFoundError:
            return None
        except BlockingIOError:
            raise self._lock.refusal() from None

    def _unusable(self, what: str) -> BackendError:
        return BackendError(
            f"the graph at {self._directory} {what} restore its files, or start anew with reset_scope",
            sent=False,
        )


class Connection:
    """Prepares each query once: anew each time it is a tenth of a search, and a third of a megabyte that stays."""

    def __init__(self, path: Path, buffer_mb: int) -> None:
        self._buffer_mb = buffer_mb
        self._database = kuzu.Database(
            str(path),
            buffer_pool_size=buffer_mb << 20,
            max_db_size=_LARGEST_BYTES,
            max_num_threads=1,  # with more, rows come in another order each time
            auto_checkpoint=False,
        )
        try:
            self._native = kuzu.Connection(self._database)
        except BaseException:
            self._database.close()
            raise
        self._prepared: dict[tuple[str, frozenset[str]], kuzu.PreparedStatement] = {}

    def rows(self, query: str, parameters: dict[str, Any]) -> Any:
        """Rows as dicts; a list of them per statement, where there are several."""
        try:
            prepared = self._prepare(query, parameters) if parameters else query
            answer = self._native.execute(prepared, parameters)
        except RuntimeError as error:
            if "buffer pool is full" not in str(error):
                raise
            raise BackendError(
                f"the graph has outgrown buffer_mb, which is {self._buffer_mb}; raise it in the configuration "
                "block of the backend",
                sent=False,
            ) from error
        if isinstance(answer, list):
            return [list(result.rows_as_dict()) for result in answer]
        return list(answer.rows_as_dict())

    def index(self, tables: Iterable[str]) -> None:
        """Make the full-text indexes of these tables, in place of all there are."""
        for row in self.rows("CALL SHOW_INDEXES() RETURN *", {}):
            self.rows(f"CALL DROP_FTS_INDEX('{row['table_name']}', '{row['index_name']}')", {})
        for table, create in _INDEXES.items():
            if table in tables:
                self.rows(create, {})
        self.rows("CHECKPOINT", {})

    def _prepare(self, query: str, parameters: dict[str, Any]) -> kuzu.PreparedStatement:
        key = (query, frozenset(parameters))  # a parameter left out would keep the value it had before
        statement = self._prepared.get(key)
        if statement is None:
            statement = kuzu.PreparedStatement(self._native, query, parameters)
            if statement.is_success():
                self._prepared[key] = statement
        return statement

    def close(self) -> None:
        self._prepared.clear()
        try:
            self._native.close()
        finally:
            self._database.close()


@cache
def _blank(tables: frozenset[str]) -> bytes:
    """An empty database with Graphiti's schema and indexes: these take a second to make, a copy nothing."""
    with tempfile.TemporaryDirectory(prefix="memslot-graphiti-") as directory:
        path = Path(directory) / _FILE
        with closing(Connection(path, 64)) as connection:
            connection.rows(SCHEMA_QUERIES, {})
            connection.index(tables)
        return path.read_bytes()
