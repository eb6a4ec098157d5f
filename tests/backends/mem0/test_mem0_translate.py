"""Between memslot's terms and mem0's: nothing is lost, nothing collides, nothing widens. No store involved."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mem0_support import event

from memory import InputError, MemoryScope, Message
from memory.backends.mem0.options import STORES
from memory.backends.mem0.translate import (
    event_metadata,
    native_filters,
    native_messages,
    observation_prompt,
    row_ids,
    scope_ids,
    to_entry,
    user_metadata,
)

IDS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="*"), min_size=1, max_size=60).filter(
    lambda text: bool(text.strip())
) | st.sampled_from(["a", "A", "a:b", "a%n", "%n", "a b", "é", "e\u0301", "x" * 512, "X" * 512, "a,b"])
SCOPES = st.builds(
    MemoryScope, run_id=IDS, persona_id=IDS, backend_namespace=st.none() | IDS, agent_id=st.none() | IDS
)


@given(SCOPES)
def test_ids_are_ids_mem0_accepts_as_they_are(scope):
    for value in scope_ids(scope).values():
        assert value
        assert not any(char.isspace() or char in "*,|" for char in value)
        assert len(value) <= 512


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.none() | st.booleans() | st.text(max_size=5)))
def test_custom_metadata_keeps_out_of_the_way(metadata):
    names = ["event_id", "created_at", "user_id", "run_id", "data", "role", "meta_x", "ts_epoch"]
    crowded_event = event("hi", metadata={**metadata, **dict.fromkeys(names, "mine")}, context="work")
    native = event_metadata(crowded_event)
    assert native["event_id"] == crowded_event.event_id
    assert native["context"] == "work"
    assert native["created_at"] == native["timestamp"] == crowded_event.timestamp.isoformat()
    assert native["ts_epoch"] == crowded_event.timestamp.timestamp()
    assert not native.keys() & {"user_id", "run_id", "agent_id", "actor_id", "data", "hash", "role"}
    assert sum(key.startswith("meta_") for key in native) == len(crowded_event.metadata), "no two keys met"
    assert all(isinstance(value, (str, int, float)) for value in native.values())


def test_metadata_keys_are_plain_for_every_store():
    assert user_metadata({"topic": "tea", "a.b": 1, "my-key": None, "n": {"x": [1]}}) == {
        "meta_topic": "tea",
        "meta_a-2eb": 1,
        "meta_my-2dkey": "null",
        "meta_n": '{"x": [1]}',
    }


def message(role, content="text", **fields):
    return Message(role=role, content=content, **fields)


def test_tool_calls_without_text_are_left_out_with_a_warning():
    call = message("assistant", "", tool_calls=({"id": "1"},))
    messages, warnings = native_messages(
        event(messages=(message("user", "x", name="Ann"), call)), infer=False
    )
    assert messages == [{"role": "user", "content": "x", "name": "Ann"}]
    assert "tool calls without text" in warnings[0]


def test_nul_characters_go_with_a_warning():
    messages, warnings = native_messages(event("a\0b"), infer=False)
    assert messages[0]["content"] == "ab"
    assert "NUL" in warnings[0]


def test_the_prompt_dates_the_event_and_keeps_custom_instructions():
    prompt = observation_prompt(event("x", timestamp=datetime(2023, 5, 8, 13, 56, tzinfo=UTC)), "Be brief.")
    assert prompt.startswith("Observation date: 2023-05-08")
    assert prompt.endswith("\n\nBe brief.")


def test_names_become_event_fields_or_custom_metadata():
    native = native_filters({"session_id": {"eq": "s"}, "topic": {"ne": "tea"}}, STORES["qdrant"])
    assert native == {"session_id": {"eq": "s"}, "meta_topic": {"ne": "tea"}}


def test_times_are_compared_by_epoch():
    native = native_filters(
        {"timestamp": {"gte": "2023-05-08T00:00:00+00:00", "lt": "2023-05-09T02:00:00+02:00"}},
        STORES["pgvector"],
    )
    assert native == {"ts_epoch": {"gte": 1683504000.0, "lt": 1683590400.0}}
    exact = native_filters({"timestamp": {"eq": "2023-05-08T00:00:00Z"}}, STORES["qdrant"])
    assert exact == {"ts_epoch": {"gte": 1683504000.0, "lte": 1683504000.0}}


@pytest.mark.parametrize(
    ("store", "filters", "message"),
    [
        ("qdrant", {"x": {"eq": 0.5}}, r"filters\.x\.eq: .*floats for equality; use gte and lte"),
        ("qdrant", {"x": {"in": [True]}}, r"filters\.x\.in: give in strings only"),
        ("qdrant", {"x": {"in": [1, "a"]}}, r"strings only, or integers only"),
        ("qdrant", {"x": {"ne": 1, "in": [2]}}, r"filters\.x: .*one operator per key"),
        ("qdrant", {"x": {"gt": 1, "ne": 2}}, r"one operator per key, or a range"),
        ("qdrant", {"x": {"gt": "tomorrow"}}, r"numbers or ISO 8601 dates only"),
        ("qdrant", {"x": {"contains": 3}}, r"give the text"),
        ("pgvector", {"x": {"gt": "2023-01-01"}}, r"numbers only; filter by timestamp"),
        ("pgvector", {"x": {"eq": 0.5}}, r"floats"),
        ("chroma", {"x": {"lt": True}}, r"numbers only"),
        ("qdrant", {"timestamp": {"gt": "2023-05-08"}}, r"filters\.timestamp: .*with its zone"),
        ("qdrant", {"timestamp": {"gt": 5}}, r"ISO 8601"),
        ("qdrant", {"timestamp": {"ne": "2023-05-08T00:00:00Z"}}, r"use gt, gte, lt, lte or eq"),
    ],
)
def test_what_a_store_cannot_compare_is_refused_with_another_way(store, filters, message):
    with pytest.raises(InputError, match=message):
        native_filters(filters, STORES[store])


def test_pgvector_compares_booleans_as_json_writes_them():
    assert native_filters({"x": {"ne": True}, "y": {"in": [False, 1]}}, STORES["pgvector"]) == {
        "meta_x": {"ne": "true"},
        "meta_y": {"in": ["false", 1]},
    }


def test_a_row_without_ids_belongs_to_no_scope():
    assert row_ids({}) == {"user_id": "", "run_id": ""}
    assert to_entry({"id": "i", "memory": "x", "metadata": None, "created_at": None}).timestamp is None
