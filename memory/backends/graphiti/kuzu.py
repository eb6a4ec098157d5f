"""Graphiti's driver for embedded Kuzu, with one database and one thread per scope."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphiti_core.driver import kuzu_driver
from graphiti_core.driver.driver import GraphDriver
from graphiti_core.driver.kuzu_driver import KuzuDriver, KuzuDriverSession

from memory.adapter import NativeWorker
from memory.backends.graphiti.database import CommitFailed, Database, Statement, exists
from memory.backends.graphiti.stores import NODES, SavingSession, ScopeGraph, Store, Write, changes, equip

T = TypeVar("T")
_WILDCARDS = re.compile(r"[*?]")


class KuzuStore(Store):
    place = "kuzu (embedded)"
    packages = ("kuzu",)
    warnings = ("Kuzu is no longer maintained by its authors, and deprecated by Graphiti",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.keeps_open = self.options.open_graphs
        self._tables = ["Entity", "RelatesToNode_"]  # searched by every write and every recipe
        if self.options.recipe.startswith("combined"):
            self._tables += ["Episodic", "Community"]

    def location(self, group_id: str) -> str:
        return str((self.directory / group_id).resolve())

    def graph(self, group_id: str) -> ScopeDriver:
        directory = Path(self.location(group_id))
        return ScopeDriver(Database(directory, self.options.buffer_mb, self._tables), group_id)


class ScopeDriver(ScopeGraph, KuzuDriver):
    """Graphiti's Kuzu driver over a :class:`Database`, which only one worker thread uses.

    The parent returns nothing for a cancelled query, and Graphiti continues with an empty result.
    """

    counted: Mapping[str, str] = {**NODES, "RelatesToNode_": "(n:RelatesToNode_)"}

    def __init__(self, files: Database, group_id: str) -> None:
        GraphDriver.__init__(self)
        equip(self, kuzu_driver, "Kuzu")
        self._database = group_id
        self._files = files
        self._worker = NativeWorker(1, name="memslot-graphiti")
        self.writing = asyncio.Lock()

    async def exists(self) -> bool:
        return exists(self._files.directory)

    async def open(self) -> None:
        await self._run(Database.open, sends=False)

    async def _run(self, call: Callable[[Database], T], *, sends: bool = True) -> T:
        return await self._worker.run(lambda: call(self._files), sends=sends)

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> tuple[Any, None, None]:
        """Run a query. As in the parent, parameters that are None are left out."""
        if changes(cypher_query_):
            return await self.save([(cypher_query_, kwargs)]), None, None
        statement = _statement(cypher_query_, kwargs)
        rows = await self._run(lambda database: database.rows(*statement), sends=False)
        return rows, None, None

    async def save(self, queries: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
        """Run all queries in one transaction. If the first transaction of a write fails, nothing is stored."""
        statements = [_statement(*query) for query in queries]
        write = Write.current.get()
        first = write is not None and not write.saving
        Write.save()
        try:
            return await self._run(lambda database: database.save(statements))
        except CommitFailed:
            raise
        except Exception:
            if write is not None and first:
                write.saving = False
            raise

    def session(self, database: str | None = None) -> Session:
        return Session(self)

    async def probe(self) -> None:
        await self.execute_query("MATCH (n:Episodic) RETURN count(*) AS found")

    async def idle(self) -> None:
        await self._worker.idle()

    async def clear(self, group_id: str) -> None:
        await self._run(Database.reset)

    async def close(self) -> None:
        await self._worker.aclose(self._files.close)


class Session(SavingSession, KuzuDriverSession):
    pass


def _statement(query: str, kwargs: Mapping[str, Any]) -> Statement:
    given = {name: value for name, value in kwargs.items() if value is not None}
    parameters = {name: value for name, value in given.items() if name not in ("database_", "routing_")}
    if "QUERY_FTS_INDEX" in query and isinstance(parameters.get("query"), str):
        # Kuzu reads these as wildcards, so a question would lose its last word.
        parameters["query"] = _WILDCARDS.sub(" ", parameters["query"])
    return query, parameters
