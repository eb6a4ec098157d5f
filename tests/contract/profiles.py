"""What the kit needs to know of our memories and of strangers', for ``memslot conform --profile profiles:NAME``."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conditions._storage import OwnedDirectory
from memory.adapter import AppendLog, SqliteFile
from memory.testing import FAKE_KEY, ConformanceProfile


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


class InFiles(ConformanceProfile):
    """Controls that keep their files in the data directory, on a disk that may fail."""

    answers_at_once = "what is shown comes from memory, and a write is one call of the system"
    places: tuple[tuple[Any, str], ...] = (
        (AppendLog, "append"),
        (AppendLog, "remove"),
        (AppendLog, "problem"),
    )

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        def fail(*given: Any, **named: Any) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO), f"{FAKE_KEY} {given}")

        natives = [(owner, name, getattr(owner, name)) for owner, name in self.places]
        for owner, name in self.places:
            setattr(owner, name, fail)
        try:
            yield
        finally:
            for owner, name, native in natives:
                setattr(owner, name, native)

    def fingerprint(self, adapter: Any) -> Any:
        return {
            str(path): path.read_bytes() for path in sorted(Path(self.data_dir).rglob("*")) if path.is_file()
        }


class RollingSummary(InFiles):
    """One document, which is a summary."""

    without_ids = {"native_id": "a summary is one text"}  # noqa: RUF012
    rewrites = "a summary keeps what it takes for important"
    places = ((SqliteFile, "sync"), (SqliteFile, "check"), (OwnedDirectory, "take"))
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
    return list(adapter._native._open.values())


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

        stores = [memory.vector_store for memory in partitions_of(adapter)]
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
