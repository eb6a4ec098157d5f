"""Writing and reading: what goes in comes back, with its provenance (spec 9.1, 9.2, 9.8, 9.9)."""

from __future__ import annotations

from typing import Any

from anyio.lowlevel import current_token

from memory import (
    MemoryScope,
    Message,
    ProvenanceRequest,
    SupportsProvenance,
)
from memory.testing.contract._kit import STORED, Kit, as_json, attempt, unique_word
from memory.testing.contract._spec import not_applicable, not_declared, not_tested, promise

_PENDING = "answer pending or queued, declare consistency='async_derived' and offer readiness"


@promise()
async def runs_on_the_event_loop_it_says(kit: Kit) -> None:
    """Not on another one silently."""
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
async def what_was_written_is_recalled_once_ready(kit: Kit) -> None:
    """Spec 9.2. A control that does not recall says so, and its context does not move."""
    before = (await kit.ask("blue")).formatted_context
    await kit.remember("blue")
    after = (await kit.ask("blue")).formatted_context
    if kit.recalls_writes:
        assert unique_word("blue") in after, "what was written is not recalled"
    else:
        assert after == before, "what was written moved a context that does not come from it, by declaration"


@promise("answer committed only when the write can be found", _PENDING)
async def a_committed_write_is_retrievable_at_once(kit: Kit) -> None:
    """DESIGN 4: ``committed`` is a promise; what is not yet retrievable is ``pending`` or ``queued``."""
    kit.needs_recall()
    receipt = await kit.write("blue")
    if receipt.status != "committed":
        declared = kit.slot.traits.consistency
        assert declared != "immediate", f"traits say {declared}, and a write is {receipt.status}"
        not_applicable(f"committed; writes are {receipt.status}, and readiness has tests of its own")
    assert await kit.recalls("blue"), "committed, and not retrievable"


@promise(
    "answer without entries where the backend does not know the scope yet; make the space in setup_scope",
)
async def a_new_scope_is_empty_and_that_is_no_error(kit: Kit) -> None:
    """DESIGN 4: empty and failed never look alike."""
    kit.needs_recall()
    result = await kit.ask("blue")
    assert result.entries == (), "a new scope has entries"
    assert result.formatted_context == "", "a new scope has a context section"
    assert result.trace.error is None, "an empty answer is traced as an error"
    assert result.trace.retrieved_count == 0, "an empty answer is not counted as one"


@promise("hand on in raw, as JSON, all that the backend answered: entries are made of it")
async def raw_keeps_the_native_provenance(kit: Kit) -> None:
    """Spec 9.8: ids, scores, timestamps and labels that entries show are in ``raw``, which is JSON."""
    await kit.remember("blue")
    result = await kit.ask("blue")
    raw = as_json(result.raw)
    for entry in result.entries:
        assert entry.native_id is None or entry.native_id in raw, "an entry's native id is not in the payload"
        for _, label in entry.labels:
            assert label in raw, f"the label {label!r} of an entry is not in the payload"
    if kit.recalls_writes:
        assert unique_word("blue") in raw, "what was told is not in the payload"
    scores = [entry.score for entry in result.entries if entry.score is not None]
    times = [entry.timestamp for entry in result.entries if entry.timestamp is not None]
    traced = {
        "top_score": max(scores, default=None),
        "newest_retrieved_at": max(times, default=None),
        "oldest_retrieved_at": min(times, default=None),
    }
    for name, seen in traced.items():
        assert getattr(result.trace, name) == seen, f"the trace has another {name} than the entries"


@promise(
    "give ContextEntry native_id and event_ids from the row",
    "where rows cannot carry them: without_ids = {'native_id': 'why'} (or event_ids)",
)
async def entries_name_their_native_record_and_their_event(kit: Kit) -> None:
    """Spec 9.8: without a native id a row cannot be traced, without event ids evidence cannot be scored."""
    kit.needs_recall()
    receipt = await kit.remember("blue")
    entries = await kit.entries("blue")
    assert entries, "what was told is in no entry"
    for entry in entries:
        if "native_id" not in kit.declared.without_ids:
            assert entry.native_id, "an entry lacks native_id; where that cannot be, say so in without_ids"
        if "event_ids" not in kit.declared.without_ids:
            assert receipt.event_id in entry.event_ids, (
                "an entry does not name its event; where that cannot be, say so in without_ids"
            )
    if {"native_id", "event_ids"} <= kit.declared.without_ids.keys():
        not_declared("ids of entries")


@promise(
    "put the ids of the stored records into the receipt",
    "leave native_ids empty where the backend does not tell",
    "where they are ids of something else: without_ids = {'native_ids': 'what they are'}",
)
async def a_receipt_names_records_that_there_are(kit: Kit) -> None:
    """Spec 9.8: a native id of a receipt is found again: in the payload, by provenance or by a native query."""
    kit.needs_recall()
    receipt = await kit.remember("blue")
    if not receipt.native_ids or "native_ids" in kit.declared.without_ids:
        not_declared("native ids of records in receipts")
    found = as_json((await kit.ask("blue")).raw) + await kit.queried(kit.scope)
    lost = [native_id for native_id in receipt.native_ids if native_id not in found]
    provenance = kit.slot.capability(SupportsProvenance)
    if provenance is not None:
        lost = [native_id for native_id in lost if not await _known(provenance, kit.scope, native_id)]
    assert not lost, (
        "a receipt names records that are found nowhere; if its ids are not of records, say so in without_ids"
    )


