"""The generated game: the same everywhere, shaped like MemPABench, and every truth told before it is tested."""

import subprocess
import sys
from collections import Counter

import pytest

from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.data.plan import CHANGES, TESTS_PER_CHANGE
from memory.bench.data.worlds import worlds

GOLDEN = "07b451492040c272064cd5fbd52eddd2eb95bec9c743da95f8568593b907cdf1"
SMALL = GameSize(users=2, sessions=14, tests=6, attributes=6)


def texts(timeline, sessions):
    """All that the user is bound to have said, whatever the assistant does."""
    said = []
    for session in timeline.sessions[:sessions]:
        said += [turn.text for turn in session.turns]
        said += [beat.goal for beat in session.script.beats] if session.script else []
    return "\n".join(said).casefold()


@pytest.mark.thorough
def test_the_default_game_has_mempabenchs_size():
    game = make_game()
    assert len(game.timelines) == 4
    for timeline in game.timelines:
        assert sum(session.script is not None for session in timeline.sessions) == 94
        assert sum(session.change for session in timeline.sessions) == CHANGES == 5
        assert len(timeline.tests) == 36
        assert timeline.tests[-1].after == len(timeline.sessions)
        cells = {(known.context, known.attribute) for known in timeline.preferences}
        assert len({name for _, name in cells}) == 14
        assert 24 <= len(cells) < 28  # some matter in one context alone


@pytest.mark.thorough
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_makes_the_same_game(hash_seed):
    code = "from memory.bench.data.generate import make_game; print(make_game().data_hash)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "TZ": "Asia/Tokyo"},
    )
    assert done.stdout.strip() == GOLDEN


@pytest.mark.parametrize("seed", range(4))
def test_what_is_tested_was_told_before_and_can_be_told_apart(seed):
    words = load_language()
    game = make_game(SMALL.model_copy(update={"tests": 21}), seed=seed)

    def mentioned(marker, text):
        return any(form.casefold() in text for form in game.wordings[marker])

    for timeline in game.timelines:
        for test in timeline.tests:
            said = texts(timeline, test.after)
            for beat in test.script.beats:
                truth = beat.truth
                assert truth is not None
                assert words.matters_to(beat.goal) == beat.attribute
                assert all(mentioned(marker, said) for marker in (*truth.stale, *truth.other, *truth.decoys))
                if truth.current is None:
                    assert beat.kind == "neutral"
                    assert truth.other, "a memory that shows it without its context fails"
                    continue
                assert mentioned(truth.current, said)
                assert truth.current not in (*truth.stale, *truth.other, *truth.decoys)
                assert mentioned(truth.current, beat.hint.casefold())


@pytest.mark.thorough
def test_no_test_asks_in_words_that_were_heard_before():
    for timeline in make_game(GameSize(users=10)).timelines:
        said = texts(timeline, len(timeline.sessions))
        for test in timeline.tests:
            for beat in test.script.beats:
                assert beat.goal.casefold() not in said


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_every_change_has_four_tests_before_the_next_and_no_first_value_is_right_after_it(seed):
    points, insertions = set(), set()
    for timeline in make_game(GameSize(users=10), seed=seed).timelines:
        first = {}
        for known in timeline.preferences:
            first.setdefault((known.context, known.attribute), known.value)
        asked = Counter()
        for test in timeline.tests:
            met = set()
            for beat in test.script.beats:
                truth = beat.truth
                assert beat.attribute is not None
                if truth.change is not None and beat.attribute not in met:
                    asked[truth.change] += 1
                    assert truth.current != first[test.script.context or "", beat.attribute]
                met.add(beat.attribute)
        assert len(asked) == CHANGES
        assert min(asked.values()) >= TESTS_PER_CHANGE
        points.add(tuple(at for at, session in enumerate(timeline.sessions) if session.change))
        insertions.add(tuple(test.after for test in timeline.tests))
    assert len(points) == len(insertions) == 10, "each persona changes and is tested at times of its own"


@pytest.mark.parametrize("seed", range(8))
def test_all_that_makes_it_hard_is_there(seed):
    (timeline,) = make_game(GameSize(users=1), seed=seed).timelines
    kinds = Counter(
        beat.kind for session in timeline.sessions if session.script for beat in session.script.beats
    )
    assert {"statement", "elsewhere", "task", "named", "hearsay", "exception", "distraction"} == set(kinds)
    truths = [beat.truth for test in timeline.tests for beat in test.script.beats if beat.truth]
    assert any(truth.stale for truth in truths)
    assert any(truth.other for truth in truths)
    assert any(truth.decoys for truth in truths)
    history = {}
    for known in timeline.preferences:
        history.setdefault((known.context, known.attribute), []).append(known.value)
    (back,) = [values for values in history.values() if len(values) > 2]
    assert back[1] == back[3] != back[2] != back[0] != back[1], "taken back, but not to the first value"
    neutral = [beat for test in timeline.tests for beat in test.script.beats if beat.kind == "neutral"]
    assert len(neutral) == 36


@pytest.mark.parametrize("tests", [1, 4, 6, 20, 21])
def test_few_tests_are_of_few_changes(tests):
    for timeline in make_game(SMALL.model_copy(update={"tests": tests})).timelines:
        assert len(timeline.tests) == tests
        changes = sum(session.change for session in timeline.sessions)
        assert changes == {1: 1, 4: 1, 6: 1, 20: 3, 21: 5}[tests]


def test_another_seed_is_another_game_and_other_sizes_too():
    hashes = {make_game(SMALL, seed=seed).data_hash for seed in range(5)}
    hashes.add(make_game(SMALL.model_copy(update={"tests": 7})).data_hash)
    assert len(hashes) == 6


def test_more_users_leave_the_first_ones_alone():
    few, many = (make_game(SMALL.model_copy(update={"users": users})) for users in (1, 3))
    assert many.timelines[:1] == few.timelines


def test_there_are_as_many_users_as_the_file_says():
    names = [sorted(world.names) for world in worlds(300)]
    every = [name for own in names for name in own]
    assert len(set(every)) == len(every)
    made = [name for own in names[40:] for name in own]
    assert not [name for name in names[0] if any(name in other for other in made)]
    game = make_game(GameSize(users=41, sessions=10, tests=2, attributes=4))
    assert len({timeline.persona_id for timeline in game.timelines}) == 41
