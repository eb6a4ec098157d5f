"""Tables of figures, the same for page, terminal and export."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence

from memory.bench.report.page import count, interval, share, spanned
from memory.bench.report.results import Entry, Results
from memory.bench.scores.figures import FIGURES
from memory.bench.scores.model import Difference, Estimate

_GROUPS = ("CS", "PET", "IQI", "over-personalisation")
BEHAVIOUR = tuple(figure.name for figure in FIGURES if figure.group in _GROUPS)
ANSWERS = ("right answers",)
_SHOWN = ("shown", "shown alone", "stale rate", "mixed contexts", "decoys", "detection", "stale reversion",
          "forgetting", "nothing shown")  # fmt: skip
_EVIDENCE = ("evidence recall", "evidence recall, pooled", "any evidence", "all evidence", "evidence overlap",
             "claimed recall", "relevant tokens", "nothing shown")  # fmt: skip

Grid = tuple[list[str], list[list[str]]]
"""Columns and rows."""


def main_figures(results: Results) -> list[str]:
    """The figures that say most: on behaviour, else on answers, and where nothing was answered, on retrieval."""
    for names in (BEHAVIOUR, ANSWERS):
        if results.headline == names[0]:
            return [*names]
    names = _SHOWN if results.headline == _SHOWN[0] else _EVIDENCE
    return [name for name in names if known(results, name)]


def retrieval_figures(results: Results) -> list[str]:
    """The figures on retrieval that anything is known of."""
    return [
        measure.name
        for measure in results.entries[0].metrics.measures
        if measure.group == "retrieval" and known(results, measure.name)
    ]


def known(results: Results, name: str) -> bool:
    return any(entry.estimate(name).n for entry in results.entries)


def summary(results: Results, figure: Callable[[Estimate], str] = spanned) -> Grid:
    """The figures that say most, side by side, each written by ``figure``."""
    names = main_figures(results)
    columns = ["provider", "kind", *names, "tokens", "requests in trouble", "personas"]
    return columns, [
        [
            entry.shown,
            kind_of(entry),
            *(figure(entry.estimate(name)) for name in names),
            count(entry.metrics.tokens.mean),
            trouble(entry),
            str(entry.estimate(names[0]).clusters) if names else "–",
        ]
        for entry in results.entries
    ]


def kind_of(entry: Entry) -> str:
    """What a provider is, for a table."""
    return "reference" if entry.is_reference else entry.variant.provider.kind


def trouble(entry: Entry) -> str:
    """Requests that did not go as planned."""
    metrics = entry.metrics
    named = (("failed", metrics.failed), ("unready", metrics.unready), ("missing", metrics.missing))
    parts = [f"{number} {name}" for name, number in named if number]
    return f"{', '.join(parts) or '0'} of {metrics.requests}"


def differences(results: Results, figures: list[str] | None = None) -> Grid:
    """The paired differences of figures; of all that say most by default."""
    wanted = main_figures(results) if figures is None else figures
    shown = {entry.metrics.label: entry.shown for entry in results.entries}
    columns = ["figure", "the one", "the other", "difference", "95 % interval", "p", "requests", "personas"]
    return columns, [
        [
            f"{difference.figure}, primary" if difference.primary else difference.figure,
            shown[difference.first],
            shown[difference.second],
            "–" if difference.value is None else f"{difference.value:+.1%}",
            interval(difference),
            "–" if difference.p is None else f"{difference.p:.3f}",
            count(difference.n),
            count(difference.clusters),
        ]
        for difference in results.metrics.differences
        if difference.figure in wanted
    ]


def by_part(results: Results, figure: str, by: str) -> Grid:
    """A figure by attribute, category, context or persona."""
    parts: dict[str, dict[str, Estimate]] = {}
    for entry in results.entries:
        found = (part for part in entry.metrics.parts if (part.figure, part.by) == (figure, by))
        parts[entry.shown] = {part.label: part.estimate for part in found}
    labels = sorted({label for found in parts.values() for label in found})
    return [by, *parts], [
        [label, *(share(found[label].value) if label in found else "–" for found in parts.values())]
        for label in labels
    ]


COUNTS = {"events": "events", "written_tokens": "tokens written", "asked_tokens": "tokens asked",
          "context_tokens": "tokens shown"}  # fmt: skip
TIMES = {"write": "write", "wait": "until ready", "retrieve": "retrieve", "answer": "answer",
         "judge": "judge"}  # fmt: skip


def costs(results: Results) -> Grid:
    """What was written, asked and shown, and what the providers' own models took."""
    columns = ["provider", "cells", *COUNTS.values(), "calls to write", "their tokens", "calls to retrieve",
               "their tokens ", "cut by budget", "resumed"]  # fmt: skip
    return columns, [
        [
            entry.shown,
            f"{sum(cell.status == 'completed' for _, cell in entry.cells)} of {len(entry.cells)}",
            *(f"{counted(entry, name):,}" for name in COUNTS),
            *(
                "unknown" if (number := used(entry, phase, what)) is None else f"{number:,}"
                for phase in ("ingest", "retrieve")
                for what in ("calls", "tokens")
            ),
            f"{entry.metrics.cut} of {entry.metrics.requests}",
            str(sum(cell.resumed for _, cell in entry.cells)),
        ]
        for entry in results.entries
    ]


