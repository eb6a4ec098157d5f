"""Honcho's declarations for the conformance kit."""

from __future__ import annotations

from typing import Any, ClassVar

import anyio

from memory.testing import HttpConformance

_AT_WORK = "SELECT 1 FROM queue WHERE NOT processed LIMIT 1"
# The server answers a write before the message is in the queue.
_NOT_QUEUED = (
    "SELECT 1 FROM messages JOIN peers "
    "ON peers.name = peer_name AND peers.workspace_name = messages.workspace_name "
    "WHERE coalesce(peers.configuration->>'observe_me', 'true') <> 'false' "
    "AND NOT EXISTS (SELECT 1 FROM queue WHERE message_id = messages.id) LIMIT 1"
)
_QUEUED_S = 5.0  # seconds after which such a message counts as lost


class HonchoConformance(HttpConformance):
    """A Honcho server that keeps running between specs, with ``retrieval: context``.

    ``HONCHO_DB`` is the address of its PostgreSQL. Without it, the kit skips checks that need the database.
    """

    native_query = ("conclusions", {})
    without_ids: ClassVar = {"event_ids": "a conclusion does not say what it was drawn from"}
    rewrites = "a model derives conclusions from what is said"
    limits_natively = False  # only tokens limit a session's own messages
    concurrent_scopes = 8
    clean_up = True
    ready_timeout_s = 60.0
    database = "HONCHO_DB"

    def native_rows(self, raw: Any) -> list[Any]:
        rows: list[Any] = []
        context = raw.get("context") or {}
        statements = (context.get("peer_representation") or "").splitlines()
        rows += [line for line in statements if line.startswith("[")]
        rows += context.get("messages") or []
        rows += raw.get("messages") or []
        return rows

    async def fingerprint(self, adapter: Any) -> Any:
        """Peers with their cards, sessions, messages and conclusions, once the worker's queue is done."""
        late = anyio.current_time() + _QUEUED_S
        with anyio.fail_after(self.ready_timeout_s):
            while (anyio.current_time() < late and self.rows(_NOT_QUEUED)) or self.rows(  # noqa: ASYNC110
                _AT_WORK
            ):
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
