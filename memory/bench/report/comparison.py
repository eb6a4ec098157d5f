"""The combined report of a comparison, and the table a terminal prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from memory.bench.engine.run_manifest import ErrorRecord, Record, RunManifest, read_manifest, write_atomic
from memory.bench.engine.rundir import make_directory, read_metrics, read_results
from memory.bench.report.meaning import meaning_blocks
from memory.bench.report.page import Block, Link, Page, count, interval, milliseconds, share, spanned
from memory.bench.report.plots import FULL, Bar, Line, bars, lines, own_colours
from memory.bench.report.run_report import budget_text
from memory.bench.scores.figures import CostScores, Difference, RunMetrics
from memory.bench.scores.run_metrics import paired_differences
from memory.contract._model import first_problem
from memory.contract.errors import ConfigError

_FLOOR = (
    "Each name leads to the provider's report. Changed, steady: fit where the preference has changed, and where"
    " it has not. Noticed: changes whose new value a later probe showed. The floor is nothing shown: who shows "
    "nothing is neither stale nor contaminated."
)


class NotRun(Record):
    """A provider that could not begin, or that a defect ended."""

    provider: str
    """Its name."""
    error: ErrorRecord
    """Why."""


class ComparisonRecord(Record):
    """``comparison.json``: which runs are compared. Their figures stay in their own directories."""

    format_version: Literal[1] = 1
    """Version of this form."""
    comparison_id: str
    """Name of the directory."""
    created_at: AwareDatetime
    """When it began, UTC."""
    runs: tuple[str, ...]
    """The runs' directories, relative to the one that holds this: of runs beside it, their ids."""
    not_run: tuple[NotRun, ...] = ()
    """Providers without a finished run."""


def summary_table(runs: Sequence[RunMetrics]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the side-by-side table, in the order given."""
    with_evidence = any(run.evidence for run in runs)
    with_preferences = any(run.preferences for run in runs)
    columns = ["provider"]
    if with_preferences:
        columns += ["fit", "95 % interval", "changed", "steady", "clean fit", "stale", "contamination"]
        columns += ["nothing shown", "noticed", "reversion"]
    if with_evidence:
        columns += ["evidence recall", "95 % interval", "pooled", "all found"]
    columns += ["not scored", "personas", "tokens / query", "tokens, range", "cut by budget"]
    columns += ["retrieve p50", "retrieve p95", "ingest", "LLM calls, ingest", "LLM tokens, ingest"]
    return columns, [_summary(run, with_evidence, with_preferences) for run in runs]


def _summary(run: RunMetrics, with_evidence: bool, with_preferences: bool) -> list[str]:
    row, personas = [run.label], 0
    if with_preferences:
        scores = run.preferences
        if scores is None:
            row += ["–"] * 10
        else:
            one, seen = scores.overall, scores.detection
            fits = {group.label: group.fit.value for group in scores.groups}
            row += [
                share(one.fit.value),
                interval(one.fit),
                share(fits.get("changed")),
                share(fits.get("steady")),
            ]
            shares = (one.clean_fit, one.stale, one.contamination, one.nothing_shown)
            row += [share(figure.value) for figure in shares]
            row += [f"{seen.detected} of {seen.changes}", share(seen.reversion.value)]
            personas = one.fit.clusters
    if with_evidence:
        if run.evidence is None:
            row += ["–"] * 4
        else:
            found = run.evidence.overall
            row += [
                share(found.recall.value),
                interval(found.recall),
                share(found.pooled),
                share(found.all_found),
            ]
            personas = max(personas, found.recall.clusters)
    cost = run.cost
    unscored = run.planned - run.probes + run.probe_errors + run.not_ready
    return [
        *row,
        f"{unscored} of {run.planned}" + (f", {run.unconfirmed} unconfirmed" if run.unconfirmed else ""),
        str(personas),
        count(cost.tokens.mean),
        token_range(cost),
        f"{cost.cut} of {run.probes - run.probe_errors}",
        milliseconds(cost.retrieve_ms.p50),
        milliseconds(cost.retrieve_ms.p95),
        milliseconds(cost.ingest_ms),
        "unknown" if cost.llm_calls is None else f"{cost.llm_calls:,}",
        "unknown" if cost.llm_tokens is None else f"{cost.llm_tokens:,}",
    ]


def difference_table(differences: Sequence[Difference]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the paired differences."""
    columns = ["figure", "the one", "the other", "difference", "95 % interval", "probes", "personas"]
    return columns, [
        [
            one.figure,
            one.first,
            one.second,
            "–" if one.value is None else f"{one.value:+.1%}",
            interval(one),
            count(one.n),
            count(one.clusters),
        ]
        for one in differences
    ]


def token_range(cost: CostScores) -> str:
    """The shortest and the longest context, and how many stayed below what was wanted."""
    short = f", {cost.short} short" if cost.short else ""
    return f"{count(cost.tokens.least)} to {count(cost.tokens.most)}{short}"


def read_runs(runs: Sequence[Path]) -> tuple[list[RunManifest], list[RunMetrics]]:
    """What several runs were and what came of them; where labels meet, the run's id tells them apart.

    Raises:
        ConfigError: a run cannot be read.
    """
    metrics = [read_metrics(run) for run in runs]
    often = Counter(one.label for one in metrics)
    told = [
        one if often[one.label] == 1 else one.model_copy(update={"label": f"{one.label}, {one.run_id}"})
        for one in metrics
    ]
    return [read_manifest(run) for run in runs], told


def differences(runs: Sequence[Path]) -> tuple[Difference, ...]:
    """Every provider against every other, on the probes both are scored on, from the directories of their runs.

    None where they went through different data: their probes are not the same, whatever they are called.

    Raises:
        ConfigError: a run's results cannot be read.
    """
    manifests, metrics = read_runs(runs)
    if len({manifest.data.sha256 for manifest in manifests}) > 1:
        return ()
    return paired_differences(
        [(one.label, read_results(run)) for one, run in zip(metrics, runs, strict=True)]
    )


def write_comparison(directory: Path, record: ComparisonRecord) -> Path:
    """Make ``directory`` a comparison of finished runs, and write its report; returns the report's path.

    Raises:
        ConfigError: a run cannot be read, or the directory cannot be made.
    """
    read_runs([directory.parent / run for run in record.runs])
    make_directory(directory)
    write_atomic(directory / "comparison.json", record.model_dump_json(indent=2) + "\n")
    return write_comparison_report(directory)


def read_comparison(directory: Path) -> ComparisonRecord:
    """Which runs a comparison consists of.

    Raises:
        ConfigError: ``comparison.json`` is missing or damaged.
    """
    file = directory / "comparison.json"
    try:
        return ComparisonRecord.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            f"{directory} holds no comparison.json; give the directory of a comparison"
        ) from None
    except ValidationError as error:
        raise ConfigError(f"{file} is damaged: {first_problem(error)}") from None


