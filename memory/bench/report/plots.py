"""The plots of a page: ranked bars, and the curve over budgets. The template draws them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from zlib import crc32

from memory.bench.report.page import Bar, Block, Curve, Line
from memory.bench.report.results import Entry, Results
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.model import Standing

_KNOWN = {
    "mem0": "#2f6f8f", "graphiti": "#d98b2b", "honcho": "#b0517c", "memos": "#7b68b0", "stigmem": "#3f9f95",
    "full_history": "#8a7350", "rolling_summary": "#6a9a4f", "simple_rag": "#4a5fa8", "static_profile": "#a8503f",
    "no_memory": "#9a9a9a", "oracle_ipas": "#55606b",
}  # fmt: skip
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2", "1 5", "9 3 2 3 2 3")
_ORDER: tuple[Standing, ...] = ("architecture", "control", "reference")


def colour_of(name: str) -> str:
    """A provider's colour, the same on every page. An unlisted name gets its hue from its hash."""
    if name in _KNOWN:
        return _KNOWN[name]
    hue = crc32(name.encode())
    return f"hsl({hue % 360} {45 + hue // 360 % 3 * 12}% {38 + hue // 1080 % 3 * 8}%)"


def ranked(entries: Sequence[Entry], name: str) -> Block:
    """A figure as one bar for each provider: architectures, controls, references, each highest first."""
    bars = []
    for entry in entries:
        found, variant = entry.estimate(name), entry.variant
        colour = colour_of(variant.series)
        bars.append(Bar(entry.shown, found.value, found.low, found.high, colour, variant.standing))
    bars.sort(key=lambda bar: (_ORDER.index(bar.group), -(bar.value or 0.0)))
    note = f"{BY_NAME[name].meaning} Lines are 95 % intervals by persona."
    return Block(name.capitalize(), bars=bars, note=note)


def over_budgets(results: Results, name: str) -> Iterator[Block]:
    """The figure of each provider over the budgets; nothing with fewer than two budgets."""
    found = dict[str, dict[int, float | None]]()
    for entry in results.entries:
        if (budget := entry.variant.budget.max_tokens) is not None:
            found.setdefault(entry.variant.series, {})[budget] = entry.estimate(name).value
    budgets = sorted({budget for each in found.values() for budget in each})
    if len(budgets) < 2:
        return
    whole = math.log(budgets[-1] / budgets[0])
    places = {budget: math.log(budget / budgets[0]) / whole for budget in budgets}
    lines = []
    for number, (label, values) in enumerate(found.items()):
        known = sorted((places[budget], value) for budget, value in values.items() if value is not None)
        lines.append(Line(label, colour_of(label), _DASHES[number % len(_DASHES)], tuple(known)))
    ticks = tuple((places[budget], f"{budget:,}") for budget in budgets)
    curve = Curve(tuple(lines), ticks)
    note = (
        "Across: tokens of the budget. One budget decides a ranking; where lines cross, so does the winner."
    )
    yield Block(f"{name.capitalize()} over the token budget", curve=curve, note=note)
