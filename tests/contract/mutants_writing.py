"""Broken adapters: what they store, look up and forget."""

import html
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import ClassVar

from mutant_kinds import each_text, given, messages, told, wrong
from mutant_runs import FakeProfile

from memory import MemoryEvent, MemoryScope, ModeReceipt, NativeMutationReceipt, ResetReceipt, WriteReceipt
from memory.adapter import BackendRejected
from memory.testing import FakeBackend, FakeNativeStore


async def dedupes_over_all_scopes(adapter, sound, event):
    """Knows events by their id alone, so that another person's event is a repeat."""
    for row in adapter.store.rows.values():
        if row.labels.get("event_id") == event.event_id:
            return adapter.receipt(event, "insert", [row.id], status="committed")
    return await sound(event)


async def dedupes_by_text(adapter, sound, event):
    """Takes words that were said before for a repeat."""
    said = {row.text: row.id for row in adapter.store._in(adapter._space(event.scope))}
    known = [said[message.content] for message in event.messages if message.content in said]
    if len(known) == len(event.messages):
        return adapter.receipt(event, "insert", known, status="committed")
    return await sound(event)


async def compares_ids_loosely(adapter, sound, event):
    """Has a column of 64 characters for event ids, which knows no case."""
    for row in adapter.store._in(adapter._space(event.scope)):
        if str(row.labels.get("event_id")).lower()[:64] == event.event_id.lower()[:64]:
            return adapter.receipt(event, "insert", [row.id], status="committed")
    return await sound(event)


async def takes_feedback_for_events(adapter, sound, event):
    """Keeps the ids of events and of feedback in one column, which is unique."""
    for row in adapter.store._in(adapter._space(event.scope)):
        if row.labels.get("feedback_id") == event.event_id:
            return adapter.receipt(event, "insert", [row.id])
    return await sound(event)


class RemembersIdsOfResets(FakeBackend):
    """Keeps a list of the ids that it has seen, which no reset clears."""

    seen: ClassVar[set[tuple[int, str, str]]] = set()

    async def record_event(self, event):
        key = (id(self.store), self._space(event.scope), event.event_id)
        if key in self.seen:
            return self.receipt(event, "insert", status="committed")
        self.seen.add(key)
        return await super().record_event(event)


async def looks_up_over_all_scopes(adapter, sound, event):
    rows = adapter.store.rows.values()
    return tuple(row.id for row in rows if row.labels.get("event_id") == event.event_id) or None


async def looks_up_nothing(adapter, sound, event):
    """Looks events up in a column that holds something else."""
    rows = await adapter.store.list_rows(adapter._space(event.scope), event_id=event.turn_id)
    return tuple(row["id"] for row in rows) or None


async def logs(adapter, sound, event):
    logging.getLogger("mine").info("stored %s", event.messages[0].content)
    return await sound(event)


async def quadratic(adapter, sound, event):
    """Looks at all of a text for each of its characters."""
    text = event.messages[0].content or ""
    for start in range(0, len(text), 16):
        text[start:].lower()
    return await sound(event)


def on_another_wall(event):
    """Stores the clock on its own wall as if it hung in Greenwich."""
    return {"timestamp": event.timestamp.astimezone(timezone(timedelta(hours=2))).replace(tzinfo=UTC)}


def in_thirty_two_bits(event):
    """Has a column for times from 1970 to 2038."""
    first, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(2038, 1, 19, tzinfo=UTC)
    return {"timestamp": min(max(event.timestamp, first), last)}


def metadata_first(event):
    """Merges the host's metadata over its own fields."""
    return {name: event.metadata[name] for name in ("session_id", "context") if name in event.metadata}


def flat_metadata(event):
    flat = {name: value for name, value in event.metadata.items() if isinstance(value, (str, int, float))}
    return {"metadata": flat}


def without_the_assistant(event):
    kept = tuple(message for message in event.messages if message.role in ("user", "tool"))
    return {"messages": kept or event.messages[:1]}


