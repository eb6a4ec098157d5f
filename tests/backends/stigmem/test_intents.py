"""Intent envelopes: the rules of section 4, and the node's own body of them."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from intent_samples import AGENT, BOSS, ENVELOPES, READER, SENDER, fields, full

from memory.contract.errors import BackendProtocolError, InputError
from memory.stigmem.facts import MAX_GOAL_BYTES, MAX_SUMMARY_BYTES, MAX_VALUE_BYTES, Fact
from memory.stigmem.intent_facts import (
    GOAL,
    escalation_write,
    from_body,
    names_envelope,
    native_body,
    timeout_fact,
)
from memory.stigmem.intents import MAX_PARTS, IntentEnvelope, IntentRecord
from memory.stigmem.writers import Surfaces

SURFACES = Surfaces(READER, "node.example")
BUDGET = {"kind": "budget", "limit": {"type": "number", "v": 5}}
QUIET = {"kind": "quiet", "value": {"type": "boolean", "v": True}, "weight": 1}
HANDOFF = {"summary": "s", "fact_refs": [AGENT + "f"]}
NOW = datetime.now(UTC)


def test_the_least_envelope_gets_an_id_and_a_time():
    envelope = IntentEnvelope(**fields())
    assert len(envelope.id) == 36
    assert envelope.created_at.tzinfo is UTC
    assert envelope.scope == "company"
    assert envelope.escalation.channel == "stigmem"
    assert IntentEnvelope(**fields()).id != envelope.id
    given_fields = fields()
    del given_fields["from"]
    assert IntentEnvelope(from_=SENDER, **given_fields).from_ == SENDER


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("from", {"from": "agent:foo"}),
        ("to", {"to": []}),
        ("to", {"to": [f"{AGENT}{number}" for number in range(MAX_PARTS + 1)]}),
        ("goal", {"goal": " "}),
        ("goal", {"goal": "é" * (MAX_GOAL_BYTES // 2) + "x"}),
        ("id", {"id": "intent-1"}),
        ("scope", {"scope": "local"}),
        ("expires_at", {"expires_at": "tomorrow"}),
        ("expires_at: must be after created_at", {"created_at": NOW, "expires_at": NOW}),
        ("constraint.0.limit.v", {"constraint": [{"kind": "budget", "limit": {"type": "number", "v": True}}]}),
        ("constraint.0.unit", {"constraint": [{**BUDGET, "unit": " "}]}),
        ("preference.0.value.v", {"preference": [{**QUIET, "value": {"type": "boolean", "v": "no"}}]}),
        ("deference.0.defer_to", {"deference": [{"condition": "c", "defer_to": "legal"}]}),
        ("deference.0.timeout_s", {"deference": [{"condition": "c", "defer_to": BOSS, "timeout_s": -1}]}),
        ("escalation.escalate_to", {"escalation": {"escalate_to": "boss"}}),
        ("escalation.channel", {"escalation": {"escalate_to": BOSS, "channel": "fax"}}),
        ("handoff.fact_refs", {"handoff": {"summary": "s"}}),
        ("handoff.fact_refs.0", {"handoff": {"summary": "s", "fact_refs": ["fact-1"]}}),
        ("handoff.summary", {"handoff": {**HANDOFF, "summary": ""}}),
        ("handoff.continuation", {"handoff": {**HANDOFF, "continuation": ""}}),
        ("urgency", {"urgency": "high"}),
    ],
)  # fmt: skip
def test_what_section_4_forbids_is_refused_by_name(where, changes):
    with pytest.raises(InputError) as caught:
        IntentEnvelope(**fields(**changes))
    assert str(caught.value).startswith(f"IntentEnvelope.{where}")
    assert len(str(caught.value)) < 300, "the value itself is not repeated"


@pytest.mark.parametrize("missing", ["from", "to", "goal", "escalation"])
def test_what_section_4_requires_is_required(missing):
    incomplete = fields()
    del incomplete[missing]
    with pytest.raises(InputError, match=rf"^IntentEnvelope\.{missing}: is required"):
        IntentEnvelope(**incomplete)


@given(st.floats() | st.integers(-2, 2))
@example(math.nextafter(1.0, 2.0))
@example(math.nextafter(0.0, -1.0))
def test_weights_are_from_0_to_1(weight):
    preference = {"kind": "k", "value": {"type": "null"}, "weight": weight}
    if not math.isnan(weight) and 0 <= weight <= 1:
        assert IntentEnvelope(**fields(preference=[preference])).preference[0].weight == weight
    else:
        with pytest.raises(InputError, match=r"preference\.0\.weight"):
            IntentEnvelope(**fields(preference=[preference]))


def test_goals_and_summaries_fill_their_limits_to_the_byte():
    longest = fields(
        goal="é" * (MAX_GOAL_BYTES // 2), handoff={**HANDOFF, "summary": "𝄞" * (MAX_SUMMARY_BYTES // 4)}
    )
    assert IntentEnvelope(**longest).body()["goal"] == longest["goal"]


def test_expiry_is_told_at_any_moment():
    envelope = IntentEnvelope(**fields(created_at=NOW, expires_at=NOW + timedelta(hours=1)))
    assert not envelope.is_expired(NOW)
    assert not envelope.is_expired()
    assert envelope.is_expired(NOW + timedelta(hours=1))
    endless = IntentEnvelope(**fields())
    assert not endless.is_expired(NOW + timedelta(days=9999))
    with pytest.raises(ValueError, match="timezone-aware"):
        envelope.is_expired(datetime(2030, 1, 1))


def record_of(envelope):
    return IntentRecord(**envelope.body())


@pytest.mark.thorough
@given(ENVELOPES)
def test_an_envelope_comes_back_from_the_nodes_own_body(envelope):
    answer = json.loads(json.dumps({**native_body(envelope), "created_at": envelope.created_at.isoformat()}))
    for entry in answer["constraint"] + answer["preference"]:
        value = entry["limit" if "limit" in entry else "value"]
        shown = {"null": "null", "boolean": str(value["v"]).lower()}.get(value["type"], str(value["v"]))
        value.update(v=shown, interpret_as="content")
    assert from_body({**answer, "fact_ids": [], "a_new_field": 1}) == record_of(envelope)


@pytest.mark.parametrize(
    "body", [{}, {"id": "i"}, {**fields(), "id": "i"}, {**fields(), "id": 5, "created_at": "x"}]
)
def test_bodies_that_are_no_envelopes_are_a_protocol_error(body):
    with pytest.raises(BackendProtocolError, match="cannot be read"):
        from_body(body)


def test_foreign_envelopes_are_read_as_far_as_they_go():
    body = {
        "id": "intent:x",
        "from": "agent:a",
        "to": ["agent:b"],
        "goal": "g",
        "created_at": NOW.isoformat(),
    }
    read = from_body({**body, "escalation": None, "handoff": {"summary": "s", "fact_refs": []}})
    assert (read.id, read.from_, read.escalation) == ("intent:x", "agent:a", None)


@pytest.mark.parametrize(
    ("entity", "is_envelope"),
    [
        ("intent:e528c61e", True),
        ("stigmem://node:1/intent/e528c61e", True),
        ("stigmem://node:1/escalation/e528c61e", False),
        ("escalation:e528c61e", False),
        ("e528c61e-52d1-4c43-a0dd-0d35b0d6f1f6", True),
        ("handoff:intent", None),
        ("intent", None),
    ],
)
def test_envelopes_are_told_from_escalations(entity, is_envelope):
    assert names_envelope(entity) is is_envelope


def test_an_escalation_carries_the_envelope_only_where_the_policy_says_so():
    brief, whole = full(), IntentEnvelope(**fields())
    fact = Fact(id="f1", entity=AGENT + "f", relation="m:x", value={"type": "text", "v": "seen"})
    values = {}
    for envelope in (brief, whole):
        write = escalation_write(envelope, "intent:1", SURFACES, "no table free", {AGENT + "f": [fact]})
        values = {row.relation: row.value.v for row in write.facts}
        assert write.facts[-1].relation == "intent:escalation"
        assert values["intent:escalation"] == envelope.escalation.priority
        assert values["intent:escalate_to"] == BOSS
        assert values[GOAL] == "no table free"
        assert values["intent:escalation_of"] == "intent:1"
        assert {(row.source, row.scope) for row in write.facts} == {(READER, "company")}
        context = json.loads(values["intent:escalation_context"])
        if envelope is brief:
            assert context == {"envelope_id": brief.id, "query": {"entity": "intent:1", "limit": 500}}
        else:
            assert context["envelope"] == whole.body()
            assert context["facts"][0]["value"] == {"type": "text", "v": "seen"}


def test_an_escalation_that_cannot_be_sent_says_why():
    record = IntentRecord(**{**fields(escalation=None), "id": "x", "created_at": NOW})
    with pytest.raises(InputError, match="names nobody"):
        escalation_write(record, "intent:x", SURFACES, "stuck")
    with pytest.raises(InputError, match="bytes of UTF-8"):
        escalation_write(full(), "intent:x", SURFACES, "é" * MAX_GOAL_BYTES)
    large = Fact(
        id="f1", entity=AGENT + "f", relation="m:x", value={"type": "text", "v": "x" * MAX_VALUE_BYTES}
    )
    with pytest.raises(InputError, match="include_context"):
        escalation_write(IntentEnvelope(**fields()), "intent:x", SURFACES, "stuck", {AGENT + "f": [large]})


def test_timeouts_are_recorded_one_per_rule():
    envelope = full()
    facts = [timeout_fact(envelope, SURFACES, rule, NOW) for rule in (0, 1)]
    assert facts[0].entity != facts[1].entity
    assert dict(facts[0].value) == {"type": "datetime", "v": NOW.isoformat()}
    for rule in (-1, 2):
        with pytest.raises(InputError, match="has 2 deference rules"):
            timeout_fact(envelope, SURFACES, rule, NOW)
    with pytest.raises(InputError, match="timezone-aware"):
        timeout_fact(envelope, SURFACES, 0, datetime(2030, 1, 1))
