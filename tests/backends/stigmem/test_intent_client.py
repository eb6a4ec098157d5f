"""Envelopes on a node: sent, found again, escalated, and told apart when they fail."""

import json
import os
from datetime import UTC, datetime

import pytest
from both_loops import anyio_backend as anyio_backend
from intent_samples import AGENT, BOSS, READER, SENDER, fields, full

from memory.contract.errors import (
    BackendAuthError,
    BackendProtocolError,
    BackendTimeout,
    BackendUnavailable,
    InputError,
)
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import MAX_GOAL_BYTES, FactValue, NewFact
from memory.stigmem.intent_client import IntentClient
from memory.stigmem.intents import IntentEnvelope


@pytest.fixture
async def intents(double):
    async with client(double) as node:
        yield IntentClient(node)


def client(double):
    return StigmemNode(double.url, timeout_s=60.0, retry_pause_s=0.0)


def same(found, sent):
    """The native route puts the node's time for the sender's."""
    return found.model_copy(update={"created_at": sent.created_at}) == sent


async def test_an_envelope_makes_the_round_trip(intents, double):
    for envelope in (full(), IntentEnvelope(**fields())):
        receipt = await intents.submit(envelope)
        assert not receipt.existed
        stored = {fact["id"] for fact in double.node.facts}
        assert set(receipt.fact_ids) <= stored
        found = await intents.get(receipt.entity)
        assert same(found, envelope)
        assert same(await intents.get(envelope.id), envelope)
        goals = [fact for fact in double.node.facts if fact["entity"] == receipt.entity]
        assert envelope.goal in [fact["value"]["v"] for fact in goals if fact["relation"] == "intent:goal"]
    assert not any(fact["contradicted"] for fact in double.node.facts)


async def test_submitting_twice_changes_nothing(intents, double):
    envelope = full()
    first = await intents.submit(envelope)
    count = len(double.node.facts)
    second = await intents.submit(envelope)
    assert (second.entity, second.existed, second.fact_ids) == (first.entity, True, ())
    assert len(double.node.facts) == count


async def test_envelopes_in_flight_are_found_by_goal_recipient_and_sender(intents):
    sent = {
        "first": IntentEnvelope(**fields(goal="tea")),
        "second": IntentEnvelope(**fields(goal="tea", to=[AGENT + "other"])),
        "third": IntentEnvelope(**fields(goal="coffee", **{"from": AGENT + "else"})),
    }
    entities = {(await intents.submit(envelope)).entity: name for name, envelope in sent.items()}

    async def names(**wanted):
        found = await intents.in_flight(**wanted)
        assert (dict(found.unreadable), found.truncated) == ({}, False)
        return [entities[entity] for entity in found.envelopes]

    assert await names() == ["third", "second", "first"]
    assert await names(goal="tea") == ["second", "first"]
    assert await names(to=READER) == ["third", "first"]
    assert await names(sender=SENDER, goal="tea", to=READER) == ["first"]
    assert await names(goal="te") == []


async def test_unknown_envelopes_are_none_and_a_failing_node_is_an_error(intents, double):
    assert await intents.get("00000000-0000-4000-8000-000000000000") is None
    assert await intents.get("stigmem://node.example/intent/none") is None
    double.faults.add("500", times=None)
    for call in (
        intents.get("00000000-0000-4000-8000-000000000000"),
        intents.in_flight(),
        intents.submit(full()),
    ):
        with pytest.raises(BackendUnavailable):
            await call


async def test_an_escalation_with_context_embeds_the_facts_referred_to(double):
    async with client(double) as node:
        intents = IntentClient(node)
        value = FactValue(type="text", v="the table by the window")
        wish = NewFact(entity=AGENT + "wish", relation="m:x", value=value, source=SENDER, scope="company")
        await node.assert_fact(wish)
        handoff = {"summary": "s", "fact_refs": [AGENT + "wish"]}
        envelope = IntentEnvelope(**fields(handoff=handoff))
        receipt = await intents.submit(envelope)
        facts = await intents.escalate(receipt.entity, envelope, source=READER, problem="taken")
        context = next(fact.value.v for fact in facts if fact.relation == "intent:escalation_context")
        assert "the table by the window" in context


