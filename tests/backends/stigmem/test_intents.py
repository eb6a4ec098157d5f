"""Intent envelopes: the rules of section 4."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from intent_samples import AGENT, BOSS, SENDER, fields

from memory.contract.errors import InputError
from memory.stigmem.facts import MAX_GOAL_BYTES, MAX_SUMMARY_BYTES
from memory.stigmem.intents import MAX_PARTS, IntentEnvelope

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
