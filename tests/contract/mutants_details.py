"""Broken adapters as authors really write them, which an earlier kit called full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from typing import Any

from mutant_runs import FakeProfile

from memory import (
    BackendReadiness,
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
from memory.adapter import BackendRejected
from memory.testing import FakeBackend


class DedupesOverAllScopes(FakeBackend):
    """Knows events by their id alone, so that another person's event is a repeat."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        for row in self.store.rows.values():
            if row.labels.get("event_id") == event.event_id:
                return self.receipt(event, "insert", [row.id], status="committed")
        return await super().record_event(event)


class LooksUpOverAllScopes(FakeBackend):
    """Finds an event wherever its id stands."""

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        found = [row.id for row in self.store.rows.values() if row.labels.get("event_id") == event.event_id]
        return tuple(found) or None


class DedupesByText(FakeBackend):
    """Takes words that were said before for a repeat."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        said = {row.text: row.id for row in self.store.rows.values() if row.space == self._space(event.scope)}
        known = [said[message.content] for message in event.messages if message.content in said]
        if len(known) == len(event.messages):
            return self.receipt(event, "insert", known, status="committed")
        return await super().record_event(event)


class StoresFiveOfABulk(FakeBackend):
    """Sends the first five events of a bulk, and answers for all."""

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        stored = await super().record_events(events[:5])
        return stored + [WriteReceipt(event_id=event.event_id, status="committed") for event in events[5:]]


class DropsFeedback(FakeBackend):
    """Says ``committed`` of feedback that goes nowhere."""

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")


class _Notes(FakeBackend):
    """Not a mutant: keeps feedback beside the store, and shows it with every answer."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._notes: dict[str, list[str]] = {}

    def _key(self, scope: MemoryScope) -> str:
        return self._space(scope)

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        self._notes.setdefault(self._key(feedback.scope), []).append(feedback.content)
        return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        notes = self._notes.get(self._key(request.scope), [])
        return result.model_copy(update={"raw": {**result.raw, "notes": list(notes)}})


class KeepsFeedbackAfterAReset(_Notes):
    """Forgets the rows of a scope, and not what was said of them."""


class SharesFeedback(_Notes):
    """Has one list of feedback for everybody."""

    def _key(self, scope: MemoryScope) -> str:
        return "all"


class SwallowsProvenanceErrors(FakeBackend):
    """Takes a failed history for an empty one."""

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        try:
            return await super().provenance(request)
        except Exception:
            return ProvenanceResult(raw={"history": []}, trace=self.trace(request.scope, "history"))


class SwallowsQueryErrors(FakeBackend):
    """Takes a failed list for an empty one."""

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        try:
            return await super().native_query(request)
        except Exception:
            return NativeQueryResult(raw={"rows": []}, trace=self.trace(request.scope, "list_rows"))


class SwallowsFeedbackErrors(FakeBackend):
    """Says that feedback which failed is committed."""

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        try:
            return await super().apply_feedback(feedback)
        except Exception:
            return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")


class SwallowsLookupErrors(FakeBackend):
    """Says that an event is not there because it could not look."""

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        try:
            return await super().find_event(event)
        except Exception:
            return None


class SwallowsReadinessErrors(FakeBackend):
    """Takes a backend that does not answer for one that has nothing to do."""

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        try:
            return await super().readiness(scope)
        except Exception:
            return BackendReadiness(state="ready")


class ResetsWhatIsDown(FakeBackend):
    """Says that a reset it could not make is verified."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        try:
            return await super().reset_scope(scope)
        except Exception:
            return ResetReceipt(scope=scope, verified=True)


class RepeatsStoredText(FakeBackend):
    """Helps by quoting what it has, where a record is not found."""

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        if request.native_id not in self.store.rows:
            known = ", ".join(row.text for row in self.store.rows.values())
            raise BackendRejected(f"no record {request.native_id}; there are: {known}", sent=False)
        return await super().native_mutation(request)


class DropsTheOffset(FakeBackend):
    """Stores the clock on its own wall as if it hung in Greenwich."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        wall = event.timestamp.astimezone(timezone(timedelta(hours=2))).replace(tzinfo=UTC)
        return await super().record_event(event.model_copy(update={"timestamp": wall}))


class ChangesMessages(FakeBackend):
    """Not a mutant: a place to change the messages of events."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        raise NotImplementedError

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return await super().record_event(event.model_copy(update={"messages": self.changed(event.messages)}))


class StripsBlanks(ChangesMessages):
    """Trims what was said."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(
            message.model_copy(update={"content": (message.content or "").strip()}) for message in messages
        )


class JoinsBlanks(ChangesMessages):
    """Makes one blank of a run of them."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(
            message.model_copy(update={"content": " ".join((message.content or "").split())})
            for message in messages
        )


class SkipsTools(ChangesMessages):
    """Keeps what people said."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(message for message in messages if message.role in ("user", "assistant"))


