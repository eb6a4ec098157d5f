"""Honcho's declarations for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import anyio

from memory.testing import HttpConformance


class HonchoConformance(HttpConformance):
    """A Honcho server that keeps running between specs, with ``retrieval: context``.

    ``HONCHO_DB`` is the address of its PostgreSQL. Without it, the kit skips checks that need the database.
    """

    native_query = ("conclusions", {})
    # Prose has its peer's id, and no call deletes a peer.
    native_mutations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    without_ids: ClassVar = {"event_ids": "a conclusion does not say what it was drawn from"}
    rewrites = "a model derives conclusions from what is said"
    limits_natively = False  # only tokens limit a session's own messages
    concurrent_scopes = 8
    clean_up = True
    ready_timeout_s = 60.0
    database = "HONCHO_DB"

    def native_rows(self, raw: Any) -> list[Any]:
        """The rows of all calls of a retrieval, in the order of its entries."""
        rows: list[Any] = list(raw.get("conclusions") or [])
        context = raw.get("context") or {}
        statements = (context.get("peer_representation") or "").splitlines()
        rows += [line for line in statements if line.startswith("[")]
        rows += context.get("messages") or []
        rows += raw.get("messages") or []
        return rows

    async def fingerprint(self, adapter: Any) -> Any:
        """Peers with their cards, sessions, messages and conclusions, once the worker's queue is done."""
        with anyio.fail_after(self.ready_timeout_s):
            while self.rows("SELECT 1 FROM queue WHERE NOT processed LIMIT 1"):  # noqa: ASYNC110
                await anyio.sleep(0.2)
        return [
            self.rows(f"SELECT {columns} ORDER BY 1")
            for columns in (
                "id, workspace_name, name, configuration::text, internal_metadata::text FROM peers",
                "id, workspace_name, name, metadata::text FROM sessions WHERE is_active",
                "public_id, session_name, peer_name, content, metadata::text FROM messages",
                "id, workspace_name, content FROM documents WHERE deleted_at IS NULL",
            )
        ]
