"""The game means the same everywhere, and every marker means one thing."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import ConfigError
from memory.bench import make_quickstart, oracle_matrix, static_profile
from memory.bench.data.quickstart import CHANGES
from memory.bench.data.quickstart_text import (
    ATTRIBUTES,
    EXCEPTION,
    FILLER,
    HEARSAY,
    REPLIES,
    WORLDS,
)
from memory.bench.data.timeline import CONTEXTS

MARKERS = [marker.casefold() for attribute in ATTRIBUTES for marker in attribute.markers]
# Recorded once. A change here makes earlier runs incomparable, so it belongs in the changelog.
GOLDEN = "3ed4a1ea9c6fb1baed8b422e3263d6db9f04da96ab281fc41c1fd41e18f32a95"


def test_the_default_game_is_the_recorded_one():
    assert make_quickstart().data_hash == GOLDEN


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_makes_the_same_game(hash_seed):
    code = "from memory.bench.data.quickstart import make_quickstart; print(make_quickstart().data_hash)"
    answer = subprocess.run(
        (sys.executable, "-c", code),
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == GOLDEN


def test_another_seed_makes_another_game_and_more_users_leave_the_first_alone():
    assert make_quickstart(seed=8).data_hash != GOLDEN
    assert make_quickstart(users=4).timelines[:3] == make_quickstart().timelines


def test_no_marker_is_part_of_another_or_of_any_other_sentence():
    assert len(set(MARKERS)) == 4 * len(ATTRIBUTES) == 56
    assert not [(a, b) for a in MARKERS for b in MARKERS if a != b and a in b]
    said = " ".join(
        [*FILLER, *REPLIES, *HEARSAY, *EXCEPTION, *(f"{one.topic} {one.task}" for one in ATTRIBUTES)]
    ).casefold()
    assert not [marker for marker in MARKERS if marker in said]


def test_names_belong_to_one_persona_alone():
    names = Counter(name.casefold() for world in WORLDS for name in world.names)
    assert set(names.values()) == {1}
    for world in WORLDS:
        others = {name.casefold() for other in WORLDS if other is not world for name in other.names}
        assert not [(a, b) for a in (name.casefold() for name in world.names) for b in others if a in b]


seeds = st.integers(min_value=0, max_value=2**40)


@settings(max_examples=25)
@given(seeds, st.integers(1, 6), st.integers(8, 30))
def test_every_game_is_sound(seed, users, sessions):
    game = make_quickstart(seed=seed, users=users, sessions=sessions)
    for timeline in game.timelines:
        assert len(timeline.sessions) == sessions
        cells = Counter((one.context, one.attribute) for one in timeline.preferences)
        assert set(cells) == {(context, one.name) for context in CONTEXTS for one in ATTRIBUTES}
        assert sum(count - 1 for count in cells.values()) == CHANGES
        for probe in timeline.probes:
            check_probe(timeline, probe)
        final = [(probe.context, probe.attribute) for probe in timeline.probes if probe.after == sessions]
        assert sorted(final) == sorted(cells)


def check_probe(timeline, probe):
    """The truth of a probe follows from what was said before it, and from nothing later."""
    truth = probe.truth
    roles = [truth.current, *truth.stale, *truth.other, *truth.decoys]
    assert len(set(roles)) == len(roles)
    heard = [turn for session in timeline.sessions[: probe.after] for turn in session.turns]
    said = [(turn, turn.messages[0].content.casefold()) for turn in heard]
    for marker in roles:
        assert any(marker.casefold() in text for _, text in said)
    mine = [text for turn, text in said if (turn.context, turn.attribute) == (probe.context, probe.attribute)]
    stated = [
        marker for text in mine for marker in (truth.current, *truth.stale) if marker.casefold() in text
    ]
    assert stated[-1] == truth.current
    assert (truth.change is not None) == bool(truth.stale)
    assert not [marker for marker in MARKERS if marker in probe.query.casefold()]
    assert truth.since <= probe.after


def test_the_game_has_changes_announced_and_not_hearsay_exceptions_and_repetition():
    said = [turn.messages[0].content for timeline in make_quickstart().timelines for turn in timeline.turns]
    for phrase in (
        "changed my mind",
        "as of today",
        "as ever",
        "just this once",
        "overheard",
        "every assistant",
    ):
        assert any(phrase in text for text in said), phrase
    assert any("As for " in text or "that is my way" in text for text in said)


def test_a_changed_preference_is_asked_for_after_every_later_session():
    for timeline in make_quickstart().timelines:
        for change in {probe.truth.change for probe in timeline.probes} - {None}:
            asked = [probe for probe in timeline.probes if probe.truth.change == change]
            since = asked[0].truth.since
            assert [probe.after for probe in asked] == list(range(since, len(timeline.sessions) + 1))
            assert {probe.category for probe in asked} == {"asked"}


def test_the_oracle_is_told_the_truth_over_time_and_the_profile_the_beginning():
    game = make_quickstart(users=1)
    timeline = game.timelines[0]
    matrix, profile = oracle_matrix(game)[timeline.persona_id], static_profile(game)[timeline.persona_id]
    phases = [cell for context in matrix.values() for cell in context.values()]
    assert len(phases) == 28
    assert sum(len(cell) == 2 for cell in phases) == CHANGES
    assert all("from" not in cell[0] and all("from" in later for later in cell[1:]) for cell in phases)
    last = {(one.context, one.attribute): one for one in timeline.preferences}
    for (context, attribute), known in last.items():
        assert matrix[context][attribute][-1]["value"] == known.value
        assert matrix[context][attribute][0]["value"] in profile
    assert all(line.startswith(("work, ", "personal, ")) for line in profile.splitlines())


@pytest.mark.parametrize(
    ("sizes", "field"),
    [({"users": 0}, "run.users"), ({"users": 7}, "run.users"), ({"sessions": 7}, "run.sessions")],
)
def test_sizes_out_of_range_are_refused(sizes, field):
    with pytest.raises(ConfigError, match=field):
        make_quickstart(**sizes)
