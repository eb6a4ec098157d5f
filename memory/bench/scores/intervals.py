"""How far a share can be trusted, where probes of one persona say nearly the same.

Probes of a persona share its memory, so they are not independent: what is drawn at random is the persona. Intervals
are therefore by cluster (one persona in one run), and say nothing where there is only one.

The method is said in :data:`METHOD`, which every report repeats.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from memory.bench.scores.model import Difference, Estimate

METHOD = (
    "Intervals hold for other personas like these, at 95 %. A share gets Wilson's interval on the effective "
    "number of probes (those of a simple random sample with this variance between personas), with Student's t "
    "for the number of personas. Where all are at 0 or all at 100 % no variance shows, and the interval is the "
    "wider of Wilson's over probes and Wilson's over personas. A difference of two providers is taken probe by "
    "probe; its variance is that between personas, and at least Agresti and Min's for paired shares (2005)."
)
_NORMAL = 1.959964
# Student's t at 97.5 % for 1, 2, ... degrees of freedom.
_STUDENT = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip


def estimate(values: Iterable[tuple[str, float]]) -> Estimate:
    """The mean of shares with its 95 % interval.

    Args:
        values: cluster and value, between 0 and 1, of each probe.
    """
    probes, clusters, mean, variance = _clustered(values)
    if mean is None or variance is None:
        return Estimate(value=mean, n=probes, clusters=clusters)
    student = _student(clusters - 1)
    inner = mean * (1 - mean)
    effective = min(probes, inner / variance) if variance and inner else probes
    low, high = _wilson(mean, effective, student)
    if not inner:
        few = _wilson(mean, clusters, _NORMAL)
        low, high = min(low, few[0]), max(high, few[1])
    return Estimate(value=mean, n=probes, clusters=clusters, low=min(low, mean), high=max(high, mean))


def difference(figure: str, first: str, second: str, values: Iterable[tuple[str, float]]) -> Difference:
    """How much more the first of two providers shows than the second, on the probes that both are scored on.

    Args:
        figure: name of what is compared.
        first, second: labels of the providers.
        values: cluster, and the first one's value less the second one's, between -1 and 1, of each probe.
    """
    found = list(values)
    probes, clusters, mean, variance = _clustered(found)
    low = high = None
    if mean is not None and variance is not None:
        more = sum(max(value, 0.0) for _, value in found) + 0.5
        less = sum(max(-value, 0.0) for _, value in found) + 0.5
        least = (more + less - (more - less) ** 2 / (probes + 2)) / (probes + 2) ** 2
        half = _student(clusters - 1) * math.sqrt(max(variance, least))
        low, high = max(mean - half, -1.0), min(mean + half, 1.0)
    return Difference(
        figure=figure, first=first, second=second, value=mean, n=probes, clusters=clusters, low=low, high=high
    )


def _clustered(values: Iterable[tuple[str, float]]) -> tuple[int, int, float | None, float | None]:
    """Probes, clusters, their mean, and its variance between clusters; None of nothing, and of one cluster."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for cluster, value in values:
        of = sums[cluster]
        of[0] += value
        of[1] += 1
    clusters, probes = len(sums), sum(count for _, count in sums.values())
    if not probes:
        return 0, 0, None, None
    mean = math.fsum(total for total, _ in sums.values()) / probes
    if clusters < 2:
        return int(probes), clusters, mean, None
    squares = math.fsum((total - mean * count) ** 2 for total, count in sums.values())
    return int(probes), clusters, mean, clusters / (clusters - 1) * squares / probes**2


def _student(freedom: int) -> float:
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    first = (_NORMAL**3 + _NORMAL) / (4 * freedom)
    second = (5 * _NORMAL**5 + 16 * _NORMAL**3 + 3 * _NORMAL) / (96 * freedom**2)
    return _NORMAL + first + second  # Cornish and Fisher's expansion, to 0.0005 from here on


def _wilson(mean: float, probes: float, quantile: float) -> tuple[float, float]:
    squared = quantile**2 / probes
    middle = (mean + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (mean * (1 - mean) + squared / 4)) / (1 + squared)
    return max(middle - half, 0.0), min(middle + half, 1.0)
