"""What may be sent as a fact, and what a node's facts are read as: every rule, from both sides of its edge."""

import json
import math
import string
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.contract.errors import BackendProtocolError, InputError
from memory.stigmem.facts import (
    MAX_URI_BYTES,
    MAX_VALUE_BYTES,
    Fact,
    FactValue,
    NewFact,
    build_uri,
    check_uri,
    encode_uri_part,
)

AGENT = "stigmem://node.example/agent/a"
GOOD = {
    "string": ["", "word", "ünï"],
    "text": ["two\nlines", "x" * MAX_VALUE_BYTES],
    "number": [0, -1, 1.5, 2**53, 1e308],
    "boolean": [True, False],
    "datetime": [datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00Z", "2030-01-01T00:00:00.5+02:00"],
    "ref": [AGENT, "https://example.org/Deck.pdf?page=2"],
    "null": [None],
}
WRONG = {
    "string": [None, 1, True, b"bytes", ["list"], "\ud800", "é" * (MAX_VALUE_BYTES // 2 + 1), "x" * 10_485_760],
    "text": [None, 1.5, {"a": 1}, "half \udc00", "x" * (MAX_VALUE_BYTES + 1), "𝄞" * (MAX_VALUE_BYTES // 4 + 1)],
    "number": [True, False, "1", "abc", None, math.nan, math.inf, -math.inf, 10**400, 2**53 + 1, 1j],
    "boolean": ["no", "true", 0, 1, None],
    "datetime": [
        "garbage", "", "2030-01-01", "2030-01-01T00:00:00", datetime(2030, 1, 1), 1_700_000_000, None, "not-a-date",
    ],
    "ref": ["agent:foo", "", None, 5, "stigmem://", "stigmem://Node/a", "stigmem://n/a b", "a://b\n", "no scheme"],
    "null": ["null", 0, False, ""],
}  # fmt: skip


@pytest.mark.parametrize("kind", GOOD)
def test_every_type_takes_its_own_content(kind):
    for v in GOOD[kind]:
        body = dict(FactValue(type=kind, v=v))
        assert body["type"] == kind
        assert json.loads(json.dumps(body)) == body
        assert body["v"] == (v.isoformat() if isinstance(v, datetime) else v)


@pytest.mark.parametrize("kind", WRONG)
def test_every_type_refuses_other_content_and_names_the_field(kind):
    for position, v in enumerate(WRONG[kind]):
        with pytest.raises(InputError) as caught:
            FactValue(type=kind, v=v)
        message = str(caught.value)
        assert message.startswith("FactValue.v: "), (kind, position)
        assert len(message) < 300, "the value itself is not repeated"


def test_unknown_types_and_forgotten_values_are_refused():
    with pytest.raises(InputError, match=r"^FactValue.type: .*'text'"):
        FactValue(type="json", v={})
    with pytest.raises(InputError, match=r"^FactValue.v: must be a str"):
        FactValue(type="text")
    assert FactValue(type="null").v is None


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("agent", "'://'"),
        ("", "'://'"),
        ("://x", "'://'"),
        ("stigmem://", "names nothing"),
        ("stigmem://Node/agent/a", "capitals.*encode_uri_part"),
        ("stigmem://node/agent/Ä", "capitals.*encode_uri_part"),
        ("STIGMEM://node/agent/a", "capitals"),
        ("stigmem://node/agent/a b", "space"),
        ("stigmem://node/agent/a\u00a0b", "space"),
        ("stigmem://node/agent/a\n", "space"),
        ("stigmem://node/agent/\x00", "control"),
        ("stigmem://node/" + "é" * (MAX_URI_BYTES // 2), "bytes of UTF-8"),
        ("stigmem://node/\ud800", "surrogate"),
    ],
)
def test_uris_the_node_would_change_are_refused_with_the_fix(uri, problem):
    with pytest.raises(InputError, match=rf"^target: .*{problem}"):
        check_uri(uri, "target")
    for field in ("entity", "source"):
        fact = {"entity": AGENT, "relation": "memory:role", "source": AGENT, "scope": "company", field: uri}
        with pytest.raises(InputError, match=rf"^NewFact.{field}: .*{problem}"):
            NewFact(value=FactValue(type="null"), **fact)


def test_entities_and_sources_may_be_informal_as_the_node_folds_them():
    fact = {"relation": "m:x", "source": AGENT, "scope": "company", "value": FactValue(type="null")}
    assert NewFact(entity="issue:proj-12", **fact).entity == "issue:proj-12"
    for wrong in ("issue:PROJ-12", "issue:a b", "issue:", "issue:\x00", "issue:" + "é" * MAX_URI_BYTES):
        with pytest.raises(InputError, match=r"^NewFact.entity: "):
            NewFact(entity=wrong, **fact)
    assert NewFact(entity=AGENT, **{**fact, "source": "agent:openclaw"}).source == "agent:openclaw"
    with pytest.raises(InputError, match=r"^NewFact.source: .*'://'"):
        NewFact(entity="issue:proj-12", **{**fact, "source": "openclaw"})


def test_refs_may_hold_capitals_outside_stigmem_only():
    assert FactValue(type="ref", v="https://example.org/Deck.PDF").v == "https://example.org/Deck.PDF"
    with pytest.raises(InputError, match="capitals"):
        check_uri("https://example.org/Deck.PDF")
    with pytest.raises(InputError, match=r"^FactValue\.v: .*capitals"):
        FactValue(type="ref", v="Stigmem://node/agent/A")


def node_folds(uri):
    """What a node does to an entity URI."""
    return "-".join(uri.strip().lower().split())


IDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(str.strip)


@given(IDS)
def test_built_uris_survive_the_node(text):
    uri = build_uri("LocalHost:8765", "user", text)
    assert check_uri(uri) == uri == node_folds(uri)
    assert uri.startswith("stigmem://localhost:8765/user/")
    assert "/" not in encode_uri_part(text)


@given(IDS, IDS)
def test_two_ids_never_share_a_uri(first_id, second_id):
    assert (build_uri("n", "user", first_id) == build_uri("n", "user", second_id)) == (first_id == second_id)


HOSTILE = st.text(alphabet="aA-_~ .%:/bß\u0301é", min_size=1, max_size=8).filter(str.strip)


@given(st.lists(HOSTILE, min_size=1, max_size=3), st.lists(HOSTILE, min_size=1, max_size=3))
def test_two_lists_of_ids_never_share_a_uri(first_ids, second_ids):
    assert (encode_uri_part(*first_ids) == encode_uri_part(*second_ids)) == (first_ids == second_ids)


def test_blank_ids_make_no_uri():
    for ids in ((), ("",), (" ",), ("a", "\t")):
        with pytest.raises(InputError, match="must not be blank"):
            build_uri("node", "user", *ids)


def fact(**changes):
    value = FactValue(type="text", v="hello")
    return NewFact(
        **{"entity": AGENT, "relation": "m:x", "value": value, "source": AGENT, "scope": "team", **changes}
    )


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("relation", ["", " ", "memory: role", "a\nb", "x" * 5000]),
        ("scope", ["Company", "", None, "private"]),
        ("confidence", [-0.1, 1.1, math.nan, math.inf, True, "1.0", None]),
        ("valid_until", [datetime(2030, 1, 1), "not-a-date", "2030-01-01T00:00:00"]),
        ("derived_from", [["text"], [{"a": math.nan}], [{"a": "x" * MAX_VALUE_BYTES}], [{"a": object()}]]),
        ("value", [None, "hello", {"type": "number", "v": "abc"}]),
        ("colour", ["red"]),
    ],
)
def test_new_facts_name_the_field_that_is_wrong(field, values):
    for value in values:
        with pytest.raises(InputError, match=rf"^NewFact\.{field}"):
            fact(**{field: value})


def test_a_body_holds_what_was_said_and_nothing_else():
    assert fact().body() == {
        "entity": AGENT,
        "relation": "m:x",
        "value": {"type": "text", "v": "hello"},
        "source": AGENT,
        "confidence": 1.0,
        "scope": "team",
    }
    until = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    full = fact(valid_until=until, derived_from=({"event_id": "e1"},)).body()
    assert full["valid_until"] == "2030-01-01T00:00:00+00:00"
    assert full["derived_from"] == [{"event_id": "e1"}]


def test_scope_has_no_default():
    with pytest.raises(InputError, match=r"NewFact\.scope: is required"):
        NewFact(entity=AGENT, relation="m:x", value=FactValue(type="null"), source=AGENT)


ROW = {
    "id": "f1",
    "entity": "handoff:k1",
    "relation": "intent:handoff_to",
    "value": {"type": "ref", "v": None},
}


def test_facts_are_read_with_tolerance():
    read = Fact(**ROW, sanitizer_redacted=True, a_new_field={"x": 1}, derived_from=None, contradicted=None)
    assert (read.value.v, read.sanitizer_redacted, read.derived_from, read.contradicted) == (
        None,
        True,
        (),
        False,
    )
    assert Fact(**{**ROW, "value": {"type": "vector", "v": [1], "interpret_as": "content"}}).value.v == [1]
    assert Fact(**{**ROW, "valid_until": "not-a-date"}).valid_until == "not-a-date"
    assert Fact(**{**ROW, "cls": 1, "self": 1, "data": 1}).id == "f1"


@pytest.mark.parametrize("broken", [{"id": None}, {"entity": 5}, {"value": "text"}, {"value": {"v": 1}}])
def test_what_is_no_fact_is_a_protocol_error_without_its_content(broken):
    with pytest.raises(BackendProtocolError, match=r"^Fact\.(id|entity|value)"):
        Fact(**{**ROW, **broken})


@pytest.mark.parametrize(
    ("hlc", "order"),
    [
        ("1795292050724.0", (1795292050724, 0)),
        ("9.10", (9, 10)),
        ("10.9", (10, 9)),
        (None, (-1, -1)),
        ("later", (-1, -1)),
        ("1.٣", (-1, -1)),
        ("1." + "9" * 5000, (-1, -1)),
    ],
)
def test_hybrid_clocks_compare_as_integers(hlc, order):
    assert Fact(**ROW, hlc=hlc).hlc_order == order


def test_times_of_storage_are_utc_or_unknown():
    assert Fact(**ROW, timestamp="2026-11-21T20:12:21+02:00").stored_at == datetime(
        2026, 11, 21, 18, 12, 21, tzinfo=UTC
    )
    for unknown in (None, "", "garbage", "2026-11-21T20:12:21"):
        assert Fact(**ROW, timestamp=unknown).stored_at is None


def test_the_escape_alphabet_is_what_the_node_leaves_alone():
    for char in string.printable:
        if char.strip():
            assert node_folds(encode_uri_part(char)) == encode_uri_part(char)
