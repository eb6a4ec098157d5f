"""The adapter-specific gate of Spec-19 12.7 on a live node: ``STIGMEM_URL=http://... pytest tests/live``."""

import os
import uuid

import pytest

pytest.importorskip("httpx")

from memory import InputError
from memory.stigmem.abi import StigmemAbi
from memory.stigmem.client import StigmemNode
from memory.stigmem.writers import Write, carry_out

URL = os.environ.get("STIGMEM_URL")
KEY = os.environ.get("STIGMEM_API_KEY")
TAG = uuid.uuid4().hex[:12]
SENDER = f"stigmem://memslot.test/agent/sender-{TAG}"
RECEIVER = f"stigmem://memslot.test/agent/receiver-{TAG}"

pytestmark = [
    pytest.mark.skipif(not URL, reason="needs a Stigmem node; set STIGMEM_URL (and STIGMEM_API_KEY)")
]


def agent(source):
    return StigmemAbi(URL, KEY, source)


async def test_the_relations_are_in_the_store_after_each_lifecycle_event():
    abi = agent(SENDER)
    build = abi.surfaces
    expected = {
        build.checkout(f"t-{TAG}"): {"paperclip:checkout"},
        build.blocked(f"b-{TAG}", f"t-{TAG}"): {"paperclip:issue_status", "paperclip:blocked_by"},
        build.done(f"d-{TAG}"): {"paperclip:issue_status"},
        build.activity(f"p-{TAG}"): {"paperclip:last_active"},
        build.handoff(RECEIVER, "é" * 2048, ["f1", "f2"], "go on"): {
            "intent:handoff_summary",
            "intent:context_ref",
            "intent:continuation",
            "intent:handoff_to",
        },
        build.decision(f"d-{TAG}", "s"): {"roadmap:decision"},
        build.escalation(RECEIVER, "g", "high"): {"intent:goal", "intent:escalate_to", "intent:escalation"},
    }
    async with StigmemNode(URL or "", KEY) as node:
        for written, relations in expected.items():
            facts = await abi.perform(written)
            found = await node.query(entity=facts[0].entity, include_contradicted=True, min_confidence=1.0)
            assert {fact.relation for fact in found} == relations
            assert {fact.id for fact in found} == {fact.id for fact in facts}
            scope = "local" if relations == {"paperclip:last_active"} else "company"
            assert {fact.scope for fact in found} == {scope}


async def test_a_handoff_reaches_the_agent_it_names():
    abi = agent(SENDER)
    sent = (await abi.perform(abi.surfaces.handoff(RECEIVER, "half done", ["f1"], "run the tests")))[0]
    context = await agent(RECEIVER).boot(f"stigmem://memslot.test/user/{TAG}")
    found = {fact.relation: fact.value.v for fact in context.facts if fact.entity == sent.entity}
    assert found["intent:handoff_to"] == RECEIVER
    assert found["intent:handoff_summary"] == "half done"
    assert f"- **intent:continuation** on `{sent.entity}`: run the tests" in context.summary
    assert context.problems == ()


async def test_a_wrong_scope_or_low_confidence_does_not_reach_the_node():
    abi = agent(SENDER)
    good = abi.surfaces.decision(f"wrong-{TAG}", "s")
    async with StigmemNode(URL or "", KEY) as node:
        for change in ({"scope": "public"}, {"confidence": 0.9}):
            wrong = Write(good.what, good.entity, (good.facts[0].model_copy(update=change),))
            with pytest.raises(InputError):
                await carry_out(node, wrong)
        assert await node.query(entity=good.entity, include_contradicted=True) == []


async def test_a_task_is_found_where_the_reference_hook_puts_it():
    abi = agent(SENDER)
    assert await abi.perform(abi.surfaces.checkout(f"PROJ-{TAG}"))
    async with StigmemNode(URL or "", KEY) as node:
        value = {"type": "string", "v": "done"}
        body = {"entity": f"issue:PROJ-{TAG}", "relation": "paperclip:issue_status", "value": value}
        await node.request("POST", "/v1/facts", json={**body, "source": "agent:hook", "scope": "company"})
        found = await node.query(entity=f"issue:PROJ-{TAG}")
    assert {fact.relation for fact in found} == {"paperclip:checkout", "paperclip:issue_status"}


async def test_the_priorities_of_envelopes_do_not_hide_an_escalation():
    abi = agent(SENDER)
    raised = (await abi.perform(abi.surfaces.escalation(RECEIVER, "on fire", "critical")))[0]
    async with StigmemNode(URL or "", KEY) as node:
        escalation = {"escalate_to": RECEIVER, "priority": "low"}
        body = {"from": SENDER, "to": [RECEIVER], "goal": "tidy up", "escalation": escalation}
        for number in range(12):
            own_id = {"id": f"x-{TAG}-{number}"} if number % 2 else {}
            await node.request("POST", "/v1/intents", json={**body, **own_id})
    context = await agent(RECEIVER).boot(f"stigmem://memslot.test/user/{TAG}")
    shown = [fact for fact in context.facts if fact.relation == "intent:escalation"]
    assert raised.entity in [fact.entity for fact in shown]
    assert all("/escalation/" in fact.entity for fact in shown)
