"""Small plots as inline SVG (no script, no font file, no network; all text is escaped), and those of a report's
page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from typing import Literal
from zlib import crc32

from markupsafe import Markup

from memory.bench.report.page import Block
from memory.bench.report.results import CEILING, FLOOR, Entry, Results
from memory.bench.scores.figures import BY_NAME

# Told apart by hue and lightness, so that prints and most colour-blind eyes keep them apart too.
PALETTE = ("#2f6f8f", "#d98b2b", "#6a9a4f", "#b0517c", "#7b68b0", "#8a7350", "#3f9f95", "#9a9a9a")
# Widths in the page's own pixels, so that text in plots is as large as text beside them; the narrow one keeps it
# readable on a phone too.
FULL, NARROW = 1000, 400
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2", "1 5", "9 3 2 3 2 3")
_SHARES = (0, 0.25, 0.5, 0.75, 1)
_LABEL_WIDTH = 130
_LETTER = 6.8  # of a label, in pixels, on average
_LEFT, _TOP, _BOTTOM = 48, 12, 190  # where what has an x begins and ends
_POINTS = 12  # of a learning curve: more are noise, of a dozen requests each
References = Sequence[tuple[str, float]]
"""Names and shares that all else is compared with, such as the ceiling; drawn as rules across the plot."""


def _colours(results: Results) -> dict[str, str]:
    """By label: a provider's own, on every page the same unless another one beside it has taken it."""
    taken: dict[str, str] = {}
    for label in (entry.metrics.label for entry in results.entries):
        first = crc32(label.encode()) % len(PALETTE)
        wheel = [*PALETTE[first:], *PALETTE[:first]]
        taken[label] = next((colour for colour in wheel if colour not in taken.values()), wheel[0])
    return taken


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. ``value`` None draws none and says so; ``low`` and ``high`` draw an interval."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line over x; points whose y is None are gaps. Each ``style`` has its dashes and marks, so that lines that
    coincide are all seen; 0 is solid, with dots."""

    label: str
    points: tuple[tuple[float, float | None], ...]
    colour: str
    style: int


def _svg(width: int, height: float, title: str, body: Sequence[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _nothing(width: int, title: str, why: str) -> Markup:
    return _svg(width, 60, title, [_text(width / 2, 34, why, "tick", "middle")])


def _nice_steps(top: float) -> list[float]:
    """Round tick values from 0 to at least ``top``."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / 4
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw * 0.999)
    return [step * index for index in range(math.ceil(top / step - 1e-9) + 1)]


def _broken(label: str, room: float) -> list[str]:
    """A label in lines that fit, whole: what it says is not to be cut off."""
    return textwrap.wrap(label, int(room / _LETTER)) or [""]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def bars(title: str, rows: Sequence[Bar], *, width: int, references: References = ()) -> Markup:
    """Horizontal bars of shares."""
    labels = [_broken(row.label, _LABEL_WIDTH - 8) for row in rows]
    row_height = 26 if all(len(lines) == 1 for lines in labels) else 16 * max(map(len, labels))
    top = 18 if references else 4
    height = top + row_height * len(rows) + 24

    def x(value: float) -> float:
        return _LABEL_WIDTH + (width - 76 - _LABEL_WIDTH) * value

    body = []
    for tick in _SHARES:
        body.append(_rule(x(tick), top, x(tick), height - 22))
        body.append(_text(x(tick), height - 8, f"{tick:.0%}", "tick", "middle"))
    for name, value in references:
        body.append(_rule(x(value), top, x(value), height - 22, "reference"))
        body.append(_text(x(value), top - 5, name, "tick", "end" if value > 0.5 else "start"))
    for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
        middle = top + row_height * (index + 0.5)
        for at, line in enumerate(label):
            y = middle + 4 - 7 * (len(label) - 1) + 14 * at
            body.append(_text(_LABEL_WIDTH - 8, y, line, "label", "end"))
        if row.value is None:
            body.append(_text(_LABEL_WIDTH + 6, middle + 4, "nothing to measure", "tick"))
            continue
        edge = x(row.value)
        body.append(
            f'<rect x="{_LABEL_WIDTH}" y="{middle - 8:.1f}" width="{max(edge - _LABEL_WIDTH, 1.0):.1f}" '
            f'height="16" rx="2" fill="{escape(row.colour)}"/>'
        )
        if row.low is not None and row.high is not None:
            body.append(_rule(x(row.low), middle, x(row.high), middle, "interval"))
            for end in (x(row.low), x(row.high)):
                body.append(_rule(end, middle - 4, end, middle + 4, "interval"))
            edge = max(edge, x(row.high))
        body.append(_text(edge + 6, middle + 4, f"{row.value:.1%}", "value"))
    return _svg(width, height, title, body)


