"""The kit where a configuration alone does not reach: native state watched, native calls made to fail."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mem0_support import NEEDS_MEM0, config

from memory import MemoryAdapter, MemoryAdapterRegistry, load_config
from memory.testing import FAKE_KEY
from memory.testing.contract import Fingerprint, MemoryContract, NativeFault


class FaultyClient:
    """A Qdrant client on a bad day: every call fails, repeating what was sent, or is a second late."""

    def __init__(self, native: Any, kind: str) -> None:
        self._native = native
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        native = getattr(self._native, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._kind == "stall":
                time.sleep(1.0)
                return native(*arguments, **options)
            raise ConnectionError(f"{FAKE_KEY} refused {arguments} {options}")

        return call


class TestEmbedded(MemoryContract):
    pytestmark = [pytest.mark.anyio, NEEDS_MEM0]  # noqa: RUF012
    anyio_backends = ("asyncio",)
    native_query = ("list", {})
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    @pytest.fixture
    def adapter_factory(self, tmp_path: Path) -> Callable[[], MemoryAdapter]:
        settings = load_config(config(tmp_path))
        return lambda: MemoryAdapterRegistry().create(settings)

    @pytest.fixture
    def fingerprint(self, adapter: Any, tmp_path: Path) -> Fingerprint:
        """Every point of the store and every row of mem0's SQLite file."""

        async def state() -> Any:
            return await adapter.worker.run(lambda: self._state(adapter._native.open(), tmp_path))

        return state

    @staticmethod
    def _state(memory: Any, data_dir: Path) -> Any:
        client = memory.vector_store.client
        points = [
            (name, point.id, point.payload)
            for name in sorted(found.name for found in client.get_collections().collections)
            for point in client.scroll(name, limit=10_000)[0]
        ]
        with closing(sqlite3.connect(data_dir / "mem0" / "history.db")) as connection:
            rows = [
                connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
                for table in ("history", "messages")
            ]
        return points, rows

    @pytest.fixture
    def native_fault(self, adapter: Any) -> NativeFault:
        @contextmanager
        def inject(kind: str) -> Iterator[None]:
            store = adapter._native.open().vector_store
            native = store.client
            store.client = FaultyClient(native, kind)
            try:
                yield
            finally:
                store.client = native

        return inject
