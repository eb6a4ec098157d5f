"""Graphiti's embedded Kuzu driver, repaired and bounded, with one database and one thread per scope.

Imports the SDK, so it is imported only after :func:`memory.backends.graphiti.opening.import_sdk`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import kuzu
from graphiti_core.driver import kuzu_driver
from graphiti_core.driver.driver import GraphDriver, GraphProvider
from graphiti_core.driver.kuzu_driver import SCHEMA_QUERIES, KuzuDriver, KuzuDriverSession
from graphiti_core.graph_queries import get_fulltext_indices

from memory import BackendError, BackendUnavailable
from memory.adapter import NativeWorker
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.stores import FACTS_OF_KUZU, equip
from memory.backends.graphiti.write import Write

__all__ = ["KuzuStore", "ScopeDriver", "make"]

_FILE = "graph.kuzu"
_LARGEST_BYTES = 1 << 34  # address space per database; the default of 8 TB leaves room for a dozen of them
_WILDCARDS = re.compile(r"[*?]")
_INDEX = re.compile(r"CREATE_FTS_INDEX\('(\w+)', '(\w+)'")
_writing: ContextVar[bool] = ContextVar("memslot_graphiti_writing", default=False)


def _open(path: Path, buffer_mb: int) -> kuzu.Database:
    # With one thread equal rows come in the same order every time.
    return kuzu.Database(
        str(path), buffer_pool_size=buffer_mb << 20, max_db_size=_LARGEST_BYTES, max_num_threads=1
    )


@cache
def _blank() -> bytes:
    """An empty database with Graphiti's schema and indexes: these take a second to make, a copy nothing."""
    with tempfile.TemporaryDirectory(prefix="memslot-graphiti-") as directory:
        path = Path(directory) / _FILE
        database = _open(path, 64)
        with kuzu.Connection(database) as connection:
            for query in (SCHEMA_QUERIES, *get_fulltext_indices(GraphProvider.KUZU)):
                connection.execute(query)
        database.close()
        return path.read_bytes()


def make(options: GraphitiOptions, directory: Path, deadlines: Mapping[str, float]) -> KuzuStore:
    """The store; no file is touched yet."""
    return KuzuStore(directory, options.buffer_mb, options.open_graphs)


class KuzuStore:
    """A directory with one database for each scope.

    Args:
        directory: created with the first scope.
        buffer_mb: largest buffer of each database.
        open_graphs: databases open at a time.
    """

    label = "kuzu (embedded)"
    packages = ("kuzu",)
    warnings = ("Kuzu is no longer maintained by its authors, and deprecated by Graphiti",)

    def __init__(self, directory: Path, buffer_mb: int, open_graphs: int) -> None:
        self._directory = directory
        self._buffer_mb = buffer_mb
        self.keeps_open: int | None = open_graphs

    def graph(self, group_id: str) -> ScopeDriver:
        """The driver of a scope, not open yet."""
        return ScopeDriver(self._directory / group_id, group_id, self._buffer_mb)

    async def probe(self) -> None:
        """There is no server."""

    async def aclose(self) -> None:
        """Each graph closes its own."""


