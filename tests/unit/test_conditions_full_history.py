"""full_history: order, packing, cost, persistence."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import examples

from conditions.full_history import FullHistory, FullHistoryOptions
from memory import (
    CapabilityNotSupported,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    RetrieveRequest,
)
from memory.adapter import ContextEntry, Utf8TokenCounter, entry_cost, section_overhead
from memory.adapter.stores import SqliteStore
from memory.contract.formatting import CallableTokenCounter

ALICE = MemoryScope(run_id="run", persona_id="alice")
BOB = MemoryScope(run_id="run", persona_id="bob")
START = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING = ContextBudget()


def event(number, *texts, scope=ALICE, minute=None):
    roles = ("user", "assistant")
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=f"s{number // 10}",
        turn_id=str(number),
        timestamp=START + timedelta(minutes=number if minute is None else minute),
        messages=tuple(
            Message(role=roles[index % 2], content=text)
            for index, text in enumerate(texts or (f"turn {number}",))
        ),
    )


def provider(path=None, counter=None, **options):
    store = SqliteStore(path and path / "memslot.db")
    return FullHistory("full_history", FullHistoryOptions(**options), counter or Utf8TokenCounter(), store)


async def written(adapter, events, **services):
    slot = MemorySlot(adapter, **services)
    for scope in (ALICE, BOB):
        await slot.setup_scope(scope)
    for event in events:
        await slot.record_event(event)
    return slot


async def ask(slot, budget=EVERYTHING, scope=ALICE):
    return await slot.retrieve(RetrieveRequest(query="?", scope=scope, session_id="test", budget=budget))


def texts(result):
    return [entry.text for entry in result.context_entries]


async def test_every_message_in_order_with_its_provenance():
    messages = (
        Message(role="user", name="Alice", content="I like oolong.\nReally."),
        Message(role="assistant", tool_calls=({"name": "buy", "arguments": {"tea": "oolong"}},)),
        Message(role="tool", tool_call_id="1", content="bought"),
    )
    named = event(1).model_copy(update={"messages": messages})
    async with await written(provider(), [named, event(2, "Thanks.", "Welcome.")]) as slot:
        result = await ask(slot)
    assert texts(result) == [
        "I like oolong.\nReally.",
        '[{"name": "buy", "arguments": {"tea": "oolong"}}]',
        "bought",
        "Thanks.",
        "Welcome.",
    ]
    assert [dict(entry.labels)["by"] for entry in result.entries] == [
        "Alice",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    first = result.entries[0]
    assert (first.native_id, first.event_ids) == ("e1/0", ("e1",))
    assert first.timestamp == START + timedelta(minutes=1)
    assert result.raw["messages"][3] == {
        "id": "e2/0",
        "role": "user",
        "text": "Thanks.",
        "event_id": "e2",
        "session_id": "s0",
        "turn_id": "2",
        "agent_id": "agent",
        "timestamp": "2026-01-01T00:02:00Z",
        "metadata": {},
    }
    assert (result.raw["messages_total"], result.raw["messages_left_out"]) == (5, 0)
    assert result.trace.condition_kind == "control"
    assert result.trace.native_operation == "history.tail"
    assert result.trace.cs_filtering == "none"
    assert "- (2026-01-01 00:01, by Alice) I like oolong.\n  Really." in result.formatted_context


async def test_cs_fields_have_no_effect_and_filters_are_refused():
    async with await written(provider(), [event(1)]) as slot:
        request = RetrieveRequest(query="?", scope=ALICE, session_id="t", context="work", attribute="tone")
        assert len((await slot.retrieve(request)).entries) == 1
        filtered = RetrieveRequest(query="?", scope=ALICE, session_id="t", filters={"session": "s1"})
        with pytest.raises(CapabilityNotSupported):
            await slot.retrieve(filtered)


async def test_the_newest_are_kept_when_the_budget_is_small():
    async with await written(provider(), [event(number) for number in range(40)]) as slot:
        by_items = await ask(slot, ContextBudget(max_items=3))
        by_tokens = await ask(slot, ContextBudget(max_tokens=120))
        nothing = await ask(slot, ContextBudget(max_tokens=5))
    assert texts(by_items) == ["turn 37", "turn 38", "turn 39"]
    assert by_items.raw["messages_left_out"] == 37
    assert by_items.trace.warnings == ("the budget leaves out 37 older messages",)
    count = len(by_tokens.included)
    assert texts(by_tokens) == [f"turn {number}" for number in range(40 - count, 40)]
    assert by_tokens.trace.token_count is not None
    assert 120 - 15 < by_tokens.trace.token_count <= 120
    assert nothing.formatted_context == ""
    assert nothing.raw["messages_left_out"] == 40


async def test_late_events_take_their_place_in_time():
    events = [event(1, minute=10), event(2, minute=5), event(3, minute=10), event(4, minute=7)]
    async with await written(provider(), events) as slot:
        assert texts(await ask(slot)) == ["turn 2", "turn 4", "turn 1", "turn 3"]


WORDS = CallableTokenCounter("words", lambda text: len(text.split()))


@pytest.mark.thorough
@settings(max_examples=examples(60))
@given(
    said=st.lists(
        st.tuples(st.integers(0, 5), st.text(min_size=1, max_size=60).filter(str.strip)), max_size=25
    ),
    max_tokens=st.none() | st.integers(1, 300),
    max_items=st.none() | st.integers(1, 10),
    counter=st.sampled_from([Utf8TokenCounter(), WORDS]),
)
def test_packing_is_the_longest_tail_that_fits(said, max_tokens, max_items, counter):
    budget = ContextBudget(max_tokens=max_tokens, max_items=max_items)

    async def run():
        events = [event(number, text, minute=minute) for number, (minute, text) in enumerate(said)]
        async with await written(provider(counter=counter), events, token_counter=counter) as slot:
            return await ask(slot, budget)

    result = anyio.run(run)
    order = sorted(range(len(said)), key=lambda number: (said[number][0], number))
    # Everything packed is shown: the provider and the slot agree on what fits.
    assert len(result.included) == len(result.entries)
    shown = [entry.event_ids[0] for entry in result.entries]
    room = None if max_tokens is None else max_tokens - section_overhead("full_history", ALICE.label, counter)
    expected = []
    for number in reversed(order):
        cost = entry_cost(_entry(number, said[number]), counter)
        if room is not None and cost > max_tokens - section_overhead("full_history", ALICE.label, counter):
            continue
        if len(expected) == max_items or (room is not None and cost > room):
            break
        room = None if room is None else room - cost
        expected.append(f"e{number}")
    assert shown == expected[::-1]
    if max_tokens is not None:
        assert result.trace.token_count <= max_tokens


def _entry(number, said):
    return ContextEntry(
        said[1].strip(),
        labels=(("by", "user"),),
        native_id=f"e{number}/0",
        timestamp=START + timedelta(minutes=said[0]),
        event_ids=(f"e{number}",),
    )


class Counting:
    """Counts how often it is asked."""

    name = "counting"

    def __init__(self):
        self.calls = 0

    def count(self, text):
        self.calls += 1
        return len(text) // 4


async def test_packing_costs_what_the_budget_allows_not_what_was_said():
    asked = {}
    for length in (200, 2000):
        counter = Counting()
        adapter = provider(counter=counter)
        for number in range(length):
            await adapter.record_event(event(number))
        request = RetrieveRequest(
            query="?", scope=ALICE, session_id="t", budget=ContextBudget(max_tokens=1000)
        )
        await adapter.retrieve(request)
        asked[length] = counter.calls
        await adapter.retrieve(request)
        assert counter.calls - asked[length] == 1, "costs are kept; only the fence is counted again"
    assert asked[2000] <= asked[200] * 1.1 + 1


async def test_phrases_choose_what_is_shown_and_counted(tmp_path):
    events = [event(number, "Tea, please." if number % 2 else "Nothing.") for number in range(250)]
    adapter = provider(tmp_path, phrases=("tea",))
    async with await written(adapter, events) as slot:
        found = await ask(slot, ContextBudget(max_items=2))
    assert texts(found) == ["Tea, please."] * 2
    assert (found.raw["messages_total"], found.raw["messages_left_out"]) == (125, 123)
