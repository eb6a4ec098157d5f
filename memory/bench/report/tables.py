"""Tables of figures for pages and the terminal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from memory.bench.engine.files import each_line
from memory.bench.engine.manifest import Manifest
from memory.bench.report.page import count, counted, interval, share, stacked
from memory.bench.report.results import Entry, Results
from memory.bench.scores.figures import BY_NAME, FIGURES
from memory.bench.scores.model import Estimate

_MAIN = {
    "style fit": ("style fit", "discrimination", "detection"),
    "right answers": ("right answers", "answer F1", "evidence recall"),
    "answer F1": ("answer F1", "exact match", "evidence recall"),
    "read right": ("read right", "shown alone", "detection"),
    "evidence recall": ("evidence recall", "MRR", "gold answer shown"),
}
"""The figures of the open table, by headline. They keep the table to at most six columns."""

Grid = tuple[list[str], list[list[str]]]
"""Columns and rows."""


def main_figures(results: Results) -> list[str]:
    """The headline, and the known figures beside it."""
    return [name for name in _MAIN.get(results.headline or "", ()) if known(results, name)]


def further_figures(results: Results) -> list[str]:
    """The known figures outside the main table; those that rank nobody come last."""
    ordered = sorted(FIGURES, key=lambda figure: figure.fault)
    names = [figure.name for figure in ordered if known(results, figure.name)]
    return [name for name in names if name not in main_figures(results)]


def known(results: Results, name: str) -> bool:
    return any(entry.estimate(name).n for entry in results.entries)


def summary(results: Results, figure: Callable[[Estimate], str] = counted) -> Grid:
    """The main figures side by side, each formatted by ``figure``."""
    names = main_figures(results)
    columns = ["provider", *names, "tokens per request", "requests"]
    return columns, [
        [
            f"{entry.shown}, {entry.variant.standing}",
            *(figure(entry.estimate(name)) for name in names),
            count(entry.metrics.tokens),
            trouble(entry),
        ]
        for entry in results.entries
    ]


def trouble(entry: Entry) -> str:
    """The number of planned requests, and how many of them failed, were unready or are missing."""
    metrics = entry.metrics
    named = (("failed", metrics.failed), ("unready", metrics.unready), ("missing", metrics.missing))
    parts = [f"{number:,} {name}" for name, number in named if number]
    return f"{metrics.requests:,}" + (f", {', '.join(parts)}" if parts else "")


def differences(results: Results) -> Grid:
    """The comparisons in the headline figure."""
    shown = {entry.metrics.label: entry.shown for entry in results.entries}
    columns = ["compared", "difference", "95 % interval", "p", "requests", "personas"]
    return columns, [
        [
            f"{shown[item.first]} less {shown[item.second]}",
            "–" if item.value is None else f"{item.value:+.1%}",
            interval(item),
            "–" if item.p is None else f"{item.p:.3f}",
            count(item.n),
            count(item.clusters),
        ]
        for item in results.metrics.differences
    ]


def side_by_side(results: Results, names: Sequence[str]) -> Grid:
    """Figures as rows, each with its meaning, and providers as columns."""
    rows = []
    for figure in (BY_NAME[name] for name in names):
        meaning = f"{figure.meaning} Ranks nobody." if figure.fault else figure.meaning
        shares = [stacked(entry.estimate(figure.name)) for entry in results.entries]
        rows.append([f"{figure.name}\n{meaning}", *shares])
    return ["figure", *(entry.shown for entry in results.entries)], rows


def by_category(results: Results, figure: str) -> Grid:
    """A figure by the category of the request or question."""
    parts: dict[str, dict[str, Estimate]] = {}
    for entry in results.entries:
        found = (part for part in entry.metrics.parts if part.figure == figure)
        parts[entry.shown] = {part.label: part.estimate for part in found}
    labels = sorted({label for found in parts.values() for label in found})
    return ["category", *parts], [
        [
            label,
            *(
                f"{share(found[label].value)} of {found[label].n:,}" if label in found else "–"
                for found in parts.values()
            ),
        ]
        for label in labels
    ]


COUNTS = {"events": "events", "messages": "messages", "written_tokens": "tokens written",
          "asked_tokens": "tokens asked", "context_tokens": "tokens read"}  # fmt: skip
TIMES = {"write": "write", "wait": "until ready", "retrieve": "retrieve", "answer": "answer",
         "judge": "judge"}  # fmt: skip


def costs(results: Results) -> Grid:
    """Tokens written, asked and read, and the cost of models. Writing is also given for 1,000 messages."""
    found = [
        {name: "unknown" if value is None else count(value) for name, value in cost_values(entry).items()}
        | {"money": _money(results.manifest, entry)}
        for entry in results.entries
    ]
    return ["", *(entry.shown for entry in results.entries)], [
        [name, *(column[name] for column in found)] for name in found[0]
    ]


def cost_values(entry: Entry) -> dict[str, float | None]:
    """Each cost by name; None if the provider does not report it."""
    messages = counted_in(entry, "messages")
    phases = [
        cell.timings[phase] for _, cell in entry.cells for phase in ("write", "wait") if phase in cell.timings
    ]
    calls, tokens = used(entry, "ingest", "calls"), used(entry, "ingest", "tokens")

    def by_thousand(total: float | None) -> float | None:
        return None if total is None or not messages else 1000 * total / messages

    return {
        **{said: counted_in(entry, name) for name, said in COUNTS.items()},
        "model calls to write": calls,
        "model tokens to write": tokens,
        "model calls to retrieve": used(entry, "retrieve", "calls"),
        "model tokens to retrieve": used(entry, "retrieve", "tokens"),
        "a thousand messages: seconds to write": by_thousand(math.fsum(each / 1000 for each in phases)),
        "a thousand messages: model calls": by_thousand(calls),
        "a thousand messages: model tokens": by_thousand(tokens),
        "sections cut by the budget": entry.metrics.cut,
    }


def _money(manifest: Manifest, entry: Entry) -> str:
    """The price of all model calls, by the file's price table."""
    prices: Any = manifest.settings.get("prices") or {}
    if not prices:
        return "no prices given"
    least = most = 0.0
    for role in manifest.roles:
        if role.kind == "model":
            price = prices[role.model or role.provider]
            spent = [cell.models.get(role.role, {}) for _, cell in entry.cells]
            if any(each.get("unmetered") for each in spent):
                return "unknown"
            output = sum(each.get("output_tokens", 0) for each in spent)
            asked = sum(each.get("tokens", 0) for each in spent) - output
            least += asked * price["input"] + output * price["output"]
            most += asked * price["input"] + output * price["output"]
    for model in entry.variant.models[:1]:  # the split into input and output tokens is unknown
        tokens = [used(entry, phase, "tokens") for phase in ("ingest", "retrieve")]
        if None in tokens:
            return "unknown"
        both = sorted((prices[model]["input"], prices[model]["output"]))
        least += sum(number or 0 for number in tokens) * both[0]
        most += sum(number or 0 for number in tokens) * both[1]
    low, high = least / 1e6, most / 1e6
    return f"{low:,.4g}" if low == high else f"{low:,.4g} to {high:,.4g}"


