"""Recorded turns come back with their provenance (spec 9.1, 9.2, 9.8, 9.9)."""

from __future__ import annotations

import math
from typing import Any

from anyio.lowlevel import current_token

from memory.testing.contract._kit import STORED, Kit, as_json, unique_word
from memory.testing.contract._spec import NotRun, of_recall, promise

_PENDING = "answer pending or queued, declare consistency='async_derived' and offer readiness"


@promise()
async def runs_on_the_event_loop_it_says(kit: Kit) -> None:
    """The adapter runs on the declared event loop, and never silently on another."""
    loop = type(current_token().native_token).__module__
    assert loop.startswith("trio") == (kit.loop == "trio"), f"played on {kit.loop}, and it is {loop}"


@promise("answer a WriteReceipt with the event's id and the status that the backend gave")
async def a_turn_of_two_messages_is_recorded_with_a_receipt(kit: Kit) -> None:
    """Spec 9.1."""
    event = kit.event(kit.fact("blue"), "I will remember that.")
    receipt = await kit.slot.record_event(event)
    assert receipt.event_id == event.event_id, "the receipt is of another event"
    await kit.assert_stored(event, receipt)
    assert len(set(receipt.native_ids)) == len(receipt.native_ids), "the receipt repeats a native id"
    assert receipt.trace is not None, "the receipt has no trace"
    assert receipt.trace.native_ids == receipt.native_ids, "receipt and trace name different records"


@promise(
    "search by the words or the meaning of the question, not by its whole text",
    f"where it is derived later: {_PENDING}",
    "a control whose context does not come from writes: AdapterTraits(kind='control', recalls_writes=False)",
)
async def writes_are_recalled_once_ready(kit: Kit) -> None:
    """Spec 9.2. A control that recalls nothing declares it, and its context stays the same."""
    before = (await kit.ask("blue")).formatted_context
    await kit.remember("blue")
    after = (await kit.ask("blue")).formatted_context
    if kit.recalls_writes:
        assert unique_word("blue") in after, "what was written is not recalled"
    else:
        assert after == before, "what was written moved a context that does not come from it, by declaration"


@of_recall("answer committed only when the write can be found", _PENDING)
async def a_committed_write_is_retrievable_at_once(kit: Kit) -> None:
    """DESIGN 4: ``committed`` is a promise. A write that is not yet retrievable is ``pending`` or ``queued``."""
    receipt = await kit.write("blue")
    if receipt.status != "committed":
        declared = kit.slot.traits.consistency
        assert declared != "immediate", f"traits say {declared}, and a write is {receipt.status}"
        raise NotRun("not applicable", f"committed: writes are {receipt.status}, and readiness has its tests")
    assert await kit.recalls("blue"), "committed, and not retrievable"


@of_recall(
    "answer without entries where the backend does not know the scope yet; make the space in setup_scope"
)
async def a_new_scope_is_empty_and_that_is_no_error(kit: Kit) -> None:
    """DESIGN 4: empty and failed never look alike."""
    result = await kit.ask("blue")
    assert result.entries == (), "a new scope has entries"
    assert result.formatted_context == "", "a new scope has a context section"
    assert result.trace.error is None, "an empty answer is traced as an error"
    assert result.trace.retrieved_count == 0, "an empty answer is not counted as one"


@promise("hand on in raw, as JSON, all that the backend answered: entries are made of it")
async def raw_keeps_the_native_provenance(kit: Kit) -> None:
    """Spec 9.8: ``raw`` is JSON and holds the ids, scores, timestamps and labels of the entries."""
    await kit.remember("blue")
    result = await kit.ask("blue")
    raw = as_json(result.raw)
    for entry in result.entries:
        score = None if entry.score is None else as_json(entry.score)
        for shown in (entry.native_id, score, *(label for _, label in entry.labels)):
            assert shown is None or shown in raw, f"{shown!r} of an entry is not in the payload"
    assert unique_word("blue") in raw or not kit.recalls_writes, "what was told is not in the payload"
    scores = [entry.score for entry in result.entries if entry.score is not None]
    times = [entry.timestamp for entry in result.entries if entry.timestamp is not None]
    trace, seen = result.trace, (result.trace.newest_retrieved_at, result.trace.oldest_retrieved_at)
    assert trace.top_score == max(scores, default=None), "the trace has another top_score than the entries"
    of_entries = (max(times, default=None), min(times, default=None))
    assert seen == of_entries, "the trace has other times than the entries"


@of_recall(
    "give ContextEntry native_id and event_ids from the row",
    "where rows cannot carry them: without_ids = {'native_id': 'why'} (or event_ids)",
)
async def entries_name_their_native_record_and_their_event(kit: Kit) -> None:
    """Spec 9.8: tracing a row needs its native id. Scoring evidence needs event ids."""
    other, receipt = await kit.remember("green"), await kit.remember("blue")
    entries = await kit.entries("blue")
    assert entries, "what was told is in no entry"
    without, cannot_be = kit.declared.without_ids, "; where that cannot be, say so in without_ids"
    for entry in entries:
        assert entry.native_id or "native_id" in without, f"an entry lacks native_id{cannot_be}"
        named = receipt.event_id in entry.event_ids
        assert named or "event_ids" in without, f"an entry does not name its event{cannot_be}"
        both = unique_word("green") in entry.text or kit.declared.rewrites
        assert both or other.event_id not in entry.event_ids, "an entry names an event that is not in it"
        known = entry.score is None or math.isfinite(entry.score)
        assert known, f"an entry has the score {entry.score}; give None where the backend has none"
    if {"native_id", "event_ids"} <= without.keys():
        raise NotRun("not declared", "ids of entries")


