"""The write surfaces (Spec-19 12.4): every required fact, and nothing wrong gets as far as a node."""

from datetime import UTC, datetime

import pytest
from abi_support import AGENT, OTHER, FaultyNode, surfaces
from hypothesis import given
from hypothesis import strategies as st
from stigmem_node_model import normalised

from memory import BackendError, BackendUnavailable, InputError
from memory.adapter import BackendRejected
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import Fact, FactValue, NewFact
from memory.stigmem.writers import (
    MAX_FACT_REFS,
    PING_LIFETIME,
    Surfaces,
    Write,
    carry_out,
    check_fact,
)

ISSUE = "issue:t-1"


def rows(write):
    return [
        (fact.relation, fact.value.type, fact.value.v, fact.scope, fact.confidence) for fact in write.facts
    ]


def test_lifecycle_facts():
    assert rows(surfaces.checkout("t-1")) == [("paperclip:checkout", "string", "in_progress", "company", 1.0)]
    assert rows(surfaces.done("t-1")) == [("paperclip:issue_status", "string", "done", "company", 1.0)]
    assert rows(surfaces.blocked("t-1")) == [("paperclip:issue_status", "string", "blocked", "company", 1.0)]
    assert rows(surfaces.blocked("t-1", "t-2")) == [
        ("paperclip:issue_status", "string", "blocked", "company", 1.0),
        ("paperclip:blocked_by", "ref", "stigmem://node/issue/t-2", "company", 1.0),
    ]
    for write in (surfaces.checkout("t-1"), surfaces.blocked(ISSUE, "t-2")):
        assert {fact.entity for fact in write.facts} == {ISSUE}
        assert {fact.source for fact in write.facts} == {AGENT}


def test_a_ping_stays_on_the_node_and_expires():
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    (ping,) = surfaces.activity("t-1", at).facts
    assert (ping.relation, ping.scope, ping.confidence) == ("paperclip:last_active", "local", 1.0)
    assert (ping.value.type, ping.value.v) == ("datetime", "2026-01-31T12:00:00+00:00")
    assert ping.valid_until == at + PING_LIFETIME


def test_a_handoff_is_found_only_once_it_is_whole():
    write = surfaces.handoff(OTHER, "half done", ["f1", "stigmem://node/fact/f2"], "run the tests")
    assert rows(write) == [
        ("intent:handoff_summary", "text", "half done", "company", 1.0),
        ("intent:context_ref", "ref", "stigmem://node/fact/f1", "company", 1.0),
        ("intent:context_ref", "ref", "stigmem://node/fact/f2", "company", 1.0),
        ("intent:continuation", "text", "run the tests", "company", 1.0),
        ("intent:handoff_to", "ref", OTHER, "company", 1.0),
    ]
    assert write.entity.startswith("stigmem://node/handoff/")
    assert surfaces.handoff(OTHER, "half done").entity != write.entity


def test_a_handoff_needs_neither_refs_nor_continuation_and_names_a_fact_once():
    assert [row[0] for row in rows(surfaces.handoff(OTHER, "s"))] == [
        "intent:handoff_summary",
        "intent:handoff_to",
    ]
    stored = Fact(id="f1", entity="e", relation="r", value={"type": "null"})
    assert len(surfaces.handoff(OTHER, "s", [stored, "f1", "stigmem://node/fact/f1"]).facts) == 3


def test_a_decision_and_an_escalation():
    decision = surfaces.decision("use-sqlite", "It is enough.")
    assert decision.entity == "stigmem://node/decision/use-sqlite"
    assert rows(decision) == [("roadmap:decision", "text", "It is enough.", "company", 1.0)]
    escalation = surfaces.escalation(OTHER, "no access", "high")
    assert escalation.entity.startswith("stigmem://node/escalation/")
    assert rows(escalation) == [
        ("intent:goal", "text", "no access", "company", 1.0),
        ("intent:escalate_to", "ref", OTHER, "company", 1.0),
        ("intent:escalation", "string", "high", "company", 1.0),
    ]