def times(results: Results) -> Grid:
    """Median and 95th percentile of all calls by phase, in milliseconds."""
    columns = ["provider", *(f"{name}\np50 / p95" for name in TIMES.values())]
    return columns, [
        [
            entry.shown,
            *(
                "–" if found[0] is None else f"{found[0]:,.1f} / {found[1]:,.1f}"
                for found in (quantiles(entry, phase) for phase in TIMES)
            ),
        ]
        for entry in results.entries
    ]


def counted_in(entry: Entry, name: str) -> int:
    return sum(cell.counts.get(name, 0) for _, cell in entry.cells)


def used(entry: Entry, phase: str, what: str) -> int | None:
    """Calls or tokens of a provider's own models; None if any cell does not report them."""
    found = [cell.usage[phase][what] for _, cell in entry.cells if phase in cell.usage]
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None


def quantiles(entry: Entry, phase: str) -> tuple[float | None, float | None]:
    """The median and the 95th percentile of a phase over all calls of all cells, in milliseconds."""
    values = [
        value
        for directory, _ in entry.cells
        for row in each_line(directory / "times.jsonl")
        for value in row.get(phase, ())
    ]
    if len(values) < 2:
        only = next(iter(values), None)
        return only, only
    twentieths = statistics.quantiles(values, n=20, method="inclusive")
    return twentieths[9], twentieths[18]