def write_comparison_report(directory: Path) -> Path:
    """Write ``report.html`` of a comparison, from ``comparison.json`` and the runs beside it.

    Raises:
        ConfigError: the comparison, or one of its runs, cannot be read.
    """
    path = directory / "report.html"
    write_atomic(path, render_comparison(directory))
    return path


def render_comparison(directory: Path) -> str:
    """The page of a comparison.

    Raises:
        ConfigError: the comparison, or one of its runs, cannot be read.
    """
    record = read_comparison(directory)
    runs = [directory.parent / run_id for run_id in record.runs]
    manifests, metrics = read_runs(runs)
    return _page(record, manifests, metrics, differences(runs)).render()


def _page(
    record: ComparisonRecord,
    manifests: Sequence[RunManifest],
    metrics: Sequence[RunMetrics],
    paired: Sequence[Difference],
) -> Page:
    columns, rows = summary_table(metrics)
    end = columns.index("not scored") + 1
    linked: list[list[str | Link]] = [
        [Link(row[0], f"../{run}/report.html"), *row[1:end]]
        for row, run in zip(rows, record.runs, strict=True)
    ]
    costs = [[row[0], *row[end:]] for row in rows]
    blocks = [
        Block("Side by side", columns=columns[:end], rows=linked, note=_FLOOR),
        Block("Cost side by side", columns=["provider", *columns[end:]], rows=costs),
    ]
    blocks += _preference_blocks(metrics)
    blocks += _evidence_blocks(metrics)
    blocks += _cost_blocks(metrics)
    if paired:
        columns, differing = difference_table(paired)
        note = (
            "On the probes that both are scored on, the one less the other. One around 0 tells no difference."
        )
        blocks.append(Block("Differences, probe by probe", columns=columns, rows=differing, note=note))
    blocks += meaning_blocks(metrics)
    problems = [*unequal(manifests)]
    problems += [f"{one.provider}: not run. {one.error.message}" for one in record.not_run]
    problems += [
        f"{manifest.provider.label}: {problem}" for manifest in manifests for problem in manifest.problems
    ]
    lines_above = [f"Comparison {record.comparison_id}, {record.created_at:%Y-%m-%d %H:%M} UTC"]
    if manifests:
        data = manifests[0].data
        lines_above.insert(
            0,
            f"{data.timeline} ({data.name or f'seed {data.seed}'}): {data.personas} personas, "
            f"{data.sessions} sessions, {data.turns:,} turns, {data.probes:,} probes",
        )
        lines_above.insert(1, f"Budget of each retrieval: {budget_text(manifests[0])}")
        told = dict.fromkeys(str(manifest.replicate) for manifest in manifests)
        lines_above.insert(2, f"Replicate {', '.join(told)}")
        blocks.append(Block("To bear in mind", points=remarks(manifests, metrics)))
    return Page(
        title="Comparison of memory providers",
        heading="Memory providers side by side",
        badges=(),
        lines=lines_above,
        cards=(),
        blocks=blocks,
        problems=problems,
    )


