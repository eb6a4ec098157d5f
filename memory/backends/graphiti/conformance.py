"""Declarations of Graphiti for the conformance kit."""

from __future__ import annotations

from typing import Any

from memory.testing import ConformanceProfile


class GraphitiConformance(ConformanceProfile):
    """Graphiti, on whichever graph database is configured."""

    native_query = ("edges", {})
    rewrites = "a model turns what is said into facts"
    concurrent_scopes = 12  # three times as many as graphs may stay open
    ready_timeout_s = 30.0  # they wait for each other

    def native_rows(self, raw: Any) -> list[Any]:
        """Facts, in their order."""
        return list(raw["edges"])
