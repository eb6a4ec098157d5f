"""What the kit needs to know of memories, for ``memslot tools conform --profile profiles:NAME``."""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import anyio
import httpx

from memory.testing import FAKE_KEY, ConformanceProfile


class _Nothing:
    """Of a backend that was removed."""


def _declared(backend: str) -> Any:
    """What a backend's plugin declares of itself; nothing where the backend was removed."""
    try:
        module = importlib.import_module(f"memory.backends.{backend}.conformance")
    except ModuleNotFoundError:
        return _Nothing
    return getattr(module, f"{backend.capitalize()}Conformance")


GraphitiConformance, HonchoConformance, MemosConformance = map(_declared, ("graphiti", "honcho", "memos"))


class Mcp(ConformanceProfile):
    """An MCP server: what lies in its directories, and tools that fail or take their time."""

    concurrent_scopes = 6  # a process each
    limits_natively = False

    def fingerprint(self, adapter: Any) -> Any:
        files = sorted(
            path for path in adapter.directory.rglob("*") if path.is_file() and path.stat().st_size
        )
        return [(str(path), path.read_bytes()) for path in files if "health" not in path.parts]

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        native = {name: getattr(adapter.servers, name) for name in ("call", "check")}

        def before(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **values: Any) -> Any:
                if kind == "500":
                    raise ConnectionError(f"{FAKE_KEY} {values}")
                time.sleep(0.5)
                return native[name](*arguments, **values)

            return call

        for name in native:
            setattr(adapter.servers, name, before(name))
        try:
            yield
        finally:
            for name in native:
                delattr(adapter.servers, name)


class NothingCanFail(ConformanceProfile):
    """Controls that show a text of their configuration."""

    cannot_fail = "a text of the configuration is all there is"


class InTables(ConformanceProfile):
    """Controls that keep their rows in the memory's store, which may fail."""

    answers_at_once = "a write and a read are one statement of a local database"

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        def fail(*given: Any, **named: Any) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO), f"{FAKE_KEY} {given}")

        store = adapter.tables.store
        store.run = store.call = fail
        try:
            yield
        finally:
            del store.run, store.call

    def fingerprint(self, adapter: Any) -> Any:
        def rows(db: Any) -> Any:
            tables = ("condition_scopes", "condition_events", "condition_history")
            return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

        return adapter.tables.store.call(rows)


class RollingSummary(InTables):
    """One document, which is a summary."""

    without_ids = {"native_id": "a summary is one text"}  # noqa: RUF012
    rewrites = "a summary keeps what it takes for important"
    native_query = ("memory", {})

    def native_rows(self, raw: Any) -> list[Any]:
        return [raw["memory"]]


class FaultyClient:
    """mem0's own Qdrant client, with something happening before each of its calls."""

    def __init__(self, client: Any, before: Callable[[str], None]) -> None:
        self._client = client
        self._before = before

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(f"{args} {kwargs}")
            return value(*args, **kwargs)

        return call


def partitions_of(adapter: Any) -> list[Any]:
    """The ``Memory`` of each scope whose partition is open."""
    return [opened.memory for opened in adapter._native._scopes.values()]


class Mem0(ConformanceProfile):
    """mem0 over embedded Qdrant: its own points and tables; its client fails as Qdrant's does."""

    late_s = 0.5
    native_query = ("list", {})
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    async def fingerprint(self, adapter: Any) -> Any:
        """Every point and every row of mem0's own tables, of all partitions, read on mem0's thread."""

        def dump() -> tuple[Any, ...]:
            memories = partitions_of(adapter)
            points = [
                (found.name, point.id, str(point.payload))
                for memory in memories
                for found in memory.vector_store.client.get_collections().collections
                for point in memory.vector_store.client.scroll(found.name, limit=10_000)[0]
            ]
            tables = [
                row
                for memory in memories
                for table in ("history", "messages")
                for row in memory.db.connection.execute(f"SELECT * FROM {table}").fetchall()
            ]
            return sorted(points), sorted(map(str, tables))

        return await adapter.worker.run(dump)

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """Qdrant fails as its server does when it cannot be reached, or takes its time."""

        def fail(said: str) -> None:
            from qdrant_client.http.exceptions import ResponseHandlingException

            raise ResponseHandlingException(ConnectionError(f"{FAKE_KEY} {said}"))

        stores = [memory.vector_store.native for memory in partitions_of(adapter)]
        clients = [store.client for store in stores]
        for store in stores:
            store.client = FaultyClient(
                store.client, fail if kind == "500" else lambda _: time.sleep(self.late_s)
            )
        try:
            yield
        finally:
            for store, client in zip(stores, clients, strict=True):
                store.client = client


