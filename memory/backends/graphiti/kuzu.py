"""Graphiti's embedded Kuzu driver, repaired and bounded, with one database and one thread per scope."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from graphiti_core.driver import kuzu_driver
from graphiti_core.driver.driver import GraphDriver
from graphiti_core.driver.kuzu_driver import KuzuDriver, KuzuDriverSession

from memory import BackendUnavailable
from memory.adapter import NativeWorker
from memory.backends.graphiti.database import Database, Statement, exists
from memory.backends.graphiti.stores import NODES, SavingSession, ScopeGraph, Store, Write, changes, equip

T = TypeVar("T")
_WILDCARDS = re.compile(r"[*?]")
_RETURNED = re.compile(r"\b(\w+)\.uuid AS uuid\b")


class KuzuStore(Store):
    place = "kuzu (embedded)"
    packages = ("kuzu",)
    warnings = ("Kuzu is no longer maintained by its authors, and deprecated by Graphiti",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.keeps_open = self.options.open_graphs
        self._tables = ["Entity", "RelatesToNode_"]  # what a write searches, and every recipe
        if self.options.recipe.startswith("combined"):
            self._tables += ["Episodic", "Community"]

    def location(self, group_id: str) -> str:
        return str((self.directory / group_id).resolve())

    def graph(self, group_id: str) -> ScopeDriver:
        directory = Path(self.location(group_id))
        return ScopeDriver(directory, group_id, self.options.buffer_mb, self._tables)


_KNOWN: WeakValueDictionary[tuple[int, Path], SharedDatabase] = WeakValueDictionary()  # by loop and directory


class SharedDatabase:
    """A database and the one thread that talks to it, for all slots of an event loop."""

    def __init__(self, directory: Path, buffer_mb: int) -> None:
        self._loop = asyncio.get_running_loop()  # kept, so that no other one gets its id
        self._database = Database(directory, buffer_mb)
        self._worker = NativeWorker(1, name="memslot-graphiti")
        self._turn = asyncio.Lock()
        self._users = 0
        self._closed = False
        self.writing = asyncio.Lock()
        self.idle = self._worker.idle

    @classmethod
    async def join(
        cls, directory: Path, buffer_mb: int, opening: Callable[[Database], object]
    ) -> SharedDatabase:
        """The database of that directory, with one user more, once ``opening`` has opened it."""
        key = (id(asyncio.get_running_loop()), directory)
        while True:
            shared = _KNOWN.get(key)
            if shared is None or shared._closed:
                shared = _KNOWN[key] = cls(directory, buffer_mb)
            async with shared._turn:
                if shared._closed:
                    continue
                shared._users += 1
                try:
                    await shared.run(opening)
                except BaseException:
                    await shared._leave()
                    raise
                return shared

    async def leave(self) -> None:
        async with self._turn:
            await self._leave()

    async def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            try:
                await self._worker.aclose(self._database.close)
            finally:
                self._closed = True

    async def run(self, call: Callable[[Database], T], *, sends: bool = True) -> T:
        return await self._worker.run(lambda: call(self._database), sends=sends)


class ScopeDriver(ScopeGraph, KuzuDriver):
    """Graphiti's Kuzu driver, mended where the parent fails.

    It has full-text indexes and a bounded size, can be closed, and opens after a kill. A cancelled query stays
    cancelled: the parent answers it with nothing, and Graphiti goes on with an empty result. A question mark is no
    wildcard. One unit of Graphiti's saving is one transaction, which nothing interrupts.
    """

    counted: Mapping[str, str] = {**NODES, "RelatesToNode_": "(n:RelatesToNode_)"}

    def __init__(self, directory: Path, group_id: str, buffer_mb: int, tables: Iterable[str] = ()) -> None:
        GraphDriver.__init__(self)
        equip(self, kuzu_driver, "Kuzu")
        self._database = group_id
        self._directory = directory
        self._buffer_mb = buffer_mb
        self._tables = tuple(tables)
        self._joined: asyncio.Task[SharedDatabase] | None = None

    async def exists(self) -> bool:
        return exists(self._directory)

    async def open(self) -> None:
        await self._open(lambda database: database.open(self._tables))

    async def _open(self, opening: Callable[[Database], object]) -> None:
        if self._joined is not None:
            await self._shared.run(opening)
            return
        joining = SharedDatabase.join(self._directory, self._buffer_mb, opening)
        # Nobody's call: of a write that then waits for its turn, nothing is sent by opening.
        self._joined = asyncio.get_running_loop().create_task(joining, context=Context())
        try:
            await asyncio.shield(self._joined)
        except Exception:  # given up, it goes on, and is left by closing
            self._joined = None
            raise

    @property
    def writing(self) -> asyncio.Lock:  # type: ignore[override]
        return self._shared.writing

    @property
    def _shared(self) -> SharedDatabase:
        if self._joined is None or not self._joined.done():
            raise BackendUnavailable("the graph is closed", sent=False)
        return self._joined.result()

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> tuple[Any, None, None]:
        """Parameters that are None are left out, as the parent does."""
        Write.check()
        if changes(cypher_query_):
            return await self.save([(cypher_query_, kwargs)]), None, None
        statement = _statement(cypher_query_, kwargs)
        rows = await self._shared.run(lambda database: database.rows(*statement), sends=False)
        return rows, None, None

    async def save(self, queries: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
        statements = [_statement(*query) for query in queries]
        Write.send()
        rows = await self._shared.run(lambda database: database.save(statements))
        Write.saved()
        return rows

    def session(self, database: str | None = None) -> Session:
        return Session(self)

    async def probe(self) -> None:
        await self.execute_query("MATCH (n:Episodic) RETURN count(*) AS found")

    async def idle(self) -> None:
        with suppress(BackendUnavailable):  # it is not open, or not yet
            await self._shared.idle()

    async def clear(self, group_id: str) -> None:
        await self._open(lambda database: database.reset(self._tables))

    async def close(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            try:
                shared = await joined
            except Exception:
                return  # it was never open
            await shared.leave()


class Session(SavingSession, KuzuDriverSession):
    pass


def _statement(query: str, kwargs: Mapping[str, Any]) -> Statement:
    given = {name: value for name, value in kwargs.items() if value is not None}
    parameters = {name: value for name, value in given.items() if name not in ("database_", "routing_")}
    if "QUERY_FTS_INDEX" in query and isinstance(parameters.get("query"), str):
        # Wildcards to Kuzu, so that a question would lose its last word.
        parameters["query"] = _WILDCARDS.sub(" ", parameters["query"])
    return _ordered(query), parameters


@lru_cache(maxsize=256)
def _ordered(query: str) -> str:
    """A search whose rows of equal score come newest first, then by text. Left alone, they come as they lie
    in the file; and which of them the index cuts off cannot be told, so that it gives all."""
    returned = _RETURNED.search(query)
    if returned is None or "ORDER BY score DESC" not in query:
        return query
    row = returned[1]
    text = "fact" if "RelatesToNode_" in query else "name"
    order = f"ORDER BY score DESC, {row}.created_at DESC, {row}.{text}"
    return query.replace("ORDER BY score DESC", order).replace(", TOP := $limit", "")
