"""Envelopes for tests: one that uses every field, and hypothesis strategies for all others."""

from datetime import UTC, datetime, timedelta
from typing import get_args

from hypothesis import strategies as st

from memory.stigmem.facts import FactValue
from memory.stigmem.intents import PRIORITIES, Channel, IntentEnvelope

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


URIS = st.from_regex(r"\Astigmem://[a-z0-9.]{1,9}/agent/[a-z0-9_~-]{1,20}\Z")
# What the node's sanitizer leaves alone; what it changes is tested by itself.
TEXT = st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=30)
WORDS = TEXT.filter(lambda text: text.strip())
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
VALUES = st.one_of(
    st.builds(FactValue, type=st.sampled_from(["string", "text"]), v=TEXT),
    st.builds(FactValue, type=st.just("number"), v=NUMBERS),
    st.builds(FactValue, type=st.just("boolean"), v=st.booleans()),
    st.builds(FactValue, type=st.just("datetime"), v=TIMES),
    st.builds(FactValue, type=st.just("ref"), v=URIS),
    st.builds(FactValue, type=st.just("null")),
)


def several(strategy, least=0):
    return st.lists(strategy, min_size=least, max_size=4)


ENVELOPES = st.fixed_dictionaries(
    {
        "from": URIS,
        "to": st.lists(URIS, min_size=1, max_size=4, unique=True),
        "goal": WORDS,
        "constraint": several(
            st.fixed_dictionaries({"kind": WORDS, "limit": VALUES, "unit": st.none() | WORDS})
        ),
        "preference": several(
            st.fixed_dictionaries({"kind": WORDS, "value": VALUES, "weight": st.floats(0, 1)})
        ),
        "deference": several(
            st.fixed_dictionaries(
                {"condition": WORDS, "defer_to": URIS, "timeout_s": st.none() | st.integers(0, 10**9)}
            )
        ),
        "escalation": st.fixed_dictionaries(
            {
                "escalate_to": URIS,
                "channel": st.sampled_from(get_args(Channel)),
                "priority": st.sampled_from(PRIORITIES),
                "include_context": st.booleans(),
            }
        ),
        "handoff": st.none()
        | st.fixed_dictionaries(
            {
                "summary": WORDS,
                "fact_refs": several(URIS, least=1),
                "continuation": st.none() | WORDS,
                "artifacts": several(st.fixed_dictionaries({"name": WORDS, "ref": URIS})),
            }
        ),
        "created_at": TIMES,
        "expires_at": st.none(),
    }
).map(lambda fields: IntentEnvelope(**fields))
