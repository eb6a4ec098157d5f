"""Graphiti's Neo4j driver, bound to the slot's deadlines. Scopes share one database."""

from __future__ import annotations

import asyncio
from typing import Any

from graphiti_core.driver import neo4j_driver
from graphiti_core.driver.driver import GraphDriver
from graphiti_core.driver.neo4j_driver import Neo4jDriver
from graphiti_core.graph_queries import get_fulltext_indices, get_range_indices
from neo4j import AsyncDriver, AsyncGraphDatabase

from memory.backends.graphiti.stores import ScopeGraph, Store, equip


class Neo4jStore(Store):
    place = "neo4j at {server.uri}, database {server.database}"
    packages = ("neo4j",)
    warnings = ("this adapter has not been run on a Neo4j server by its authors",)
    _client: AsyncDriver | None = None
    indexed = False  # indexes are built once for all scopes

    def graph(self, group_id: str) -> Neo4jGraph:
        return Neo4jGraph(self)

    @property
    def client(self) -> AsyncDriver:
        """The client that all graphs share. Its time limits replace Neo4j's defaults of 30 to 60 s."""
        if self._client is None:
            server = self.options.neo4j
            self._client = AsyncGraphDatabase.driver(
                server.uri,
                auth=(server.user, server.password.get_secret_value() if server.password else ""),
                connection_timeout=self.connect_s,
                connection_acquisition_timeout=self.connect_s,
                max_transaction_retry_time=0.0,
            )
        return self._client

    async def probe(self) -> None:
        await self.client.verify_connectivity()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class Neo4jGraph(ScopeGraph, Neo4jDriver):
    """A driver that connects within the deadline, builds indexes once, and never closes the shared client."""

    def __init__(self, store: Neo4jStore) -> None:
        GraphDriver.__init__(self)
        equip(self, neo4j_driver, "Neo4j")
        self.writing = asyncio.Lock()
        self._store = store
        self._database = store.options.neo4j.database

    @property
    def client(self) -> Any:
        return self._store.client

    async def open(self) -> None:
        if not self._store.indexed:
            await self.build_indices_and_constraints()
            self._store.indexed = True

    async def build_indices_and_constraints(self, delete_existing: bool = False) -> None:
        """Build indexes one by one. The parent gathers its queries, and leaves sockets open if abandoned."""
        for query in (*get_range_indices(self.provider), *get_fulltext_indices(self.provider)):
            await self._execute_index_query(query)
