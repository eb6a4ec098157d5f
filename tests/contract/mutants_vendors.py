"""Broken adapters as a vendor's first try had them, made from the new plugin's template; each was called full."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from mutant_runs import FakeProfile
from mutants_details import ChangesMessages

from memory import (
    FeedbackReceipt,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    Message,
    NativeMutationReceipt,
    NativeMutationRequest,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import BackendRejected
from memory.testing import FakeBackend


class ComparesIdsLoosely(FakeBackend):
    """Has a column of 64 characters for event ids, which knows no case."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        for row in self.store._in(self._space(event.scope)):
            if str(row.labels.get("event_id")).lower()[:64] == event.event_id.lower()[:64]:
                return self.receipt(event, "insert", [row.id], status="committed")
        return await super().record_event(event)


class _Events(FakeBackend):
    """Not a mutant: a place to change fields of events."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        raise NotImplementedError

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return await super().record_event(event.model_copy(update=self.changed(event)))


class LetsMetadataWin(_Events):
    """Merges the host's metadata over its own fields."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        return {name: event.metadata[name] for name in ("session_id", "context") if name in event.metadata}


class KeepsFlatMetadata(_Events):
    """Drops what is no text or number."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        flat = {name: value for name, value in event.metadata.items() if isinstance(value, (str, int, float))}
        return {"metadata": flat}


class KeepsWholeSeconds(_Events):
    """Stores times as seconds since 1970."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        return {"timestamp": event.timestamp.replace(microsecond=0)}


class DatesAllByTheLast(FakeBackend):
    """Keeps one date, of what it wrote last."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        last = max((datetime.fromisoformat(row.created_at) for row in self.store.rows.values()), default=None)
        entries = tuple(replace(entry, timestamp=last) for entry in result.entries)
        return result.model_copy(update={"entries": entries})


class EscapesMarkup(ChangesMessages):
    """Stores what a web page would show."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(
            message.model_copy(update={"content": html.escape(message.content or "", quote=False)})
            for message in messages
        )


class SkipsTheAssistant(ChangesMessages):
    """Keeps what users and tools said."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(message for message in messages if message.role in ("user", "tool")) or messages[:1]


class KeepsTwentyMessages(ChangesMessages):
    """Sends the first twenty messages of an event."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return messages[:20]


class _Requests(FakeBackend):
    """Not a mutant: a place to change fields of requests."""

    def changed(self, request: RetrieveRequest) -> dict[str, Any]:
        raise NotImplementedError

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request.model_copy(update=self.changed(request)))
        return result.model_copy(update={"request": request})


_NO_FIELDS: Mapping[str, None] = dict.fromkeys(("scenario", "context", "attribute"))


class FiltersByPattern(_Requests):
    """Compares CS fields as SQL's LIKE does."""

    def changed(self, request: RetrieveRequest) -> dict[str, Any]:
        patterns = {name: {"icontains": value} for name, value in request.cs_filters.items()}
        return {**_NO_FIELDS, "filters": {**request.filters, **patterns}}


class TakesOneFilter(_Requests):
    """Sends the last filter it was given."""

    def changed(self, request: RetrieveRequest) -> dict[str, Any]:
        return {**_NO_FIELDS, "filters": dict(list(request.where.items())[-1:])}


class TakesOneOperator(_Requests):
    """Sends the last operator of each key."""

    def changed(self, request: RetrieveRequest) -> dict[str, Any]:
        return {
            "filters": {key: dict(list(operators.items())[-1:]) for key, operators in request.where.items()}
        }


class FiltersAfterTheLimit(FakeBackend):
    """Asks for the best rows, and then looks which of them match."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        plain = await super().retrieve(request.model_copy(update={**_NO_FIELDS, "filters": {}}))
        wide = request.budget.model_copy(update={"max_items": None})
        matching = await super().retrieve(request.model_copy(update={"budget": wide}))
        ids = {entry.native_id for entry in matching.entries}
        rows = [row for row in plain.raw["rows"] if row["id"] in ids]
        entries = tuple(entry for entry in plain.entries if entry.native_id in ids)
        return plain.model_copy(update={"request": request, "raw": {"rows": rows}, "entries": entries})


class HasAQueryLanguage(FakeBackend):
    """Hands the question to a parser."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        if request.query.count('"') % 2:
            raise BackendRejected("unterminated string", sent=False)
        return await super().retrieve(request)


