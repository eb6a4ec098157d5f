"""How far a share can be trusted, where probes of one persona say nearly the same.

Probes of a persona share its memory, so they are not independent: what is drawn at random is the persona.
Intervals are therefore by cluster (one persona in one run). Below five clusters nothing can be said, and
nothing is.

The method is said in :data:`METHOD`, which every report repeats; ``tests/bench/test_coverage.py`` simulates
what it is worth.

How long until something happens, where for some it had not at the end, is Kaplan and Meier's estimate (1958)
with Brookmeyer and Crowley's interval (1982) on the complementary log-log scale; its variance is a jackknife
over personas."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from memory.bench.scores.model import Difference, Estimate, Latency

MIN_CLUSTERS = 5
"""Personas below which no interval is given."""
TOO_FEW = (
    f"Fewer than {MIN_CLUSTERS} personas: no interval can be given. What holds for these need not hold for others; "
    "play more personas or seeds."
)
METHOD = (
    "Intervals hold for other personas like these, at 95 %. Replicates are averaged first. A share gets Wilson's "
    "interval on the effective number of probes (those of a simple random sample with this variance between "
    "personas). How much alike the probes of a persona are is seen from that variance; the fewer personas show the "
    "rarer outcome, and the more often each of them does, the more counts the assumption that they are 0.85 alike, "
    "so that rare events do not look certain. A difference of two providers "
    "is taken probe by probe; its variance is that between personas, and at least Agresti and Min's for paired "
    "shares (2005). One comparison is the primary one; the p values of all others are corrected by Holm's method "
    f"(1979). Below {MIN_CLUSTERS} personas no interval is given."
)
_LEVEL, _NORMAL = 0.95, 1.959964
_UNSEEN = 0.01
"""Personas, half of them at 0 and half at 1, with which a share is smoothed to be divided by."""
_ALIKE = 0.85
"""Correlation of a persona's probes that is assumed."""
_WEIGHT, _SAY_NOTHING = 1.5, 2
"""Against what is assumed, what is seen weighs so much times the root of the personas that have the rarer outcome,
as far as each has it once; two of them say nothing yet. All four are chosen by simulation, so that coverage is 92
to 98 % if it can be."""


def estimate(values: Iterable[tuple[str, float]]) -> Estimate:
    """The mean of shares with its 95 % interval, from cluster and value, between 0 and 1, of each probe."""
    return of_clusters(_sums(values))


def of_clusters(sums: Sequence[tuple[float, int]]) -> Estimate:
    """The same, of each cluster the sum of its values and how many they are."""
    probes, clusters = sum(count for _, count in sums), len(sums)
    if not probes:
        return Estimate(value=None, n=0)
    mean = math.fsum(total for total, _ in sums) / probes
    if clusters < MIN_CLUSTERS:
        return Estimate(value=mean, n=probes, clusters=clusters)
    # Wilson's interval
    squared = _NORMAL**2 / _effective(sums, probes, mean)
    middle = (mean + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (mean * (1 - mean) + squared / 4)) / (1 + squared)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return Estimate(value=mean, n=probes, clusters=clusters, low=min(low, mean), high=max(high, mean))


def _effective(sums: Sequence[tuple[float, int]], probes: int, mean: float) -> float:
    """How many independent probes say as much: the mean of what the variance between clusters shows and what is
    assumed, the former weighing the more the more clusters hold the rarer outcome."""
    clusters = len(sums)
    smooth = (mean * clusters + _UNSEEN / 2) / (clusters + _UNSEEN)
    squares = math.fsum((total - mean * count) ** 2 for total, count in sums)
    observed = clusters**2 / (clusters - 1) * squares / probes**2 / (smooth * (1 - smooth))
    assumed = _ALIKE + (1 - _ALIKE) * clusters / probes
    hits, misses = (sum(total > 0 for total, _ in sums), sum(total < count for total, count in sums))
    personas = min(hits, misses)
    apart = personas / max(personas, min(mean, 1 - mean) * probes, 1)
    weight = _WEIGHT * math.sqrt(max(personas - _SAY_NOTHING, 0) * apart)
    effective = clusters * (weight / max(observed, 1e-9) + 1 / assumed) / (weight + 1)
    return min(max(effective, 1.0), probes)