@of_recall(
    "put the ids of the stored records into the receipt",
    "leave native_ids empty where the backend does not tell",
    "where they are ids of something else: without_ids = {'native_ids': 'what they are'}",
)
async def a_receipt_names_records_that_there_are(kit: Kit) -> None:
    """Spec 9.8: the payload, provenance or a native query finds each native id of a receipt."""
    receipt = await kit.remember("blue")
    if not receipt.native_ids or "native_ids" in kit.declared.without_ids:
        raise NotRun("not declared", "native ids of records in receipts")
    found = as_json((await kit.ask("blue")).raw) + await kit.queried(kit.scope)
    lost = [native_id for native_id in receipt.native_ids if native_id not in found]
    lost = [native_id for native_id in lost if native_id not in await kit.history(native_id=native_id)]
    assert not lost, "records of a receipt are found nowhere; ids of something else belong in without_ids"


@of_recall(
    "make one entry of each row, in the order in which they came",
    "where rows lie elsewhere in the payload: override native_rows(raw)",
)
async def every_native_row_becomes_an_entry(kit: Kit) -> None:
    """DESIGN 4: every returned row becomes an entry, in the same order."""
    names = [f"row{number}" for number in range(4)]
    for name in names:
        await kit.remember(name)
    result = await kit.slot.retrieve(kit.request("In which drawers do I keep my passports, all of them?"))
    rows = kit.declared.native_rows(result.raw)
    if rows is None:
        raise NotRun("not tested", "override native_rows: the payload holds no single list of rows")
    assert len(result.entries) >= len(rows), f"{len(rows)} native rows, and {len(result.entries)} entries"
    words = list(map(unique_word, names))
    shown = [next((word for word in words if word in entry.text), "") for entry in result.entries]
    came = [next((word for word in words if word in as_json(row)), "") for row in rows]
    assert list(filter(None, shown)) == list(filter(None, came)), "entries are not in the backend's order"


@of_recall("store event.timestamp beside the row, and give it back as ContextEntry(timestamp=...)")
async def time_is_the_events_and_not_the_clocks(kit: Kit) -> None:
    """Spec 3: the turn's timestamp reaches the backend, and dated entries carry it."""
    event = kit.event(kit.fact("blue"))
    await kit.slot.record_event(event)
    await kit.until_ready()
    dates = {entry.timestamp for entry in await kit.entries("blue")}
    assert dates, "what was told is in no entry"
    assert dates <= {None, event.timestamp}, "an entry is dated otherwise than its event"


@of_recall(
    "store the fields as metadata of the record",
    "where the backend has no place for one: event_fields without it",
)
async def event_fields_stay_traceable(kit: Kit) -> None:
    """Spec 1: an adapter keeps the event's fields as metadata, and the kit finds them again."""
    values: dict[str, Any] = {name: f"{name}-{unique_word(name)}" for name in kit.declared.event_fields}
    nested = {"metadata": {"source": {"pages": [values["metadata"]]}}} if "metadata" in values else {}
    await kit.remember("blue", **{**values, **nested})
    result = await kit.ask("blue")
    found = as_json(result.raw)
    for native_id in await kit.native_ids("blue"):
        found += await kit.history(native_id=native_id)
    lost = [name for name, value in values.items() if value not in found]
    assert not lost, f"neither raw nor provenance holds {lost}; correct event_fields if that cannot be"


@promise(
    "store and answer the whole text, as UTF-8; split what the backend limits, and join it again",
    "find Chinese and Japanese by their signs: a tokenizer that splits at blanks takes a sentence for one word",
)
async def any_script_and_length_survives(kit: Kit) -> None:
    """Chinese, emoji, right-to-left text and long messages all survive."""
    said = {
        "我把护照放在蓝色抽屉里。": "护照放在哪个抽屉里?",
        "I feed my 🐍 named שלום every Friday.": "Which 🐍 do I feed, is it שלום?",
        f"I own a boat. {'It sails well and far. ' * 400}{kit.fact('last')}": "Do I own a boat that sails?",
    }
    for text in said:
        receipt = await kit.slot.record_event(kit.event(text))
        assert receipt.status in STORED, "a text of this script or length was not stored"
    await kit.until_ready()
    for text, query in said.items():
        result = await kit.slot.retrieve(kit.request(query))
        as_json(result.raw)
        start = text[:12]  # a backend may cut a long text into pieces
        recalled = start in result.formatted_context
        assert recalled == kit.recalls_writes, f"{start!r} is not recalled as declared"
    whole = unique_word("last") in as_json(result.raw) or await kit.recalls("last")
    assert whole == kit.recalls_writes, f"the end of a text of {len(text)} signs is not recalled as declared"
