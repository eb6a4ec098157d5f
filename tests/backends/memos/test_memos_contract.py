"""memslot's conformance kit on the model of a MemOS server, over real sockets, with every fault of HTTP."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from http_contract import LoopbackContract
from kit_selection import OF_THE_SLOT
from memos_double import MemosDouble

from memory.backends.memos.answers import items

_REPLACED = {"native_ids": "of raw memories, which MemOS replaces by what it makes of them"}


class _OnDouble(LoopbackContract):
    server = MemosDouble
    ready_timeout_s = 60.0  # all scopes of a test wait for one queue
    options: ClassVar[Mapping[str, Any]]
    native_query = ("get_memory", {})
    rewrites = "MemOS makes memories of what is said"

    def native_rows(self, raw):
        return [item for _, _, item in items(raw, "search")]

    @classmethod
    def configuration(cls, url):
        scope = {"run_id": "test", "persona_id": "ada"}
        block = {"url": url, "idle_timeout_s": 20, **cls.options}
        return {"memory": {"backend": "memos", "scope": scope, "backends": {"memos": block}}}


class TestAsynchronous(_OnDouble):
    """As MemOS comes: PostgreSQL, a local queue, raw memories that are replaced."""

    thorough = OF_THE_SLOT
    options: ClassVar[Mapping[str, Any]] = {"graph_db": "postgres"}
    without_ids: ClassVar[Mapping[str, str]] = _REPLACED


@pytest.mark.thorough
class TestSynchronous(_OnDouble):
    """A graph database that filters, and writes that wait for the model and are looked for."""

    server_arguments: ClassVar[Mapping[str, Any]] = {"graph_db": "neo4j-community"}
    options: ClassVar[Mapping[str, Any]] = {"graph_db": "neo4j-community", "async_mode": "sync"}


@pytest.mark.thorough
class TestRedis(_OnDouble):
    """A queue in Redis, and the other dialect of filters."""

    anyio_backends = ("asyncio",)  # of the event loop the two others have shown it
    server_arguments: ClassVar[Mapping[str, Any]] = {"graph_db": "polardb", "redis": True}
    options: ClassVar[Mapping[str, Any]] = {"graph_db": "polardb"}
    without_ids: ClassVar[Mapping[str, str]] = _REPLACED