async def warns_always(adapter, sound, event):
    """Warns in every receipt, whatever was left out."""
    receipt = await sound(event.model_copy(update=without_the_assistant(event)))
    return receipt.model_copy(update={"warnings": ("some content may not have been stored",)})


class _Queues(FakeBackend):
    """Not a mutant: a queue of writes."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._queued: list[MemoryEvent] = []

    async def record_event(self, event):
        self._queued.append(event)
        return WriteReceipt(event_id=event.event_id, status="queued")

    async def _flush(self, at):
        while self._queued:
            await super().record_event(self._queued.pop(at))


class WritesLater(_Queues):
    """Sends its queue with the next read, whatever the mode is by then."""

    async def set_mode(self, mode):
        return ModeReceipt(read_only=mode.read_only)

    async def retrieve(self, request):
        result = await super().retrieve(request)
        await self._flush(0)
        return result


class Forgets(FakeBackend):
    """Keeps what is written in this object alone, and calls it committed."""

    def __init__(self, *args, **settings):
        super().__init__(FakeNativeStore(latency_s=0.001))


class ClaimsAHarmlessSetup(FakeBackend):
    """Says that setting a scope up writes nothing, and makes a space."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.traits = replace(self.traits, setup_writes=False)


async def stores_five_of_a_bulk(adapter, sound, events):
    """Sends the first five events of a bulk, and answers for all."""
    stored = await sound(events[:5])
    return stored + [WriteReceipt(event_id=event.event_id, status="committed") for event in events[5:]]


async def shuffles_receipts(adapter, sound, events):
    return (await sound(events))[::-1]


async def writes_a_bulk_as_one(adapter, sound, events):
    """Gives a bulk the time and session of its first event."""
    first = {"timestamp": events[0].timestamp, "session_id": events[0].session_id}
    return await sound([event.model_copy(update=first) for event in events])


async def writes_a_bulk_of_users(adapter, sound, events):
    """Sends the first message of each event of a bulk."""
    if len(events) == 1:
        return await sound(events)
    return await sound([event.model_copy(update={"messages": event.messages[:1]}) for event in events])


async def mutates_any_scope(adapter, sound, request):
    """Changes a record by its id alone."""
    row = adapter.store.rows[request.native_id or ""]
    await adapter.store.delete(row.space, row.id)
    return NativeMutationReceipt(status="committed", native_ids=(row.id,))


async def changes_nothing_quietly(adapter, sound, request):
    """Counts no rows that an update changed, and guards other scopes' alone."""
    if request.native_id in adapter.store.rows:
        return await sound(request)
    return NativeMutationReceipt(status="committed", raw={}, trace=adapter.trace(request.scope, "update"))


async def repeats_stored_text(adapter, sound, request):
    """Helps by quoting what it has, where a record is not found."""
    if request.native_id not in adapter.store.rows:
        known = ", ".join(row.text for row in adapter.store.rows.values())
        raise BackendRejected(f"no record {request.native_id}; there are: {known}", sent=False)
    return await sound(request)


async def resets_everything(adapter, sound, scope):
    """Clears the whole store where one scope was meant."""
    receipt = await sound(scope)
    adapter.store.rows.clear()
    return receipt


async def resets_one_page(adapter, sound, scope):
    """Lists a hundred rows, and deletes those."""
    rows = [row.id for row in adapter.store._in(adapter._space(scope))]
    for row in rows[:100]:
        await adapter.store.delete(adapter._space(scope), row)
    adapter.store._history.clear()
    return ResetReceipt(scope=scope, verified=True, removed=len(rows))


async def resets_what_it_finds(adapter, sound, scope):
    """Searches for what there is, and deletes that: what is still being derived turns up later."""
    space = adapter._space(scope)
    found = [row for row in adapter.store._in(space) if adapter.store._findable(row)]
    for row in found:
        await adapter.store.delete(space, row.id)
    return ResetReceipt(scope=scope, verified=True, removed=len(found))


