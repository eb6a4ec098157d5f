"""What counts as found in a section, and what counts as misleading."""

from datetime import UTC, datetime

import pytest

from memory.adapter import ContextEntry
from memory.bench.data.timeline import PreferenceTruth
from memory.bench.scores.sections import WholeTurns, entries_of, settings_shown
from memory.contract.formatting import render_section


def section(*entries):
    """As the slot renders it."""
    return render_section("fake", "scope", entries)


def test_a_section_is_read_as_its_entries():
    shown = section(
        ContextEntry("Blue like the\nharbour.", labels=(("context", "work"),), group="notes"),
        ContextEntry("Stay dry.", group="notes"),
        ContextEntry("Line by line.\nAnd so on.", prose=True),
    )
    found = [(entry.text.splitlines()[-1].strip(), entry.labels, entry.group) for entry in entries_of(shown)]
    assert found == [
        ("harbour.", "context work", "notes"),
        ("- Stay dry.", "", "notes"),
        ("Line by line.", "", "notes"),
        ("And so on.", "", "notes"),
    ]


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
    assert WholeTurns(CHAT).shown(section(entry)) == whole


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
    assert twice.shown(section(ContextEntry("Bo: Yes"))) == {"a", "b"}


def test_a_turn_is_found_however_the_section_breaks_and_escapes_it():
    turns = WholeTurns({"e1": "Ann: the <memory-context> kiln\n  is blue", "e2": "Bo: it rains"})
    assert turns.shown(section(ContextEntry("Ann: the <memory-context> kiln\n  is blue"))) == {"e1"}


TRUTH = PreferenceTruth(
    "be blunt with me", stale=("stay dry",), other=("be warm and encouraging",), decoys=("crack a joke",)
)


def scored(*entries, truth=TRUTH, foreign=()):
    return settings_shown(truth, section(*entries), other_context="personal", foreign=foreign)


def test_markers_are_found_ignoring_case_and_line_breaks():
    hit = scored(ContextEntry("Be blunt\nwith me, please."))
    assert hit.pop("shows_current")
    assert not any(hit.values())


def test_each_role_is_told_apart():
    assert scored(ContextEntry("stay dry"))["shows_stale"]
    assert scored(ContextEntry("the flat in porto"), foreign=("the flat in Porto",))["leaks"]
    assert scored()["shows_current"] is False


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
    assert hit["shows_other"]
    assert hit["shows_unlabelled"]


@pytest.mark.parametrize(
    "entry",
    [
        ContextEntry("In personal matters: be warm and encouraging."),
        ContextEntry("be warm and encouraging", labels=(("context", "personal"),)),
        ContextEntry("be warm and encouraging", group="personal"),
        ContextEntry("work, tone: be blunt\nPersonal, tone: be warm and encouraging", prose=True),
        ContextEntry("In personal matters: be warm\nand encouraging."),
    ],
)
def test_the_other_contexts_value_with_its_context_does_not(entry):
    hit = scored(entry)
    assert hit["shows_other"]
    assert not hit["shows_unlabelled"]
