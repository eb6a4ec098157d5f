"""The ``graphiti`` block: what it refuses, and in which words; ids; formats. Needs no SDK."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from graphiti_support import ALICE, ask, event
from hypothesis import given
from hypothesis import strategies as st

from memory import ConfigError, InputError, MemoryScope, Message
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.translate import (
    GROUP_IDS,
    description,
    episode_body,
    event_id_of,
    in_utc,
    triplets_of,
)
from memory.plugins.blocks import parse_block

LLM = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}


def parsed(**options):
    return parse_block(GraphitiOptions, options, "memory.backends.graphiti")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "llm is required"),
        ({"llm": {"model": "m"}}, "llm.api_key is missing"),
        ({"llm": LLM, "driver": "neptune"}, "driver"),
        ({"llm": LLM, "falkordb": {"port": 1}}, "falkordb: is of no use with driver: kuzu"),
        (
            {"llm": LLM, "driver": "falkordb", "neo4j": {"user": "u"}},
            "neo4j: is of no use with driver: falkordb",
        ),
        (
            {"llm": LLM, "driver": "neo4j", "neo4j": {"uri": "bolt://u:p@h:1"}},
            "neo4j.uri: give an address such as bolt://localhost:7687; credentials go to user and password",
        ),
        ({"llm": LLM, "embedder": "openai"}, "embedder: is unknown; write lexical"),
        ({"llm": LLM, "embedder": {"model": "e"}}, "embedder.api_key is missing"),
        ({"llm": LLM, "update_communities": True}, "update_communities"),
        ({"llm": LLM, "top_kk": 3}, "did you mean top_k?"),
        ({"llm": LLM, "ingest": "fact_triple"}, "ingest"),
        ({"llm": LLM, "recipe": "rrf"}, "recipe"),
        ({"llm": LLM, "dimensions": 8}, "dimensions"),
    ],
)
def test_mistakes_are_named_with_their_fix(monkeypatch, options, message):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=re.escape(message)):
        parsed(**options)


def test_all_mistakes_of_a_block_are_named_in_one_round():
    wrong = {"falkordb": {"port": 1}, "top_k": 0, "top_kk": 1}
    with pytest.raises(ConfigError) as raised:
        parsed(**wrong)
    lines = str(raised.value).splitlines()
    for words in ("top_k: ", "top_kk: ", "llm is required", "falkordb: is of no"):
        assert sum(words in line for line in lines) == 1, words
    assert len(lines) == 4


def test_defaults_follow_the_embedder_and_the_recipe():
    assert parsed(llm=LLM).least_similarity == 0.0
    assert parsed(llm=LLM, embedder=LLM).least_similarity == 0.6
    assert parsed(llm=LLM, recipe="mmr").least_rerank == -2.0
    assert parsed(llm=LLM).least_rerank == 0.0


texts = st.text(min_size=1, max_size=60).filter(str.strip)
ids = texts.filter(lambda text: "*" not in text)
scopes = st.builds(MemoryScope, run_id=ids, persona_id=ids, agent_id=st.none() | ids)


def group_id(scope):
    from memory.backends.graphiti.adapter import GraphitiAdapter

    return GraphitiAdapter.native_scope(GraphitiAdapter.__new__(GraphitiAdapter), scope)["group_id"]


@given(scopes, scopes)
def test_group_ids_are_valid_and_injective(scope, other):
    first, second = group_id(scope), group_id(other)
    assert re.fullmatch(r"[a-z0-9_]{1,120}", first), "Graphiti's alphabet, without capitals and hyphens"
    assert (first == second) == (scope == other)
    assert first.startswith(GROUP_IDS.prefix)


@given(ids, ids)
def test_an_episode_says_which_event_it_was(event_id, session_id):
    tea_event = event("x", event_id=event_id, session_id=session_id, metadata={"k": [1]}, scenario="tea")
    assert event_id_of(description(tea_event)) == tea_event.event_id
    assert json.loads(description(tea_event))["metadata"] == {"k": [1]}
    plain = json.loads(description(event("x")))
    assert plain.keys() == {"event_id", "session_id", "turn_id", "agent_id"}, "what there is not is left out"


@pytest.mark.parametrize("foreign", [None, "", "chat", "[1]", '{"event_id": 3}', "{", "[" * 200_000])
def test_a_foreign_episode_has_no_event(foreign):
    assert event_id_of(foreign) is None


def test_bodies():
    said = (Message(role="user", content="Hi\nthere", name="Ada"), Message(role="assistant", content="Hello"))
    tea_event = event(messages=said, scenario="tea")
    assert episode_body(tea_event, "message", cs_in_body=False)[0] == "Ada: Hi\nthere\nassistant: Hello"
    assert episode_body(tea_event, "text", cs_in_body=True)[0] == "(scenario: tea)\nHi\nthere\nHello"
    assert json.loads(episode_body(tea_event, "json", cs_in_body=True)[0]) == {
        "messages": [
            {"role": "user", "content": "Hi\nthere", "name": "Ada"},
            {"role": "assistant", "content": "Hello"},
        ],
        "scenario": "tea",
    }


def test_cs_fields_join_the_query():
    assert ask("mug", context="work").query_with_cs == "mug\nwork"
    assert ask("mug", ALICE, context="work", filters={"cross_context": True}).query_with_cs == "mug"


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ("x", "triplets: ingest: triplet needs a list of {source, relation, target, fact}; 0: "),
        ({"source": "a", "relation": "R"}, "0.target: is required"),
        ({"source": "a", "relation": " ", "target": "b"}, "0.relation"),
        ({"source": "a", "relation": "R", "target": "b", "weight": 1}, "0.weight: is not a known field"),
        ({"source": "a", "relation": "R", "target": "b", "fact": 1}, "0.fact"),
        ({"source": "a", "relation": "R", "target": "b", "valid_at": "2024-01-01T00:00:00"}, "0.valid_at"),
    ],
)
def test_malformed_triplets_are_named(given_, message):
    with pytest.raises(InputError, match=re.escape(message)):
        triplets_of(event("x", metadata={"triplets": [given_]}))


def test_naive_times_are_utc_and_others_are_converted():
    at = datetime(2024, 1, 1, 8)
    assert in_utc(at) == at.replace(tzinfo=UTC)
    assert in_utc(at.replace(tzinfo=timezone(timedelta(hours=8)))).isoformat() == "2024-01-01T00:00:00+00:00"
