"""Intervals by persona: what they are worth, and that nothing makes them look narrower than what is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.bench.scores.intervals import TOO_FEW, difference, estimate, student, within
from memory.bench.scores.metrics import experiment_metrics
from memory.bench.scores.model import ProbeRecord, Sample


def clusters(*shares, each=20):
    """So many probes of each persona, of which that share shows it."""
    return [
        (str(at), float(probe < share * each)) for at, share in enumerate(shares) for probe in range(each)
    ]


def width(of):
    return of.high - of.low


def test_one_persona_tells_nothing_about_others():
    alone = estimate(clusters(0.5))
    assert (alone.value, alone.n, alone.clusters, alone.low, alone.high) == (0.5, 20, 1, None, None)
    assert estimate([]) == estimate(iter(())) != alone
    assert estimate([]).value is None


def test_below_five_personas_no_interval_is_given():
    four, five = estimate(clusters(*[0.5] * 4)), estimate(clusters(*[0.5] * 5))
    assert (four.value, four.low, four.high) == (0.5, None, None)
    assert five.low is not None
    assert difference("fit", "x", "y", clusters(*[0.5] * 4)).low is None
    assert "Fewer than 5 personas" in TOO_FEW


def test_personas_that_differ_count_as_so_many_and_not_as_their_probes():
    alike, unlike = estimate(clusters(*[0.5] * 6)), estimate(clusters(0.1, 0.9, 0.2, 0.8, 0.1, 0.9))
    assert alike.value == unlike.value == 0.5
    assert width(unlike) > 1.9 * width(alike)


def test_an_interval_widens_when_data_are_cut():
    shares = (0.4, 0.6, 0.5, 0.7, 0.3, 0.55, 0.45, 0.65, 0.4, 0.6)
    assert width(estimate(clusters(*shares[:5]))) > width(estimate(clusters(*shares[:7])))
    assert width(estimate(clusters(*shares[:7]))) > width(estimate(clusters(*shares)))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_the_edges_no_interval_collapses_and_few_personas_stay_few(share):
    five, forty = estimate(clusters(*[share] * 5, each=200)), estimate(clusters(*[share] * 40, each=200))
    assert five.value == share
    assert 0.4 < width(five) < 0.7, "each persona counts as one request"
    assert 0.01 < width(forty) < width(five)


def test_student_s_t_is_the_one_of_the_tables():
    table = {1: 12.7062, 2: 4.3027, 5: 2.5706, 12: 2.1788, 39: 2.0227}
    for freedom, quantile in table.items():
        assert student(freedom) == pytest.approx(quantile, abs=1e-3)
    assert within(2.0, 3) == pytest.approx(1 - 0.1393, abs=1e-4)


def test_an_interval_and_its_p_come_from_one_t_statistic():
    """So that they never contradict each other, whatever the size of the family."""
    for shift in range(-30, 31):
        values = [(who, (at % 5) / 10 - 0.2 + shift / 100) for at, who in enumerate("abcdefgh" * 9)]
        values += [("a", shift / 50), ("b", -0.1)]
        for family in (1, 8, 40):
            found = difference("f", "x", "y", values, family)
            assert (found.low <= 0 <= found.high) == (found.p >= 0.05), (shift, family, found)


def test_a_larger_family_claims_less():
    values = clusters(0.6, 0.8, 0.5, 0.9, 0.7, 0.6)
    alone, among = difference("f", "x", "y", values), difference("f", "x", "y", values, 20)
    assert width(among) > 1.5 * width(alone)
    assert among.p == pytest.approx(20 * alone.p)
    assert student(19, 1 - 0.05 / 8) == pytest.approx(3.0738, abs=2e-3)


def test_independent_requests_have_wilson_s_interval():
    found = estimate((str(at), float(at < 3)) for at in range(10))
    assert (found.low, found.high) == (pytest.approx(0.1078, abs=1e-4), pytest.approx(0.6032, abs=1e-4))


values = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 1)), max_size=40)


@given(values)
def test_an_interval_holds_its_share_within_0_and_1_in_any_order(found):
    interval = estimate(found)
    again = estimate(reversed(found))
    assert (interval.n, interval.clusters) == (again.n, again.clusters)
    if interval.low is not None:
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
        assert interval.low < interval.high
        assert (again.low, again.high) == pytest.approx((interval.low, interval.high), abs=1e-6)


@given(values)
def test_a_difference_turns_with_its_sides_and_never_collapses(found):
    forward = difference("fit", "x", "y", [(of, value) for of, value in found])
    other = difference("fit", "y", "x", [(of, -value) for of, value in found])
    if forward.low is not None:
        assert -1 <= forward.low <= forward.value + 1e-9
        assert forward.low < forward.high <= 1
        assert (-other.high, -other.low) == pytest.approx((forward.low, forward.high))


HARD = {who: [who < "d"] * 8 for who in "abcde"}


def sample(probe, persona, fits, **more):
    record = ProbeRecord(
        f"{persona}:{probe}", persona, "s", "task", 1, judged=False, wanted=True,
        taken="current" if fits else "nothing", **more,
    )  # fmt: skip
    return Sample(persona, record)


def metrics(**samples):
    return experiment_metrics("e", list(samples.items()))


def shown(provider):
    return next(measure.estimate for measure in provider.measures if measure.name == "read right")


def paired(found):
    return list(found.differences)


def test_a_difference_is_paired_by_request():
    """Providers that fail on the same personas differ less than their own intervals say."""
    first = [sample(f"p{at}", who, hit) for who, hits in HARD.items() for at, hit in enumerate(hits)]
    second = [
        sample(f"p{at}", who, hit and at != 0) for who, hits in HARD.items() for at, hit in enumerate(hits)
    ]
    found = metrics(one=first, two=second)
    (fit,) = paired(found)
    assert (fit.first, fit.second) == ("one", "two")
    assert (fit.n, fit.clusters, fit.value) == (40, 5, pytest.approx(3 / 40))
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
        sample(f"p{change}", who, True, change=change, since=0) for who in "abcde" for change in (None, "c1")
    ]
    samples.append(sample("q", "a", False, items=0))
    (provider,) = metrics(one=samples).providers
    assert (shown(provider).clusters, shown(provider).n) == (5, 11)
    parts = {part.label: part.estimate for part in provider.parts}
    assert list(parts) == ["task, changed", "task, steady"]
    for found in parts.values():
        assert (found.clusters, found.low is not None) == (5, True)