class CachesAnswers(FakeBackend):
    """Keeps answers until it writes itself."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._answers: dict[str, RetrieveResult] = {}

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        self._answers.clear()
        return await super().record_event(event)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        key = request.model_dump_json()
        if key not in self._answers:
            self._answers[key] = await super().retrieve(request)
        return self._answers[key]


class ResetsByName(FakeBackend):
    """Deletes by the name that it shows to people, whatever its case."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._known: set[MemoryScope] = set()

    async def setup_scope(self, scope: MemoryScope) -> None:
        self._known.add(scope)
        await super().setup_scope(scope)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        for known in self._known - {scope}:
            if known.persona_id.lower() == scope.persona_id.lower():
                await super().reset_scope(known)
        return await super().reset_scope(scope)


class ResetsOnePage(FakeBackend):
    """Lists a hundred rows, and deletes those."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        rows = [row.id for row in self.store._in(self._space(scope))]
        for row in rows[:100]:
            await self.store.delete(self._space(scope), row)
        self.store._history.clear()
        return ResetReceipt(scope=scope, verified=True, removed=len(rows))


class MarksAsDeleted(FakeBackend):
    """Keeps what it was told to erase, where nobody looks."""

    bin: ClassVar[dict[int, list[str]]] = {}

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        self.bin.setdefault(id(self.store), []).extend(self.store.texts(self._space(scope)))
        return await super().reset_scope(scope)


class KeepsHistory(FakeBackend):
    """Deletes rows, and not what is known of their past."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        history = list(self.store._history)
        receipt = await super().reset_scope(scope)
        self.store._history = history
        return receipt


class IgnoresTheRange(FakeBackend):
    """Tells the whole history whatever range is asked for."""

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        return await super().provenance(request.model_copy(update={"since": None, "until": None}))


class LooksUpNothing(FakeBackend):
    """Looks events up in a column that holds something else."""

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        rows = await self.store.list_rows(self._space(event.scope), event_id=event.turn_id)
        return tuple(row["id"] for row in rows) or None


class TellsEveryHistory(FakeBackend):
    """Tells the history of the scope whatever record is asked for."""

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        return await super().provenance(request.model_copy(update={"native_id": None}))


class ChangesNothingQuietly(FakeBackend):
    """Counts no rows that an update changed, and guards other scopes' alone."""

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        if request.native_id in self.store.rows:
            return await super().native_mutation(request)
        return NativeMutationReceipt(status="committed", raw={}, trace=self.trace(request.scope, "update"))


class WritesABulkAsOne(FakeBackend):
    """Gives a bulk the time and session of its first event."""

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        first = {"timestamp": events[0].timestamp, "session_id": events[0].session_id}
        return await super().record_events([event.model_copy(update=first) for event in events])


class WritesABulkOfUsers(FakeBackend):
    """Sends the first message of each event of a bulk."""

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        if len(events) == 1:
            return await super().record_events(events)
        return await super().record_events(
            [event.model_copy(update={"messages": event.messages[:1]}) for event in events]
        )


class RemembersIdsOfResets(FakeBackend):
    """Keeps a list of the ids that it has seen, which no reset clears."""

    seen: ClassVar[set[tuple[int, str, str]]] = set()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        key = (id(self.store), self._space(event.scope), event.event_id)
        if key in self.seen:
            return self.receipt(event, "insert", status="committed")
        self.seen.add(key)
        return await super().record_event(event)


class KeepsSecondsInThirtyTwoBits(_Events):
    """Has a column for times from 1970 to 2038."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        first, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(2038, 1, 19, tzinfo=UTC)
        return {"timestamp": min(max(event.timestamp, first), last)}


class CutsSessions(_Events):
    """Has a column of 64 characters for sessions."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        return {"session_id": event.session_id[:64]}


class LowersSessions(_Events):
    """Has a column for sessions that knows no case."""

    def changed(self, event: MemoryEvent) -> dict[str, Any]:
        return {"session_id": event.session_id.lower()}


class ClaimsEveryEvent(FakeBackend):
    """Names every event of the scope as the evidence of each entry."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        labels = [row.labels for row in self.store._in(self._space(request.scope))]
        ids = tuple(dict.fromkeys(each["event_id"] for each in labels if "event_id" in each))
        entries = tuple(replace(entry, event_ids=ids) for entry in result.entries)
        return result.model_copy(update={"entries": entries})


class WarnsAlways(SkipsTheAssistant):
    """Warns in every receipt, whatever was left out."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        receipt = await super().record_event(event)
        return receipt.model_copy(update={"warnings": ("some content may not have been stored",)})


class ReversesMessages(ChangesMessages):
    """Inserts the messages of an event from a stack."""

    def changed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return messages[::-1]


