"""Scope encoding is injective for every alphabet, whatever the ids (DESIGN section 7)."""

import itertools
import string
import unicodedata
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from memory import MemoryScope, ScopeError
from memory.adapter import IdAlphabet, ScopeEncoder

ALPHABETS = {
    "default": IdAlphabet(),
    "mem0": IdAlphabet(safe=string.ascii_uppercase + "-._@+", escape="%", separator=":", max_length=255),
    "graphiti": IdAlphabet(safe=string.ascii_uppercase, escape="_", separator="-", max_length=64),
    "tenant": IdAlphabet(safe="", escape="-", separator="-x", max_length=63, prefix="m"),
    "shortest": IdAlphabet(safe="", escape="_", separator="-", max_length=40),
}
HOSTILE = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="aA_-:%*~./ nz0", max_size=30),
    st.sampled_from(
        ["acme", "acme-corp", "User_A", "user_a", "a_b", "c", "a", "b_c", "é", "é", "*", "%n", "_n", "-z"]
    ),
    st.text(alphabet="ab", min_size=500, max_size=512),
    st.just(""),
)
FIELDS = st.tuples(HOSTILE, HOSTILE, st.none() | HOSTILE, st.none() | HOSTILE)


def unchecked(fields):
    """A scope with ids that MemoryScope itself would refuse: the encoder must not rely on that check."""
    run, persona, namespace, agent = fields
    return MemoryScope.model_construct(
        run_id=run, persona_id=persona, backend_namespace=namespace, agent_id=agent
    )


@pytest.mark.parametrize("alphabet", ALPHABETS.values(), ids=ALPHABETS)
@given(identity=FIELDS, other=FIELDS)
@example(identity=("a_b", "c", None, None), other=("a", "b_c", None, None))
@example(identity=("acme", "x", None, None), other=("acme-corp", "x", None, None))
@example(identity=("User_A", "x", None, None), other=("user_a", "x", None, None))
@example(identity=("r", "p", None, None), other=("r", "p", "", None))
@example(identity=("r", "p", None, "x"), other=("r", "p", "x", None))
@example(identity=("r", "p", None, "x"), other=("r", "p", "", "x"))
@example(identity=("a" * 511 + "b", "p", None, None), other=("a" * 512, "p", None, None))
def test_different_scopes_never_share_a_native_id(alphabet, identity, other):
    assume(identity != other)
    encoder = ScopeEncoder(alphabet)
    first, second = (encoder.encode(unchecked(fields))["id"] for fields in (identity, other))
    assert first != second
    # Backends that fold case must not bring them together either, unless upper case is declared safe.
    if "A" not in alphabet.safe:
        assert first.lower() != second.lower()


@pytest.mark.parametrize("alphabet", ALPHABETS.values(), ids=ALPHABETS)
@given(fields=FIELDS)
def test_native_ids_keep_to_alphabet_and_length(alphabet, fields):
    native = ScopeEncoder(alphabet).encode(unchecked(fields))["id"]
    allowed = set(
        string.ascii_lowercase + string.digits + alphabet.safe + alphabet.escape + alphabet.separator
    )
    assert set(native) <= allowed
    assert 0 < len(native) <= alphabet.max_length
    assert native.startswith(alphabet.prefix)


@given(identity=st.tuples(HOSTILE, HOSTILE), other=st.tuples(HOSTILE, HOSTILE))
def test_templates_are_injective_too(identity, other):
    assume(identity != other)
    encoder = ScopeEncoder(ALPHABETS["graphiti"], {"group_id": "{run_id}:{persona_id}"})
    ids = {encoder.encode(unchecked((*fields, None, None)))["group_id"] for fields in (identity, other)}
    assert len(ids) == 2


def test_composed_and_decomposed_unicode_stay_apart():
    composed = unicodedata.normalize("NFC", "é")
    decomposed = unicodedata.normalize("NFD", "é")
    labels = {MemoryScope(run_id="r", persona_id=persona).label for persona in (composed, decomposed)}
    assert len(labels) == 2


def test_plain_ids_stay_readable():
    encoder = ScopeEncoder(IdAlphabet(), {"user_id": "{persona_id}", "run_id": "{run_id}"})
    scope = MemoryScope(run_id="run1", persona_id="user_a")
    assert encoder.encode(scope) == {"user_id": "user_a", "run_id": "run1"}
    assert scope.label == "run1:user_a"


