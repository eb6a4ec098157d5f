"""Tables of figures for pages, the terminal and exports."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memory.bench.engine.files import each_line
from memory.bench.report.page import count, counted, interval, share, stacked
from memory.bench.report.results import Entry, Results
from memory.bench.scores.figures import BY_NAME, FIGURES
from memory.bench.scores.metrics import percentile
from memory.bench.scores.model import Difference, Estimate

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


def further_figures(results: Results, *, faults: bool) -> list[str]:
    """The known figures outside the main table: the faults, or the others."""
    main = main_figures(results)
    return [
        figure.name
        for figure in FIGURES
        if figure.fault is faults and figure.name not in main and known(results, figure.name)
    ]


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
            count(entry.metrics.tokens.mean),
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
    return ["figure", *(entry.shown for entry in results.entries)], [
        [f"{name}\n{BY_NAME[name].meaning}", *(stacked(entry.estimate(name)) for entry in results.entries)]
        for name in names
    ]


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
    rows = [
        *COUNTS.values(), "model calls to write", "model tokens to write", "model calls to retrieve",
        "model tokens to retrieve", "a thousand messages: seconds to write", "a thousand messages: model calls",
        "a thousand messages: model tokens", "sections cut by the budget", "money",
    ]  # fmt: skip
    columns = [[*map(_amount, cost_values(entry).values())] for entry in results.entries]
    money = [_money(entry) for entry in results.entries]
    cells = [[*column, paid] for column, paid in zip(columns, money, strict=True)]
    return ["", *(entry.shown for entry in results.entries)], [
        [name, *row] for name, *row in zip(rows, *cells, strict=True)
    ]


def cost_values(entry: Entry) -> dict[str, float | None]:
    """Each cost by name; None if the provider does not report it."""
    found: dict[str, float | None] = {said: counted_in(entry, name) for name, said in COUNTS.items()}
    for phase in ("ingest", "retrieve"):
        for what in ("calls", "tokens"):
            found[f"LLM {what}, {phase}"] = used(entry, phase, what)
    messages = counted_in(entry, "messages")
    seconds = math.fsum(
        cell.timings[phase].total_ms / 1000
        for _, cell in entry.cells
        for phase in ("write", "wait")
        if phase in cell.timings
    )
    for name, total in (
        ("seconds", seconds),
        ("LLM calls", used(entry, "ingest", "calls")),
        ("LLM tokens", used(entry, "ingest", "tokens")),
    ):
        found[f"{name} for 1,000 messages"] = (
            None if total is None or not messages else 1000 * total / messages
        )
    found["sections cut by the budget"] = entry.metrics.cut
    return found


def _amount(value: float | None) -> str:
    return "unknown" if value is None else count(value)


def _money(entry: Entry) -> str:
    """The price of all model calls, by the file's price table."""
    prices: Any = entry.manifest.settings.get("prices") or {}
    if not prices:
        return "no prices given"
    least = most = 0.0
    for role in entry.manifest.roles:
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
    found = [getattr(cell.usage[phase], what) for _, cell in entry.cells if phase in cell.usage]
    return None if None in found else sum(found)


def quantiles(entry: Entry, phase: str) -> tuple[float | None, float | None]:
    """The median and the 95th percentile of a phase over all calls of all cells, in milliseconds."""
    values = [
        value
        for directory, _ in entry.cells
        for row in each_line(directory / "times.jsonl")
        for value in row.get(phase, ())
    ]
    return percentile(values, 0.5), percentile(values, 0.95)


_COLUMNS = ("provider", "kind", "experiment", "group", "figure", "value", "low", "high", "n", "personas", "failed",
            "unready", "missing", "worst", "best")  # fmt: skip


def csv_of(results: Results) -> str:
    """One line for each figure, part and cost of a provider, and for each difference. Unknown values are
    empty.

    A name that a spreadsheet would read as a formula gets a leading apostrophe.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for entry in results.entries:
        head = (_no_formula(entry.shown), entry.variant.standing, entry.manifest.experiment_id)
        for group, figure, estimate in _figures(entry):
            table.writerow((*head, group, figure, *_numbers(estimate)))
        for figure, value in _costs(entry):
            table.writerow((*head, "cost", figure, "" if value is None else value, *[""] * 9))
    shown = {entry.metrics.label: entry.shown for entry in results.entries}
    for difference in results.metrics.differences:
        first, less = _no_formula(shown[difference.first]), f"less {shown[difference.second]}"
        table.writerow((first, "", "", less, difference.figure, *_numbers(difference)))
    return text.getvalue()


def _no_formula(name: str) -> str:
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def _figures(entry: Entry) -> Iterator[tuple[str, str, Estimate]]:
    for measure in entry.metrics.measures:
        yield measure.group, measure.name, measure.estimate
    for part in entry.metrics.parts:
        yield f"category {part.label}", part.figure, part.estimate


def _costs(entry: Entry) -> Iterator[tuple[str, float | None]]:
    yield "requests", entry.metrics.requests
    yield "tokens per request", entry.metrics.tokens.mean
    yield from cost_values(entry).items()
    for phase, said in TIMES.items():
        for name, value in zip(("p50", "p95"), quantiles(entry, phase), strict=True):
            yield f"{said} {name}, ms", value


def _numbers(item: Estimate | Difference) -> tuple[str, ...]:
    values: tuple[float | None, ...] = (item.value, item.low, item.high, item.n, item.clusters)
    if isinstance(item, Estimate):
        values += (item.failed, item.unready, item.missing, item.worst, item.best)
    return tuple("" if value is None else str(value) for value in values) + ("",) * (10 - len(values))