class ScopeDriver(KuzuDriver):  # type: ignore[misc]
    """One scope's database, and the one thread that talks to it.

    Unlike its parent it has a ``_database``, full-text indexes and a bounded size; it can be closed, and opened
    after a process that was killed; a cancelled query stays cancelled (the parent's answers with nothing, so that
    Graphiti goes on with an empty result); a question mark is no wildcard; and what Graphiti saves in one go is
    one transaction, while reads see the state before it.

    Args:
        directory: of this scope; created by :meth:`open`.
        group_id: the scope's.
        buffer_mb: largest buffer.
    """

    counted = FACTS_OF_KUZU

    def __init__(self, directory: Path, group_id: str, buffer_mb: int) -> None:
        GraphDriver.__init__(self)
        equip(self, kuzu_driver, "Kuzu")
        self._database = group_id
        self._directory = directory
        self._buffer_mb = buffer_mb
        self.worker = NativeWorker(1, name="memslot-graphiti")
        self.db: Any = None
        self._reader: Any = None
        self._writer: Any = None

    async def open(self) -> None:
        """Open the database, or make it. Idempotent.

        Raises:
            BackendUnavailable: another process, or another adapter, has it open.
        """
        await self.worker.run(self._open)

    def _open(self) -> None:
        if self.db is not None:
            return
        path = self._directory / _FILE
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            fresh.write_bytes(_blank())
            fresh.replace(path)
        unclean = self._directory / f"{_FILE}.unclean"
        if any(file.stat().st_size for file in self._directory.glob(f"{_FILE}.*")):
            unclean.write_text("full-text indexes are to be made anew")  # until they are, whatever happens
        try:
            database = _open(path, self._buffer_mb)
        except RuntimeError as error:
            if "lock" not in str(error).lower():
                raise
            raise BackendUnavailable(
                f"the graph at {path} is open elsewhere; close the other user, or choose another path",
                sent=False,
            ) from error
        self._reader, self._writer = (Connection(database, self._buffer_mb) for _ in range(2))
        self.db = database
        if unclean.exists():
            self._writer.index_anew()
            unclean.unlink()

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> tuple[Any, None, None]:
        """Rows as dicts. Parameters that are None are left out, as the parent does.

        Raises:
            BackendError: the graph has outgrown its buffer.
            Abandoned: nobody waits for this write any more.
        """
        Write.check()
        return await self._run(cypher_query_, kwargs), None, None

    async def _run(self, query: str, kwargs: Mapping[str, Any]) -> Any:
        parameters = {
            name: value
            for name, value in kwargs.items()
            if value is not None and name not in ("database_", "routing_")
        }
        if "QUERY_FTS_INDEX" in query and isinstance(parameters.get("query"), str):
            # Wildcards to Kuzu, so that a question would lose its last word.
            parameters["query"] = _WILDCARDS.sub(" ", parameters["query"])
        in_save = _writing.get()

        def run() -> Any:
            connection = self._writer if in_save else self._reader
            if connection is None:
                raise BackendUnavailable("the graph is closed", sent=False)
            return connection.rows(query, parameters)

        return await self.worker.run(run)

    def session(self, database: str | None = None) -> Session:
        return Session(self)

    async def in_transaction(self, save: Callable[[], Awaitable[Any]]) -> Any:
        """All of ``save``, or nothing. Only one at a time: the scope's lock sees to it."""
        token = _writing.set(True)
        try:
            await self.execute_query("BEGIN TRANSACTION")
            answer = await save()
            await self.execute_query("COMMIT")
            return answer
        except BaseException:
            await self._roll_back()
            raise
        finally:
            _writing.reset(token)

    async def _roll_back(self) -> None:
        try:
            await self._run("ROLLBACK", {})
        except RuntimeError:
            pass  # Kuzu has already done so itself, as it does when a query fails

    async def idle(self) -> None:
        """Wait for queries that go on although they were abandoned."""
        await self.worker.idle()

    async def renew(self) -> None:
        """Start again with a blank file: what Kuzu deletes stays readable in the old one."""

        def replace() -> None:
            self._close()
            for file in self._directory.glob(f"{_FILE}*"):
                file.unlink()
            self._open()

        await self.worker.run(replace)

    async def close(self) -> None:
        """Close connections and database on their thread, and end it. Idempotent."""
        await self.worker.aclose(self._close)

    def _close(self) -> None:
        for handle in (self._reader, self._writer, self.db):
            if handle is not None:
                handle.close()
        self.db = self._reader = self._writer = None


class Connection:
    """A connection that prepares each query once.

    Kuzu prepares a query given as text anew every time, then plans it again with its parameters, and keeps all of
    that until the connection is closed: a tenth of the time of a search, and a third of a megabyte.

    Args:
        database: an open one.
        buffer_mb: its largest buffer.
    """

    def __init__(self, database: kuzu.Database, buffer_mb: int) -> None:
        self._buffer_mb = buffer_mb
        self._native = kuzu.Connection(database)
        self._prepared: dict[tuple[str, frozenset[str]], kuzu.PreparedStatement] = {}

    def rows(self, query: str, parameters: dict[str, Any]) -> Any:
        """Rows as dicts; a list of them per statement, where there are several.

        Raises:
            BackendError: the graph has outgrown its buffer.
            RuntimeError: Kuzu's own.
        """
        try:
            answer = self._native.execute(
                self._prepare(query, parameters) if parameters else query, parameters
            )
        except RuntimeError as error:
            if "buffer pool is full" not in str(error):
                raise
            raise BackendError(
                f"the graph has outgrown buffer_mb, which is {self._buffer_mb}; raise it in the configuration "
                "block of the backend"
            ) from error
        if isinstance(answer, list):
            return [list(one.rows_as_dict()) for one in answer]
        return list(answer.rows_as_dict())

    def index_anew(self) -> None:
        """Make the full-text indexes again, after a process that did not close its database.

        What Kuzu restores from the log of such a one is in its tables but not in these indexes: it is not found by
        its words, and to change it ends this process with a segmentation fault.
        """
        found = {
            (row["table_name"], row["index_name"]) for row in self.rows("CALL SHOW_INDEXES() RETURN *", {})
        }
        for create in get_fulltext_indices(GraphProvider.KUZU):
            match = _INDEX.search(create)
            assert match is not None, create
            if match.groups() in found:
                self.rows("CALL DROP_FTS_INDEX('{}', '{}')".format(*match.groups()), {})
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
        self._native.close()


class Session(KuzuDriverSession):  # type: ignore[misc]
    """Graphiti's unit of saving, as a transaction."""

    async def execute_write(self, func: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        return await self.driver.in_transaction(lambda: func(self, *args, **kwargs))
