"""How often intervals hold the truth, and how often a page claims a difference among equals: by simulation.

    python tests/perf/interval_figures.py [DRAWS]

Prints the tables of docs/experiment.md. Four populations of personas have the same mean share:

- binomial: all personas are alike.
- beta-binomial: shares are drawn from a beta distribution; two requests of a persona correlate by 0.2.
- two-point: a few personas have a high share, all others a low one.
- logit-normal: the logit of a persona's share is normal, with a standard deviation of 1.5.
"""

import sys
from functools import cache

import numpy as np

from memory.bench.scores.intervals import difference, estimate

POPULATIONS = ("binomial", "beta-binomial", "two-point", "logit-normal")
PERSONAS, SHARES, EACH = (5, 8, 20, 40), (0.02, 0.1, 0.3, 0.5, 0.9), (5, 36)


def shares_of(population: str, share: float, size: tuple[int, ...], dice: np.random.Generator) -> np.ndarray:
    """The shares of so many personas, whose mean over the population is ``share``."""
    if population == "binomial":
        return np.full(size, share)
    if population == "beta-binomial":
        return dice.beta(share * 4, (1 - share) * 4, size)
    if population == "two-point":
        low, high = share / 5, min(1.0, max(0.6, 1.5 * share))
        return np.where(dice.random(size) < (share - low) / (high - low), high, low)
    return 1 / (1 + np.exp(-(_logit_mean(share) + 1.5 * dice.normal(size=size))))


@cache
def _logit_mean(share: float) -> float:
    """The mean of logits whose shares have the mean ``share``."""
    normal, low, high = np.random.default_rng(0).normal(size=100_000), -12.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        above = (1 / (1 + np.exp(-(middle + 1.5 * normal)))).mean() > share
        low, high = (low, middle) if above else (middle, high)
    return high


def coverage(population: str, personas: int, each: int, share: float, draws: int) -> float:
    """The share of ``draws`` intervals that hold the population's mean; ``each`` requests of every persona."""
    dice = np.random.default_rng(1)
    hits = dice.binomial(each, shares_of(population, share, (draws, personas), dice))
    held = 0
    for row in hits.tolist():
        values = [(str(who), float(at < own)) for who, own in enumerate(row) for at in range(each)]
        found = estimate(values)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= share <= found.high
    return held / draws


def claims(architectures: int, controls: int, personas: int, draws: int, each: int = 4) -> float:
    """The share of pages that call an architecture better than a control, although all are equally good."""
    dice = np.random.default_rng(2)
    pairs = [(one, other) for one in range(architectures) for other in range(controls)]
    claimed = 0
    for _ in range(draws):
        means = shares_of("beta-binomial", 0.5, (personas, 1, 1), dice)
        fits = (dice.random((personas, architectures + controls, each)) < means).astype(float)
        for one, other in pairs:
            less = (fits[:, one] - fits[:, architectures + other]).tolist()
            values = ((str(who), value) for who, own in enumerate(less) for value in own)
            found = difference("f", "a", "c", values, len(pairs))
            if found.low is not None and found.low > 0:
                claimed += 1
                break
    return claimed / draws


def main(draws: int) -> None:
    say = sys.stdout.write
    say(
        "| population | personas | "
        + " | ".join(map(str, SHARES))
        + " |\n|---|---|"
        + "---|" * len(SHARES)
        + "\n"
    )
    for population in POPULATIONS:
        for personas in PERSONAS:
            cells = []
            for share in SHARES:
                found = [100 * coverage(population, personas, each, share, draws) for each in EACH]
                cells.append(" / ".join(f"{value:.1f}" for value in found))
            say(f"| {population} | {personas} | {' | '.join(cells)} |\n")
    for controls in (1, 4):
        found = claims(architectures=8, controls=controls, personas=20, draws=draws)
        say(f"8 architectures, {controls} controls, 20 personas, no difference: claimed in {found:.1%}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
