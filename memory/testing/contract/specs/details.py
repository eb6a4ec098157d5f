"""Ids, blanks, offsets, roles and order survive the way into a memory and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from memory import MemoryEvent, Message
from memory.adapter import SupportsEventLookup
from memory.testing.contract._kit import STORED, Kit, as_json, long_list, messages, unique_word
from memory.testing.contract._spec import NotRun, of_recall, promise
from memory.testing.contract.specs.cs_and_filters import filters_of

_KEPT_WHOLE = (
    "look events up by the whole id, compared letter for letter: not by LIKE, not cut, not in lower case"
)
_MERGES = "where the backend rewrites or merges what it is told by design, say so: rewrites = 'why'"


@of_recall("look events up, and refuse repeats, by scope and event id together")
async def an_event_id_belongs_to_its_scope(kit: Kit) -> None:
    """Two people on two devices may use the same event id. Both events are stored, each in its scope."""
    other = await kit.another_scope()
    first = kit.event(kit.fact("ada"), event_id=f"same-{kit.run_id}")
    second = kit.event(kit.fact("bob"), event_id=first.event_id, scope=other)
    for event in (first, second):
        assert not await _found(kit, event), "an event of another scope was found by its id"
        receipt = await kit.slot.record_event(event)
        assert receipt.status in STORED, f"an event whose id another scope has was {receipt.status}"
    for scope in (kit.scope, other):
        await kit.until_ready(scope)
    if isinstance(kit.adapter, SupportsEventLookup):
        found = [await kit.adapter.find_event(event) for event in (first, second)]
        assert None not in found, "an event is stored, and is not found by its id: it would be sent again"
    assert await kit.recalls("ada"), "the first event with this id is gone"
    assert await kit.recalls("bob", scope=other), "the second event with this id was taken for a repeat"


async def _found(kit: Kit, event: MemoryEvent) -> bool:
    return isinstance(kit.adapter, SupportsEventLookup) and bool(await kit.adapter.find_event(event))


@of_recall(_KEPT_WHOLE)
async def event_ids_that_look_alike_are_two_events(kit: Kit) -> None:
    """A host chooses its ids. A common prefix, a wildcard or another case never merges two events."""
    ids = ["turn-X11", "turn-X1", "turn-x1", "turn-_1", "turn-%1", "l" * 300 + "a", "l" * 300 + "b"]
    for number, event_id in enumerate(ids):
        event = kit.event(kit.fact(f"id{number}"), None, event_id=event_id)
        assert not await _found(kit, event), f"{event_id} was found before it was written"
        assert (await kit.slot.record_event(event)).status in STORED, "a plain write was not stored"
    await kit.until_ready()
    lost = [event_id for number, event_id in enumerate(ids) if not await kit.recalls(f"id{number}")]
    assert not lost, "an event was taken for another, whose id looks alike"


@of_recall("keep what the host adds apart from the fields you set yourself: under a key of its own")
async def metadata_moves_no_event(kit: Kit) -> None:
    """``metadata`` belongs to the host and may use any name. It changes no scope, session, time or context."""
    other = await kit.another_scope()
    names = ("scope", "session_id", "event_id", "timestamp", "created_at", "role", "text", "id", "context")
    claimed = {**dict.fromkeys(names, "elsewhere"), "user_id": other.persona_id, "run_id": other.run_id}
    claimed |= kit.slot.native_scope(other)
    event = kit.event(kit.fact("blue"), context="work", metadata=claimed)
    assert (await kit.slot.record_event(event)).status in STORED, "an event with such metadata was not stored"
    await kit.until_ready()
    found = await kit.entries("blue", context="work")
    assert found, "an event with such metadata is not recalled in its scope and context"
    for entry in found:
        assert entry.session_id in (None, event.session_id), "metadata changed the session of an entry"
        assert entry.timestamp in (None, event.timestamp), "metadata changed the time of an entry"
        assert not entry.event_ids or event.event_id in entry.event_ids, "metadata changed an entry's event"
    shown = await kit.shown("blue", scope=other)
    assert unique_word("blue") not in shown, "metadata moved an event into another scope"


@of_recall("tell repeats by scope and event id, never by their text", _MERGES)
async def the_same_words_twice_are_two_events(kit: Kit) -> None:
    """A user may repeat a sentence on another day. Both turns stay traceable."""
    _needs_verbatim(kit)
    if "event_ids" in kit.declared.without_ids:
        raise NotRun("not declared", "event ids of entries")
    events = [kit.event(kit.fact("blue"), None) for _ in range(2)]
    receipts = [await kit.slot.record_event(event) for event in events]
    await kit.until_ready()
    named = {event_id for entry in (await kit.ask("blue")).entries for event_id in entry.event_ids}
    missing = [receipt.event_id for receipt in receipts if receipt.event_id not in named]
    assert not missing, "an event whose words were said before is in no entry"


@promise("store the text as it came", _MERGES)
async def blanks_and_line_breaks_are_kept(kit: Kit) -> None:
    """Code, poems and tables need their blanks. Text is stored as it was said, also at its ends."""
    said = f"  {kit.fact('kept')}\n\n    def  drawer():\n\treturn  'blue'  \n"
    assert await _is_kept(kit, said), "blanks or line breaks were changed"


@promise("store the text as it came, and escape it where it is shown", _MERGES)
async def signs_are_kept_as_they_came(kit: Kit) -> None:
    """Mark-up, quotes and percent signs are text. Nothing cleans them."""
    said = f'{kit.fact("kept")} <b>R&D</b> &amp; 100%, it\'s "so" \\n.'
    assert await _is_kept(kit, said), "signs were escaped, cleaned or left out"


async def _is_kept(kit: Kit, said: str) -> bool:
    """Whether a text that holds the fact ``kept`` comes back character by character."""
    _needs_verbatim(kit)
    await kit.slot.record_event(kit.event(said, None))
    await kit.until_ready()
    result = await kit.ask("kept")
    return any(said in entry.text for entry in result.entries) or as_json(said)[1:-1] in as_json(result.raw)


@of_recall("store the moment: event.timestamp.isoformat() keeps the offset, .astimezone(UTC) the instant")
async def a_moment_is_kept_whatever_its_offset(kit: Kit) -> None:
    """09:00 in Kolkata is 03:30 UTC. A dated entry names the event's instant."""
    nine = datetime(2024, 5, 6, 9, 0, 30, 250_000)
    moments = {
        "east": nine.replace(tzinfo=timezone(timedelta(hours=5.5))),
        "west": nine.replace(tzinfo=timezone(timedelta(hours=-9.5))),
        "early": datetime(1969, 7, 20, tzinfo=UTC),
        "late": datetime(2040, 2, 29, tzinfo=UTC),
    }
    for name, said_at in moments.items():  # write all first, to see whether one gets another's date
        await kit.remember(name, timestamp=said_at)
    dates = {name: {entry.timestamp for entry in await kit.entries(name)} for name in moments}
    for name, said_at in moments.items():
        assert dates[name] <= {None, said_at}, f"an entry is dated {dates[name]}, its event {said_at}"
    if set().union(*dates.values()) <= {None}:
        raise NotRun("not declared", "dates of entries")


