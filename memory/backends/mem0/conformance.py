"""mem0's declarations for the conformance kit, and the faults of its store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from memory.testing import FAKE_KEY, ConformanceProfile


class _Faulty:
    """A vector store of mem0, or its client, with a hook that runs before each call."""

    def __init__(self, native: Any, before: Callable[[str], None]) -> None:
        self._native = native
        self._before = before

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._native, name)
        if name == "client":
            return _Faulty(value, self._before)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(f"{args} {kwargs}")
            return value(*args, **kwargs)

        return call


def _memories(adapter: Any) -> list[Any]:
    return [opened.memory for opened in adapter._native._scopes.values()]


def _stores(adapter: Any) -> list[Any]:
    """The vector stores of the open scopes, each once. A shared one is open before any scope."""
    shared = getattr(adapter._native, "_shared", None)
    memories = [*_memories(adapter), *([shared] if shared is not None else [])]
    return list({id(memory.vector_store): memory.vector_store for memory in memories}.values())


def _rows(store: Any) -> Any:
    """Every row. Some stores of mem0 wrap them in a list or a pair."""
    listed = store.list(top_k=10_000)
    return listed[0] if listed and isinstance(listed[0], (list, tuple)) else listed or ()


class Mem0Conformance(ConformanceProfile):
    """mem0 on any vector store. Faults come from the store."""

    late_s = 0.5
    native_query = ("list", {})
    native_mutations: ClassVar = {"delete": {}, "update": {"text": "I have no passport."}}

    async def fingerprint(self, adapter: Any) -> Any:
        """Every memory and every table row of all open scopes, read on mem0's thread."""

        def dump() -> tuple[Any, ...]:
            memories = [
                (row.id, str(sorted(row.payload.items())))
                for store in _stores(adapter)
                for row in _rows(store)
            ]
            tables = [
                row
                for memory in _memories(adapter)
                for table in ("history", "messages")
                for row in memory.db.connection.execute(f"SELECT * FROM {table}").fetchall()
            ]
            return sorted(memories), sorted(map(str, tables))

        return await adapter.worker.run(dump)

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        def fail(said: str) -> None:
            from qdrant_client.http.exceptions import ResponseHandlingException

            raise ResponseHandlingException(ConnectionError(f"{FAKE_KEY} {said}"))

        before = fail if kind == "500" else lambda _: time.sleep(self.late_s)
        stores = [(store, store.native) for store in _stores(adapter)]
        for store, native in stores:
            store.native = _Faulty(native, before)
        try:
            yield
        finally:
            for store, native in stores:
                store.native = native