class TakesFeedbackForEvents(FakeBackend):
    """Keeps the ids of events and of feedback in one column, which is unique."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        for row in self.store._in(self._space(event.scope)):
            if row.labels.get("feedback_id") == event.event_id:
                return self.receipt(event, "insert", [row.id])
        return await super().record_event(event)


class ScoresByItself(FakeBackend):
    """Shows a score that the backend did not give."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        entries = tuple(replace(entry, score=0.987654) for entry in result.entries)
        return result.model_copy(update={"entries": entries})


class DatesFeedbackByTheClock(FakeBackend):
    """Dates feedback by when it came."""

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        return await super().apply_feedback(feedback.model_copy(update={"timestamp": datetime.now(UTC)}))


class ReadableFingerprint(FakeProfile):
    """Shows the texts themselves."""

    def fingerprint(self, adapter: Any) -> str:
        return repr((adapter.store.rows, getattr(adapter, "bin", None)))


_ALIKE = "event_ids_that_look_alike_are_two_events"
_BULK = "bulk_ingest_gives_one_receipt_per_event_in_order"
VENDORS: Mapping[str, tuple[type[FakeBackend], str, dict[str, Any]]] = {
    "compares_ids_loosely": (ComparesIdsLoosely, _ALIKE, {}),
    "lets_metadata_win": (LetsMetadataWin, "metadata_moves_no_event", {}),
    "keeps_flat_metadata": (KeepsFlatMetadata, "event_fields_stay_traceable", {}),
    "keeps_whole_seconds": (KeepsWholeSeconds, "a_moment_is_kept_whatever_its_offset", {}),
    "dates_all_by_the_last": (DatesAllByTheLast, "a_moment_is_kept_whatever_its_offset", {}),
    "escapes_markup": (EscapesMarkup, "signs_are_kept_as_they_came", {}),
    "skips_the_assistant": (SkipsTheAssistant, "assistant_messages_are_recalled_or_warned_of", {}),
    "keeps_twenty_messages": (KeepsTwentyMessages, "the_last_of_many_messages_is_recalled_or_warned_of", {}),
    "filters_by_pattern": (FiltersByPattern, "cs_fields_act_as_declared", {}),
    "takes_one_filter": (TakesOneFilter, "several_filters_narrow_together", {}),
    "takes_one_operator": (TakesOneOperator, "ranges_compare_numbers", {}),
    "filters_after_the_limit": (FiltersAfterTheLimit, "a_filter_narrows_before_the_limit", {}),
    "has_a_query_language": (HasAQueryLanguage, "a_question_may_hold_any_sign", {}),
    "caches_answers": (CachesAnswers, "writes_of_another_adapter_are_found", {}),
    "resets_by_name": (ResetsByName, "a_reset_spares_what_is_named_alike", {}),
    "resets_one_page": (ResetsOnePage, "a_reset_reaches_every_row", {}),
    "marks_as_deleted": (MarksAsDeleted, "a_reset_outlives_the_adapter", {"profile": ReadableFingerprint}),
    "keeps_history": (KeepsHistory, "history_goes_with_its_scope", {}),
    "ignores_the_range": (IgnoresTheRange, "provenance_keeps_to_its_range", {}),
    "looks_up_nothing": (LooksUpNothing, "an_event_id_belongs_to_its_scope", {}),
    "tells_every_history": (TellsEveryHistory, "provenance_of_a_record", {}),
    "changes_nothing_quietly": (ChangesNothingQuietly, "a_mutation_cannot_reach_another_scope", {}),
    "writes_a_bulk_as_one": (WritesABulkAsOne, _BULK, {}),
    "writes_a_bulk_of_users": (WritesABulkOfUsers, _BULK, {}),
    "remembers_ids_of_resets": (RemembersIdsOfResets, "reset_clears_this_scope_and_no_other", {}),
    "keeps_32_bits": (KeepsSecondsInThirtyTwoBits, "a_moment_is_kept_whatever_its_offset", {}),
    "cuts_sessions": (CutsSessions, "an_entry_names_the_session_it_comes_from", {}),
    "lowers_sessions": (LowersSessions, "an_entry_names_the_session_it_comes_from", {}),
    "claims_every_event": (ClaimsEveryEvent, "entries_name_their_native_record_and_their_event", {}),
    "warns_always": (WarnsAlways, "assistant_messages_are_recalled_or_warned_of", {}),
    "reverses_messages": (ReversesMessages, "a_list_in_order_is_in_the_order_of_arrival", {}),
    "takes_feedback_for_events": (TakesFeedbackForEvents, "feedback_is_taken_with_a_receipt", {}),
    "scores_by_itself": (ScoresByItself, "raw_keeps_the_native_provenance", {}),
    "dates_feedback_by_the_clock": (DatesFeedbackByTheClock, "feedback_is_stored", {}),
}
"""Mutant name -> adapter, the spec that must catch it, and further fields of a ``Mutant``."""
