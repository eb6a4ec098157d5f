"""One scope's Kuzu database, one call at a time. Kuzu's own lock is per process, so memslot's is taken first."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import kuzu
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import SCHEMA_QUERIES
from graphiti_core.graph_queries import get_fulltext_indices

from memory import BackendError, BackendUnavailable
from memory.adapter.sdk import trim_heap
from memory.adapter.stores import FileLock, create_directory
from memory.backends.graphiti.stores import OWNERSHIP

Statement = tuple[str, dict[str, Any]]  # a query and its parameters

_FILE = "graph.kuzu"
_LARGEST_BYTES = 1 << 34  # address space per database; with Kuzu's default of 8 TB, only a dozen fit
_INDEXES = {create.split("'")[1]: create for create in get_fulltext_indices(GraphProvider.KUZU)}  # by table


def exists(directory: Path) -> bool:
    """Whether the directory has a graph. An empty file does not count, because Kuzu treats it as new."""
    path = directory / _FILE
    return path.exists() and path.stat().st_size > 0


class CommitFailed(BackendUnavailable):
    """A transaction may or may not be stored."""


class Database:
    """The graph in ``directory``, with full-text indexes on ``tables``.

    Besides Kuzu's own files, the directory contains ``lock``. It contains ``new.kuzu`` while a file is
    prepared, and ``reindex`` from an unclean end until the full-text indexes are rebuilt.
    """

    def __init__(self, directory: Path, buffer_mb: int, tables: Iterable[str] = ()) -> None:
        self.directory = directory
        self._path = directory / _FILE
        self._new = directory / "new.kuzu"
        self._stale = directory / "reindex"
        self._buffer_mb = buffer_mb
        self._lock = FileLock(directory / "lock", what=f"the graph at {directory}", instead=OWNERSHIP)
        self._known = False  # the file was open before, so it is lost if it is missing
        self._tables = set(tables)
        self._connection: Connection | None = None
        self._changed = False

    def open(self) -> Connection:
        if self._connection is None:
            create_directory(self.directory)
            self._lock.acquire()
            try:
                self._connection = self._opened()
            except BaseException as error:
                self._lock.release()
                if not isinstance(error, RuntimeError):  # Kuzu raises no other type
                    raise
                if "lock" in str(error).lower():
                    raise self._lock.refusal() from error
                raise self._unusable("cannot be opened by Kuzu; if its file is damaged,") from error
        return self._connection

    def _opened(self) -> Connection:
        if not exists(self.directory):
            if self._known:
                raise self._unusable("was removed while it was open;")
            self._begin_anew()
        if any(log.stat().st_size for log in self._logs()):
            self._stale.touch()
        connection = Connection(self._path, self._buffer_mb)
        indexed = connection.indexed_tables()
        if self._stale.exists() or not self._tables <= indexed:
            self._tables |= indexed
            try:
                connection.rows("CHECKPOINT", {})
            finally:
                connection.close()
            self._reindex()
            connection = Connection(self._path, self._buffer_mb)
        self._known = True
        return connection

    def _begin_anew(self) -> None:
        for file in (*self._logs(), *self.directory.glob(f"{self._new.name}*")):
            file.unlink()
        self._new.write_bytes(_blank(frozenset(self._tables)))
        self._new.replace(self._path)
        self._stale.unlink(missing_ok=True)

    def _reindex(self) -> None:
        """Rebuild the full-text indexes in a copy, which replaces the file once it is complete.

        Kuzu 0.11.3 replays its log without these indexes. Searches then miss words, and changing a replayed
        row crashes the process. Kuzu cannot replay a log that drops an index, so no index is dropped in
        place.
        """
        self._stale.touch()
        for leftover in self.directory.glob(f"{self._new.name}*"):
            leftover.unlink()
        shutil.copyfile(self._path, self._new)
        with closing(Connection(self._new, self._buffer_mb)) as copy:
            copy.index(self._tables)
        self._new.replace(self._path)
        self._stale.unlink()

    def _logs(self) -> list[Path]:
        return list(self.directory.glob(f"{_FILE}.*"))

    def rows(self, query: str, parameters: dict[str, Any]) -> Any:
        return self.open().rows(query, parameters)

    def save(self, statements: Sequence[Statement]) -> Any:
        """Run all statements in one transaction and return the rows of the last.

        A rollback leaves rows in Kuzu's memory that crash the process when they are written again. Therefore
        a failed save closes the database, and the next call opens it again.
        """
        connection = self.open()
        self._changed = True
        try:
            connection.rows("BEGIN TRANSACTION", {})
            rows = [connection.rows(query, parameters) for query, parameters in statements][-1:]
            try:
                connection.rows("COMMIT", {})
            except Exception as error:
                raise CommitFailed("Kuzu failed to commit; it may or may not be stored") from error
        except BaseException:
            self._release()
            raise
        return rows[0] if rows else []

    def reset(self) -> None:
        """Replace the graph with an empty file, because text that Kuzu deletes stays readable on disk."""
        self._release()
        create_directory(self.directory)
        self._lock.acquire()
        self._begin_anew()
        self.open()

    def close(self) -> None:
        """Move Kuzu's log into its file, close it, and release the directory's lock. Idempotent."""
        self._release(checkpoint=True)
        self._lock.release()
        trim_heap()

    def _release(self, *, checkpoint: bool = False) -> None:
        connection, self._connection = self._connection, None
        changed, self._changed = self._changed, False
        if connection is None:
            return
        try:
            if checkpoint and changed:
                with suppress(RuntimeError):  # Kuzu's log still has everything
                    connection.rows("CHECKPOINT", {})
        finally:
            connection.close()

    def _unusable(self, what: str) -> BackendError:
        return BackendError(
            f"the graph at {self.directory} {what} restore its files, or start anew with reset_scope",
            sent=False,
        )


class Connection:
    """A Kuzu connection with bounded memory. It prepares each query once: Kuzu never frees a prepared one."""

    def __init__(self, path: Path, buffer_mb: int) -> None:
        self._buffer_mb = buffer_mb
        self._database = kuzu.Database(
            str(path),
            buffer_pool_size=buffer_mb << 20,
            max_db_size=_LARGEST_BYTES,
            max_num_threads=1,  # with more, the order of rows varies
        )
        self._prepared: dict[tuple[str, frozenset[str]], kuzu.PreparedStatement] = {}
        try:
            self._native = kuzu.Connection(self._database)
            # Otherwise closing would write the rows that a failed save left in memory.
            self.rows("CALL force_checkpoint_on_close=false", {})
        except BaseException:
            self._database.close()
            raise

    def rows(self, query: str, parameters: dict[str, Any]) -> Any:
        """The rows as dicts; for several statements, a list of rows for each."""
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

    def indexed_tables(self) -> set[str]:
        return {row["table_name"] for row in self.rows("CALL SHOW_INDEXES() RETURN *", {})}

    def index(self, tables: Iterable[str]) -> None:
        for row in self.rows("CALL SHOW_INDEXES() RETURN *", {}):
            self.rows(f"CALL DROP_FTS_INDEX('{row['table_name']}', '{row['index_name']}')", {})
        for table, create in _INDEXES.items():
            if table in tables:
                self.rows(create, {})
        self.rows("CHECKPOINT", {})

    def _prepare(self, query: str, parameters: dict[str, Any]) -> kuzu.PreparedStatement:
        key = (query, frozenset(parameters))  # an omitted parameter would keep its earlier value
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
    """An empty database with Graphiti's schema and indexes. Cached, because creating it takes a second."""
    with tempfile.TemporaryDirectory(prefix="memslot-graphiti-") as directory:
        path = Path(directory) / _FILE
        with closing(Connection(path, 64)) as connection:
            connection.rows(SCHEMA_QUERIES, {})
            connection.index(tables)
        return path.read_bytes()