class Mem0Infer(Mem0):
    """mem0 with a model."""

    rewrites = "a model extracts facts"
    concurrent_scopes = 16


class Graphiti(GraphitiConformance, ConformanceProfile):
    """Graphiti on embedded Kuzu: every node of every open graph, and queries that fail as Kuzu's do."""

    async def fingerprint(self, adapter: Any) -> Any:
        rows: list[str] = []
        for graph in adapter._graphs.values():
            found, _, _ = await graph.driver.execute_query("MATCH (n) RETURN n.*")
            rows.extend(sorted(str(row) for row in found))
        return rows

    def native_fault(self, adapter: Any, kind: str) -> AbstractContextManager[None]:
        return graph_fault("memory.backends.graphiti.kuzu:ScopeDriver", kind)


@contextmanager
def graph_fault(owner: str, kind: str) -> Iterator[None]:
    """Every query of a class of drivers fails, repeating what was sent, or takes half a second longer."""
    module, _, name = owner.partition(":")
    driver = getattr(importlib.import_module(module), name)
    native = driver.execute_query

    async def broken(self: Any, cypher: str, **parameters: Any) -> Any:
        if kind == "500":
            raise RuntimeError(f"IO exception ({FAKE_KEY}) in {cypher} with {parameters}")
        await asyncio.sleep(0.5)
        return await native(self, cypher, **parameters)

    driver.execute_query = broken
    try:
        yield
    finally:
        driver.execute_query = native


class OverHttp(ConformanceProfile):
    """A real server that outlives a spec. What makes it fail stands between it and the adapter's own client."""

    concurrent_scopes = 8
    clean_up = True
    late_s = 0.5

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """Every request is answered as a proxy of a broken server does, with what was sent; or waits."""
        native = httpx.AsyncHTTPTransport.handle_async_request

        async def faulty(transport: Any, request: httpx.Request) -> httpx.Response:
            if kind == "500":
                sent = f"{dict(request.headers)} {request.content.decode()}"
                return httpx.Response(500, text=f"Internal Server Error (key {FAKE_KEY}): {sent}")
            await anyio.sleep(self.late_s)
            return await native(transport, request)

        httpx.AsyncHTTPTransport.handle_async_request = faulty
        try:
            yield
        finally:
            httpx.AsyncHTTPTransport.handle_async_request = native


class Stigmem(OverHttp):
    """A Stigmem node; ``STIGMEM_DB`` is its SQLite file."""

    native_query = ("facts", {})

    def native_rows(self, raw: Any) -> list[Any]:
        return [hit for hit in raw["facts"] if hit.get("from_card") is not True]

    def fingerprint(self, adapter: Any) -> Any:
        """Every fact and the id of every key, read past the node."""
        database = sqlite3.connect(f"file:{os.environ['STIGMEM_DB']}?mode=ro", uri=True)
        with closing(database):
            return [
                database.execute(f"SELECT {columns} ORDER BY id").fetchall()
                for columns in ("* FROM facts", "id FROM api_keys")
            ]


class Honcho(HonchoConformance, OverHttp):
    """``HONCHO_DB`` is the address of the server's PostgreSQL."""

    async def fingerprint(self, adapter: Any) -> Any:
        """Peers with their cards, sessions, messages and conclusions, once the worker has nothing left to do."""
        address = os.environ["HONCHO_DB"]
        with anyio.fail_after(self.ready_timeout_s):
            while postgres(address, "SELECT 1 FROM queue WHERE NOT processed LIMIT 1"):  # noqa: ASYNC110
                await anyio.sleep(0.2)
        return [
            postgres(address, f"SELECT {columns} ORDER BY 1")
            for columns in (
                "id, workspace_name, name, configuration::text, internal_metadata::text FROM peers",
                "id, workspace_name, name, metadata::text FROM sessions WHERE is_active",
                "public_id, session_name, peer_name, content, metadata::text FROM messages",
                "id, workspace_name, content FROM documents WHERE deleted_at IS NULL",
            )
        ]


class Memos(MemosConformance, OverHttp):
    """``MEMOS_DB`` is the address of the server's database."""

    def fingerprint(self, adapter: Any) -> Any:
        """Every row that MemOS holds."""
        columns = "id, user_name, memory, properties::text FROM memos.memories"
        return postgres(os.environ["MEMOS_DB"], f"SELECT {columns} ORDER BY id")


def postgres(address: str, query: str) -> list[Any]:
    """The rows of a query, read past the server."""
    import psycopg

    with psycopg.connect(address) as database:
        return database.execute(query).fetchall()