@promise("store messages of role tool too", "warn in the receipt that they were left out")
async def tool_results_are_recalled_or_warned_of(kit: Kit) -> None:
    """Tool results matter to an agent's memory. The receipt warns if the backend cannot take them."""
    said = messages(("user", "Look it up, please."), ("tool", kit.fact("found")), ("assistant", "Done."))
    assert await _recalled_or_warned(kit, said), "a tool's answer was left out without a warning"


@promise("store every message of the event", "warn in the receipt that some were left out")
async def assistant_messages_are_recalled_or_warned_of(kit: Kit) -> None:
    """ "What did you recommend to me?" asks for the assistant's own words."""
    said = messages(("user", "Where may it be, please?"), ("assistant", kit.fact("found")))
    assert await _recalled_or_warned(kit, said), "the assistant's answer was left out without a warning"


@promise("store every message of the event", "warn in the receipt that some were left out")
async def the_last_of_many_messages_is_recalled_or_warned_of(kit: Kit) -> None:
    """A turn with many tool calls has many messages, and its end often matters most."""
    said = messages(*long_list(60), ("user", kit.fact("found")))
    assert await _recalled_or_warned(kit, said), "the end of a long event was left out without a warning"


async def _recalled_or_warned(kit: Kit, said: Sequence[Message]) -> bool:
    """Whether the memory recalls the fact ``found`` of an event, or its receipt warns."""
    _needs_verbatim(kit)
    always = (await kit.slot.record_event(kit.event("Hello.", None))).warnings
    receipt = await kit.slot.record_event(kit.event("unused", messages=said))
    await kit.until_ready()
    return await kit.recalls("found") or not set(receipt.warnings) <= set(always)