def _dot(x: float, y: float, line: Line, size: float) -> str:
    """The mark of a line's points: dot, square, triangle or diamond."""
    colour = escape(line.colour)
    if line.style % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'
    corners = ((), ((-1, -1), (1, -1), (1, 1), (-1, 1)), ((0, -1.4), (1.3, 1), (-1.3, 1)),
               ((0, -1.5), (1.5, 0), (0, 1.5), (-1.5, 0)))[line.style % 4]  # fmt: skip
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'


def _size(line: Line, series: Sequence[Line]) -> float:
    """Of its marks: what is drawn later has smaller ones, so that those below show around them."""
    return 2.4 + 0.5 * min(len(series) - 1 - series.index(line), 5)


def _dashes(line: Line) -> str:
    dashes = _DASHES[line.style % len(_DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _y(share: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _over(
    title: str, width: int, right: float, x_label: str, body: list[str], series: Sequence[Line]
) -> Markup:
    """A plot over x: rules and labels of shares, what x is, the body, and a legend, in which a label that is wider
    than the plot goes on below."""
    grid = []
    for share in _SHARES:
        grid.append(_rule(_LEFT, _y(share), right, _y(share)))
        grid.append(_text(_LEFT - 6, _y(share) + 4, f"{share:.0%}", "tick", "end"))
    grid.append(_text((_LEFT + right) / 2, _BOTTOM + 32, x_label, "tick", "middle"))
    room, y, legend = right - _LEFT, _BOTTOM + 52.0, []
    widest = max((len(line.label) for line in series), default=0) * _LETTER + 40
    columns = max(1, min(3, int(room / widest)))
    for start in range(0, len(series), columns):
        row = series[start : start + columns]
        labels = [_broken(line.label, room / columns - 28) for line in row]
        for column, line in enumerate(row):
            x = _LEFT + column * room / columns
            legend.append(
                f'<path d="M{x:.1f} {y - 4:.1f}h22" stroke="{escape(line.colour)}" stroke-width="3"'
                f"{_dashes(line)}/>" + _dot(x + 11, y - 4, line, 4.2)
            )
            legend += [_text(x + 28, y + 14 * at, text, "label") for at, text in enumerate(labels[column])]
        y += 6 + 14 * max(map(len, labels))
    return _svg(width, y - 10, title, [*grid, *body, *legend])


def lines(
    title: str,
    series: Sequence[Line],
    x_label: str,
    *,
    marks: Sequence[float] = (),
    width: int,
    references: References = (),
    doubling: bool = False,
) -> Markup:
    """Shares over whole numbers, with a legend; ``marks`` are positions on x.

    With ``doubling``, equal steps on x are equal factors.
    """
    right, values = width - 16, sorted({x for line in series for x, _ in line.points})
    if not values:
        return _nothing(width, title, "nothing changed in this run")
    first, last = values[0], max(values[-1], values[0] + 1)

    def place(x: float) -> float:
        along = math.log(x / first) / math.log(last / first) if doubling else (x - first) / (last - first)
        return _LEFT + (right - _LEFT) * along

    body, free = [], 0.0
    for x in values[:: max(1, math.ceil(len(values) / 12))]:
        if (at := place(x)) >= free:
            body.append(_text(at, _BOTTOM + 16, _number(x), "tick", "middle"))
            free = at + 26
    body += [_rule(place(x), _TOP, place(x), _BOTTOM, "mark") for x in marks if first <= x <= last]
    for name, value in references:
        y = _y(value)
        body.append(_rule(_LEFT, y, right, y, "reference"))
        body.append(_text(right, y + 12 if value > 0.5 else y - 4, name, "tick", "end"))
    for line in series:
        known = [(place(x), _y(y)) for x, y in line.points if y is not None]
        path = " ".join(f"{'M' if at == 0 else 'L'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(known))
        colour = escape(line.colour)
        body.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{_dashes(line)}/>')
        body += [_dot(x, y, line, _size(line, series)) for x, y in known]
    return _over(title, width, right, x_label, body, series)


def scatter(title: str, series: Sequence[Line], x_label: str, *, width: int) -> Markup:
    """Shares over amounts from 0 on, unconnected, with a legend."""
    known = [(line, x, y) for line in series for x, y in line.points if y is not None]
    if not known:
        return _nothing(width, title, "nothing was measured")
    right, ticks = width - 24, _nice_steps(max(x for _, x, _ in known))
    scale, body = (right - _LEFT) / ticks[-1], []
    for tick in ticks:
        body.append(_text(_LEFT + scale * tick, _BOTTOM + 16, _number(tick), "tick", "middle"))
    for line, x, y in known:
        body.append(_dot(_LEFT + scale * x, _y(y), line, _size(line, series) + 2))
    return _over(title, width, right, x_label, body, series)


def side_by_side(results: Results, name: str) -> Block:
    """A figure of each provider, as bars with their intervals."""
    rows, colours = [], _colours(results)
    for entry in results.entries:
        found = entry.estimate(name)
        rows.append(Bar(entry.shown, found.value, found.low, found.high, colours[entry.metrics.label]))
    note = f"{BY_NAME[name].meaning} Lines are 95 % intervals by persona."
    plot = bars(name, rows, width=FULL, references=_references(results, name))
    return Block(name.capitalize(), plot=plot, note=note)


def over_budgets(results: Results, name: str) -> Iterator[Block]:
    """What each provider makes of more tokens, where several budgets were played."""
    colours, found = _colours(results), dict[str, list[tuple[int, Entry]]]()
    for entry in results.entries:
        if (budget := entry.variant.budget.max_tokens) is not None and not entry.is_reference:
            found.setdefault(entry.variant.series, []).append((budget, entry))
    if len({budget for each in found.values() for budget, _ in each}) < 2:
        return
    series: list[Line] = []
    for label, each in found.items():
        ordered = sorted(each, key=itemgetter(0))
        points = tuple((budget, entry.estimate(name).value) for budget, entry in ordered)
        series.append(Line(label, points, colours[each[0][1].metrics.label], len(series)))
    heading, references = f"{name.capitalize()} over the token budget", _references(results, name)
    plot = lines(heading, series, "tokens of the budget", width=FULL, references=references, doubling=True)
    note = "One budget decides a ranking; where lines cross, so does the winner."
    yield Block(heading, plot=plot, note=note)


def learning(results: Results, name: str) -> Block:
    """A figure along the timeline."""
    shifts = sorted({shift for entry in results.entries for shift in entry.metrics.shifts})
    series, sizes = _series(results, "curve", shifts)
    note = BY_NAME[name].meaning
    if sizes:
        over = str(max(sizes)) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        note += f" A point is over {over} requests."
    if shifts:
        note += f" Vertical rules: preferences change after session {', '.join(map(str, shifts))}."
    heading = f"{name.capitalize()} while sessions are ingested"
    plot = lines(heading, series, "sessions ingested", marks=shifts, width=NARROW)
    return Block(f"Learning curve: {name}", plot=plot, note=note, half=True)


def after_change(results: Results, name: str) -> Block:
    """A figure by sessions since preferences changed."""
    series, _ = _series(results, "after_change", ())
    heading = f"{name.capitalize()} after a change of preferences"
    return Block(heading, plot=lines(heading, series, "sessions since the change", width=NARROW), half=True)


def price(results: Results, name: str) -> Block:
    """What a provider takes of the model's context, against what it gives."""
    series, colours = list[Line](), _colours(results)
    for entry in results.entries:
        mean = entry.metrics.tokens.mean
        points = () if mean is None else ((mean, entry.estimate(name).value),)
        series.append(Line(entry.shown, points, colours[entry.metrics.label], len(series)))
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


def _series(
    results: Results, curve: Literal["curve", "after_change"], shifts: Sequence[int]
) -> tuple[list[Line], set[int]]:
    """A line of each provider, and over how many requests its points are."""
    series, sizes, colours = list[Line](), set(), _colours(results)
    curves = [getattr(entry.metrics, curve) for entry in results.entries]
    pools = _pools(sorted({point.at for known in curves for point in known}), shifts)
    for entry, known in zip(results.entries, curves, strict=True):
        points: list[tuple[float, float | None]] = []
        for pool in pools:
            fits = [at.estimate for at in known if at.at in pool and at.estimate.value is not None]
            if number := sum(fit.n for fit in fits):
                points.append((pool[-1], math.fsum(fit.value * fit.n for fit in fits) / number))
                sizes.add(number)
        series.append(Line(entry.shown, tuple(points), colours[entry.metrics.label], len(series)))
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
