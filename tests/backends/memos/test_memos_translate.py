"""The bodies of requests: every parameter, every dialect, every kind of message; hostile ids and metadata."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memos_support import ALICE, START, event, question, requests, verdict

from memory import ContextBudget, InputError, MemoryScope, Message
from memory.backends.memos.translate import (
    CUBE_IDS,
    USER_PREFIX,
    cube_of,
    native_filter,
    user_info,
    without_nul,
)

CUBE = cube_of(ALICE)
TEXT = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() and "*" not in text)


@pytest.mark.parametrize("mode", ["fast", "fine"])
def test_the_mode_is_sent_where_it_counts(mode):
    assert requests(async_mode="sync", mode=mode).add(event("x"), CUBE)["mode"] == mode
    assert "mode" not in requests(async_mode="async", mode=mode).add(event("x"), CUBE)


def test_messages_of_every_role_keep_what_memos_can_take():
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    said = event(
        event_id="e1",
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="developer", content="Use metric units."),
            Message(role="user", content="Find it.", name="Ada"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content="found", tool_call_id="c1"),
            Message(role="tool", content="found more"),
            Message(role="assistant", content="Here.", name="Bot"),
        ),
    )
    sent = requests().add(said, CUBE)["messages"]
    assert [message["role"] for message in sent] == [
        "system",
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert sent[2]["name"] == "Ada"
    assert (sent[3]["content"], sent[3]["tool_calls"]) == ("", [call])
    assert [message.get("tool_call_id") for message in sent[4:6]] == ["c1", "e1#5"]
    assert "name" not in sent[6], "only user messages have one"
    assert len({message["message_id"] for message in sent}) == len(sent)


def test_the_budget_bounds_every_group():
    ask = requests(pref_top_k=6, tool_mem_top_k=0).search
    body = ask(question(budget=ContextBudget(max_items=4)), CUBE)
    assert [body[name] for name in ("top_k", "pref_top_k", "tool_mem_top_k", "skill_mem_top_k")] == [
        4,
        4,
        0,
        3,
    ]
    assert ask(question(budget=ContextBudget(max_items=40)), CUBE)["top_k"] == 40


def test_where_nothing_filters_cs_joins_the_question():
    asked = question("Which tea?", scenario="trip", context="work")
    assert requests().search(asked, CUBE)["query"] == "Which tea?\ntrip\nwork"
    assert requests().search(asked, CUBE)["filter"] is None
    hard = requests(graph_db="neo4j-community").search(asked, CUBE)
    assert hard["query"] == "Which tea?"
    assert hard["filter"] == {"and": [{"scenario": "trip"}, {"context": "work"}]}


@pytest.mark.parametrize(
    ("graph_db", "context", "region"),
    [
        ("neo4j", "context", "meta_region"),
        ("neo4j-community", "context", "meta_region"),
        ("polardb", "info.context", "info.meta_region"),
        ("postgres", "info.context", "info.meta_region"),
    ],
)
def test_filters_are_wrapped_and_in_the_databases_dialect(graph_db, context, region):
    where = {
        "context": {"eq": "work"},
        "region": {"in": ["north", "east"], "contains": "or"},
        "created_at": {"gte": "2024-01-01"},
    }
    assert native_filter(where, graph_db) == {
        "and": [
            {context: "work"},
            {region: {"in": ["north", "east"]}},
            {region: {"like": "or"}},
            {"created_at": {"gte": "2024-01-01"}},
        ]
    }
    assert native_filter({}, graph_db) is None


@pytest.mark.parametrize("key", ["a.b", "a-b", "1a", "näme", "a b", "a`) OR 1=1 //"])
def test_a_key_that_could_end_the_query_is_refused(key):
    with pytest.raises(InputError, match="filters"):
        native_filter({key: {"eq": "x"}}, "neo4j-community")


def test_feedback_carries_the_correction_its_time_and_its_history():
    history = [{"role": "user", "content": "Which tea?"}]
    body = requests().feedback(
        verdict(
            corrected_answer="Sencha.",
            native_ids=("m1",),
            metadata={"history": history, "note": "n", "why": [1]},
        ),
        CUBE,
    )
    assert body["feedback_content"] == "No, I like sencha.\nSencha."
    assert body["history"] == history
    assert body["retrieved_memory_ids"] == ["m1"]
    assert body["feedback_time"] == START.isoformat()
    assert body["async_mode"] == "sync"
    assert body["info"] == {
        "meta_note": "n",
        "metadata_json": '{"why": [1]}',
        "feedback_id": "f1",
        "timestamp": START.isoformat(),
    }
    assert requests().feedback(verdict(metadata={"history": "none"}), CUBE)["history"] == []


def test_nul_is_taken_out_of_all_that_is_sent():
    said = event("a\0b", session_id="s\0", metadata={"k": "v\0", "deep": {"x": "\0"}})
    assert "\0" not in json.dumps(requests().add(said, CUBE), ensure_ascii=False)
    assert "\0" not in json.dumps(requests().search(question("a\0b"), CUBE), ensure_ascii=False)
    assert "\0" not in json.dumps(requests().feedback(verdict("a\0b"), CUBE), ensure_ascii=False)
    assert without_nul({"a": ["b\0", {"c": "\0d"}, 1, None]}) == {"a": ["b", {"c": "d"}, 1, None]}


@given(TEXT, TEXT, st.none() | TEXT, st.none() | TEXT)
def test_cube_ids_stand_in_any_query_text(run, persona, namespace, agent):
    scope = MemoryScope(run_id=run, persona_id=persona, backend_namespace=namespace, agent_id=agent)
    cube = cube_of(scope)
    assert set(cube) <= set(string.ascii_letters + string.digits + "-_.")
    assert {".", "_"} & set(cube), "the canary's cube has neither"
    assert len(cube) <= CUBE_IDS.max_length


@given(
    st.lists(st.tuples(TEXT, TEXT, st.none() | TEXT, st.none() | TEXT), min_size=2, max_size=8, unique=True)
)
def test_cube_ids_never_meet(fields):
    names = ("run_id", "persona_id", "backend_namespace", "agent_id")
    cubes = {cube_of(MemoryScope(**dict(zip(names, values, strict=True)))) for values in fields}
    assert len(cubes) == len(fields)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=6))
def test_metadata_arrives_whole_and_flat(metadata):
    info = user_info(metadata)
    assert all(isinstance(value, (str, int, float)) for value in info.values())
    rest = json.loads(info.pop("metadata_json", "{}"))
    assert {**{key.removeprefix(USER_PREFIX): value for key, value in info.items()}, **rest} == metadata


def test_a_users_metadata_cannot_take_the_place_of_the_events_fields():
    said = event("x", event_id="e1", context="home", metadata={"event_id": "e2", "context": "work"})
    info = requests().add(said, CUBE)["info"]
    assert (info["event_id"], info["context"]) == ("e1", "home")
    assert (info["meta_event_id"], info["meta_context"]) == ("e2", "work")