@of_recall(
    "take session_id from the row, not from the request", "leave session_id None where rows do not tell"
)
async def an_entry_names_the_session_it_comes_from(kit: Kit) -> None:
    """Last week's conversation is not today's. An entry's ``session_id`` is the event's, or None."""
    session_id = f"Chat-{'s' * 80}"
    await kit.remember("blue", session_id=session_id)
    named = {entry.session_id for entry in (await kit.ask("blue", session_id="session-2")).entries}
    assert named <= {None, session_id}, "an entry names a session it does not come from"


@of_recall("answer with nothing where nothing matches", "declare cs_filtering='soft' if the fields only rank")
async def a_filter_that_matches_nothing_finds_nothing(kit: Kit) -> None:
    """A declared filter without a match finds nothing, instead of everything."""
    hard, by_metadata = filters_of(kit)
    await kit.remember("blue", context="work", metadata={"region": "north"})
    asked: list[dict[str, Any]] = [{"context": "nowhere"}] if hard else []
    asked += [{"filters": {"region": {"eq": "nowhere"}}}] if by_metadata else []
    for fields in asked:
        found = (await kit.ask("blue", **fields)).entries
        assert not found, f"{fields} matches nothing, and {len(found)} entries came back"
    assert await kit.recalls("blue"), "what was written is not found without a filter"


@promise("list by arrival", "set lists_in_order = False", core=False)
async def a_list_in_order_is_in_the_order_of_arrival(kit: Kit) -> None:
    """``lists_in_order`` means the order of arrival, not the order of texts, ids or timestamps."""
    if not kit.declared.lists_in_order:
        raise NotRun("not applicable", "lists_in_order")
    kit.needs_recall()
    names = ["zulu", "alpha", "mike", "yankee", "bravo", "able"]
    for name in names[:4]:
        await kit.remember(name, event_id=f"{unique_word(name)}-{kit.run_id}")
    in_one_event = messages(*(("user", kit.fact(name)) for name in names[4:]))
    await kit.slot.record_event(kit.event("unused", messages=in_one_event))
    await kit.until_ready()
    order = await kit.in_listed_order(names)
    assert order == names, "what was written comes back in another order than it arrived in"


@of_recall("compare more of the native state: every row with its text, and the feedback")
async def the_fingerprint_sees_a_write(kit: Kit) -> None:
    """A constant fingerprint proves nothing. A write must change it, and a read must not."""
    if not kit.sees_native_state:
        raise NotRun("not tested", "fingerprint: without it only what can be retrieved is compared")
    before = await kit.observe()
    await kit.remember("blue")
    after = await kit.observe()
    assert after != before, "the fingerprint is the same after a write"
    assert await kit.observe() == after, "the fingerprint is another each time, without a write"


def _needs_verbatim(kit: Kit) -> None:
    kit.needs_recall()
    if kit.declared.rewrites:
        raise NotRun("not declared", f"texts as they were said: {kit.declared.rewrites}")
