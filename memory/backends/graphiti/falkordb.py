"""Graphiti's FalkorDB driver with one graph per scope, and without its crashes and repeated writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from falkordb.asyncio import FalkorDB
from graphiti_core.driver import falkordb_driver
from graphiti_core.driver.driver import GraphDriver
from graphiti_core.driver.falkordb_driver import FalkorDriver, FalkorDriverSession
from graphiti_core.graph_queries import get_fulltext_indices
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from memory.backends.graphiti.stores import SavingSession, ScopeGraph, Store, Write, equip

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONE = re.compile(r"(?<![^\s(])_(?![^\s)])")
_RANGE = (
    "(n:Entity)", "(n:Episodic)", "(n:Community)", "(n:Saga)", "()-[n:RELATES_TO]-()", "()-[n:MENTIONS]-()",
    "()-[n:HAS_MEMBER]-()", "()-[n:HAS_EPISODE]-()", "()-[n:NEXT_EPISODE]-()",
)  # fmt: skip


class FalkorStore(Store):
    place = "falkordb at {server.host}:{server.port}"
    packages: tuple[str, ...] = ("falkordb",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._opening = anyio.Lock()
        self._db: FalkorDB | None = None

    def graph(self, group_id: str) -> FalkorGraph:
        return FalkorGraph(self, group_id)

    async def connected(self) -> FalkorDB:
        """The client that all graphs share. Creating it sends no request."""
        async with self._opening:
            if self._db is None:
                longest = ("write_s", "retrieve_s", "reset_s")
                connection = Redis(
                    **await self._where(),
                    decode_responses=True,
                    socket_timeout=max(self.deadlines.get(name, 15.0) for name in longest),
                    socket_connect_timeout=self.connect_s,
                    retry=Retry(NoBackoff(), 0),  # redis-py would repeat lost commands, even writes
                )
                self._db = _Client(connection)
        return self._db

    async def _where(self) -> dict[str, Any]:
        server = self.options.falkordb
        password = server.password.get_secret_value() if server.password else None
        return {"host": server.host, "port": server.port, "username": server.username, "password": password}

    async def probe(self) -> None:
        await (await self.connected()).connection.ping()

    async def aclose(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            await db.aclose()


class _Client(FalkorDB):  # type: ignore[misc]
    """FalkorDB's client on a given connection. Its own constructor would block the event loop for a request."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.flushdb = connection.flushdb
        self.execute_command = connection.execute_command


class FalkorGraph(ScopeGraph, FalkorDriver):
    """Graphiti's driver with range indexes only on ids, built when the graph is opened.

    A property with both a range index and a full-text index crashes the server. Range indexes on times give
    wrong answers. The parent builds indexes with every clone.
    """

    def __init__(self, store: FalkorStore, group_id: str) -> None:
        GraphDriver.__init__(self)
        equip(self, falkordb_driver, "Falkor")
        self.writing = asyncio.Lock()
        self._database = group_id
        self._store = store
        self.client: Any = None

    async def exists(self) -> bool:
        connected = await self._store.connected()
        return self._database in await connected.connection.execute_command("GRAPH.LIST")

    async def open(self) -> None:
        await self.build_indices_and_constraints()

    async def build_indices_and_constraints(self, delete_existing: bool = False) -> None:
        if delete_existing:
            await self.delete_all_indexes()
        for pattern in _RANGE:
            await self.execute_query(f"CREATE INDEX FOR {pattern} ON (n.uuid)")
        for query in get_fulltext_indices(self.provider):
            await self.execute_query(query)

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Any:
        if "db.idx.fulltext.query" in cypher_query_:
            kwargs["query"] = searchable(kwargs["query"])
        self.client = await self._store.connected()
        return await super().execute_query(cypher_query_, **kwargs)

    def session(self, database: str | None = None) -> Session:
        return Session(self)

    async def save(self, queries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        Write.save()
        self.client = await self._store.connected()
        graph = self.client.select_graph(self._database)
        module: Any = falkordb_driver
        async with self.client.connection.pipeline(transaction=True) as together:
            for cypher, parameters in queries:
                native = module._strip_nul_bytes(module.convert_datetimes_to_strings(dict(parameters)))
                header = graph._build_params_header(native)
                together.execute_command("GRAPH.QUERY", self._database, header + cypher, "--compact")
            await together.execute()

    def clone(self, database: str) -> GraphDriver:
        if database == self._database:
            return self
        other = self._store.graph(database)
        other.client = self.client
        return other


class Session(SavingSession, FalkorDriverSession):
    pass


def searchable(query: str) -> str:
    """Replace control characters and lone underscores, which are syntax errors. ``__`` matches no word."""
    return _LONE.sub("__", _CONTROL.sub("_", query))
