"""Declarations of Honcho for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from memory.testing import ConformanceProfile


class HonchoConformance(ConformanceProfile):
    """A Honcho server that outlives a spec, asked for contexts."""

    native_query = ("conclusions", {})
    # Prose has its peer's id, which nothing deletes.
    native_mutations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    without_ids: ClassVar = {"event_ids": "a conclusion does not say what it was drawn from"}
    rewrites = "a model derives conclusions from what is said"
    limits_natively = False  # a session's own messages are bounded by tokens alone
    concurrent_scopes = 8
    clean_up = True
    ready_timeout_s = 60.0

    def native_rows(self, raw: Any) -> list[Any]:
        """Rows of every call that a retrieval makes, in the order of its entries."""
        rows: list[Any] = list(raw.get("conclusions") or [])
        context = raw.get("context") or {}
        statements = (context.get("peer_representation") or "").splitlines()
        rows += [line for line in statements if line.startswith("[")]
        rows += context.get("messages") or []
        rows += raw.get("messages") or []
        return rows