@promise(
    "make one entry of each row, in the order in which they came",
    "where rows lie elsewhere in the payload: override native_rows(raw)",
)
async def every_native_row_becomes_an_entry(kit: Kit) -> None:
    """DESIGN 4: nothing that the backend returned is dropped on the way, and its order stays."""
    kit.needs_recall()
    names = [f"row{number}" for number in range(4)]
    for name in names:
        await kit.remember(name)
    result = await kit.slot.retrieve(kit.request("In which drawers do I keep my passports, all of them?"))
    rows = kit.declared.native_rows(result.raw)
    if rows is None:
        not_tested("override native_rows: the payload holds no single list of rows")
    assert len(result.entries) >= len(rows), f"{len(rows)} native rows, and {len(result.entries)} entries"
    shown = [
        next((name for name in names if unique_word(name) in entry.text), "") for entry in result.entries
    ]
    came = [next((name for name in names if unique_word(name) in as_json(row)), "") for row in rows]
    assert list(filter(None, shown)) == list(filter(None, came)), "entries are not in the backend's order"


@promise("store event.timestamp beside the row, and give it back as ContextEntry(timestamp=...)")
async def time_is_the_events_and_not_the_clocks(kit: Kit) -> None:
    """Spec 3: the turn's timestamp reaches the backend; where entries are dated, they carry it."""
    kit.needs_recall()
    event = kit.event(kit.fact("blue"))
    await kit.slot.record_event(event)
    await kit.until_ready()
    entries = await kit.entries("blue")
    assert entries, "what was told is in no entry"
    assert {entry.timestamp for entry in entries} <= {None, event.timestamp}, (
        "an entry has another date than its event"
    )


@promise(
    "store the fields as metadata of the record",
    "where the backend has no place for one: event_fields without it",
)
async def event_fields_stay_traceable(kit: Kit) -> None:
    """Spec 1: an adapter keeps the event's fields as metadata that can be found again."""
    kit.needs_recall()
    values: dict[str, Any] = {name: f"{name}-{unique_word(name)}" for name in kit.declared.event_fields}
    fields = dict(values)
    if "metadata" in values:
        fields["metadata"] = {"source": {"pages": [values["metadata"]]}}
    await kit.remember("blue", **fields)
    result = await kit.ask("blue")
    found = as_json(result.raw)
    provenance = kit.slot.capability(SupportsProvenance)
    for entry in result.entries:
        if provenance is not None and entry.native_id is not None:
            answer = await provenance.provenance(
                ProvenanceRequest(scope=kit.scope, native_id=entry.native_id)
            )
            found += as_json(answer.raw)
    lost = [name for name, value in values.items() if value not in found]
    assert not lost, f"neither raw nor provenance holds {lost}; correct event_fields if that cannot be"


@promise("give roles that the backend does not know another name, and keep the message")
async def messages_of_every_role_are_accepted(kit: Kit) -> None:
    """DESIGN 4: the adapter decides what the backend can take, and says so in warnings."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="developer", content="Use metric units."),
        Message(role="user", content=kit.fact("blue"), name="Ada"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="found nothing", tool_call_id="c1"),
        Message(role="assistant", content="I found nothing."),
    )
    receipt = await kit.slot.record_event(kit.event("unused", messages=messages))
    assert receipt.status in STORED, f"an event of every role was {receipt.status}: {receipt.warnings}"
    await kit.until_ready()
    await kit.assert_recalled("blue", "what the user said among other roles is not recalled as declared")


@promise(
    "store and answer the whole text, as UTF-8; split what the backend limits, and join it again",
    "find Chinese and Japanese by their signs: a tokenizer that splits at blanks takes a sentence for one word",
)
async def any_script_and_length_survives(kit: Kit) -> None:
    """Text is UTF-8 everywhere: Chinese, emoji, right-to-left, and a long message."""
    said = {
        "我把护照放在蓝色抽屉里。": "护照放在哪个抽屉里?",
        "I feed my 🐍 named שלום every Friday.": "Which 🐍 do I feed, is it שלום?",
        f"I own a boat. {'It sails well and far. ' * 400}{kit.fact('last')}": "Do I own a boat that sails?",
    }
    for text in said:
        assert (await kit.slot.record_event(kit.event(text))).status in STORED, (
            "a text of this script or length was not stored"
        )
    await kit.until_ready()
    for text, query in said.items():
        result = await kit.slot.retrieve(kit.request(query))
        as_json(result.raw)
        # A backend may cut a long text into pieces, so its start must do.
        assert (text[:12] in result.formatted_context) == kit.recalls_writes, f"{text[:12]!r} is not recalled"
    whole = unique_word("last") in as_json(result.raw) or await kit.recalls("last")
    assert whole == kit.recalls_writes, f"the end of a text of {len(text)} signs is not recalled as declared"


async def _known(provenance: SupportsProvenance, scope: MemoryScope, native_id: str) -> bool:
    request = ProvenanceRequest(scope=scope, native_id=native_id)
    answer, error = await attempt(provenance.provenance(request))
    return error is None and native_id in as_json(answer.raw)