async def keeps_history(adapter, sound, scope):
    """Deletes rows, and not what is known of their past."""
    history = list(adapter.store._history)
    receipt = await sound(scope)
    adapter.store._history = history
    return receipt


class ResetsByName(FakeBackend):
    """Deletes by the name that it shows to people, whatever its case."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._known: set[MemoryScope] = set()

    async def setup_scope(self, scope):
        self._known.add(scope)
        await super().setup_scope(scope)

    async def reset_scope(self, scope):
        for known in self._known - {scope}:
            if known.persona_id.lower() == scope.persona_id.lower():
                await super().reset_scope(known)
        return await super().reset_scope(scope)


class MarksAsDeleted(FakeBackend):
    """Keeps what it was told to erase, where nobody looks."""

    bin: ClassVar[dict[int, list[str]]] = {}

    async def reset_scope(self, scope):
        self.bin.setdefault(id(self.store), []).extend(self.store.texts(self._space(scope)))
        return await super().reset_scope(scope)


class ReadableFingerprint(FakeProfile):
    """Shows the texts themselves."""

    def fingerprint(self, adapter):
        return repr((adapter.store.rows, getattr(adapter, "bin", None)))


class HidesWhatItReset(FakeBackend):
    """Remembers in this process what is not to be shown any more, and removes nothing."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._hidden: set[str] = set()

    async def reset_scope(self, scope):
        rows = await self.store.list_rows(self._space(scope))
        self._hidden |= {row["id"] for row in rows}
        return ResetReceipt(scope=scope, verified=True, removed=len(rows))

    async def retrieve(self, request):
        result = await super().retrieve(request)
        rows = [row for row in result.raw["rows"] if row["id"] not in self._hidden]
        entries = tuple(entry for entry in result.entries if entry.native_id not in self._hidden)
        return result.model_copy(update={"raw": {"rows": rows}, "entries": entries})


