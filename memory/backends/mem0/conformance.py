"""mem0's declarations for the conformance kit, and the faults of its store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from memory.testing import FAKE_KEY, ConformanceProfile


class _FaultyClient:
    """mem0's Qdrant client, with a hook that runs before each call."""

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


def _partitions(adapter: Any) -> list[Any]:
    """The ``Memory`` of each open partition."""
    return [opened.memory for opened in adapter._native._scopes.values()]


class Mem0Conformance(ConformanceProfile):
    """mem0 on embedded Qdrant. Faults come from its Qdrant client."""

    late_s = 0.5
    native_query = ("list", {})
    native_mutations: ClassVar = {"delete": {}, "update": {"text": "I have no passport."}}

    async def fingerprint(self, adapter: Any) -> Any:
        """Every point and every table row of all open partitions, read on mem0's thread."""

        def dump() -> tuple[Any, ...]:
            memories = _partitions(adapter)
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
        """Make the Qdrant client fail like an unreachable server, or answer late."""

        def fail(said: str) -> None:
            from qdrant_client.http.exceptions import ResponseHandlingException

            raise ResponseHandlingException(ConnectionError(f"{FAKE_KEY} {said}"))

        stores = [memory.vector_store.native for memory in _partitions(adapter)]
        clients = [store.client for store in stores]
        for store in stores:
            store.client = _FaultyClient(
                store.client, fail if kind == "500" else lambda _: time.sleep(self.late_s)
            )
        try:
            yield
        finally:
            for store, client in zip(stores, clients, strict=True):
                store.client = client
