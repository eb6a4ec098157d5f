"""Small plots as inline SVG (no script, no font file, no network; all text is escaped), and those of a report's
page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from zlib import crc32

from markupsafe import Markup

from memory.bench.engine.settings import CEILING, FLOOR
from memory.bench.report.page import Block
from memory.bench.report.results import Entry, Results
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.model import Standing

_KNOWN = {
    "mem0": "#2f6f8f", "graphiti": "#d98b2b", "honcho": "#b0517c", "memos": "#7b68b0", "stigmem": "#3f9f95",
    "full_history": "#8a7350", "rolling_summary": "#6a9a4f", "simple_rag": "#4a5fa8", "static_profile": "#a8503f",
    "no_memory": "#9a9a9a", "oracle_ipas": "#55606b",
}  # fmt: skip
# The width of a plot in the page's own pixels: text in it is as large as text beside it, on a phone too.
NARROW = 400
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2", "1 5", "9 3 2 3 2 3")
_SHARES = (0, 0.25, 0.5, 0.75, 1)
_LETTER = 6.8  # of a label, in pixels, on average
_LEFT, _TOP, _BOTTOM = 48, 12, 190  # where what has an x begins and ends
References = Sequence[tuple[str, float]]
"""Names and shares that all else is compared with, such as the ceiling; drawn as rules across the plot."""


def colour_of(name: str) -> str:
    """A provider's colour, the same on every page whoever stands beside it; other names have a hue of their own."""
    if name in _KNOWN:
        return _KNOWN[name]
    hue = crc32(name.encode())
    return f"hsl({hue % 360} {45 + hue // 360 % 3 * 12}% {38 + hue // 1080 % 3 * 8}%)"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. ``value`` None draws none and says so; ``low`` and ``high`` draw an interval."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    colour: str
    group: str = ""


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


def _broken(label: str, room: float) -> list[str]:
    """A label in lines that fit, whole: what it says is not to be cut off."""
    return textwrap.wrap(label, int(room / _LETTER)) or [""]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def bars(title: str, rows: Sequence[Bar]) -> Markup:
    """Horizontal bars of shares. Group and label stand above a bar, so that the plot can be read on a phone."""
    scale, body, y, group = NARROW - 62, list[str](), 6.0, ""
    for row in rows:
        if row.group != group:
            group = row.group
            body.append(_text(0, y + 12, {"reference": "references"}.get(group, f"{group}s"), "tick"))
            y += 20
        for line in _broken(row.label, NARROW):
            body.append(_text(0, y + 12, line, "label"))
            y += 15
        body.append(_rule(0, y + 18, scale, y + 18))
        if row.value is None:
            body.append(_text(0, y + 13, "nothing to measure", "tick"))
        else:
            edge = scale * row.value
            body.append(
                f'<rect x="0" y="{y + 3:.1f}" width="{max(edge, 1.0):.1f}" height="13" rx="2" '
                f'fill="{escape(row.colour)}"/>'
            )
            if row.low is not None and row.high is not None:
                body.append(_rule(scale * row.low, y + 9.5, scale * row.high, y + 9.5, "interval"))
                for end in (scale * row.low, scale * row.high):
                    body.append(_rule(end, y + 5.5, end, y + 13.5, "interval"))
                edge = max(edge, scale * row.high)
            body.append(_text(edge + 5, y + 14, f"{row.value:.1%}", "value"))
        y += 26
    return _svg(NARROW, y, title, body)


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


def _over(title: str, right: float, x_label: str, body: list[str], series: Sequence[Line]) -> Markup:
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
    return _svg(NARROW, y - 10, title, [*grid, *body, *legend])


def lines(
    title: str,
    series: Sequence[Line],
    x_label: str,
    *,
    references: References = (),
) -> Markup:
    """Shares over whole numbers, with a legend. Equal steps on x are equal factors."""
    right, values = NARROW - 16, sorted({x for line in series for x, _ in line.points})
    if not values:
        return _svg(NARROW, 60, title, [_text(NARROW / 2, 34, "nothing to draw", "tick", "middle")])
    first, last = values[0], max(values[-1], values[0] + 1)

    def place(x: float) -> float:
        return _LEFT + (right - _LEFT) * math.log(x / first) / math.log(last / first)

    body, free = [], 0.0
    for x in values[:: max(1, math.ceil(len(values) / 12))]:
        if (at := place(x)) >= free:
            body.append(_text(at, _BOTTOM + 16, _number(x), "tick", "middle"))
            free = at + 26
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
    return _over(title, right, x_label, body, series)


def ranked(entries: Sequence[Entry], name: str) -> Block:
    """A figure of each provider as bars, the highest first: architectures, then controls, then references."""
    order: tuple[Standing, ...] = ("architecture", "control", "reference")
    rows = []
    for entry in sorted(
        entries,
        key=lambda entry: (order.index(entry.variant.standing), -(entry.estimate(name).value or 0.0)),
    ):
        found = entry.estimate(name)
        rows.append(
            Bar(
                entry.shown,
                found.value,
                found.low,
                found.high,
                colour_of(entry.variant.series),
                entry.variant.standing,
            )
        )
    note = f"{BY_NAME[name].meaning} Lines are 95 % intervals by persona."
    return Block(name.capitalize(), plot=bars(name, rows), note=note)


def over_budgets(results: Results, name: str) -> Iterator[Block]:
    """The figure of each provider over the budgets, if several budgets were played."""
    found = dict[str, list[tuple[int, Entry]]]()
    for entry in results.entries:
        if (budget := entry.variant.budget.max_tokens) is not None and not entry.is_reference:
            found.setdefault(entry.variant.series, []).append((budget, entry))
    if len({budget for each in found.values() for budget, _ in each}) < 2:
        return
    series: list[Line] = []
    for label, each in found.items():
        ordered = sorted(each, key=itemgetter(0))
        points = tuple((budget, entry.estimate(name).value) for budget, entry in ordered)
        series.append(Line(label, points, colour_of(label), len(series)))
    heading, references = f"{name.capitalize()} over the token budget", _references(results, name)
    plot = lines(heading, series, "tokens of the budget", references=references)
    yield Block(
        heading, plot=plot, note="One budget decides a ranking; where lines cross, so does the winner."
    )


def _references(results: Results, name: str) -> list[tuple[str, float]]:
    """Floor and ceiling, where one of each was played."""
    found: dict[str, set[float]] = {}
    for entry in results.entries:
        if entry.is_reference and (value := entry.estimate(name).value) is not None:
            found.setdefault(entry.variant.provider.condition or "", set()).add(value)
    names = {CEILING: "ceiling", FLOOR: "floor"}
    return [(names[which], values.pop()) for which, values in found.items() if len(values) == 1]
