"""How much of Signet's dependency map is covered, row by row: what ``memslot signet parity`` prints."""

from __future__ import annotations

from typing import Literal, NamedTuple

Cover = Literal["covered", "partial", "absent"]


class Row(NamedTuple):
    """One row of the contract's map, or what real clients call beyond it.

    Attributes:
        action, endpoint: as the contract names them.
        client: whether :class:`AdapterClient` calls it; ``method`` is its name there, or empty.
        server: whether :class:`RuntimeAdapterServer` answers it.
        reason: why one of them is not covered.
    """

    action: str
    endpoint: str
    method: str
    client: Cover
    server: Cover
    reason: str = ""


_WHERE_ASKED = "where the backend can {} a single memory; else {}"

PARITY: tuple[Row, ...] = (
    Row("Session start context", "POST /api/hooks/session-start", "on_session_start", "covered", "covered"),
    Row("Per-prompt context", "POST /api/hooks/user-prompt-submit", "on_user_prompt_submit", "covered", "partial",
        "no backend takes memory_feedback as scores of memories; nothing is suppressed that was injected before"),
    Row("Session end / extraction", "POST /api/hooks/session-end", "on_session_end", "covered", "partial",
        "no job or score: the backend derives by itself; a transcript by path only where configured"),
    Row("Pre-compaction summary", "POST /api/hooks/pre-compaction", "on_pre_compaction", "covered", "covered"),
    Row("Save compaction result", "POST /api/hooks/compaction-complete", "on_compaction_complete", "covered",
        "covered"),
    Row("Memory search (tool)", "POST /api/memory/recall", "recall", "covered", "covered"),
    Row("Memory store (tool)", "POST /api/hooks/remember", "remember", "covered", "covered"),
    Row("Memory get (tool)", "GET /api/memory/{item_id}", "get", "covered", "covered"),
    Row("Memory modify (tool)", "POST /api/memory/modify", "modify", "covered", "partial",
        _WHERE_ASKED.format("change", "only its labels, and not_supported for its text")),
    Row("Memory forget (tool)", "POST /api/memory/forget", "forget", "covered", "partial",
        _WHERE_ASKED.format("delete", "not_supported") + "; deleted is deleted, not marked"),
    Row("Secret injection", "POST /api/secrets/exec", "run_with_secrets", "covered", "partial",
        "403 unless configured; listed programs, no shell; secrets are the configuration's"),
    Row("Daemon health check", "GET /health", "health", "covered", "covered"),
    Row("Store (plugins)", "POST /api/memory/remember", "store", "covered", "covered"),
    Row("Update (plugins)", "PATCH /api/memory/{item_id}", "update", "covered", "partial", "as modify"),
    Row("Delete (plugins)", "DELETE /api/memory/{item_id}", "delete", "covered", "partial", "as forget"),
    Row("List (plugins)", "GET /api/memories", "memories", "covered", "partial",
        "what was stored or served here: no backend lists alike"),
    Row("Search (hooks)", "POST /api/hooks/recall", "", "absent", "covered",
        "the client searches by memory/recall, which answers the same"),
    Row("Silence a session", "POST /api/sessions/{key}/bypass", "bypass", "covered", "covered"),
    Row("Checkpoint on the way", "POST /api/hooks/session-checkpoint-extract", "checkpoint", "covered", "covered"),
    Row("Tool marketplace (OpenClaw)", "GET /api/marketplace/mcp/tools", "", "absent", "absent",
        "no tools are sold here; OpenClaw takes the 404"),
)  # fmt: skip
