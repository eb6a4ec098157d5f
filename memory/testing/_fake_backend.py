"""A complete adapter over :class:`FakeNativeStore`. Read it before you write your own.

The adapter encodes scopes, builds native calls and turns rows into entries. The store ranks, filters, keeps
rows and fails. The slot applies modes, scope checks, deadlines, traces and budgets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memory import (
    BackendHealth,
    BackendReadiness,
    BackendUnavailable,
    FeedbackReceipt,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    Message,
    NativeMutationReceipt,
    NativeMutationRequest,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    FILTER_OPERATORS,
    AdapterTraits,
    BaseAdapter,
    ContextEntry,
    IdAlphabet,
    Operation,
    ScopeEncoder,
)
from memory.contract.native_errors import NativeError, native_name
from memory.testing._fake_store import FakeNativeError, FakeNativeStore

# A narrow alphabet, as real backends have: lower case, no dots, 64 characters.
_ALPHABET = IdAlphabet(safe="", escape="_", separator="-", max_length=64)
_TEMPLATE = "{run_id}:{persona_id}:{backend_namespace}:{agent_id}"
_EVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class FakeBackend(BaseAdapter):
    """An adapter with feedback, bulk ingest, readiness, native mutations and queries, and provenance.

    Args:
        store: the native system; a new one by default. Tests watch and break it as ``adapter.store``.
        name: the backend's name in sections and traces.
        write_retries: how often the slot may repeat an ambiguous write. :meth:`find_event` makes that safe.
    """

    readiness_pauses_s = (0.01, 0.01)

    def __init__(
        self, store: FakeNativeStore | None = None, *, name: str = "fake", write_retries: int = 0
    ) -> None:
        self.backend_name = name
        self.store = store or FakeNativeStore()
        self.store.clients += 1
        self.traits = AdapterTraits(
            consistency="async_derived" if self.store.derivation_s else "immediate",
            cs_filtering="hard",
            errors={native_name(FakeNativeError): NativeError()},  # of the one request of a write
            pet_observability="dated",
            filter_operators=FILTER_OPERATORS,
            write_retries=write_retries,
            native_memory_types=("message", "feedback"),
            native_queries={"count": Operation(), "list": Operation()},
            native_mutations={
                "update": Operation(required={"text": str}, native_id=True),
                "delete": Operation(native_id=True),
            },
        )
        self._encoder = ScopeEncoder(_ALPHABET, {"space": _TEMPLATE}, owner=name)
        self._open = True

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """One native id: the space."""
        return self._encoder.encode(scope)

    async def setup_scope(self, scope: MemoryScope) -> None:
        """``create_space``, which is idempotent."""
        await self._native().create_space(self._space(scope))

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """``insert``: one row per message, in one transaction."""
        return (await self.record_events([event]))[0]

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """``insert``: the messages of all events, in one transaction."""
        if not events:
            return []
        records = [_record(event, message) for event in events for message in event.messages]
        ids = iter(await self._native().insert(self._space(events[0].scope), records))
        status: Any = "pending" if self.store.derivation_s else "committed"
        stored = [(event, [next(ids) for _ in event.messages]) for event in events]
        return [self.receipt(event, "insert", own, status=status) for event, own in stored]

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """``list_rows`` by event id."""
        rows = await self._native().list_rows(self._space(event.scope), event_id=event.event_id)
        return tuple(row["id"] for row in rows) or None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """``search``, with ``limit`` from the budget and ``where`` from CS fields and filters."""
        space, limit = self._space(request.scope), request.budget.max_items
        rows = await self._native().search(space, request.query, limit=limit, where=request.where)
        ids, entries = tuple(row["id"] for row in rows), tuple(map(_entry, rows))
        trace = self.trace(request.scope, "search", native_ids=ids, consistency="committed")
        return RetrieveResult(request=request, raw={"rows": rows}, entries=entries, trace=trace)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """``delete_rows``, then ``list_rows`` to check that nothing is left."""
        space = self._space(scope)
        removed = await self._native().delete_rows(space)
        left = await self._native().list_rows(space)
        trace = self.trace(scope, "delete_rows")
        return ResetReceipt(scope=scope, verified=not left, removed=removed, trace=trace)

    async def health(self) -> BackendHealth:
        """``ping``."""
        answer = await self._native().ping()
        return self.health_of(versions={"fake": answer["version"]})

    async def aclose(self) -> None:
        """Disconnect. The store keeps running."""
        if self._open:
            self._open = False
            self.store.clients -= 1

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        """``insert``: one row of kind ``feedback``."""
        record = {
            "text": feedback.corrected_answer or feedback.content,
            "kind": "feedback",
            "created_at": feedback.timestamp.isoformat(),
            "labels": {"feedback_id": feedback.feedback_id, "session_id": feedback.session_id},
            "metadata": {**feedback.metadata, "about": list(feedback.native_ids)},
        }
        ids = tuple(await self._native().insert(self._space(feedback.scope), [record]))
        trace, feedback_id = self.trace(feedback.scope, "insert"), feedback.feedback_id
        return FeedbackReceipt(feedback_id=feedback_id, status="committed", native_ids=ids, trace=trace)

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """``pending``: counts the rows of this scope that no search finds yet, or ever will."""
        waiting, failed = await self._native().pending(self._space(scope))
        if failed:
            return BackendReadiness(state="failed", detail=f"{failed} rows were never derived")
        return BackendReadiness(state="pending" if waiting else "ready", pending_count=waiting)

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """``update`` (with ``arguments={"text": ...}``) or ``delete`` of one row of this scope."""
        space, native_id = self._space(request.scope), str(request.native_id)
        if request.operation == "update":
            await self._native().update(space, native_id, str(request.arguments["text"]))
        else:
            await self._native().delete(space, native_id)
        raw, trace = {"ok": True}, self.trace(request.scope, request.operation)
        return NativeMutationReceipt(status="committed", native_ids=(native_id,), raw=raw, trace=trace)

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """``history``: of one row, or of the scope within a time range."""
        history = await self._native().history(self._space(request.scope), request.native_id)
        since, until = request.since or _EVER[0], request.until or _EVER[1]
        entries = [each for each in history if since <= datetime.fromisoformat(each["created_at"]) <= until]
        return ProvenanceResult(
            raw={"history": entries},
            native_ids=tuple(dict.fromkeys(entry["row_id"] for entry in entries)),
            event_ids=tuple(dict.fromkeys(entry["event_id"] for entry in entries if entry["event_id"])),
            trace=self.trace(request.scope, "history"),
        )

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``count`` or ``list`` the rows of this scope."""
        rows = await self._native().list_rows(self._space(request.scope))
        raw = {"count": len(rows)} if request.operation == "count" else {"rows": rows}
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, "list_rows"))

    def _native(self) -> FakeNativeStore:
        if not self._open:
            raise BackendUnavailable(f"{self.backend_name}: the adapter is closed", sent=False)
        return self.store

    def _space(self, scope: MemoryScope) -> str:
        return self._encoder.encode(scope)["space"]


def _record(event: MemoryEvent, message: Message) -> dict[str, Any]:
    """A message as a native record. The event's metadata stays apart from the labels that we set."""
    return {
        "text": message.content or json.dumps(message.tool_calls),
        "kind": "message",
        "created_at": event.timestamp.isoformat(),
        "labels": {
            "event_id": event.event_id,
            "session_id": event.session_id,
            "turn_id": event.turn_id,
            "agent_id": event.agent_id,
            "role": message.role,
            **event.cs_fields,
        },
        "metadata": dict(event.metadata),
    }


def _entry(row: Mapping[str, Any]) -> ContextEntry:
    event_id = row["labels"].get("event_id")
    return ContextEntry(
        text=row["text"],
        native_id=row["id"],
        score=row["score"],
        timestamp=datetime.fromisoformat(row["created_at"]),
        labels=(("role", row["labels"].get("role", row["kind"])),),
        event_ids=(event_id,) if event_id else (),
        session_id=row["labels"].get("session_id"),
        scope_ids={"space": row["space"]},
    )
