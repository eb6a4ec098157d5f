"""How much of Signet is covered: what ``memslot signet parity`` prints.

Made of the server's own routes, the client's methods and the methods of Signet's TypeScript SDK 0.58.1, so that
nothing is missing from it unseen; what is written here by hand is names and reasons.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Cover = Literal["covered", "partial", "absent"]


class Row(NamedTuple):
    """One endpoint, or one area of the SDK that has none here.

    Attributes:
        action: what it is for.
        endpoint: HTTP method and path.
        sdk: methods of Signet's SDK that call it, by comma.
        method: of :class:`AdapterClient`; empty where it has none.
        client: whether :class:`AdapterClient` calls it.
        server: whether :class:`RuntimeAdapterServer` answers it.
        reason: why one of them is not covered.
    """

    action: str
    endpoint: str
    sdk: str
    method: str
    client: Cover
    server: Cover
    reason: str = ""


class _Words(NamedTuple):
    action: str
    sdk: str = ""  # method of Signet's SDK
    method: str = ""
    reason: str = ""  # why the server's part is partial
    refused: bool = False  # answered with 501 alone


_CHANGE = "where the backend can change a single memory; else only its labels, and not_supported for its text"
_DELETE = "where the backend can delete a single memory; else not_supported; deleted is deleted, not marked"
_WORDS: dict[str, _Words] = {
    "POST /api/hooks/session-start": _Words("Session start context", "sessionStart", "on_session_start"),
    "POST /api/hooks/user-prompt-submit": _Words(
        "Per-prompt context",
        "userPromptSubmit",
        "on_user_prompt_submit",
        "memory_feedback in a prompt is not read; see feedback",
    ),
    "POST /api/hooks/session-end": _Words(
        "Session end, extraction",
        "sessionEnd",
        "on_session_end",
        "no job or score: the backend derives by itself; a transcript by path only where configured",
    ),
    "POST /api/hooks/session-checkpoint-extract": _Words("Checkpoint on the way", "", "checkpoint"),
    "POST /api/hooks/pre-compaction": _Words("Pre-compaction summary", "preCompaction", "on_pre_compaction"),
    "POST /api/hooks/compaction-complete": _Words(
        "Save compaction result", "compactionComplete", "on_compaction_complete"
    ),
    "POST /api/hooks/remember": _Words("Memory store (hook)", "hookRemember", "remember"),
    "POST /api/hooks/recall": _Words("Memory search (hook)", "hookRecall"),
    "POST /api/memory/recall": _Words("Memory search", "recall", "recall"),
    "POST /api/memory/remember": _Words("Memory store", "remember", "store"),
    "POST /api/memory/modify": _Words("Modify several", "batchModify", "modify", _CHANGE),
    "POST /api/memory/forget": _Words("Forget several", "batchForget", "forget", _DELETE),
    "POST /api/memory/feedback": _Words(
        "Feedback of the MCP tool", "", "", "where the backend takes feedback (memos); else 501"
    ),
    "POST /api/memory/{item_id}/recover": _Words(
        "Recover", "recoverMemory", "", "what is forgotten is gone: 501", refused=True
    ),
    "GET /api/memory/{item_id}/history": _Words(
        "History", "getHistory", "", "no backend keeps it alike: 501; provenance is at /mcp", refused=True
    ),
    "GET /api/memory/{item_id}": _Words("Memory get", "getMemory", "get"),
    "PATCH /api/memory/{item_id}": _Words("Modify", "modifyMemory", "update", _CHANGE),
    "DELETE /api/memory/{item_id}": _Words("Forget", "forgetMemory", "delete", _DELETE),
    "GET /api/memories": _Words(
        "List", "listMemories", "memories", "what was stored or served here: no backend lists alike"
    ),
    "GET /api/sessions": _Words("Sessions", "listSessions"),
    "GET /api/sessions/{key}": _Words("One session", "getSession"),
    "POST /api/sessions/{key}/bypass": _Words("Silence a session", "setSessionBypass", "bypass"),
    "GET /api/secrets": _Words("Names of secrets", "listSecrets", "", "those of the configuration"),
    "POST /api/secrets/exec": _Words(
        "Secret injection",
        "execWithSecrets",
        "run_with_secrets",
        "403 unless configured; listed programs, no shell; secrets are the configuration's",
    ),
    "GET /api/auth/whoami": _Words("Who is asking", "whoami"),
    "GET /api/features": _Words("Feature flags", "getFeatures"),
    "GET /api/status": _Words(
        "Status", "status", "", "of the process; the daemon's pipeline has no counterpart"
    ),
    "GET /api/diagnostics": _Words(
        "Diagnostics", "diagnostics", "", "health of the backend, in place of the daemon's domains"
    ),
    "GET /health": _Words("Daemon health check", "health", "health"),
}
"""Of Signet's own routes. What another is for, its method says."""
_PIPELINE = "the daemon's own pipeline; a backend derives by itself"
_MACHINE = "of the machine the daemon runs on, not of a memory"
_ABSENT: tuple[tuple[str, str, str, str], ...] = (
    ("Jobs", "/api/memory/jobs", "getJob", "writes are answered with what became of them"),
    ("Tokens", "/api/auth/token", "createToken", "tokens stand in the configuration"),
    ("Secrets of clients", "/api/secrets/{name}", "storeSecret deleteSecret", "secrets are the configuration's"),
    ("1Password", "/api/secrets/1password", "getOnePasswordStatus connectOnePassword disconnectOnePassword "
     "listOnePasswordVaults importOnePasswordSecrets", "secrets are the configuration's"),
    ("Documents", "/api/documents", "createDocument getDocument listDocuments getDocumentChunks deleteDocument",
     "a memory of conversations takes no documents"),
    ("Connectors", "/api/connectors", "listConnectors createConnector getConnector syncConnector "
     "resyncAllConnectors fullSyncConnector deleteConnector getConnectorHealth", "as documents"),
    ("Timeline", "/api/timeline", "getTimeline exportTimeline", _PIPELINE),
    ("Pipeline", "/api/pipeline", "getPipelineStatus", _PIPELINE),
    ("Synthesis", "/api/hooks/synthesis", "getSynthesisConfig requestSynthesis synthesisComplete", _PIPELINE),
    ("Embeddings", "/api/embeddings", "getEmbeddingStatus getEmbeddingHealth getEmbeddingProjection", _PIPELINE),
    ("Checkpoints", "/api/checkpoints", "listCheckpoints listSessionCheckpoints",
     "where a session left off is put into its next session-start"),
    ("Knowledge graph", "/api/knowledge", "listKnowledgeEntities pinEntity unpinEntity getPinnedEntities "
     "getEntityHealth getKnowledgeEntity getEntityAspects getAspectAttributes getEntityDependencies "
     "getKnowledgeStats getTraversalStatus getConstellation", _PIPELINE),
    ("Repair", "/api/repair", "requeueDeadJobs releaseStaleLeases checkFts triggerRetentionSweep getEmbeddingGaps "
     "reembedMissing resyncVectorIndex cleanOrphanedEmbeddings getDedupStats deduplicateMemories "
     "reclassifyEntities pruneChunkGroups pruneSingletonEntities structuralBackfill", _PIPELINE),
    ("Predictor", "/api/predictor", "getPredictorStatus getComparisonsByProject getComparisonsByEntity "
     "listComparisons listTrainingRuns getTrainingPairsCount trainPredictor", _PIPELINE),
    ("Analytics", "/api/analytics", "getUsageCounters getErrors getLatency getAnalyticsLogs getMemorySafety "
     "getContinuity getLatestContinuity", "traces are the configuration's"),
    ("Telemetry", "/api/telemetry", "getTelemetryEvents getTelemetryStats exportTelemetry", "nothing is sent home"),
    ("Agents of one machine", "/api/cross-agent", "listAgentPresence updateAgentPresence removeAgentPresence "
     "listAgentMessages sendAgentMessage", _MACHINE),
    ("Configuration", "/api/config", "listConfig writeConfig", "no client changes the configuration"),
    ("Identity files", "/api/identity", "getIdentity", "serve.identity, given at session-start"),
    ("Harnesses", "/api/harnesses", "listHarnesses regenerateHarnesses", _MACHINE),
    ("Greeting", "/api/home", "getGreeting", _MACHINE),
    ("Git", "/api/git", "getGitStatus gitPull gitPush gitSync getGitConfig updateGitConfig", _MACHINE),
    ("Tasks", "/api/tasks", "listTasks createTask getTask updateTask deleteTask runTask listTaskRuns", _MACHINE),
    ("Skills",
     "/api/skills", "listSkills browseSkills searchSkills getSkill installSkill uninstallSkill", _MACHINE),
    ("Tool marketplace (OpenClaw)", "/api/marketplace", "", "no tools are sold here; OpenClaw takes the 404"),
)  # fmt: skip


def parity() -> list[Row]:
    """Every endpoint that is served, then what of the SDK and of real clients is not.

    Raises:
        ImportError: FastAPI is not installed; the routes are the server's own.
    """
    from memory.runtime.signet.endpoints import HOOKS, ROUTES, Endpoints

    served = {f"POST /api/hooks/{name}": name for name, _, _ in HOOKS}
    served |= {
        f"{method} {path.replace(':path', '')}": getattr(Endpoints, handler).__doc__ or path
        for method, path, handler, _ in ROUTES
    }
    rows = []
    for endpoint, purpose in {**served, "GET /health": ""}.items():
        words = _WORDS.get(endpoint) or _Words(purpose.partition("\n")[0].rstrip("."))
        server: Cover = "absent" if words.refused else "partial" if words.reason else "covered"
        client: Cover = "covered" if words.method else "absent"
        reason = words.reason if words.method or words.reason else "no method of ours calls it"
        rows.append(Row(words.action, endpoint, words.sdk, words.method, client, server, reason))
    rows += [
        Row(action, path, ", ".join(methods.split()), "", "absent", "absent", reason)
        for action, path, methods, reason in _ABSENT
    ]
    return rows
