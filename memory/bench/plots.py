"""Small plots as inline SVG: no script, no font file, no network. All text is escaped."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

__all__ = ["FULL", "HALF", "PALETTE", "Bar", "Line", "bars", "histogram", "lines"]

PALETTE = ("#2f6f8f", "#d98b2b", "#6a9a4f", "#b0517c", "#7b68b0", "#8a7350", "#3f9f95", "#9a9a9a")
"""Told apart by hue and lightness, so that prints and most colour-blind eyes keep them apart too."""

FULL, HALF = 1000, 480
"""Widths in the page's own pixels, so that text in plots is as large as text beside them."""

_LABEL_WIDTH = 130
_LETTER = 6.8  # of a label, in pixels, on average


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. ``value`` None draws none and says so; ``low`` and ``high`` draw an interval."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    colour: str = PALETTE[0]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line over x; points whose y is None are gaps."""

    label: str
    points: tuple[tuple[float, float | None], ...]
    colour: str = PALETTE[0]
    dashed: bool = False


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


def bars(title: str, rows: Sequence[Bar], *, share: bool = True, width: int = HALF) -> Markup:
    """Horizontal bars. ``share`` scales from 0 to 100 %, else from 0 to the largest value."""
    lines_of = [_broken(row.label) for row in rows]
    row_height, top = 26 if all(len(lines) == 1 for lines in lines_of) else 16 * max(map(len, lines_of)), 4
    known = [value for row in rows for value in (row.value, row.high) if value is not None]
    ticks = [0, 0.25, 0.5, 0.75, 1.0] if share else nice_steps(max(known, default=0.0))
    end = ticks[-1]
    right = width - 76
    height = top + row_height * len(rows) + 24

    def x(value: float) -> float:
        return _LABEL_WIDTH + (right - _LABEL_WIDTH) * min(value / end, 1.0)

    body = []
    for tick in ticks:
        body.append(_rule(x(tick), top, x(tick), height - 22))
        body.append(_text(x(tick), height - 8, f"{tick:.0%}" if share else _number(tick), "tick", "middle"))
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
        shown = row.text or (f"{row.value:.1%}" if share else _number(row.value))
        body.append(_text(edge + 6, middle + 4, shown, "value"))
    return _svg(width, height, title, body)


def histogram(
    title: str,
    values: Sequence[float],
    unit: str,
    *,
    marks: Sequence[tuple[str, float]] = (),
    width: int = HALF,
) -> Markup:
    """How often values occur, up to their 99th percentile; ``marks`` are positions such as p95."""
    height, left, right, bottom, top = 196, 34, width - 22, 156, 26
    ordered = sorted(values)
    if not ordered:
        return _svg(width, 60, title, [_text(width / 2, 34, "nothing was measured", "tick", "middle")])
    cap = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)]
    ticks = nice_steps(max([cap, *(value for _, value in marks)]) or 1.0, 5)
    end, bins = ticks[-1], 40
    counts = [0] * bins
    for value in ordered:
        counts[min(int(value / end * bins), bins - 1)] += 1
    most, step = max(counts), (right - left) / bins

    def x(value: float) -> float:
        return left + (right - left) * min(value / end, 1.0)

    body = [_rule(left, bottom, right, bottom, "axis")]
    body.extend(_text(x(tick), bottom + 16, _number(tick), "tick", "middle") for tick in ticks)
    body.append(_text((left + right) / 2, bottom + 34, unit, "tick", "middle"))
    body.append(_text(left - 6, top + 8, str(most), "tick", "end"))
    for index, count in enumerate(counts):
        if count:
            tall = max((bottom - top) * count / most, 1.0)
            body.append(
                f'<rect x="{left + index * step + 0.5:.1f}" y="{bottom - tall:.1f}" width="{step - 1:.1f}" '
                f'height="{tall:.1f}" fill="{PALETTE[0]}"/>'
            )
    body.extend(_rule(x(value), top - 6, x(value), bottom, "mark") for _, value in marks)
    told = ", ".join(f"{label} {_number(value)}" for label, value in marks)
    body.append(_text(left, top - 12, told, "value"))
    return _svg(width, height, title, body)


def lines(title: str, series: Sequence[Line], x_label: str, *, width: int = HALF) -> Markup:
    """Shares over whole numbers, with a legend."""
    left, right, top = 48, width - 16, 12
    widest = max((len(line.label) for line in series), default=0) * _LETTER + 40
    columns = max(1, min(3, int((right - left) / widest)))
    legend_rows = math.ceil(len(series) / columns)
    bottom = 190
    height = bottom + 42 + 20 * legend_rows
    values = sorted({x for line in series for x, _ in line.points})
    if not values:
        return _svg(width, 60, title, [_text(width / 2, 34, "nothing changed in this run", "tick", "middle")])
    first, last = values[0], max(values[-1], values[0] + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * (x - first) / (last - first), bottom - (bottom - top) * y

    body = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = place(first, share)[1]
        body.append(_rule(left, y, right, y))
        body.append(_text(left - 6, y + 4, f"{share:.0%}", "tick", "end"))
    step = max(1, math.ceil(len(values) / 12))
    body.extend(_text(place(x, 0)[0], bottom + 16, _number(x), "tick", "middle") for x in values[::step])
    body.append(_text((left + right) / 2, bottom + 32, x_label, "tick", "middle"))
    for index, line in enumerate(series):
        known = [(place(x, y)) for x, y in line.points if y is not None]
        path = " ".join(f"{'M' if at == 0 else 'L'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(known))
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        colour = escape(line.colour)
        body.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        body.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in known)
        row, column = divmod(index, columns)
        at_x, at_y = left + column * (right - left) / columns, bottom + 52 + 20 * row
        body.append(
            f'<path d="M{at_x:.1f} {at_y - 4:.1f}h22" stroke="{colour}" stroke-width="3"{dashes}/>'
            + _text(at_x + 28, at_y, line.label, "label")
        )
    return _svg(width, height, title, body)
