"""Small plots as inline SVG (no script, no font file, no network; all text is escaped), and those of a report's
page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from zlib import crc32

from markupsafe import Markup

from memory.bench.report.page import Block
from memory.bench.report.results import CEILING, FLOOR, Entry, Results
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.model import CurvePoint

PALETTE = ("#2f6f8f", "#d98b2b", "#6a9a4f", "#b0517c", "#7b68b0", "#8a7350", "#3f9f95", "#9a9a9a")
"""Told apart by hue and lightness, so that prints and most colour-blind eyes keep them apart too."""

FULL, NARROW = 1000, 400
"""Widths in the page's own pixels, so that text in plots is as large as text beside them; the narrow one keeps it
readable on a phone too."""

_DASHES = ("", "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2", "1 5", "9 3 2 3 2 3")

_SHARES = (0, 0.25, 0.5, 0.75, 1)
_LABEL_WIDTH = 130
_LETTER = 6.8  # of a label, in pixels, on average


def own_colours(providers: Sequence[str]) -> list[str]:
    """A provider's own colour, on every page the same unless another one beside it has taken it."""
    taken: list[str] = []
    for provider in providers:
        first = crc32(provider.encode()) % len(PALETTE)
        wheel = [*PALETTE[first:], *PALETTE[:first]]
        taken.append(next((colour for colour in wheel if colour not in taken), wheel[0]))
    return taken


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. ``value`` None draws none and says so; ``low`` and ``high`` draw an interval."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    colour: str = PALETTE[0]


@dataclass(frozen=True, slots=True)
class Line:
    """One line over x; points whose y is None are gaps. Each ``style`` has its dashes and marks, so that lines that
    coincide are all seen; 0 is solid, with dots."""

    label: str
    points: tuple[tuple[float, float | None], ...]
    colour: str = PALETTE[0]
    style: int = 0


