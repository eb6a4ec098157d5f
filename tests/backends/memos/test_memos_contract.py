"""memslot's conformance kit on the model of a MemOS server, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from memos_double import MemosProcess

from memory import MemoryAdapter, MemoryAdapterRegistry, load_config
from memory.testing.contract import Fingerprint, MemoryContract, NativeFault

_REGISTRY = MemoryAdapterRegistry()
_FAULTS = {"down": "500", "stall": "slow"}


class _OnDouble(MemoryContract):
    """The server is a process of its own, because the kit counts this one's sockets and threads."""

    flags: ClassVar[Mapping[str, Any]] = {}
    native_query = ("get_memory", {})

    @pytest.fixture(scope="class")
    @classmethod
    def process(cls) -> Iterator[MemosProcess]:
        process = MemosProcess(**cls.flags)
        yield process
        process.close()

    @pytest.fixture
    def adapter_factory(self, process: MemosProcess, tmp_path: Path) -> Callable[[], MemoryAdapter]:
        assert self.config is not None
        block = {**self.config["memory"]["backends"]["memos"], "url": process.url}
        settings = load_config({"memory": {**self.config["memory"], "backends": {"memos": block}}})
        return lambda: _REGISTRY.create(settings, data_dir=tmp_path)

    @pytest.fixture
    def fingerprint(self, process: MemosProcess) -> Fingerprint:
        """Every memory on the server, read past the adapter."""
        return process.state

    @pytest.fixture
    def native_fault(self, process: MemosProcess) -> NativeFault:
        @contextmanager
        def broken(kind: str) -> Iterator[None]:
            process.fault(_FAULTS[kind])
            try:
                yield
            finally:
                process.fault(None)

        return broken


def _config(**block: Any) -> dict[str, Any]:
    return {
        "memory": {
            "backend": "memos",
            "scope": {"run_id": "test", "persona_id": "ada"},
            "backends": {"memos": {"graph_db": "postgres", **block}},
        }
    }


class TestAsynchronous(_OnDouble):
    """As MemOS comes: PostgreSQL, a local queue, raw memories that are replaced."""

    config: ClassVar[Mapping[str, Any]] = _config()


class TestSynchronous(_OnDouble):
    """A graph database that filters, and writes that wait for the model and are looked for."""

    flags: ClassVar[Mapping[str, Any]] = {"graph_db": "neo4j-community"}
    config: ClassVar[Mapping[str, Any]] = _config(graph_db="neo4j-community", async_mode="sync")


class TestRedis(_OnDouble):
    """Tasks that can be asked for one by one, and the other dialect of filters."""

    flags: ClassVar[Mapping[str, Any]] = {"graph_db": "polardb", "redis": True}
    config: ClassVar[Mapping[str, Any]] = _config(graph_db="polardb", scheduler="redis")
