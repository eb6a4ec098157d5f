"""Graphiti's declarations for the conformance kit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import anyio

from memory.testing import FAKE_KEY, ConformanceProfile


class GraphitiConformance(ConformanceProfile):
    """Graphiti, on the configured graph database."""

    native_query = ("edges", {})
    rewrites = "a model turns what is said into facts"
    concurrent_scopes = 12  # three times the default of ``open_graphs``
    ready_timeout_s = 30.0  # scopes wait for each other

    def native_rows(self, raw: Any) -> list[Any]:
        return list(raw["edges"])

    async def fingerprint(self, adapter: Any) -> Any:
        rows: list[str] = []
        for graph in adapter._graphs.opened.values():
            found, _, _ = await graph.driver.execute_query("MATCH (n) RETURN n.*")
            rows.extend(sorted(str(row) for row in found))
        return rows

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """Make every query fail like Kuzu's, or take half a second longer."""
        with graph_fault("memory.backends.graphiti.kuzu:ScopeDriver", kind):
            yield


@contextmanager
def graph_fault(owner: str, kind: str) -> Iterator[None]:
    """Make every query of a driver class (``module:class``) fail with an error that repeats it, or take longer."""
    module, _, name = owner.partition(":")
    driver = getattr(importlib.import_module(module), name)
    native = driver.execute_query

    async def broken(self: Any, cypher: str, **parameters: Any) -> Any:
        if kind == "500":
            raise RuntimeError(f"IO exception ({FAKE_KEY}) in {cypher} with {parameters}")
        await anyio.sleep(0.5)
        return await native(self, cypher, **parameters)

    with patch.object(driver, "execute_query", broken):
        yield