def _svg(width: int, height: float, title: str, body: Sequence[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def nice_steps(top: float, count: int = 4) -> list[float]:
    """Round tick values from 0 to at least ``top``."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw * 0.999)
    return [step * index for index in range(math.ceil(top / step - 1e-9) + 1)]


def _broken(label: str) -> list[str]:
    """A label in lines that fit beside the bars, whole: what it says is not to be cut off."""
    return textwrap.wrap(label, int((_LABEL_WIDTH - 8) / _LETTER)) or [""]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


References = Sequence[tuple[str, float]]
"""Names and shares that all else is compared with, such as the ceiling; drawn as rules across the plot."""


def bars(title: str, rows: Sequence[Bar], *, width: int, references: References = ()) -> Markup:
    """Horizontal bars of shares."""
    lines_of = [_broken(row.label) for row in rows]
    row_height = 26 if all(len(lines) == 1 for lines in lines_of) else 16 * max(map(len, lines_of))
    top = 18 if references else 4
    right = width - 76
    height = top + row_height * len(rows) + 24

    def x(value: float) -> float:
        return _LABEL_WIDTH + (right - _LABEL_WIDTH) * value

    body = []
    for tick in _SHARES:
        body.append(_rule(x(tick), top, x(tick), height - 22))
        body.append(_text(x(tick), height - 8, f"{tick:.0%}", "tick", "middle"))
    for name, value in references:
        body.append(_rule(x(value), top, x(value), height - 22, "reference"))
        body.append(_text(x(value), top - 5, name, "tick", "end" if value > 0.5 else "start"))
    for index, row in enumerate(rows):
        middle = top + row_height * (index + 0.5)
        first = middle + 4 - 7 * (len(lines_of[index]) - 1)
        body.extend(
            _text(_LABEL_WIDTH - 8, first + 14 * at, line, "label", "end")
            for at, line in enumerate(lines_of[index])
        )
        if row.value is None:
            body.append(_text(_LABEL_WIDTH + 6, middle + 4, "nothing to measure", "tick"))
            continue
        wide = max(x(row.value) - _LABEL_WIDTH, 1.0)
        body.append(
            f'<rect x="{_LABEL_WIDTH}" y="{middle - 8:.1f}" width="{wide:.1f}" height="16" rx="2" '
            f'fill="{escape(row.colour)}"/>'
        )
        edge = x(row.value)
        if row.low is not None and row.high is not None:
            body.append(_rule(x(row.low), middle, x(row.high), middle, "interval"))
            body.extend(
                _rule(x(end), middle - 4, x(end), middle + 4, "interval") for end in (row.low, row.high)
            )
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


def _grid(left: float, right: float, top: float, bottom: float, x_label: str) -> list[str]:
    """Rules and labels of shares, and what x is."""
    body = []
    for share in _SHARES:
        y = bottom - (bottom - top) * share
        body.append(_rule(left, y, right, y))
        body.append(_text(left - 6, y + 4, f"{share:.0%}", "tick", "end"))
    body.append(_text((left + right) / 2, bottom + 32, x_label, "tick", "middle"))
    return body


def _columns(series: Sequence[Line], room: float) -> int:
    widest = max((len(line.label) for line in series), default=0) * _LETTER + 40
    return max(1, min(3, int(room / widest)))


def _legend(series: Sequence[Line], left: float, room: float, top: float) -> tuple[list[str], float]:
    """The legend, and where it ends. A label that is wider than the plot goes on below."""
    columns, body, y = _columns(series, room), [], top
    for start in range(0, len(series), columns):
        row = series[start : start + columns]
        labels = [textwrap.wrap(line.label, int((room / columns - 28) / _LETTER)) or [""] for line in row]
        for column, line in enumerate(row):
            x = left + column * room / columns
            body.append(
                f'<path d="M{x:.1f} {y - 4:.1f}h22" stroke="{escape(line.colour)}" stroke-width="3"'
                f"{_dashes(line)}/>" + _dot(x + 11, y - 4, line, 4.2)
            )
            body.extend(_text(x + 28, y + 14 * at, text, "label") for at, text in enumerate(labels[column]))
        y += 6 + 14 * max(map(len, labels))
    return body, y - 10


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
    left, right, top, bottom = 48, width - 16, 12, 190
    values = sorted({x for line in series for x, _ in line.points})
    if not values:
        return _svg(width, 60, title, [_text(width / 2, 34, "nothing changed in this run", "tick", "middle")])
    first, last = values[0], max(values[-1], values[0] + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        along = math.log(x / first) / math.log(last / first) if doubling else (x - first) / (last - first)
        return left + (right - left) * along, bottom - (bottom - top) * y

    body = _grid(left, right, top, bottom, x_label)
    free = 0.0
    for x in values[:: max(1, math.ceil(len(values) / 12))]:
        at = place(x, 0)[0]
        if at >= free:
            body.append(_text(at, bottom + 16, _number(x), "tick", "middle"))
            free = at + 26
    body.extend(
        _rule(place(x, 0)[0], top, place(x, 0)[0], bottom, "mark") for x in marks if first <= x <= last
    )
    for name, value in references:
        y = bottom - (bottom - top) * value
        body.append(_rule(left, y, right, y, "reference"))
        body.append(_text(right, y + 12 if value > 0.5 else y - 4, name, "tick", "end"))
    for line in series:
        known = [(place(x, y)) for x, y in line.points if y is not None]
        path = " ".join(f"{'M' if at == 0 else 'L'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(known))
        colour = escape(line.colour)
        body.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{_dashes(line)}/>')
        body.extend(_dot(x, y, line, _size(line, series)) for x, y in known)
    legend, height = _legend(series, left, right - left, bottom + 52)
    return _svg(width, height, title, [*body, *legend])


def scatter(title: str, series: Sequence[Line], x_label: str, *, width: int) -> Markup:
    """Shares over amounts from 0 on, unconnected, with a legend."""
    left, right, top, bottom = 48, width - 24, 12, 190
    known = [(line, x, y) for line in series for x, y in line.points if y is not None]
    if not known:
        return _svg(width, 60, title, [_text(width / 2, 34, "nothing was measured", "tick", "middle")])
    ticks = nice_steps(max(x for _, x, _ in known))
    body = _grid(left, right, top, bottom, x_label)
    for tick in ticks:
        at = left + (right - left) * tick / ticks[-1]
        body.append(_text(at, bottom + 16, _number(tick), "tick", "middle"))
    for line, x, y in known:
        at = left + (right - left) * x / ticks[-1]
        body.append(_dot(at, bottom - (bottom - top) * y, line, _size(line, series) + 2))
    legend, height = _legend(series, left, right - left, bottom + 52)
    return _svg(width, height, title, [*body, *legend])


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