@pytest.mark.parametrize(
    ("templates", "complaint"),
    [
        ({"id": "{run_id}"}, "{persona_id}"),
        ({"id": "fixed"}, "{run_id}, {persona_id}"),
        ({"id": "{run_id}{persona_id}"}, "put a separator"),
        ({"id": "{run_id}:{user}"}, "{user} is unknown"),
        ({"id": "{run_id}:{persona_id!r}"}, "is unknown"),
        ({"id": "{run_id:{persona_id}"}, "unbalanced brace"),
    ],
)
def test_a_template_that_would_share_memory_is_refused(templates, complaint):
    with pytest.raises(ScopeError, match=r"mem0(\.id)?: ") as caught:
        ScopeEncoder(IdAlphabet(), templates, owner="mem0")
    assert complaint in str(caught.value)


def test_sharing_is_possible_on_purpose_only():
    scope = MemoryScope(run_id="r", persona_id="p", agent_id="a")
    template = {"id": "{run_id}:{persona_id}"}
    encoder = ScopeEncoder(IdAlphabet(), template, allow_sharing=False)
    with pytest.raises(ScopeError, match=r"\{agent_id\}.*allow_sharing"):
        encoder.encode(scope)
    with pytest.raises(ScopeError, match=r"add the field$"):  # a hint must name an option that exists
        ScopeEncoder(IdAlphabet(), template).encode(scope)
    shared = ScopeEncoder(IdAlphabet(), {"id": "{persona_id}"}, allow_sharing=True)
    assert shared.encode(scope) == {"id": "p"}


@pytest.mark.parametrize(
    "broken",
    [
        {"escape": "a"},
        {"escape": "%%"},
        {"max_length": 39},
        {"separator": "a"},
        {"escape": "-", "separator": "-a", "safe": ""},
        {"escape": "-", "separator": "-z", "safe": ""},
        {"escape": "-", "separator": "-a1", "safe": ""},
    ],
)
def test_an_alphabet_that_could_not_be_injective_is_refused(broken):
    assert IdAlphabet(max_length=40).escape_literal("a/b-C:d") == "a:b-C:d"
    with pytest.raises(ValueError, match=r"escape|max_length|separator"):
        IdAlphabet(**broken)


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ({"run_id": "", "persona_id": "p"}, "MemoryScope.run_id: must not be blank"),
        ({"run_id": "r", "persona_id": " \t"}, "MemoryScope.persona_id: must not be blank"),
        ({"run_id": "r", "persona_id": "*"}, "persona_id holds the wildcard"),
        ({"run_id": "r", "persona_id": "p", "agent_id": "a*"}, "agent_id holds the wildcard"),
        ({"run_id": "r" * 513, "persona_id": "p"}, "513 characters long; at most 512"),
        ({"run_id": "r", "persona_id": "\ud800"}, "surrogate"),
        ({"run_id": "r"}, "MemoryScope.persona_id: is required"),
        ({"run_id": "r", "persona_id": "p", "user": "u"}, "user: is not a known field"),
        ({"run_id": "r", "persona_id": "p", "cls": "u"}, "cls: is not a known field"),
    ],
)
def test_bad_ids_are_one_clear_error(ids, complaint):
    with pytest.raises(ScopeError) as caught:
        MemoryScope(**ids)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_longest_id_is_one():
    assert MemoryScope(run_id="r" * 512, persona_id="p").run_id == "r" * 512


def test_labels_tell_apart_what_looks_alike():
    scopes = [
        MemoryScope(run_id=run, persona_id=persona, backend_namespace=namespace, agent_id=agent)
        for run, persona in itertools.permutations(["a", "a:b", "b", "A"], 2)
        for namespace in (None, "n")
        for agent in (None, "n")
    ]
    assert len({scope.label for scope in scopes}) == len(scopes)


def test_a_template_that_could_be_taken_for_a_hash_is_refused():
    """Such as ``_z`` before 26 letters, where ids that are too long end in that."""
    alphabet = IdAlphabet(safe="", escape="_", separator="_s")
    with pytest.raises(ScopeError, match=r"memory\.x\.id: '_z' could be mistaken for a hash; choose another"):
        ScopeEncoder(alphabet, {"id": "{run_id}_z{persona_id}"}, owner="memory.x")
    assert ScopeEncoder(alphabet, {"id": "{run_id}_s{persona_id}"}).encode(
        MemoryScope(run_id="r", persona_id="p")
    )


def test_ids_of_databases_are_taken_as_their_text():
    number = UUID("12345678-1234-5678-1234-567812345678")
    assert MemoryScope(run_id=7, persona_id=number) == MemoryScope(run_id="7", persona_id=str(number))
    for odd in (True, 7.0, b"7", None, ["7"]):
        with pytest.raises(ScopeError, match="run_id"):
            MemoryScope(run_id=odd, persona_id="p")