async def test_the_uri_of_a_fact_leads_to_the_fact_unless_it_would_leave_its_scope(double):
    async with client(double) as node:
        intents = IntentClient(node)

        async def stored(text, scope):
            value = FactValue(type="text", v=text)
            fact = NewFact(entity=AGENT + text, relation="m:x", value=value, source=SENDER, scope=scope)
            return await node.assert_fact(fact)

        by_id, by_cid = await stored("window", "company"), await stored("terrace", "company")
        private = await stored("cellar", "local")
        refs = [f"stigmem://node/fact/{name}" for name in (by_id.id, by_cid.cid, private.id, "gone")]
        envelope = IntentEnvelope(**fields(handoff={"summary": "s", "fact_refs": refs}))
        receipt = await intents.submit(envelope)
        facts = await intents.escalate(receipt.entity, envelope, source=READER, problem="taken")
        context = json.loads(
            next(fact.value.v for fact in facts if fact.relation == "intent:escalation_context")
        )
        assert [fact["value"]["v"] for fact in context["facts"]] == ["window", "terrace"]
        assert context["not_found"] == refs[2:]
        double.faults.add("503", times=None)
        with pytest.raises(BackendUnavailable):
            await intents.escalate(receipt.entity, envelope, source=READER, problem="taken")


async def test_a_timeout_leaves_a_trace_and_the_envelope_whole(intents):
    envelope = full()
    receipt = await intents.submit(envelope)
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    fact = await intents.record_timeout(envelope, 1, source=READER, at=moment)
    assert (fact.relation, fact.value.v) == ("intent:deference_timeout", moment.isoformat())
    assert same(await intents.get(receipt.entity), envelope)


async def test_a_native_answer_that_was_lost_is_looked_up(double):
    class Lossy(StigmemNode):
        async def request(self, method, path, **more):
            answer = await super().request(method, path, **more)
            if method == "POST" and (more.get("json") or {}).get("goal"):
                raise BackendTimeout("lost", diagnostics={})
            return answer

    envelope = full()
    async with Lossy(double.url) as node:
        receipt = await IntentClient(node).submit(envelope)
    assert receipt.existed
    assert receipt.entity in double.node.intents


async def test_an_unreadable_envelope_hides_no_other(double):
    async with client(double) as node:
        intents = IntentClient(node)
        good = await intents.submit(full())
        broken = await intents.submit(full())
        double.node.intents[broken.entity]["escalation"] = {"escalate_to": BOSS, "priority": "urgent"}
        found = await intents.in_flight()
        assert list(found.envelopes) == [good.entity]
        assert list(found.unreadable) == [broken.entity]
        assert "escalation.priority" in found.unreadable[broken.entity]
        with pytest.raises(BackendProtocolError):
            await intents.get(broken.entity)


async def test_an_envelope_that_cannot_be_escalated_says_why(intents):
    with pytest.raises(InputError, match="bytes of UTF-8"):
        await intents.escalate("intent:x", full(), source=READER, problem="é" * MAX_GOAL_BYTES)


async def test_timeouts_are_recorded_one_per_rule(intents):
    facts = [await intents.record_timeout(full(), rule, source=READER) for rule in (0, 1)]
    assert facts[0].entity != facts[1].entity
    for rule in (-1, 2):
        with pytest.raises(InputError, match="has 2 deference rules"):
            await intents.record_timeout(full(), rule, source=READER)
    with pytest.raises(InputError, match="timezone-aware"):
        await intents.record_timeout(full(), 0, source=READER, at=datetime(2030, 1, 1))


async def test_a_key_that_may_not_read_is_not_an_empty_board(tenant_double):
    async with client(tenant_double) as node:
        with pytest.raises(BackendAuthError):
            await IntentClient(node).in_flight()


@pytest.mark.skipif(not os.environ.get("STIGMEM_URL"), reason="STIGMEM_URL names no Stigmem node")
async def test_a_live_node_gives_envelopes_back():
    async with StigmemNode(os.environ["STIGMEM_URL"], os.environ.get("STIGMEM_API_KEY")) as node:
        intents, envelope = IntentClient(node), full()
        receipt = await intents.submit(envelope)
        assert (await intents.submit(envelope)).existed
        found = await intents.get(receipt.entity)
        assert same(found, envelope)
        assert receipt.entity in (await intents.in_flight(goal=envelope.goal)).envelopes
        await intents.escalate(receipt.entity, found, source=READER, problem="no table free")
        await intents.record_timeout(found, 0, source=READER)
        assert same(await intents.get(receipt.entity), envelope)
