"""What intervals are worth: how many of 100 hold the truth, by simulation of personas that differ."""

import random
from functools import cache
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np
import pytest

from memory.bench.scores.intervals import Waited, latency, of_clusters, survival

PERSONAS, EACH = (5, 8, 12, 20, 40), (5, 20, 36)
SHARES, ALIKE = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 0.98), (0.0, 0.05, 0.2, 0.5)
DRAWS = 4_000


class Cell(NamedTuple):
    """``alike`` is the correlation within a persona, of ``each`` requests."""

    personas: int
    each: int
    share: float
    alike: float


GRID = tuple(Cell(*of) for of in product(PERSONAS, EACH, SHARES, ALIKE))


def coverage(cell: Cell, draws: int = DRAWS) -> float:
    dice = np.random.default_rng([int(1000 * of) for of in cell])
    means = np.full((draws, cell.personas), cell.share)
    if cell.alike:
        size = 1 / cell.alike - 1
        means = dice.beta(cell.share * size, (1 - cell.share) * size, means.shape)
    drawn, often = np.unique(np.sort(dice.binomial(cell.each, means)), axis=0, return_counts=True)
    held = 0
    for hits, times in zip(drawn.tolist(), often.tolist(), strict=True):
        found = of_clusters([(float(of), cell.each) for of in hits])
        assert found.low is not None
        assert found.high is not None
        held += times * (found.low <= cell.share <= found.high)
    return held / draws


@cache
def totals(cell: Cell) -> list[float]:
    """How probable each number of hits of all personas together is: exactly, without drawing."""
    per_persona, size = [], 1 / cell.alike - 1 if cell.alike else 0.0
    for hits in range(cell.each + 1):
        chance = float(comb(cell.each, hits))
        steps = [(cell.share, of) for of in range(hits)]
        steps += [(1 - cell.share, of) for of in range(cell.each - hits)]
        for at, (share, before) in enumerate(steps):
            chance *= (share * size + before) / (size + at) if size else share
        per_persona.append(chance)
    found = np.ones(1)
    for _ in range(cell.personas):
        found = np.convolve(found, per_persona)
    return list(map(float, found))


def too_coarse(cell: Cell) -> bool:
    """Whether more than 98 % cannot be avoided: no run of numbers of hits has a probability of 92 to 98 %."""
    upto = np.concatenate([[0.0], np.cumsum(totals(cell))])
    return not any(((upto - below >= 0.92) & (upto - below <= 0.98)).any() for below in upto)


def one_ended(cell: Cell) -> bool:
    """Whether all personas alike at an edge, which no interval leaves out, are likelier than the 2.5 % that its end
    there may miss: only the other end ever misses, and 97.5 % is what 95 % then means."""
    return max(totals(cell)[0], totals(cell)[-1]) > 0.025


@pytest.mark.parametrize(("personas", "each"), [(5, 20), (12, 5)])
@pytest.mark.parametrize(("share", "alike"), [(0.02, 0.2), (0.1, 0.5), (0.5, 0.0), (0.9, 0.2)])
def test_92_to_98_of_100_hold_the_truth(personas: int, each: int, share: float, alike: float) -> None:
    found = coverage(Cell(personas, each, share, alike), 1_000)
    assert 0.92 - 0.02 <= found <= 0.98 + 0.01  # of 1,000 draws, so much may be chance


@pytest.mark.thorough
def test_92_to_98_of_100_hold_the_truth_wherever_that_can_be() -> None:
    found = {cell: coverage(cell) for cell in GRID}
    assert {cell: share for cell, share in found.items() if share < 0.92} == {}
    wide = {cell for cell, share in found.items() if share > 0.98}
    assert wide >= {cell for cell in GRID if too_coarse(cell)}
    assert {cell for cell in wide if found[cell] > 0.99} <= {cell for cell in GRID if too_coarse(cell)}
    assert len(wide) < 0.1 * len(GRID)
    unexplained = {cell for cell in wide if not too_coarse(cell) and not one_ended(cell)}
    assert len(unexplained) < 0.04 * len(GRID)
    assert {cell for cell in unexplained if found[cell] > 0.985} == set()


def test_the_chances_of_hits_are_those_that_are_drawn() -> None:
    for cell in (Cell(5, 5, 0.02, 0.0), Cell(5, 5, 0.02, 0.5), Cell(8, 20, 0.9, 0.05)):
        chances = np.array(totals(cell))
        assert chances.sum() == pytest.approx(1)
        assert chances @ np.arange(len(chances)) == pytest.approx(cell.personas * cell.each * cell.share)
    assert too_coarse(Cell(5, 5, 0.02, 0.0))
    assert not too_coarse(Cell(40, 36, 0.5, 0.2))


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
