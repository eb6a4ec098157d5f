"""The generated game: the same everywhere, shaped like MemPABench, and every truth told before it is tested."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from memory import ConfigError
from memory.bench.data.generate import CHANGES, GameSize, make_game
from memory.bench.data.languages import load_language
from memory.bench.data.timeline import Timeline

GOLDEN = "d9a2cc00b89545ea7981cc69e185c982ffe7c4c49e1ea3a509ee427b862ac6fa"
SMALL = GameSize(users=2, sessions=14, tests=6, attributes=6)


def texts(timeline: Timeline, sessions: int) -> str:
    """All that the user is bound to have said, whatever the assistant does."""
    said = []
    for session in timeline.sessions[:sessions]:
        said += [turn.text for turn in session.turns]
        said += [beat.goal for beat in session.script.beats] if session.script else []
    return "\n".join(said).casefold()


def test_the_default_game_has_mempabenchs_size() -> None:
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


def test_the_default_game_is_the_recorded_one() -> None:
    assert make_game().data_hash == GOLDEN


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_makes_the_same_game(hash_seed: str) -> None:
    code = "from memory.bench.data.generate import make_game; print(make_game().data_hash)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "TZ": "Asia/Tokyo"},
    )
    assert done.stdout.strip() == GOLDEN


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_tested_was_told_before_and_can_be_told_apart(language: str, seed: int) -> None:
    words = load_language(language)
    size = SMALL.model_copy(update={"language": language})
    for timeline in make_game(size, seed=seed).timelines:
        for test in timeline.tests:
            told = texts(timeline, test.after)
            for beat in test.script.beats:
                truth = beat.truth
                assert truth is not None
                assert words.matters_to(beat.goal) == beat.attribute
                if truth.current is None:
                    assert beat.kind == "neutral"
                    continue
                assert truth.current.casefold() in told
                assert all(
                    marker.casefold() in told for marker in (*truth.stale, *truth.other, *truth.decoys)
                )
                assert truth.current not in (*truth.stale, *truth.other, *truth.decoys)
                assert truth.current.casefold() in beat.hint.casefold()


@pytest.mark.parametrize("seed", range(8))
def test_all_that_makes_it_hard_is_there(seed: int) -> None:
    (timeline,) = make_game(GameSize(users=1), seed=seed).timelines
    kinds = Counter(beat.kind for one in timeline.sessions if one.script for beat in one.script.beats)
    assert {"statement", "elsewhere", "task", "named", "hearsay", "exception", "distraction"} == set(kinds)
    truths = [beat.truth for test in timeline.tests for beat in test.script.beats if beat.truth]
    assert any(truth.stale for truth in truths)
    assert any(truth.other for truth in truths)
    assert any(truth.decoys for truth in truths)
    changes = {known.change for known in truths if known.change}
    assert len(changes) >= 3
    history: dict[tuple[str, str], list[str]] = {}
    for known in timeline.preferences:
        history.setdefault((known.context, known.attribute), []).append(known.value)
    back = [values for values in history.values() if len(values) == 3]
    assert [values[0] == values[2] != values[1] for values in back] == [True]
    neutral = [beat for test in timeline.tests for beat in test.script.beats if beat.kind == "neutral"]
    cells = {(known.context, known.attribute) for known in timeline.preferences}
    elsewhere = [test for test in timeline.tests if any(beat in neutral for beat in test.script.beats)]
    assert elsewhere
    assert any(
        (test.script.context, beat.attribute) not in cells for test in timeline.tests for beat in neutral
    )


def test_another_seed_is_another_game_and_other_sizes_too() -> None:
    hashes = {make_game(SMALL, seed=seed).data_hash for seed in range(5)}
    hashes.add(make_game(SMALL.model_copy(update={"tests": 7})).data_hash)
    hashes.add(make_game(SMALL.model_copy(update={"language": "zh"})).data_hash)
    assert len(hashes) == 7


def test_more_users_than_worlds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"timeline\.users: is 5; in zh there are 4"):
        make_game(GameSize(users=5, language="zh"))
