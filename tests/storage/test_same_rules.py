"""What the contract's door accepts, every store reads back equal."""

import os
from contextlib import closing
from itertools import count

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import key
from slot_support import ALICE

from memory import InputError, MemoryEvent, Message
from memory.contract._model import MAX_DEPTH, MAX_EVENT_BYTES
from memory.storage.journal import Journal
from memory.storage.store import SqliteStore

EXAMPLES = int(os.environ.get("MEMSLOT_EXAMPLES", "300"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
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
    ids = {"event_id": event_id, "session_id": "s", "turn_id": "t"}
    return MemoryEvent(**ids, scope=ALICE, timestamp="2026-01-02T03:04:05Z", **given_fields)


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


def test_what_is_accepted_is_read_back_equal():
    with closing(SqliteStore(None)) as store, Journal(store) as journal:
        numbers = count()

        @settings(max_examples=EXAMPLES)
        @given(metadata=JSON, calls=st.lists(JSON, max_size=2), text=TEXTS.filter(str.strip))
        def accept_and_read(metadata, calls, text):
            try:
                message = Message(role="assistant", content=text, tool_calls=tuple(calls) or None)
                accepted = event(f"e{next(numbers)}", metadata=metadata, messages=(message,))
            except InputError:
                return
            anyio.run(journal.append, key(ALICE), [accepted])
            entry = anyio.run(journal.find, key(ALICE), accepted.event_id)
            assert entry.event == accepted

        accept_and_read()


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
