"""Figures for other programs: a long CSV with full numbers, and tables for Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from memory.bench.report.comparison import difference_table, summary_table
from memory.bench.scores.figures import Difference, Estimate, EvidenceRow, PreferenceRow, RunMetrics
from memory.bench.scores.metrics import GameMetrics

_COLUMNS = ("provider", "run_id", "group", "figure", "value", "low", "high", "n", "personas")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    }
)  # fmt: skip


def figures_csv(runs: Sequence[RunMetrics], paired: Sequence[Difference] = ()) -> str:
    """One line for each figure of each group of each provider, and for each paired difference; empty is unknown."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for run in runs:
        for group, figure, estimate in _figures(run):
            table.writerow((run.label, run.run_id, group, figure, *_numbers(estimate)))
        for name, value in (
            ("probes", run.planned),
            ("probes not scored", run.planned - run.probes + run.probe_errors + run.not_ready),
            ("tokens per query", run.cost.tokens.mean),
            ("contexts cut by the budget", run.cost.cut),
            ("retrieve p50, ms", run.cost.retrieve_ms.p50),
            ("retrieve p95, ms", run.cost.retrieve_ms.p95),
            ("ingest, ms", run.cost.ingest_ms),
            ("LLM calls, ingest", run.cost.llm_calls),
            ("LLM tokens, ingest", run.cost.llm_tokens),
        ):
            table.writerow(
                (run.label, run.run_id, "cost", name, *map(_text, (value, None, None, None, None)))
            )
    for one in paired:
        table.writerow((one.first, "", f"less {one.second}", one.figure, *_numbers(one)))
    return text.getvalue()


def _figures(run: RunMetrics) -> Iterator[tuple[str, str, Estimate]]:
    rows: list[PreferenceRow | EvidenceRow] = []
    if run.preferences:
        rows += [run.preferences.overall, *run.preferences.groups, *run.preferences.attributes]
        yield "overall", "reversion", run.preferences.detection.reversion
    if run.evidence:
        rows += [
            run.evidence.overall,
            run.evidence.answerable,
            *run.evidence.categories,
            *run.evidence.personas,
        ]
    for row in rows:
        for name in type(row).model_fields:
            estimate = getattr(row, name)
            if isinstance(estimate, Estimate):
                yield row.label, name.replace("_", " "), estimate


def _numbers(one: Estimate | Difference) -> tuple[str, ...]:
    return tuple(map(_text, (one.value, one.low, one.high, one.n, one.clusters)))


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def game_csv(metrics: GameMetrics) -> str:
    """The same of an experiment: its measures, by part as well, and its paired differences."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for variant in metrics.variants:
        told: list[tuple[str, str, Estimate]]
        told = [(one.group, one.name, one.estimate) for one in variant.measures]
        told += [(f"{row.by} {row.label}", "style fit", row.fit) for row in variant.rows]
        for group, name, estimate in told:
            table.writerow((variant.shown, metrics.experiment_id, group, name, *_numbers(estimate)))
        unscored = (str(variant.beats - variant.scored), "", "", str(variant.beats), "")
        table.writerow((variant.shown, metrics.experiment_id, "cost", "requests not scored", *unscored))
    for one in game_differences(metrics):
        table.writerow((one.first, metrics.experiment_id, f"less {one.second}", one.figure, *_numbers(one)))
    return text.getvalue()


def game_differences(metrics: GameMetrics) -> list[Difference]:
    """The differences of an experiment, its providers named as tables show them."""
    shown = {variant.label: variant.shown for variant in metrics.variants}
    return [
        one.model_copy(update={"first": shown[one.first], "second": shown[one.second]})
        for one in metrics.differences
    ]


def markdown(*tables: tuple[Sequence[str], Sequence[Sequence[str]]]) -> str:
    """Tables in GitHub's Markdown."""

    def written(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
        return "\n".join(
            "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
        )

    return "\n\n".join(written(*table) for table in tables) + "\n"


def markdown_tables(runs: Sequence[RunMetrics], paired: Sequence[Difference] = ()) -> str:
    """The side-by-side table and the paired differences, in GitHub's Markdown."""
    return markdown(summary_table(runs), *([difference_table(paired)] if paired else []))


def latex(*tables: Sequence[Sequence[str]]) -> str:
    """Tables as LaTeX's tabular environments, without a package; the first line of each is its head."""

    def written(lines: Sequence[Sequence[str]]) -> str:
        body = [" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in lines]
        form = "l" + "r" * (len(lines[0]) - 1)
        rows = (r"\hline", body[0], r"\hline", *body[1:], r"\hline")
        return "\n".join((rf"\begin{{tabular}}{{{form}}}", *rows, r"\end{tabular}"))

    return "\n\n".join(map(written, tables)) + "\n"


def turned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table with its rows as columns."""
    return [list(line) for line in zip(columns, *rows, strict=True)]


def latex_tables(runs: Sequence[RunMetrics], paired: Sequence[Difference] = ()) -> str:
    """The same as LaTeX, where providers are columns."""
    columns, rows = difference_table(paired)
    return latex(turned(*summary_table(runs)), *([[columns, *rows]] if paired else []))
