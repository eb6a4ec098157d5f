"""What intervals are worth: how many of 100 hold the truth, by simulation of personas that differ."""

import random

import pytest

from memory.bench.scores.intervals import estimate
from memory.bench.scores.survival import Waited, latency, survival

ROUNDS = 400


def drawn(
    dice: random.Random, truth: float, alike: float, personas: int, each: int
) -> list[tuple[str, float]]:
    """Requests of personas; ``alike`` is the intra-class correlation."""
    means = [truth] * personas
    if alike:
        size = 1 / alike - 1
        means = [dice.betavariate(truth * size, (1 - truth) * size) for _ in means]
    return [(str(at), float(dice.random() < mean)) for at, mean in enumerate(means) for _ in range(each)]


def coverage(truth: float, alike: float, personas: int, rounds: int = ROUNDS) -> float:
    dice = random.Random(f"{truth}/{alike}/{personas}")
    held = 0
    for _ in range(rounds):
        found = estimate(drawn(dice, truth, alike, personas, 20))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    return held / rounds


@pytest.mark.parametrize("personas", [5, 12])
@pytest.mark.parametrize(("truth", "alike"), [(0.02, 0.2), (0.1, 0.5), (0.5, 0.0), (0.9, 0.2)])
def test_at_least_92_of_100_hold_the_truth(truth: float, alike: float, personas: int) -> None:
    assert coverage(truth, alike, personas) >= 0.92 - 0.02  # of 400 rounds, so much may be chance


@pytest.mark.thorough
@pytest.mark.parametrize("personas", [5, 8, 20, 40])
@pytest.mark.parametrize("truth", [0.02, 0.05, 0.2, 0.5, 0.8, 0.98])
@pytest.mark.parametrize("alike", [0.0, 0.05, 0.2, 0.5])
def test_at_least_92_of_100_hold_the_truth_everywhere(truth: float, alike: float, personas: int) -> None:
    found = coverage(truth, alike, personas)
    assert found >= 0.92 - 0.02
    if personas >= 20 and 0.2 <= truth <= 0.8 and alike >= 0.2:
        assert found <= 0.98 + 0.01, "where there is enough to see, they are not wider than they must be"


def test_the_median_wait_counts_those_who_still_wait() -> None:
    waits = [Waited(str(n % 6), 1 + n % 5, happened=n % 3 > 0) for n in range(60)]
    without = [wait for wait in waits if wait.happened]
    assert (latency(waits).median or 99) > (latency(without).median or 0)
    assert latency(waits).censored == 20
    curve = survival(
        [Waited("a", 1, True), Waited("a", 2, False), Waited("b", 3, True), Waited("b", 3, True)]
    )
    assert curve == [(1, 0.75), (3, 0.0)]
    none = latency([Waited(str(n), 9, False) for n in range(6)])
    assert (none.median, none.low, none.high, none.censored) == (None, None, None, 6)


def test_replicates_of_a_wait_are_one_wait() -> None:
    once = [Waited(str(n % 6), 1 + n % 4, happened=n % 3 > 0) for n in range(24)]
    copies = [wait._replace(weight=0.25) for wait in once for _ in range(4)]
    assert latency(copies) == latency(once)


def test_the_interval_of_a_median_wait_holds_it() -> None:
    """Waits are geometric with a median of 3, and looked at for at most 8."""
    held, rounds = 0, 200
    dice = random.Random(3)
    for _ in range(rounds):
        waits = []
        for persona in range(12):
            for _ in range(5):
                time = 1
                while dice.random() > 0.25:
                    time += 1
                waits.append(Waited(str(persona), min(time, 8), time <= 8))
        found = latency(waits)
        assert found.low is not None
        held += found.low <= 3 <= (found.high or 99)
    assert held / rounds >= 0.9
