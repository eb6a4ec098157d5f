"""Envelopes for tests: the least one, and one that uses every field."""

from datetime import UTC, datetime, timedelta

from memory.stigmem.intents import IntentEnvelope

AGENT = "stigmem://node.example/agent/"
SENDER, READER, BOSS = AGENT + "sender", AGENT + "reader", AGENT + "boss"


def fields(**changes):
    """The least an envelope needs."""
    least = {"from": SENDER, "to": [READER], "goal": "book a table", "escalation": {"escalate_to": BOSS}}
    return {**least, **changes}


def full(**changes):
    """An envelope with every field of section 4."""
    refs = [AGENT + "fact-1", AGENT + "fact-2"]
    return IntentEnvelope(
        **fields(
            to=[READER, AGENT + "second"],
            constraint=[
                {"kind": "budget", "limit": {"type": "number", "v": 50.5}, "unit": "EUR"},
                {"kind": "deadline", "limit": {"type": "datetime", "v": "2030-01-01T00:00:00+00:00"}},
                {"kind": "max_calls", "limit": {"type": "number", "v": 3}},
            ],
            preference=[
                {"kind": "quiet", "value": {"type": "boolean", "v": True}, "weight": 0.9},
                {"kind": "smoking", "value": {"type": "boolean", "v": False}, "weight": 1},
                {"kind": "any", "value": {"type": "null"}, "weight": 0},
            ],
            deference=[
                {"condition": "cost > 100", "defer_to": BOSS, "timeout_s": 60},
                {"condition": "requires_legal_review", "defer_to": AGENT + "legal"},
            ],
            escalation={"escalate_to": BOSS, "priority": "high", "include_context": False},
            handoff={
                "summary": "half done",
                "fact_refs": refs,
                "continuation": "page 3",
                "artifacts": [{"name": "deck", "ref": "https://example.org/Deck.pdf"}],
            },
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            **changes,
        )
    )
