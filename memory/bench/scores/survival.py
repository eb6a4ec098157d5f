"""How long until something happens, where for some it had not at the end: Kaplan and Meier's estimate (1958).

The interval is Brookmeyer and Crowley's (1982) on the complementary log-log scale. Its variance is a jackknife over
personas, because the changes of one persona share its memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from memory.bench.scores.intervals import MIN_CLUSTERS, student
from memory.bench.scores.model import Latency


class Waited(NamedTuple):
    """One wait.

    Attributes:
        cluster: whose.
        time: until it happened, or until nobody looked any more.
        happened: which of the two.
        weight: one, or less for a replicate among several.
    """

    cluster: str
    time: float
    happened: bool
    weight: float = 1.0


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
    low = min(inside, default=median)
    later = [time for time, _ in curve if inside and time > inside[-1]]
    # Where the curve is still within the interval at its end, nobody knows how long it may take.
    high = (later[0] if later else None) if inside else median
    return Latency(median=median, low=low, high=high, **counts)


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
