"""Figures for other programs: a long CSV with full numbers, and tables for Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence

from memory.bench.report import tables
from memory.bench.report.results import Entry, Results
from memory.bench.scores.model import Difference, Estimate

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
        head = (_no_formula(entry.shown), tables.kind_of(entry), entry.manifest.experiment_id)
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
    for name, said in tables.COUNTS.items():
        yield said, tables.counted(entry, name)
    for phase in ("ingest", "retrieve"):
        yield f"LLM calls, {phase}", tables.used(entry, phase, "calls")
        yield f"LLM tokens, {phase}", tables.used(entry, phase, "tokens")
    for phase, said in tables.TIMES.items():
        for quantile in ("p50", "p95"):
            yield f"{said} {quantile}, ms", tables.middle_time(entry, phase, quantile)


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
        head, *body = [
            " & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in (columns, *rows)
        ]
        begin = [r"\begin{table}", rf"\caption{{{caption.translate(_LATEX)}}}"]
        begin += [rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"])

    captions = (f"{results.name}: figures by provider, with 95 % intervals by persona", "Paired differences")
    parts = (written(*table, caption) for table, caption in zip(_tables(results), captions, strict=False))
    return "% needs \\usepackage{booktabs}\n" + "\n\n".join(parts) + "\n"


def _tables(results: Results) -> list[tables.Grid]:
    paired = tables.differences(results)
    return [tables.summary(results), *([paired] if paired[1] else [])]


# By the name that the command takes.
FORMS: dict[str, Callable[[Results], str]] = {"csv": as_csv, "markdown": as_markdown, "latex": as_latex}