@given(st.text())
def test_a_task_is_where_the_node_puts_what_others_say_of_it(task):
    """The reference hook asserts ``issue:{task}`` as it is, and the node folds it."""
    try:
        entity = surfaces.checkout(task).entity
    except InputError:
        return
    assert entity in (normalised(f"issue:{task.strip()}", "entity"), normalised(task, "entity"))
    assert normalised(entity, "entity") == entity
    assert surfaces.done(entity).entity == entity


@pytest.mark.parametrize(
    ("task", "entity"),
    [
        ("PROJ-12", "issue:proj-12"),
        ("issue:PROJ-12", "issue:proj-12"),
        (" Fix  the\tdoor ", "issue:fix-the-door"),
        ("stigmem://Node/Issue/PROJ 12", "stigmem://node/issue/proj-12"),
        ("https://tracker.example/T/12", "https://tracker.example/t/12"),
    ],
)
def test_a_task_has_the_uri_that_other_agents_use(task, entity):
    assert surfaces.checkout(task).entity == entity
    assert {other.activity(task).entity for other in (surfaces, Surfaces(OTHER, "elsewhere"))} == {entity}
    ref = surfaces.blocked("t", task).facts[1].value.v
    assert ref == (entity if "://" in entity else f"stigmem://node/issue/{entity.removeprefix('issue:')}")