class NamesTheAskingSession(FakeBackend):
    """Puts the request's session into its entries."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        entries = tuple(replace(entry, session_id=request.session_id) for entry in result.entries)
        return result.model_copy(update={"entries": entries})


class FallsBackToAll(FakeBackend):
    """Searches without its filters where they leave nothing."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        if result.entries or not (request.cs_filters or request.filters):
            return result
        open_wide = {"scenario": None, "context": None, "attribute": None, "filters": {}}
        result = await super().retrieve(request.model_copy(update=open_wide))
        return result.model_copy(update={"request": request})


class ListsByText(FakeBackend):
    """Lists in the order of the alphabet, and is declared to list by arrival."""

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        result = await super().native_query(request)
        rows = sorted(result.raw.get("rows", ()), key=lambda row: row["text"])
        return result.model_copy(update={"raw": {**result.raw, "rows": rows}})


class Unchanged(FakeBackend):
    """Sound; its author's fingerprint is not."""


class SameFingerprint(FakeProfile):
    """Says the same whatever is stored."""

    def fingerprint(self, adapter: Any) -> str:
        return "all is well"


class CountsAllWrites(FakeBackend):
    """Sound; its author's fingerprint is another each time."""


class RestlessFingerprint(FakeProfile):
    """Counts the times that it was asked."""

    def fingerprint(self, adapter: Any) -> int:
        adapter.asked = getattr(adapter, "asked", 0) + 1
        return adapter.asked


class ReadyThoughDown(FakeBackend):
    """Stores each write at once, so it is always ready."""

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        return BackendReadiness(state="ready")


_DERIVES: dict[str, Any] = {"derivation_s": 0.05}
ESCAPED: Mapping[str, tuple[type[FakeBackend], str, dict[str, Any]]] = {
    "dedupes_over_all_scopes": (DedupesOverAllScopes, "an_event_id_belongs_to_its_scope", {}),
    "looks_up_over_all_scopes": (LooksUpOverAllScopes, "an_event_id_belongs_to_its_scope", {}),
    "dedupes_by_text": (DedupesByText, "the_same_words_twice_are_two_events", {}),
    "stores_five_of_a_bulk": (StoresFiveOfABulk, "a_long_bulk_is_stored_to_its_end", {}),
    "drops_feedback": (DropsFeedback, "feedback_is_stored", {}),
    "keeps_feedback_after_a_reset": (KeepsFeedbackAfterAReset, "feedback_goes_with_its_scope", {}),
    "shares_feedback": (SharesFeedback, "feedback_stays_in_its_scope", {}),
    "swallows_provenance_errors": (SwallowsProvenanceErrors, "provenance_of_a_failing_backend_raises", {}),
    "swallows_query_errors": (SwallowsQueryErrors, "a_native_query_of_a_failing_backend_raises", {}),
    "swallows_feedback_errors": (SwallowsFeedbackErrors, "feedback_to_a_failing_backend_is_not_taken", {}),
    "swallows_lookup_errors": (SwallowsLookupErrors, "a_lookup_in_a_failing_backend_raises", {}),
    "swallows_readiness_errors": (
        SwallowsReadinessErrors, "readiness_of_a_failing_backend_is_not_ready", _DERIVES,
    ),
    "ready_though_down": (ReadyThoughDown, "readiness_of_a_failing_backend_is_not_ready", {}),
    "resets_what_is_down": (ResetsWhatIsDown, "a_reset_of_a_failing_backend_is_not_verified", {}),
    "repeats_stored_text": (RepeatsStoredText, "errors_do_not_repeat_what_is_stored", {}),
    "drops_the_offset": (DropsTheOffset, "a_moment_is_kept_whatever_its_offset", {}),
    "strips_blanks": (StripsBlanks, "blanks_and_line_breaks_are_kept", {}),
    "joins_blanks": (JoinsBlanks, "blanks_and_line_breaks_are_kept", {}),
    "skips_tools": (SkipsTools, "tool_results_are_recalled_or_warned_of", {}),
    "names_the_asking_session": (NamesTheAskingSession, "an_entry_names_the_session_it_comes_from", {}),
    "falls_back_to_all": (FallsBackToAll, "a_filter_that_matches_nothing_finds_nothing", {}),
    "lists_by_text": (ListsByText, "a_list_in_order_is_in_the_order_of_arrival", {}),
    "same_fingerprint": (Unchanged, "the_fingerprint_sees_a_write", {"profile": SameFingerprint}),
    "restless_fingerprint": (CountsAllWrites, "the_fingerprint_sees_a_write", {"profile": RestlessFingerprint}),
}  # fmt: skip
"""Mutant name -> adapter, the spec that must catch it, and further fields of a ``Mutant``."""