def times(results: Results) -> Grid:
    """Milliseconds by phase."""
    columns = ["provider", *(f"{name}, ms" for name in TIMES.values())]
    return columns, [[entry.shown, *(_time(entry, phase) for phase in TIMES)] for entry in results.entries]


def counted(entry: Entry, name: str) -> int:
    return sum(cell.counts.get(name, 0) for _, cell in entry.cells)


def used(entry: Entry, phase: str, what: str) -> int | None:
    """Calls or tokens of a provider's own models; None where a cell does not say."""
    found = [getattr(cell.usage[phase], what) for _, cell in entry.cells if phase in cell.usage]
    return None if None in found else sum(found)


def middle_time(entry: Entry, phase: str, quantile: str) -> float | None:
    """A quantile of a phase, milliseconds; of a provider's cells the middle one's."""
    seen = (getattr(cell.timings[phase], quantile) for _, cell in entry.cells if phase in cell.timings)
    values: list[float] = sorted(value for value in seen if value is not None)
    return values[len(values) // 2] if values else None


def _time(entry: Entry, phase: str) -> str:
    found = [middle_time(entry, phase, quantile) for quantile in ("p50", "p95", "p99")]
    return " / ".join("–" if value is None else f"{value:,.1f}" for value in found) if any(found) else "–"


_COLUMNS = ("provider", "kind", "experiment", "group", "figure", "value", "low", "high", "n", "personas", "failed",
            "unready", "missing", "worst", "best")  # fmt: skip
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    }
)  # fmt: skip
# What is markup in Markdown; an underscore within a word is none.
_MARKDOWN = re.compile(r"[\\`*<>\[\]|~&]|(?<!\w)_|_(?!\w)")


def as_csv(results: Results) -> str:
    """One line for each figure of each part of each provider, and each paired difference; empty is unknown.

    A name that a spreadsheet would take for a formula has an apostrophe before it.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for entry in results.entries:
        head = (_no_formula(entry.shown), kind_of(entry), entry.manifest.experiment_id)
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
        yield f"{part.by} {part.label}", part.figure, part.estimate


def _costs(entry: Entry) -> Iterator[tuple[str, float | None]]:
    metrics = entry.metrics
    yield "requests", metrics.requests
    yield "tokens per request", metrics.tokens.mean
    yield "sections cut by the budget", metrics.cut
    for name, said in COUNTS.items():
        yield said, counted(entry, name)
    for phase in ("ingest", "retrieve"):
        yield f"LLM calls, {phase}", used(entry, phase, "calls")
        yield f"LLM tokens, {phase}", used(entry, phase, "tokens")
    for phase, said in TIMES.items():
        for quantile in ("p50", "p95"):
            yield f"{said} {quantile}, ms", middle_time(entry, phase, quantile)


def _numbers(item: Estimate | Difference) -> tuple[str, ...]:
    values: tuple[float | None, ...] = (item.value, item.low, item.high, item.n, item.clusters)
    if isinstance(item, Estimate):
        values += (item.failed, item.unready, item.missing, item.worst, item.best)
    return tuple("" if value is None else str(value) for value in values) + ("",) * (10 - len(values))


def as_markdown(results: Results) -> str:
    """The side-by-side table and the paired differences, in GitHub's Markdown."""

    def written(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
        escaped = ((_MARKDOWN.sub(r"\\\g<0>", cell) for cell in line) for line in lines)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)

    return "\n\n".join(written(*table) for table in _tables(results)) + "\n"


def as_latex(results: Results) -> str:
    """The same as LaTeX tables: providers as rows, booktabs, a caption."""

    def written(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
        escaped = ([cell.translate(_LATEX) for cell in line] for line in (columns, *rows))
        head, *body = [" & ".join(cells) + r" \\" for cells in escaped]
        begin = [r"\begin{table}", rf"\caption{{{caption.translate(_LATEX)}}}"]
        begin += [rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"])

    captions = (f"{results.name}: figures by provider, with 95 % intervals by persona", "Paired differences")
    parts = (written(*table, caption) for table, caption in zip(_tables(results), captions, strict=False))
    return "% needs \\usepackage{booktabs}\n" + "\n\n".join(parts) + "\n"


def _tables(results: Results) -> list[Grid]:
    paired = differences(results)
    return [summary(results), *([paired] if paired[1] else [])]


# By the name that the command takes.
FORMS: dict[str, Callable[[Results], str]] = {"csv": as_csv, "markdown": as_markdown, "latex": as_latex}
