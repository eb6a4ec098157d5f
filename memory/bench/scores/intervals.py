"""Confidence intervals and tests. Requests of one persona share its memory, so personas are the samples.

All formulas are textbook formulas:

- Standard error of a mean: cluster-robust, clustered by persona (Liang and Zeger 1986; for evaluations Miller
  2024). For K personas and n requests it is ``SE² = K/(K-1) · Σ_k (Σ_i (x_ki - mean))² / n²``.
- Interval of a share: Wilson score interval (1927). With one request for each persona, the sample size is n.
  Otherwise it is the effective sample size ``mean · (1 - mean) / SE²``, at most n. The quantile is then that
  of Student's t with K - 1 degrees of freedom (Korn and Graubard 1998; Dean and Pagano 2015). At a mean of 0
  or 1 the standard error is 0, and the sample size is K.
- Difference of two providers: mean of paired differences, with its cluster-robust standard error and
  Student's t.
- All m differences of a page: Bonferroni correction (Dunn 1961). Each interval is at the level ``1 -
  0.05/m``, and each p value is multiplied by m. Both come from one t statistic.

``tests/perf/interval_figures.py`` simulates the coverage of these intervals; see ``docs/experiment.md``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from memory.bench.scores.model import Difference, Estimate

MIN_CLUSTERS = 5
"""The smallest number of personas for which an interval is given."""
TOO_FEW = (
    f"Fewer than {MIN_CLUSTERS} personas: no interval can be given. What holds for these need not hold for others; "
    "play more personas or seeds."
)
_LEVEL = 0.95
_NORMAL = 1.959964


def estimate(values: Iterable[tuple[str, float]]) -> Estimate:
    """The mean of shares with its 95 % Wilson score interval.

    Args:
        values: persona and value, from 0 to 1, of each request.
    """
    sums = _sums(values)
    requests, clusters = sum(count for _, count in sums), len(sums)
    if not requests:
        return Estimate(value=None, n=0)
    mean = math.fsum(total for total, _ in sums) / requests
    if clusters < MIN_CLUSTERS:
        return Estimate(value=mean, n=requests, clusters=clusters)
    if requests == clusters:
        low, high = _wilson(mean, requests, _NORMAL)
    else:
        low, high = _wilson(mean, _effective(sums, mean), student(clusters - 1))
    return Estimate(value=mean, n=requests, clusters=clusters, low=min(low, mean), high=max(high, mean))


def _wilson(share: float, size: float, quantile: float) -> tuple[float, float]:
    """The Wilson score interval of a share over ``size`` independent requests."""
    squared = quantile**2 / size
    middle = (share + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (share * (1 - share) + squared / 4)) / (1 + squared)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _effective(sums: Sequence[tuple[float, int]], mean: float) -> float:
    """The effective sample size: the number of independent requests with the same standard error."""
    requests = sum(count for _, count in sums)
    if mean in (0.0, 1.0):
        return len(sums)
    variance = _standard_error(sums, mean) ** 2
    return min(mean * (1 - mean) / variance, requests) if variance else requests


def _standard_error(sums: Sequence[tuple[float, int]], mean: float) -> float:
    """The cluster-robust standard error of a mean, clustered by persona."""
    clusters, requests = len(sums), sum(count for _, count in sums)
    squares = math.fsum((total - mean * count) ** 2 for total, count in sums)
    return math.sqrt(clusters / (clusters - 1) * squares) / requests


def difference(
    figure: str, first: str, second: str, values: Iterable[tuple[str, float]], family: int = 1
) -> Difference:
    """The mean paired difference of two providers, with a Bonferroni-corrected t interval and p value.

    Args:
        values: persona, and the first provider's value minus the second's, of each common request.
        family: number of comparisons on the page.
    """
    sums = _sums(values)
    requests, clusters = sum(count for _, count in sums), len(sums)
    mean = math.fsum(total for total, _ in sums) / requests if requests else None
    low = high = p = None
    if mean is not None and clusters >= MIN_CLUSTERS:
        error = _standard_error(sums, mean)
        if error:
            half = student(clusters - 1, 1 - (1 - _LEVEL) / family) * error
            p = min(1.0, (1 - within(abs(mean) / error, clusters - 1)) * family)
        else:
            # All personas differ by the same amount. K draws miss a share s of unlike personas with
            # probability (1 - s)^K, which gives the Clopper-Pearson bound on s (1934).
            half = 1 - ((1 - _LEVEL) / (2 * family)) ** (1 / clusters)
            p = min(1.0, 2 * family * (1 - abs(mean)) ** clusters)
        low, high = max(mean - half, -1.0), min(mean + half, 1.0)
    return Difference(
        figure=figure,
        first=first,
        second=second,
        value=mean,
        n=requests,
        clusters=clusters,
        low=low,
        high=high,
        p=p,
        family=family,
    )


def within(t: float, freedom: int) -> float:
    """The probability that Student's t lies between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(3 if odd else 2, freedom, 2):
        term *= square * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@cache
def student(freedom: int, level: float = _LEVEL) -> float:
    """The two-sided quantile of Student's t: a share ``level`` of the distribution lies between -t and t."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < level else (low, middle)
    return high


def _sums(values: Iterable[tuple[str, float]]) -> list[tuple[float, int]]:
    """The sum and the count of each persona's values."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for cluster, value in values:
        found[cluster].append(value)
    return [(math.fsum(own), len(own)) for own in found.values()]