def test_a_decision_has_the_uri_that_other_agents_use():
    for slug in ("use-sqlite", "Use SQLite", "stigmem://node/decision/Use-SQLite"):
        assert surfaces.decision(slug, "s").entity == "stigmem://node/decision/use-sqlite"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: surfaces.checkout(" "), "task: must not be blank"),
        (lambda: surfaces.checkout("t" * 2048), "task: is 2054 bytes"),
        (lambda: surfaces.checkout("half \ud800"), "task: holds half of a surrogate pair"),
        (lambda: surfaces.blocked("t", ""), "blocked_by: must not be blank"),
        (lambda: surfaces.handoff("reviewer", "s"), "to: is not a URI with '://'"),
        (lambda: surfaces.handoff(OTHER, "  "), "summary: must not be blank"),
        (lambda: surfaces.handoff(OTHER, "x" * 4097), "summary: is 4097 bytes"),
        (lambda: surfaces.handoff(OTHER, None), "summary: must be a str for type text"),
        (lambda: surfaces.handoff(OTHER, "s", "f1"), "fact_refs: must be a list"),
        (lambda: surfaces.handoff(OTHER, "s", map(str, range(65))), "fact_refs: holds 65 facts; at most 64"),
        (lambda: surfaces.handoff(OTHER, "s", (), " "), "^continuation: must not be blank"),
        (lambda: surfaces.handoff(OTHER, "s", (), "x" * (1 << 21)), "at most 1048576 are allowed"),
        (lambda: surfaces.decision("", "s"), "decision: must not be blank"),
        (lambda: surfaces.escalation(OTHER, "x" * 2049, "low"), "goal: is 2049 bytes"),
        (lambda: surfaces.escalation(OTHER, "g", "urgent"), "priority: must be one of low"),
        (lambda: surfaces.escalation("bob", "g", "low"), "to: is not a URI"),
        (lambda: surfaces.activity("t", datetime(2026, 1, 31)), "at: must be timezone-aware"),
    ],
)
def test_bad_input_names_the_field_and_the_fix(build, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as refused:
        build()
    assert "xxxx" not in str(refused.value)


def test_texts_of_exactly_the_limit_are_taken():
    surfaces.handoff(OTHER, "x" * 4094 + "é", [str(number) for number in range(MAX_FACT_REFS)])
    surfaces.decision("d", "語" * 1365 + "x")
    surfaces.escalation(OTHER, "語" * 682 + "xx", "critical")


COMPANY = (
    ("paperclip:checkout", "string", "in_progress"),
    ("paperclip:issue_status", "string", "done"),
    ("paperclip:blocked_by", "ref", "stigmem://node/issue/t-1"),
    ("intent:handoff_to", "ref", OTHER),
    ("intent:handoff_summary", "text", "s"),
    ("intent:context_ref", "ref", "stigmem://node/fact/1"),
    ("intent:continuation", "text", "c"),
    ("roadmap:decision", "text", "d"),
    ("intent:escalation", "string", "low"),
    ("intent:escalate_to", "ref", OTHER),
    ("intent:goal", "text", "g"),
)
LOCAL = ("paperclip:last_active", "datetime", "2026-01-31T12:00:00+00:00")


def new(relation, type, v, **fields):
    given = {"entity": ISSUE, "source": AGENT, "scope": "company", **fields}
    return NewFact(relation=relation, value=FactValue(type=type, v=v), **given)


@pytest.mark.parametrize(("relation", "type", "value"), [*COMPANY, LOCAL])
def test_each_class_of_12_4_5_has_its_scope_confidence_and_type(relation, type, value):
    right = "local" if relation == LOCAL[0] else "company"
    check_fact(new(relation, type, value, scope=right))
    for scope in {"local", "team", "company", "public"} - {right}:
        with pytest.raises(InputError, match=f"{relation}: scope must be {right}, not {scope}"):
            check_fact(new(relation, type, value, scope=scope))
    for confidence in (0.0, 0.5, 0.999999):
        with pytest.raises(InputError, match=f"{relation}: confidence must be 1.0"):
            check_fact(new(relation, type, value, scope=right, confidence=confidence))
    with pytest.raises(InputError, match=f"{relation}: value must be of type {type}, not number"):
        check_fact(new(relation, "number", 1, scope=right))


def test_further_routing_relations_need_full_confidence_and_others_are_free():
    with pytest.raises(InputError, match="confidence must be 1"):
        check_fact(new("intent:anything", "text", "x", confidence=0.9))
    check_fact(new("preference:tea", "text", "x", confidence=0.1, scope="public"))


def test_sizes_and_words_are_checked_in_facts_made_by_hand_too():
    with pytest.raises(InputError, match="intent:goal: is 2049 bytes of UTF-8; at most 2048"):
        check_fact(new("intent:goal", "text", "x" * 2049))
    with pytest.raises(InputError, match="paperclip:issue_status: must be one of done, blocked"):
        check_fact(new("paperclip:issue_status", "string", "almost done"))


async def test_a_write_with_one_wrong_fact_reaches_no_node(double):
    write = surfaces.decision("d", "s")
    wrong = new("intent:goal", "text", "g", scope="local")
    async with StigmemNode(double.url) as node:
        with pytest.raises(InputError, match="intent:goal: scope must be company"):
            await carry_out(node, Write("decision", write.entity, (*write.facts, wrong)))
    assert double.requests == []


@pytest.mark.parametrize(
    ("fault", "cause"), [("422", BackendRejected), ("503", BackendUnavailable), ("unreadable", BackendError)]
)
async def test_a_handoff_that_failed_half_way_can_be_completed(fault, cause):
    write = surfaces.handoff(OTHER, "top secret summary", ["f1"], "c")
    with FaultyNode({3: fault, 4: fault}) as double:
        async with StigmemNode(double.url, retry_pause_s=0.01) as node:
            with pytest.raises(cause) as failed:
                await carry_out(node, write)
            double.planned.clear()
            error = str(failed.value)
            assert "2 of 4 facts are stored; send it again" in error
            assert "secret" not in error
            # Nobody picks up what is not whole, and sending it again completes it without a second copy.
            assert await node.query(relation="intent:handoff_to") == []
            await carry_out(node, write)
            assert len(await node.query(entity=write.entity)) == 4
