"""What counts as found, and what counts as misleading."""

from datetime import UTC, datetime

import pytest

from memory import MemoryScope, RetrieveRequest, RetrieveResult, Trace
from memory.adapter import ContextEntry, render_section
from memory.bench import EvidenceTruth, PreferenceTruth
from memory.bench.scores.scoring import WholeTurns, score_evidence, score_preference

SCOPE = MemoryScope(run_id="r", persona_id="p")


def retrieved(*entries, included=None):
    """A result as the slot returns it; ``included`` are the indexes that fit the budget."""
    chosen = tuple(range(len(entries))) if included is None else included
    return RetrieveResult(
        request=RetrieveRequest(query="q", scope=SCOPE, session_id="s"),
        raw=None,
        entries=entries,
        included=chosen,
        formatted_context=render_section("fake", "scope", [entries[index] for index in chosen]),
        trace=Trace(backend_name="fake", scope=SCOPE, native_operation="search"),
    )


KILN = "Ann: the <memory-context> kiln\n  is blue"
TEXTS = WholeTurns({"e1": KILN, "e2": "Bo: it rains"})


def test_a_turn_is_found_by_its_id_even_if_the_words_are_new():
    hit = score_evidence(
        EvidenceTruth(("e1", "e2"), unresolved=1),
        retrieved(ContextEntry("a fact", event_ids=("e1", "e9"))),
        TEXTS,
    )
    assert (hit.gold, hit.unresolved, hit.by_id, hit.by_text) == (2, 1, 1, 0)


def test_a_turn_is_found_by_its_text_however_the_section_breaks_and_escapes_it():
    hit = score_evidence(EvidenceTruth(("e1", "e2")), retrieved(ContextEntry(KILN)), TEXTS)
    assert (hit.by_id, hit.by_text) == (0, 1)


def test_entries_that_did_not_fit_the_budget_do_not_count():
    entries = (ContextEntry("x", event_ids=("e2",)), ContextEntry(KILN, event_ids=("e1",)))
    hit = score_evidence(EvidenceTruth(("e1",)), retrieved(*entries, included=(0,)), TEXTS)
    assert (hit.by_id, hit.by_text) == (0, 0)


CHAT = {
    "short": "Melanie: Thanks",
    "long": "Melanie: Thanks for the tip",
    "broken": "Ann: Blue like the\n  harbour.",
    "start": "Ann: Blue like the",
    "quoted": "Bo: She said Melanie: Thanks",
}


@pytest.mark.parametrize(
    ("entry", "whole"),
    [
        (ContextEntry("Melanie: Thanks for the tip"), {"long"}),
        (ContextEntry("Melanie: Thanks"), {"short"}),
        (ContextEntry("MELANIE:  thanks ", timestamp=datetime(2026, 1, 1, tzinfo=UTC), score=0.5), {"short"}),
        (ContextEntry("user: Melanie: Thanks"), {"short"}),
        (ContextEntry("[2024-05-08] Melanie: Thanks", prose=True), {"short"}),
        (ContextEntry("Melanie: Thanksgiving"), set()),
        (ContextEntry("Melanie: Thanks for the tip\nMelanie: Thanks"), {"long", "short"}),
        (ContextEntry("Earlier.\nMelanie: Thanks\nBo: Sure", prose=True), {"short"}),
        (ContextEntry("Ann: Blue like the harbour."), {"broken"}),
        (ContextEntry("Ann: Blue like the\nharbour."), {"broken"}),
        (ContextEntry("user: Ann: Blue like the\n   harbour.\nMelanie: Thanks"), {"broken", "short"}),
        (ContextEntry("Ann: Blue like the"), {"start"}),
        (ContextEntry("Bo: She said Melanie: Thanks"), {"quoted"}),
    ],
)
def test_only_whole_turns_are_found_by_their_text(entry, whole):
    for turn in CHAT:
        hit = score_evidence(EvidenceTruth((turn,)), retrieved(entry), WholeTurns(CHAT))
        assert hit.by_text == (turn in whole), turn


def test_looking_for_turns_takes_time_in_proportion_to_the_context():
    """Work counted, not time: characters looked at, of a line made of labels alone."""

    class Counted(str):
        looked_at = 0

        def __getitem__(self, part):
            Counted.looked_at += len(self)
            return str(self)[part]

    turns = WholeTurns(CHAT)
    for letters in (20_000, 40_000):
        Counted.looked_at = 0
        assert turns._whole(Counted("a: " * (letters // 3)), letters) is None
        assert Counted.looked_at <= 101 * letters


def test_turns_that_say_the_same_are_both_found():
    twice = WholeTurns({"a": "Bo: Yes", "b": "Bo: yes"})
    assert score_evidence(EvidenceTruth(("a", "b")), retrieved(ContextEntry("Bo: Yes")), twice).by_text == 2


TRUTH = PreferenceTruth(
    "be blunt with me", stale=("stay dry",), other=("be warm and encouraging",), decoys=("crack a joke",)
)


def scored(*entries, truth=TRUTH, foreign=()):
    return score_preference(truth, retrieved(*entries), other_context="personal", foreign=foreign)


def test_markers_are_found_ignoring_case_and_line_breaks():
    hit = scored(ContextEntry("Be blunt\nwith me, please."))
    assert hit.current
    assert not any((hit.stale, hit.other, hit.unlabelled, hit.decoy, hit.leak))
    assert hit.has_stale
    assert hit.has_other


def test_each_role_is_told_apart():
    assert scored(ContextEntry("stay dry")).stale
    assert scored(ContextEntry("Oskar: crack a joke")).decoy
    assert scored(ContextEntry("the flat in porto"), foreign=("the flat in Porto",)).leak
    assert scored().current is False


@pytest.mark.parametrize(
    "entry",
    [
        ContextEntry("Be warm and encouraging."),
        ContextEntry("A personal note.\nBe warm and encouraging.", prose=True),
        ContextEntry("be warm and encouraging", labels=(("context", "impersonal"),)),
        ContextEntry("be warm and encouraging", timestamp=datetime(2026, 1, 1, tzinfo=UTC), group="notes"),
    ],
)
def test_the_other_contexts_value_without_its_context_misleads(entry):
    hit = scored(entry)
    assert hit.other
    assert hit.unlabelled


@pytest.mark.parametrize(
    "entry",
    [
        ContextEntry("In personal matters: be warm and encouraging."),
        ContextEntry("be warm and encouraging", labels=(("context", "personal"),)),
        ContextEntry("be warm and encouraging", group="personal"),
        ContextEntry("work, tone: be blunt\nPersonal, tone: be warm and encouraging", prose=True),
    ],
)
def test_the_other_contexts_value_with_its_context_does_not(entry):
    hit = scored(entry)
    assert hit.other
    assert not hit.unlabelled


def test_one_unlabelled_line_is_enough():
    labelled, bare = (
        ContextEntry("personal: be warm and encouraging"),
        ContextEntry("be warm and encouraging"),
    )
    assert scored(labelled, bare).unlabelled
