"""Where graphs live: what the three databases have in common. Imports no SDK.

A store is what all scopes of an adapter share: a directory, or the connections to a server. It makes a driver
for each scope, which is Graphiti's own with what the adapter needs besides.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.write import Write

__all__ = ["FACTS_OF_KUZU", "STORES", "ScopeGraph", "ServerGraph", "Store", "changes", "equip", "make_store"]

STORES = {name: f"memory.backends.graphiti.{name}" for name in ("kuzu", "falkordb", "neo4j")}
"""Driver -> module. Each imports its SDK and has ``make(options, directory, deadlines)``."""
_OPERATIONS = (
    "EntityNode", "EpisodeNode", "CommunityNode", "SagaNode", "EntityEdge", "EpisodicEdge", "CommunityEdge",
    "HasEpisodeEdge", "NextEpisodeEdge", "Search",
)  # fmt: skip
_NODES = {label: f"(n:{label})" for label in ("Episodic", "Entity", "Community", "Saga")}
FACTS_OF_SERVERS: Mapping[str, str] = {**_NODES, "RELATES_TO": "()-[n:RELATES_TO]->()"}
"""What a scope's graph is made of on FalkorDB and Neo4j: label -> Cypher pattern."""
FACTS_OF_KUZU: Mapping[str, str] = {**_NODES, "RelatesToNode_": "(n:RelatesToNode_)"}
"""The same on Kuzu, which keeps facts as nodes."""
_CHANGE = re.compile(r"\b(CREATE|MERGE|SET|DELETE|REMOVE)\b")


def changes(cypher: str) -> bool:
    """Whether a query of Graphiti's, whose values are parameters, changes the graph."""
    return _CHANGE.search(cypher) is not None


class ScopeGraph(Protocol):
    """A Graphiti driver for one scope."""

    counted: Mapping[str, str]

    @property
    def writing(self) -> asyncio.Lock:
        """Held by one write of this scope after the other."""
        ...

    async def open(self) -> None:
        """Make the graph usable, indexes included. Idempotent."""
        ...

    async def probe(self) -> None:
        """Whether it still is; raises where it is not."""
        ...

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Any:
        """Rows, and two more things nobody needs.

        Raises:
            Abandoned: nobody waits for this write any more.
        """
        ...

    async def idle(self) -> None:
        """Wait for queries that go on although they were abandoned."""
        ...

    async def clear(self, group_id: str) -> None:
        """Remove all there is of the scope, also of a graph that could not be opened, which then is open."""
        ...

    async def close(self) -> None:
        """Release what is this scope's alone. Idempotent."""
        ...


class ServerGraph:
    """What a scope's driver to a server adds to Graphiti's own, in front of which it stands.

    Saving has no transaction on one of the two servers, so a write that has begun to save goes to its end.
    """

    counted = FACTS_OF_SERVERS
    writing: asyncio.Lock
    _database: str

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Any:
        """As the native driver.

        Raises:
            Abandoned: nobody waits for this write any more.
        """
        Write.save() if changes(cypher_query_) else Write.check()
        native: Any = super()
        return await native.execute_query(cypher_query_, **kwargs)

    def session(self, database: str | None = None) -> Any:
        """For saving, into this graph whatever the caller says.

        Raises:
            Abandoned: nobody waits for this write any more.
        """
        Write.save()
        native: Any = super()
        return native.session(self._database)

    async def idle(self) -> None:
        """A query that is abandoned ends on the server by itself, unheard."""

    async def probe(self) -> None:
        """The cheapest query there is."""
        await self.execute_query("RETURN 1 AS one")

    async def clear(self, group_id: str) -> None:
        """Delete all of the group."""
        from graphiti_core.utils.maintenance.graph_data_operations import clear_data

        await self.open()
        await clear_data(self, [group_id])

    async def open(self) -> None:
        """Make the graph usable."""
        raise NotImplementedError

    async def close(self) -> None:
        """The connections are the store's."""


class Store(Protocol):
    """What the scopes of an adapter share.

    Attributes:
        label: what it is and where, without credentials.
        packages: distributions whose versions matter.
        keeps_open: graphs open at a time; None where they cost nothing.
        warnings: what health is to say of it.
    """

    label: str
    packages: tuple[str, ...]
    keeps_open: int | None
    warnings: tuple[str, ...]

    def graph(self, group_id: str) -> ScopeGraph:
        """The driver of a scope, not open yet."""
        ...

    async def probe(self) -> None:
        """The cheapest question to the server, where there is one."""
        ...

    async def aclose(self) -> None:
        """Release what is shared. Idempotent."""
        ...


def make_store(options: GraphitiOptions, directory: Path, deadlines: Mapping[str, float]) -> Store:
    """The store that ``driver`` names; connects to nothing yet.

    Args:
        options: the configuration block.
        directory: for embedded databases.
        deadlines: seconds per kind of call, by the slot's names.
    """
    store: Store = importlib.import_module(STORES[options.driver]).make(options, directory, deadlines)
    return store


def equip(driver: Any, module: Any, prefix: str) -> None:
    """Give a driver the operations that its parent's constructor, which also connects, would have given it."""
    for name in _OPERATIONS:
        attribute = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
        setattr(driver, f"{attribute}_ops", getattr(module, f"{prefix}{name}Operations")())
    driver._graph_ops = getattr(module, f"{prefix}GraphMaintenanceOperations")()