def difference(figure: str, first: str, second: str, values: Iterable[tuple[str, float]]) -> Difference:
    """How much more the first of two providers shows than the second, on the probes that both are scored on:
    ``values`` are cluster, and the first one's value less the second one's, of each probe."""
    found = list(values)
    sums = _sums(found)
    probes, clusters = sum(count for _, count in sums), len(sums)
    mean = math.fsum(total for total, _ in sums) / probes if probes else None
    low = high = p = None
    if mean is not None and clusters >= MIN_CLUSTERS:
        squares = math.fsum((total - mean * count) ** 2 for total, count in sums)
        more = sum(max(value, 0.0) for _, value in found) + 0.5
        less = sum(max(-value, 0.0) for _, value in found) + 0.5
        least = (more + less - (more - less) ** 2 / (probes + 2)) / (probes + 2) ** 2
        error = math.sqrt(max(clusters / (clusters - 1) * squares / probes**2, least))
        half = student(clusters - 1) * error
        low, high = max(mean - half, -1.0), min(mean + half, 1.0)
        p = 1 - within(abs(mean) / error, clusters - 1)
    return Difference(
        figure=figure,
        first=first,
        second=second,
        value=mean,
        n=probes,
        clusters=clusters,
        low=low,
        high=high,
        p=p,
    )


def corrected(differences: Sequence[Difference], primary: Difference | None) -> list[Difference]:
    """The primary comparison as it is, and the p values of all others corrected by Holm's step-down method."""
    others = [item for item in differences if item is not primary and item.p is not None]
    others.sort(key=lambda item: item.p or 0.0)
    adjusted: dict[int, float] = {}
    so_far = 0.0
    for place, other in enumerate(others):
        so_far = max(so_far, min(1.0, (other.p or 0.0) * (len(others) - place)))
        adjusted[id(other)] = so_far
    return [
        item.model_copy(update={"primary": True} if item is primary else {"p": adjusted.get(id(item))})
        for item in differences
    ]


def within(t: float, freedom: int) -> float:
    """How probable it is that Student's t stays between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
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
def student(freedom: int) -> float:
    """The t within which 95 % lie."""
    low, high = 0.0, 13.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < _LEVEL else (low, middle)
    return high


def _sums(values: Iterable[tuple[str, float]]) -> list[tuple[float, int]]:
    """Of each cluster the sum of its values, and how many they are."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for cluster, value in values:
        found[cluster].append(value)
    return [(math.fsum(own), len(own)) for own in found.values()]


class Waited(NamedTuple):
    cluster: str
    time: float  # until it happened, or until nobody looked any more
    happened: bool
    weight: float = 1.0  # less for a replicate among several


def latency(waits: Sequence[Waited]) -> Latency:
    """The median wait with its 95 % interval; null where fewer than half have happened, or of too few personas."""
    clusters = sorted({wait.cluster for wait in waits})
    counts = {
        "n": round(sum(wait.weight for wait in waits)),
        "clusters": len(clusters),
        "censored": round(sum(wait.weight for wait in waits if not wait.happened)),
    }
    curve = survival(waits)
    median = next((time for time, share in curve if share <= 0.5), None)
    if len(clusters) < MIN_CLUSTERS or not curve:
        return Latency(median=median, **counts)
    without = [survival([wait for wait in waits if wait.cluster != cluster]) for cluster in clusters]
    quantile = student(len(clusters) - 1)
    inside = []
    for time, share in curve:
        if not 0 < share < 1:
            continue
        left = [_loglog(_at(part, time)) for part in without]
        centre = math.fsum(left) / len(left)
        spread = math.fsum((value - centre) ** 2 for value in left) * (len(left) - 1) / len(left)
        if abs(_loglog(share) - _loglog(0.5)) <= quantile * math.sqrt(spread):
            inside.append(time)
    if not inside:
        return Latency(median=median, low=median, high=median, **counts)
    # Where the curve is still within the interval at its end, nobody knows how long it may take.
    high = next((time for time, _ in curve if time > inside[-1]), None)
    return Latency(median=median, low=inside[0], high=high, **counts)


def survival(waits: Sequence[Waited]) -> list[tuple[float, float]]:
    """At each time something happened: the share for which it had not, after that time."""
    curve, share = [], 1.0
    for time in sorted({wait.time for wait in waits if wait.happened}):
        waiting = math.fsum(wait.weight for wait in waits if wait.time >= time)
        happened = math.fsum(wait.weight for wait in waits if wait.time == time and wait.happened)
        share *= max(0.0, 1 - happened / waiting)
        curve.append((time, share))
    return curve


def _at(curve: Sequence[tuple[float, float]], time: float) -> float:
    return next((share for at, share in reversed(curve) if at <= time), 1.0)


def _loglog(share: float) -> float:
    return math.log(-math.log(min(max(share, 0.001), 0.999)))
