"""How much of Signet's dependency map is covered, row by row: what ``memslot signet parity`` prints."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["PARITY", "Row"]

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


_IN_PROCESS = "type, tags, importance, pinned and version live in the serving process"

PARITY: tuple[Row, ...] = (
    Row("Session start context", "POST /api/hooks/session-start", "on_session_start", "covered", "partial",
        "no checkpoint of a resumed session: sessions live in the serving process"),
    Row("Per-prompt context", "POST /api/hooks/user-prompt-submit", "on_user_prompt_submit", "covered", "partial",
        "memory_feedback is ignored; nothing is suppressed that was injected before"),
    Row("Session end / extraction", "POST /api/hooks/session-end", "on_session_end", "covered", "partial",
        "no job, score or checkpoint: the backend derives by itself; a transcript by path only where configured"),
    Row("Pre-compaction summary", "POST /api/hooks/pre-compaction", "on_pre_compaction", "covered", "covered"),
    Row("Save compaction result", "POST /api/hooks/compaction-complete", "on_compaction_complete", "covered",
        "covered"),
    Row("Memory search (tool)", "POST /api/memory/recall", "recall", "covered", "partial", _IN_PROCESS),
    Row("Memory store (tool)", "POST /api/hooks/remember", "remember", "covered", "partial", _IN_PROCESS),
    Row("Memory get (tool)", "GET /api/memory/{item_id}", "get", "covered", "partial", _IN_PROCESS),
    Row("Memory modify (tool)", "POST /api/memory/modify", "modify", "covered", "partial",
        "where the backend can change a single memory; else each result says not_supported"),
    Row("Memory forget (tool)", "POST /api/memory/forget", "forget", "covered", "partial",
        "where the backend can delete a single memory; deleted is deleted, not marked"),
    Row("Secret injection", "POST /api/secrets/exec", "run_with_secrets", "covered", "partial",
        "403 unless configured; listed programs, no shell; secrets are the configuration's"),
    Row("Daemon health check", "GET /health", "health", "covered", "covered"),
    Row("Store (plugins)", "POST /api/memory/remember", "", "absent", "partial",
        f"the client stores by hooks/remember; {_IN_PROCESS}"),
    Row("Update (plugins)", "PATCH /api/memory/{item_id}", "update", "covered", "partial", "as modify"),
    Row("Delete (plugins)", "DELETE /api/memory/{item_id}", "delete", "covered", "partial", "as forget"),
    Row("List (plugins)", "GET /api/memories", "memories", "covered", "partial",
        "what this process stored or served: no backend lists alike"),
    Row("Search (hooks)", "POST /api/hooks/recall", "", "absent", "partial",
        f"the client searches by memory/recall; {_IN_PROCESS}"),
    Row("Silence a session", "POST /api/sessions/{key}/bypass", "", "absent", "covered",
        "a client has set_mode for that"),
    Row("Checkpoint on the way (Hermes)", "POST /api/hooks/session-checkpoint-extract", "", "absent", "absent",
        "every prompt is recorded as it comes; what a host shows of its session, the host keeps"),
    Row("Tool marketplace (OpenClaw)", "GET /api/marketplace/mcp/tools", "", "absent", "absent",
        "no tools are sold here; OpenClaw takes the 404"),
)  # fmt: skip