def _preference_blocks(metrics: Sequence[RunMetrics]) -> list[Block]:
    colours = own_colours([run.provider for run in metrics])
    played = [(index, run, run.preferences) for index, run in enumerate(metrics) if run.preferences]
    if not played:
        return []
    blocks = []
    for heading, name in (
        ("Fit: the value in force is there", "fit"),
        ("Clean fit: nothing misleading beside it", "clean_fit"),
        ("Stale: only an old value is there", "stale"),
        ("Contamination: the other context leaks in", "contamination"),
    ):
        rows = []
        for index, run, scores in played:
            one = getattr(scores.overall, name)
            rows.append(Bar(run.label, one.value, one.low, one.high, colours[index]))
        blocks.append(Block(heading, plot=bars(heading, rows), half=True))
    for heading, name in (
        ("New value shown after a change", "fit"),
        ("Old value alone shown after a change", "stale"),
    ):
        series = [
            Line(
                run.label,
                tuple((at.sessions, getattr(at, name)) for at in scores.detection.curve),
                colours[index],
                style=index,
            )
            for index, run, scores in played
        ]
        blocks.append(Block(heading, plot=lines(heading, series, "sessions since the change"), half=True))
    return blocks


def _evidence_blocks(metrics: Sequence[RunMetrics]) -> list[Block]:
    colours = own_colours([run.provider for run in metrics])
    asked = [(index, run, run.evidence) for index, run in enumerate(metrics) if run.evidence]
    if not asked:
        return []
    overall = [
        Bar(run.label, one.value, one.low, one.high, colours[index])
        for index, run, scores in asked
        for one in (scores.overall.recall,)
    ]
    categories = list(dict.fromkeys(row.label for _, _, scores in asked for row in scores.categories))
    table = [
        (
            run.label,
            *(
                next((spanned(row.recall) for row in scores.categories if row.label == name), "–")
                for name in categories
            ),
            share(scores.overall.verbatim),
        )
        for _, run, scores in asked
    ]
    return [
        Block("Evidence recall", plot=bars("Evidence recall", overall, width=FULL)),
        Block("Evidence recall by category", columns=("", *categories, "verbatim, all"), rows=table),
    ]


def _cost_blocks(metrics: Sequence[RunMetrics]) -> list[Block]:
    colours = own_colours([run.provider for run in metrics])

    def plot(
        heading: str, value: Callable[[RunMetrics], float | None], show: Callable[[float | None], str]
    ) -> Block:
        rows = [
            Bar(run.label, value(run), colour=colours[index], text=show(value(run)))
            for index, run in enumerate(metrics)
        ]
        return Block(heading, plot=bars(heading, rows, share=False), half=True)

    return [
        plot("Tokens per query, mean", lambda run: run.cost.tokens.mean, count),
        plot("Retrieval latency, p95", lambda run: run.cost.retrieve_ms.p95, milliseconds),
    ]


def unequal(manifests: Sequence[RunManifest]) -> Iterator[str]:
    """Why figures of these runs do not compare, or only with care."""
    for what, said in (
        (
            {manifest.data.sha256 for manifest in manifests},
            "went through different data: their figures do not compare",
        ),
        ({manifest.budget for manifest in manifests}, "had different budgets"),
        ({manifest.tokens.counter for manifest in manifests}, "counted tokens differently"),
        ({manifest.cs_fields for manifest in manifests}, "passed different CS fields"),
        ({manifest.versions.memslot for manifest in manifests}, "were of different versions of memslot"),
    ):
        if len(what) > 1:
            yield f"The runs {said}."


def remarks(manifests: Sequence[RunManifest], metrics: Sequence[RunMetrics]) -> list[str]:
    """What makes the comparison less than equal, and what each provider is and was cut to."""
    points = [*unequal(manifests)]
    for manifest, run in zip(manifests, metrics, strict=True):
        provider, asked = manifest.provider, run.probes - run.probe_errors
        cut = f"; the budget cut {run.cost.cut} of {asked} contexts" if run.cost.cut else ""
        points.append(
            f"{provider.label} is of kind {provider.kind}: {provider.summary or 'no summary'}{cut}."
        )
        if manifest.wired:
            points.append(
                f"{provider.label} was told the truth ({', '.join(manifest.wired)} from the timeline)."
            )
        points += [f"{provider.label}: {warning}" for warning in manifest.warnings]
    points.append("Controls are baselines and ceilings, never architectures.")
    return points
