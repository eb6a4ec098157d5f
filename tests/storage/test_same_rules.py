"""What the contract's door accepts, every store reads back equal."""

import functools
import os
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_support import ALICE

from memory import InputError, MemoryEvent, Message
from memory.contract._model import MAX_DEPTH, MAX_EVENT_BYTES
from memory.plugins.opening import build_slot
from memory.runtime._import_commands import exported
from memory.runtime._transcripts import read_conversations
from memory.slot.rendering import without_recalled_context

EXAMPLES = int(os.environ.get("MEMSLOT_EXAMPLES", "300"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
JSON = st.dictionaries(
    TEXTS,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_size=4,
)


def event(event_id="e", **fields):
    given_fields = {"messages": (Message(role="user", content="tea"),), **fields}
    given_fields = {"event_id": event_id, "session_id": "s", "turn_id": "t", **given_fields}
    return MemoryEvent(scope=ALICE, timestamp="2026-01-02T03:04:05Z", **given_fields)


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


@pytest.fixture
def anyio_backend():
    """One loop: what is read back depends on the store alone."""
    return "asyncio"


@functools.cache
def accepted():
    """Events that the contract's door lets in, drawn once."""
    events = []

    @settings(max_examples=EXAMPLES)
    @given(metadata=JSON, calls=st.lists(JSON, max_size=2), text=TEXTS.filter(str.strip), session=IDS)
    def draw(metadata, calls, text, session):
        with suppress(InputError):
            message = Message(role="assistant", content=text, tool_calls=tuple(calls) or None)
            made = event(f"e{len(events)}", metadata=metadata, messages=(message,), session_id=session)
            events.append(without_recalled_context(made))

    draw()
    return events


@pytest.mark.thorough
@pytest.mark.parametrize("condition", ["full_history", "rolling_summary"])
async def test_what_is_accepted_is_read_back_equal(each_store, tmp_path, condition):
    """From the journal, from a condition's rows, and from an export that is imported."""
    events = accepted()
    assert len(events) > EXAMPLES // 2
    block = {"condition": condition, "data_dir": str(tmp_path), "journal": True}
    block |= {} if each_store is None else {"state": each_store}
    async with build_slot({"memory": block}, scope=ALICE) as slot:
        for made in events:
            assert (await slot.record_event(made)).status in ("committed", "pending")
        journal = slot.delivery.journal
        assert [entry.event for entry in journal.entries()] == events
        rows = await slot._adapter.tables.after(ALICE, 0)
        assert [MemoryEvent.model_validate_json(row.event) for row in rows] == events
        file = tmp_path / "export.jsonl"
        file.write_text("\n".join(exported(journal)), "utf-8")
        problems = []
        imported = [each for talk in read_conversations(file, problems=problems) for each in talk.events]
        assert not problems
        assert sorted(imported, key=by_number) == events


def by_number(made):
    return int(made.event_id.removeprefix("e"))


@pytest.mark.parametrize("field", ["metadata", "tool_calls"])
def test_the_deepest_that_is_accepted_is_read_back(field):
    def made(levels):
        if field == "metadata":
            return event(metadata=nested(levels))
        return event(messages=(Message(role="assistant", tool_calls=(nested(levels),)),))

    deepest = made(MAX_DEPTH)
    assert MemoryEvent.model_validate_json(deepest.model_dump_json()) == deepest
    for levels in (MAX_DEPTH + 1, 200, 254):
        with pytest.raises(InputError, match="nested deeper than 32 levels; flatten it"):
            made(levels)


def test_the_largest_that_is_accepted_has_a_limit():
    with pytest.raises(InputError, match=f"at most {MAX_EVENT_BYTES} are allowed, so split it"):
        event(messages=(Message(role="user", content="x" * MAX_EVENT_BYTES),))
    assert event(messages=(Message(role="user", content="x" * (MAX_EVENT_BYTES // 2)),))
