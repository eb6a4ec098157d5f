"""The game's figures, on beats made by hand: what each counts, and what it leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from memory.bench.scores.metrics import Scored, VariantMetrics, game_metrics, variant_metrics
from memory.bench.scores.records import BeatRecord

_COUNT = iter(range(10**6))


def beat(cluster: str = "ada", replicate: int = 1, **fields: Any) -> Scored:
    number = next(_COUNT)
    base: dict[str, Any] = {
        "probe_id": f"{cluster}:s:{number}",
        "persona_id": cluster,
        "session_id": f"s{number}",
        "beat_id": str(number),
        "kind": "task",
        "after": 1,
        "status": "scored",
        "turns": 1,
        "fit_first": fields.get("first", "current") == "current",
        "first": "current",
    }
    return Scored(cluster, BeatRecord(**{**base, **fields}), replicate)


def told(variant: VariantMetrics, name: str) -> tuple[float | None, int]:
    """A figure, and how many beats it is made of."""
    (found,) = [one.estimate for one in variant.measures if one.name == name]
    return found.value, found.n


def of(beats: Sequence[Scored]) -> VariantMetrics:
    return variant_metrics("mem0", beats)


def test_only_what_was_scored_counts_and_the_rest_is_counted() -> None:
    variant = of(
        [
            beat(),
            beat(first="unknown"),
            beat(status="not_ready", first="nothing"),
            beat(status="failed", first=None, fit_first=None),
            beat(status="unreadable", first=None, fit_first=None),
        ]
    )
    assert told(variant, "style fit") == (0.5, 2)
    assert (variant.beats, variant.scored) == (5, 2)
    assert (variant.not_ready, variant.failed, variant.unreadable) == (1, 1, 1)


def test_style_fit_leaves_out_what_belongs_to_no_preference_or_was_met_before() -> None:
    variant = of([beat(), beat(kind="neutral", first="unknown"), beat(coherent=False, first="unknown")])
    assert told(variant, "style fit") == (1.0, 1)


def test_contexts_are_told_apart_or_mixed_up() -> None:
    variant = of(
        [
            beat(has_other=True),
            beat(has_other=True, first="other"),
            beat(has_other=True, first="nothing"),
            beat(first="other"),
        ]
    )
    assert told(variant, "discrimination") == (0.5, 2)
    assert told(variant, "contamination") == (pytest.approx(1 / 3), 3)


def test_a_change_is_noticed_once_and_may_be_forgotten_again() -> None:
    def at(after: int, first: str, change: str = "c1") -> Scored:
        return beat(first=first, after=after, change=change, since=10)

    variant = of(
        [at(11, "stale"), at(14, "current"), at(17, "stale"), at(20, "current"), at(11, "stale", change="c2")]
    )
    assert told(variant, "detection") == (0.5, 2)
    assert told(variant, "reversion") == (0.5, 2)
    assert (variant.changes, variant.noticed) == (2, 1)
    assert (variant.latency.mean, variant.shifts) == (4.0, (10,))


def test_a_change_of_another_persona_is_another_change() -> None:
    fields = {"change": "c1", "since": 10, "after": 11}
    variant = of([beat("ada", **fields), beat("bob", **fields, first="stale")])
    assert told(variant, "detection") == (0.5, 2)


def test_effort_coherence_whole_sessions_and_preferences_where_none_belongs() -> None:
    variant = of(
        [
            beat(session_id="one"),
            beat(session_id="one", turns=3, first="unknown"),
            beat(session_id="two", coherent=True),
            beat(session_id="two", coherent=True, kind="neutral"),
            beat(session_id="two", coherent=False, kind="neutral", fit_first=False),
        ]
    )
    assert told(variant, "felt effort") == (pytest.approx(1 / 5), 5)
    assert told(variant, "coherence") == (pytest.approx(2 / 3), 3)
    assert told(variant, "overall") == (0.0, 2)
    assert told(variant, "over-personalisation") == (0.5, 2)


def test_the_section_is_judged_by_what_it_holds_and_in_which_order() -> None:
    variant = of(
        [
            beat(
                shows_current=True, shows_stale=True, has_stale=True, relevant=(False, True), gold=2, found=1
            ),
            beat(shows_current=False, shows_stale=True, has_stale=True, relevant=(False,), gold=1, found=0),
            beat(shows_current=False, relevant=(), gold=1, found=None),
        ]
    )
    assert told(variant, "shown") == (pytest.approx(1 / 3), 3)
    assert told(variant, "stale rate") == (0.5, 2)
    assert told(variant, "evidence recall") == (0.25, 2)
    assert told(variant, "precision") == (0.25, 2)
    assert told(variant, "MRR") == (pytest.approx(1 / 6), 3)
    ideal = 1 + 1 / math.log2(3)
    assert told(variant, "nDCG") == (pytest.approx((1 / math.log2(3)) / ideal / 3), 3)


def test_nothing_scored_gives_no_figure() -> None:
    variant = of([beat(status="not_ready")])
    assert all(one.estimate.value is None for one in variant.measures)


def test_paired_differences_are_those_of_the_figure_in_the_table() -> None:
    """Of beats that belong to no preference, or were met before, style fit says nothing; nor may its difference."""
    left = [beat(probe_id=str(number), first="current") for number in range(4)]
    right = [beat(probe_id=str(number), first="unknown") for number in range(4)]
    for fields in ({"kind": "neutral"}, {"coherent": True}):
        for beats in (left, right):
            beats.append(beat(probe_id=str(fields), **fields))
    metrics = game_metrics("game", [("one", left), ("two", right)])
    (first, second) = (told(one, "style fit")[0] for one in metrics.variants)
    (difference,) = [one for one in metrics.differences if one.figure == "style fit"]
    assert first is not None
    assert second is not None
    assert (difference.first, difference.second, difference.value) == ("one", "two", first - second)
    assert difference.n == 4


def test_replicates_do_not_notice_for_each_other() -> None:
    """A change that one of two replicates notices is half noticed; of their sessions one is right, not none."""
    change = {"change": "c1", "since": 10, "session_id": "t1"}
    variant = of(
        [
            beat(replicate=1, probe_id="p", after=12, first="stale", **change),
            beat(replicate=2, probe_id="p", after=12, first="current", **change),
        ]
    )
    assert told(variant, "detection") == (0.5, 2)
    assert told(variant, "overall") == (0.5, 2)


def test_a_session_without_a_verdict_is_no_bad_session() -> None:
    """Questions that nobody answers say nothing of what the user would say."""
    variant = of([beat(kind="other", first=None, fit_first=None, turns=0, gold=1, found=1, relevant=(True,))])
    assert told(variant, "overall") == (None, 0)
    assert told(variant, "evidence recall") == (1.0, 1)


def test_items_that_name_no_turn_are_of_unknown_worth() -> None:
    asked = {"kind": "other", "first": None, "fit_first": None, "gold": 2}
    variant = of([beat(**asked, found=None, relevant=(False, False)), beat(**asked, found=0, relevant=())])
    assert told(variant, "evidence recall") == (0.0, 1)
    assert told(variant, "precision") == (None, 0)
    assert told(variant, "MRR") == (0.0, 1)


# Worked out by hand: persona, replicate, session, request; what the first reply showed; of those that differ.
HAND = """
ada 1 s1 a current
ada 1 s1 b other
ada 1 s2 c stale
ada 1 s2 d current
bob 1 s3 a current
bob 1 s3 b current
bob 1 s4 c nothing
bob 1 s4 d current
"""
OTHER = HAND.replace("b other", "b current").replace("d current", "d nothing").replace("a current", "a other")
QUANTILE = 12.7062  # Student's t at 97.5 % with one degree of freedom, for two personas


def hand(table: str) -> list[Scored]:
    rows = [line.split() for line in table.strip().splitlines()]
    return [
        beat(who, int(time), session_id=f"{who}{of}", probe_id=f"{who}{of}{name}", first=first, has_other=True,
             after=5, turns=1 if first == "current" else 2, tokens=10, shortfall=None)
        for who, time, of, name, first in rows
    ]  # fmt: skip


def test_figures_are_those_worked_out_by_hand() -> None:
    metrics = game_metrics("game", [("one", hand(HAND)), ("two", hand(OTHER))])
    one, two = metrics.variants
    # Five of eight suit, 2 of ada's four and 3 of bob's; of the six that show either setting five show this one's.
    assert told(one, "style fit") == (5 / 8, 8)
    assert told(one, "discrimination") == (5 / 6, 6)
    assert told(one, "contamination") == (1 / 8, 8)
    assert told(one, "felt effort") == (3 / 8, 8)
    assert told(one, "overall") == (1 / 4, 4)
    # Now b suits for ada too, and a and d for nobody.
    assert told(two, "style fit") == (2 / 8, 8)
    assert told(two, "contamination") == (2 / 8, 8)
    assert told(two, "overall") == (0.0, 4)
    fit = next(measure.estimate for measure in one.measures if measure.name == "style fit")
    assert fit.clusters == 2
    # Variance between personas: deviations from 4 x 5/8 are -1/2 and +1/2, so 2/1 x (1/4 + 1/4) / 8^2 = 1/64;
    # of a simple random sample with it there would be (5/8 x 3/8) / (1/64) = 15, more than the eight there are.
    square = QUANTILE**2 / 8
    middle, half = (
        (5 / 8 + square / 2) / (1 + square),
        math.sqrt(square * (15 / 64 + square / 4)) / (1 + square),
    )
    assert (fit.low, fit.high) == (pytest.approx(middle - half), pytest.approx(middle + half))
    # Pairs: a +1 for both, b -1 for ada, d +1 for both: +4 -1 of 8. Ada +1, bob +2; 4 x 3/8 = 1 1/2 each.
    (paired,) = [each for each in metrics.differences if each.figure == "style fit"]
    assert (paired.value, paired.n, paired.clusters) == (3 / 8, 8, 2)
    between = 2 * (0.25 + 0.25) / 64
    least = (
        4.5 + 1.5 - (4.5 - 1.5) ** 2 / 10
    ) / 100  # Agresti and Min: half a pair more each way, two in all
    assert paired.low == max(-1.0, 3 / 8 - QUANTILE * math.sqrt(max(between, least)))
    assert paired.high == min(1.0, 3 / 8 + QUANTILE * math.sqrt(max(between, least)))
    (mixed,) = [each for each in metrics.differences if each.figure == "contamination"]
    assert (mixed.value, mixed.n) == (-1 / 8, 8)
    (whole,) = [each for each in metrics.differences if each.figure == "overall"]
    assert (whole.value, whole.n) == (1 / 4, 4)


# -- nothing may look better because something is broken -----------------------------------------------------


def test_a_session_of_which_a_reply_is_not_scored_is_no_good_session() -> None:
    variant = of(
        [beat(session_id="one"), beat(session_id="one", status="failed", first=None, fit_first=None)]
    )
    assert told(variant, "overall") == (None, 0)
    assert told(variant, "style fit") == (1.0, 1)


def test_a_change_of_which_a_test_is_not_scored_is_neither_noticed_nor_missed() -> None:
    def at(after: int, change: str, **more: Any) -> Scored:
        return beat(after=after, change=change, since=10, **more)

    variant = of(
        [
            at(11, "c1", first="stale"),
            at(14, "c1", status="not_ready", first=None, fit_first=None),
            at(11, "c2"),
            at(14, "c2", status="failed", first=None, fit_first=None),
            at(11, "c3"),
            at(14, "c3", first="stale"),
        ]
    )
    assert told(variant, "detection") == (1.0, 1)
    assert (variant.changes, variant.noticed, variant.latency.mean) == (1, 1, 1.0)
    assert told(variant, "reversion") == (1.0, 1), "what was seen of c3 after it was noticed"


def test_a_cell_that_broke_off_is_not_measured_by_its_easy_beginning() -> None:
    whole, broken = [beat(), beat(first="unknown")], [beat("bob")._replace(ended=False)]
    variant = of([*whole, *broken])
    assert told(variant, "style fit") == (0.5, 2)
    assert (variant.beats, variant.scored, variant.unended) == (3, 2, 1)
    unready = of([beat(status="not_ready")._replace(ended=False)])
    assert (unready.not_ready, unready.unended) == (0, 1), "counted once"


def test_questions_have_a_figure_of_their_own() -> None:
    variant = of([beat(kind="other"), beat(kind="other", first="unknown", session_id="question")])
    assert told(variant, "right answers") == (0.5, 2)
    assert told(variant, "style fit") == told(variant, "overall") == (None, 0)


def test_a_request_that_was_given_up_was_no_easy_one() -> None:
    """A user who says nothing more after the first reply has not been served by it."""
    variant = of(
        [
            beat(fit_last=True),
            beat(first="stale", fit_last=False),
            beat(first="stale", turns=2, fit_last=True),
        ]
    )
    assert told(variant, "felt effort") == (pytest.approx(2 / 3), 3)
