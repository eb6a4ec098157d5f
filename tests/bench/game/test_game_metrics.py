"""The game's figures, on beats made by hand: what each counts, and what it leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from memory.bench.game.metrics import Scored, VariantMetrics, game_metrics, variant_metrics
from memory.bench.game.record import BeatRecord

_COUNT = iter(range(10**6))


def beat(cluster: str = "ada", **fields: Any) -> Scored:
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
    return cluster, BeatRecord(**{**base, **fields})


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
    (difference,) = metrics.differences
    assert first is not None
    assert second is not None
    assert (difference.first, difference.second, difference.value) == ("one", "two", first - second)
    assert difference.n == 4
