"""The plots of a page: side by side, over budgets, along the timeline, after a change, against their price."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

from memory.bench.report.page import Block
from memory.bench.report.plots import FULL, NARROW, Bar, Line, bars, lines, own_colours, scatter
from memory.bench.report.results import CEILING, FLOOR, Entry, Results
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.model import CurvePoint

_POINTS = 12
"""Of a learning curve: more are noise, of a dozen requests each."""


def side_by_side(results: Results, name: str) -> Block:
    """A figure of each provider, as bars with their intervals."""
    colours, found = _colours(results), [(entry, entry.estimate(name)) for entry in results.entries]
    rows = [
        Bar(entry.shown, item.value, item.low, item.high, colours[entry.metrics.label])
        for entry, item in found
    ]
    note = f"{BY_NAME[name].meaning} Lines are 95 % intervals by persona."
    plot = bars(name, rows, width=FULL, references=_references(results, name))
    return Block(name.capitalize(), plot=plot, note=note)


def over_budgets(results: Results, name: str) -> Iterator[Block]:
    """What each provider makes of more tokens, where several budgets were played."""
    colours, found = _colours(results), dict[str, list[tuple[int, Entry]]]()
    for entry in results.entries:
        if (budget := entry.variant.budget.max_tokens) is not None and not entry.is_reference:
            found.setdefault(entry.variant.series, []).append((budget, entry))
    budgets = sorted({budget for series in found.values() for budget, _ in series})
    if len(budgets) < 2:
        return
    series = [
        Line(
            label,
            tuple((budget, entry.estimate(name).value) for budget, entry in sorted(each, key=itemgetter(0))),
            colours[each[0][1].metrics.label],
            index,
        )
        for index, (label, each) in enumerate(found.items())
    ]
    heading = f"{name.capitalize()} over the token budget"
    plot = lines(
        heading,
        series,
        "tokens of the budget",
        width=FULL,
        references=_references(results, name),
        doubling=True,
    )
    note = "One budget decides a ranking; where lines cross, so does the winner."
    yield Block(heading, plot=plot, note=note)


def learning(results: Results, name: str) -> Block:
    """A figure along the timeline."""
    shifts = sorted({shift for entry in results.entries for shift in entry.metrics.shifts})
    pools = _pools(sorted({at.at for entry in results.entries for at in entry.metrics.curve}), shifts)
    series, sizes = _series(results, pools, lambda entry: entry.metrics.curve)
    note = BY_NAME[name].meaning
    if sizes:
        over = str(max(sizes)) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        note += f" A point is over {over} requests."
    if shifts:
        note += f" Vertical rules: preferences change after session {', '.join(map(str, shifts))}."
    plot = lines(
        f"{name.capitalize()} while sessions are ingested",
        series,
        "sessions ingested",
        marks=shifts,
        width=NARROW,
    )
    return Block(f"Learning curve: {name}", plot=plot, note=note, half=True)


def after_change(results: Results, name: str) -> Block:
    """A figure by sessions since preferences changed."""
    ages = sorted({at.at for entry in results.entries for at in entry.metrics.after_change})
    series, _ = _series(results, _pools(ages, ()), lambda entry: entry.metrics.after_change)
    heading = f"{name.capitalize()} after a change of preferences"
    return Block(heading, plot=lines(heading, series, "sessions since the change", width=NARROW), half=True)


def price(results: Results, name: str) -> Block:
    """What a provider takes of the model's context, against what it gives."""
    colours = _colours(results)
    series = [
        Line(
            entry.shown,
            () if (mean := entry.metrics.tokens.mean) is None else ((mean, entry.estimate(name).value),),
            colours[entry.metrics.label],
            index,
        )
        for index, entry in enumerate(results.entries)
    ]
    plot = scatter(f"{name.capitalize()} over tokens of context", series, "tokens of context", width=NARROW)
    return Block("Cost against quality", plot=plot, note="Up is better, left is cheaper.", half=True)


def _references(results: Results, name: str) -> list[tuple[str, float]]:
    """Floor and ceiling, where one of each was played."""
    found: dict[str, set[float]] = {}
    for entry in results.entries:
        if entry.is_reference and (value := entry.estimate(name).value) is not None:
            found.setdefault(entry.variant.provider.condition or "", set()).add(value)
    names = {CEILING: "ceiling", FLOOR: "floor"}
    return [(names[which], values.pop()) for which, values in found.items() if len(values) == 1]


def _series(results: Results, pools: Sequence[Sequence[int]], curve: object) -> tuple[list[Line], set[int]]:
    colours, series, sizes = _colours(results), [], set()
    for index, entry in enumerate(results.entries):
        points: list[tuple[float, float | None]] = []
        known: Sequence[CurvePoint] = curve(entry)  # type: ignore[operator]
        for pool in pools:
            fits = [at.estimate for at in known if at.at in pool and at.estimate.value is not None]
            if number := sum(fit.n for fit in fits):
                points.append((pool[-1], math.fsum((fit.value or 0) * fit.n for fit in fits) / number))
                sizes.add(number)
        series.append(Line(entry.shown, tuple(points), colours[entry.metrics.label], index))
    return series, sizes


def _pools(points: Sequence[int], shifts: Sequence[int]) -> list[list[int]]:
    """Neighbouring points, about ``_POINTS`` pools of them, none with a change of preferences within."""
    size = math.ceil(len(points) / _POINTS)
    pools: list[list[int]] = []
    for point in points:
        if not pools or len(pools[-1]) >= size or any(pools[-1][-1] < shift <= point for shift in shifts):
            pools.append([])
        pools[-1].append(point)
    return pools


def _colours(results: Results) -> dict[str, str]:
    labels = [entry.metrics.label for entry in results.entries]
    return dict(zip(labels, own_colours(labels), strict=True))
