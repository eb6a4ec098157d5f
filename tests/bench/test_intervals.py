"""Intervals by persona: what they are worth, and that nothing makes them look narrower than what is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.bench.scores.intervals import difference, estimate
from memory.bench.scores.metrics import experiment_metrics
from memory.bench.scores.records import ProbeRecord, Sample


def clusters(*shares, each=20):
    """So many probes of each persona, of which that share shows it."""
    return [
        (str(at), float(probe < share * each)) for at, share in enumerate(shares) for probe in range(each)
    ]


def width(of):
    return of.high - of.low


def test_one_persona_tells_nothing_about_others():
    one = estimate(clusters(0.5))
    assert (one.value, one.n, one.clusters, one.low, one.high) == (0.5, 20, 1, None, None)
    assert estimate([]) == estimate(iter(())) != one
    assert estimate([]).value is None


def test_personas_that_differ_count_as_so_many_and_not_as_their_probes():
    alike, unlike = estimate(clusters(0.5, 0.5, 0.5, 0.5)), estimate(clusters(0.1, 0.9, 0.2, 0.8))
    assert alike.value == unlike.value == 0.5
    assert width(unlike) > 2 * width(alike)
    # Wilson's over 80 independent probes, with the normal quantile, would be 0.217 wide.
    assert width(unlike) > 0.6


def test_an_interval_widens_when_data_are_cut():
    shares = (0.4, 0.6, 0.5, 0.7, 0.3, 0.55)
    assert (
        width(estimate(clusters(*shares[:2])))
        > width(estimate(clusters(*shares[:4])))
        > width(estimate(clusters(*shares)))
    )
    assert width(estimate(clusters(*shares, each=20))) <= width(estimate(clusters(0.4, 0.6, each=20)))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_the_edges_no_interval_collapses_and_few_personas_stay_few(share):
    three, ten = estimate(clusters(*[share] * 3, each=200)), estimate(clusters(*[share] * 10, each=200))
    assert three.value == share
    assert width(three) > 0.5  # Wilson's over three
    assert 0.2 < width(ten) < width(three)
    nearly = estimate([*clusters(*[share] * 10, each=200), ("9", 1 - share)])
    assert 0 < width(nearly) < width(ten)


def test_ninety_five_of_a_hundred_hold_the_truth():
    """With personas that differ (correlation 0.1), however few."""
    dice = random.Random(5)
    for truth in (0.5, 0.9):
        for personas in (3, 8, 25):
            held = 0
            for _ in range(200):
                means = [dice.betavariate(truth * 9, (1 - truth) * 9) for _ in range(personas)]
                found = estimate(
                    (str(at), dice.random() < mean) for at, mean in enumerate(means) for _ in range(30)
                )
                held += found.low <= truth <= found.high
            assert held >= 180, (truth, personas, held)


values = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 1)), max_size=40)


@given(values)
def test_an_interval_holds_its_share_within_0_and_1_in_any_order(found):
    one = estimate(found)
    again = estimate(reversed(found))
    assert (one.n, one.clusters) == (again.n, again.clusters)
    if one.low is not None:
        assert 0 <= one.low <= one.value <= one.high <= 1
        assert one.low < one.high
        assert (again.low, again.high) == pytest.approx((one.low, one.high), abs=1e-6)


@given(values)
def test_a_difference_turns_with_its_sides_and_never_collapses(found):
    one = difference("fit", "x", "y", [(of, value) for of, value in found])
    other = difference("fit", "y", "x", [(of, -value) for of, value in found])
    if one.low is not None:
        assert -1 <= one.low <= one.value + 1e-9
        assert one.low < one.high <= 1
        assert (-other.high, -other.low) == pytest.approx((one.low, one.high))


HARD = {"a": [True] * 8, "b": [True] * 8, "c": [False] * 8}


def sample(probe, persona, fits, **more):
    record = ProbeRecord(
        f"{persona}:{probe}", persona, "s", "task", 1, judged=False, wanted=True, shows_current=fits, **more
    )
    return Sample(persona, record)


def metrics(**samples):
    return experiment_metrics("e", list(samples.items()))


def shown(provider):
    return next(one.estimate for one in provider.measures if one.name == "shown")


def paired(found):
    return [one for one in found.differences if one.figure == "shown"]


def test_a_difference_is_paired_by_request():
    """Providers that fail on the same personas differ less than their own intervals say."""
    first = [sample(f"p{at}", who, hit) for who, hits in HARD.items() for at, hit in enumerate(hits)]
    second = [
        sample(f"p{at}", who, hit and at != 0) for who, hits in HARD.items() for at, hit in enumerate(hits)
    ]
    found = metrics(one=first, two=second)
    (fit,) = paired(found)
    assert (fit.first, fit.second) == ("one", "two")
    assert (fit.n, fit.clusters, fit.value) == (24, 3, pytest.approx(2 / 24))
    assert width(fit) < width(shown(found.providers[0]))


def test_only_requests_that_both_have_are_compared():
    first = [sample("p1", "a", True), sample("p2", "a", True), sample("p1", "b", True)]
    second = [sample("p1", "a", False), sample("p3", "a", True)]
    (fit,) = paired(metrics(one=first, two=second))
    assert (fit.n, fit.clusters, fit.value, fit.low) == (1, 1, 1.0, None)
    assert paired(metrics(one=first, two=[])) == []
    assert paired(metrics(one=first)) == []


def test_every_part_has_an_interval_and_its_number_of_personas():
    samples = [
        sample(f"p{change}", who, True, change=change, since=0) for who in "abc" for change in (None, "c1")
    ]
    samples.append(sample("q", "a", False, items=0))
    (provider,) = metrics(one=samples).providers
    assert (shown(provider).clusters, shown(provider).n) == (3, 7)
    parts = {part.label: part.estimate for part in provider.parts if part.by == "category"}
    assert list(parts) == ["task, changed", "task, steady"]
    for found in parts.values():
        assert (found.clusters, found.low is not None) == (3, True)