_MOMENT = "a_moment_is_kept_whatever_its_offset"
_BULK = "bulk_ingest_gives_one_receipt_per_event_in_order"
_RESET = "reset_clears_this_scope_and_no_other"
_FIELDS = "event_fields_stay_traceable"
_SESSION = "an_entry_names_the_session_it_comes_from"
_CALLS = {
    "dedupes_over_all_scopes": ("record_event", dedupes_over_all_scopes, "an_event_id_belongs_to_its_scope"),
    "dedupes_by_text": ("record_event", dedupes_by_text, "the_same_words_twice_are_two_events"),
    "compares_ids_loosely": ("record_event", compares_ids_loosely, "event_ids_that_look_alike_are_two_events"),
    "takes_feedback_for_events": ("record_event", takes_feedback_for_events, "feedback_is_taken_with_a_receipt"),
    "looks_up_over_all_scopes": ("find_event", looks_up_over_all_scopes, "an_event_id_belongs_to_its_scope"),
    "looks_up_nothing": ("find_event", looks_up_nothing, "an_event_id_belongs_to_its_scope"),
    "logs": ("record_event", logs, "user_text_reaches_no_log_and_no_output"),
    "quadratic": ("record_event", quadratic, "time_grows_no_faster_than_the_text"),
    "warns_always": ("record_event", warns_always, "assistant_messages_are_recalled_or_warned_of"),
    "stores_five_of_a_bulk": ("record_events", stores_five_of_a_bulk, "a_long_bulk_is_stored_to_its_end"),
    "shuffles_receipts": ("record_events", shuffles_receipts, _BULK),
    "writes_a_bulk_as_one": ("record_events", writes_a_bulk_as_one, _BULK),
    "writes_a_bulk_of_users": ("record_events", writes_a_bulk_of_users, _BULK),
    "mutates_any_scope": ("native_mutation", mutates_any_scope, "a_mutation_cannot_reach_another_scope"),
    "changes_nothing_quietly": (
        "native_mutation", changes_nothing_quietly, "a_mutation_cannot_reach_another_scope"
    ),
    "repeats_stored_text": ("native_mutation", repeats_stored_text, "errors_do_not_repeat_what_is_stored"),
    "resets_everything": ("reset_scope", resets_everything, _RESET),
    "resets_one_page": ("reset_scope", resets_one_page, "a_reset_reaches_every_row"),
    "keeps_history": ("reset_scope", keeps_history, "history_goes_with_its_scope"),
}  # fmt: skip
WRITING = {
    **{name: (wrong(call, method), spec) for name, (call, method, spec) in _CALLS.items()},
    "remembers_ids_of_resets": (RemembersIdsOfResets, _RESET),
    "counts_what_it_did_not_remove": (told("reset_scope", lambda receipt: {"removed": 7}), _RESET),
    "names_other_records": (
        told("record_event", lambda receipt: {"native_ids": ("made-up",)}),
        "a_receipt_names_records_that_there_are",
    ),
    "pending_for_nothing": (
        told("record_event", lambda receipt: {"status": "pending"}), "a_committed_write_is_retrievable_at_once"
    ),
    "resets_by_name": (ResetsByName, "a_reset_spares_what_is_named_alike"),
    "hides_what_it_reset": (HidesWhatItReset, "a_reset_outlives_the_adapter"),
    "writes_later": (WritesLater, "set_mode_drains_writes_before_it_flips"),
    "forgets": (Forgets, "stored_events_outlive_the_adapter"),
    "claims_a_harmless_setup": (ClaimsAHarmlessSetup, "setting_up_a_scope_writes_nothing_while_read_only"),
    "drops_event_fields": (
        given("record_event", lambda event: {"session_id": "-", "turn_id": "-", "agent_id": "-"}), _FIELDS
    ),
    "lets_metadata_win": (given("record_event", metadata_first), "metadata_moves_no_event"),
    "keeps_flat_metadata": (given("record_event", flat_metadata), _FIELDS),
    "wall_clock": (
        given("record_event", lambda event: {"timestamp": datetime.now(UTC)}),
        "time_is_the_events_and_not_the_clocks",
    ),
    "drops_the_offset": (given("record_event", on_another_wall), _MOMENT),
    "keeps_32_bits": (given("record_event", in_thirty_two_bits), _MOMENT),
    "keeps_whole_seconds": (
        given("record_event", lambda event: {"timestamp": event.timestamp.replace(microsecond=0)}), _MOMENT
    ),
    "cuts_sessions": (given("record_event", lambda event: {"session_id": event.session_id[:64]}), _SESSION),
    "lowers_sessions": (
        given("record_event", lambda event: {"session_id": event.session_id.lower()}), _SESSION
    ),
    "skips_the_assistant": (
        given("record_event", without_the_assistant), "assistant_messages_are_recalled_or_warned_of"
    ),
    "skips_tools": (
        messages(lambda said: tuple(one for one in said if one.role in ("user", "assistant"))),
        "tool_results_are_recalled_or_warned_of",
    ),
    "keeps_twenty_messages": (
        messages(lambda said: said[:20]), "the_last_of_many_messages_is_recalled_or_warned_of"
    ),
    "reverses_messages": (messages(lambda said: said[::-1]), "a_list_in_order_is_in_the_order_of_arrival"),
    "truncates": (each_text(lambda text: text[:500]), "any_script_and_length_survives"),
    "strips_blanks": (each_text(str.strip), "blanks_and_line_breaks_are_kept"),
    "joins_blanks": (each_text(lambda text: " ".join(text.split())), "blanks_and_line_breaks_are_kept"),
    "escapes_markup": (each_text(lambda text: html.escape(text, quote=False)), "signs_are_kept_as_they_came"),
}  # fmt: skip
"""Mutant name -> adapter, and the spec that must catch it."""
