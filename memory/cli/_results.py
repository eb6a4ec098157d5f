"""The figures of runs, as the terminal shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from memory.bench.report.page import count, interval, milliseconds, share
from memory.cli._group import FAILED, tracebacks
from memory.cli.doctor import tell_of_waiting
from memory.plugins.console import Report, complain, print_table, progress, say

if TYPE_CHECKING:
    from memory.bench import (
        Comparison,
        NotRun,
        Progress,
        ProgressCallback,
        RunMetrics,
        RunOutcome,
        RunSettings,
    )
    from memory.bench.engine.run_manifest import RunManifest
    from memory.bench.scores.figures import CostScores, EvidenceScores, PreferenceScores

T = TypeVar("T")


def _told(report: Report) -> ProgressCallback:
    """The runner's progress as one bar for each provider."""

    def tell(at: Progress) -> None:
        report(at.provider, at.events + at.probes, at.events_total + at.probes_total)

    return tell


def show_run(manifest: RunManifest, metrics: RunMetrics) -> None:
    """One run: its scores by group, its cost, and what is to be known about it."""
    data = manifest.data
    say(
        f"{manifest.provider.label} on {data.timeline} ({data.name or f'seed {data.seed}'}): {data.personas} "
        f"personas, {data.sessions} sessions, {data.turns} turns, {data.probes} probes; "
        f"budget {_limit(manifest.budget.max_tokens, 'tokens')}, {_limit(manifest.budget.max_items, 'items')}"
    )
    if metrics.evidence is not None:
        _show_evidence(metrics.evidence)
    if metrics.preferences is not None:
        _show_preferences(metrics.preferences)
    say(_cost(metrics.cost))
    say(_doctor(manifest))
    for warning in manifest.warnings:
        say(f"warning: {warning}", "yellow")
    for problem in _problems(manifest):
        say(f"failed: {problem}", "bold red")


def _show_evidence(scores: EvidenceScores) -> None:
    rows = [*scores.categories, *(scores.personas if len(scores.personas) > 1 else ()), scores.overall]
    print_table(
        (
            "evidence recall",
            "questions",
            "gold turns",
            "recall",
            "95 % interval",
            "personas",
            "any found",
            "all found",
        ),
        [
            (
                row.label,
                str(row.questions),
                str(row.turns),
                share(row.recall.value),
                interval(row.recall),
                str(row.recall.clusters),
                share(row.any_found),
                share(row.all_found),
            )
            for row in rows
        ],
    )
    say(
        f"not scored: {scores.without_evidence} questions without evidence, {scores.unresolvable} whose evidence "
        f"names no turn; {scores.unresolved_ids} evidence ids name no turn"
    )


def _show_preferences(scores: PreferenceScores) -> None:
    print_table(
        (
            "preferences",
            "probes",
            "fit",
            "95 % interval",
            "personas",
            "clean fit",
            "stale",
            "contamination",
            "nothing shown",
        ),
        [
            (
                row.label,
                str(row.fit.n),
                share(row.fit.value),
                interval(row.fit),
                str(row.fit.clusters),
                share(row.clean_fit.value),
                share(row.stale.value),
                share(row.contamination.value),
                share(row.nothing_shown.value),
            )
            for row in (*scores.groups, scores.overall)
        ],
    )
    seen = scores.detection
    leaks = f"; {scores.leaks} probes show another persona's words" if scores.leaks else ""
    say(f"changes noticed: {seen.detected} of {seen.changes}{leaks}")


def _cost(cost: CostScores) -> str:
    return (
        f"per query: {count(cost.tokens.mean)} tokens, {count(cost.items.mean)} items, "
        f"{milliseconds(cost.retrieve_ms.p50)} (p50), {milliseconds(cost.retrieve_ms.p95)} (p95); "
        f"ingest: {milliseconds(cost.ingest_ms)} for {cost.events} events; wait: {milliseconds(cost.wait_ms)}"
    )


def _doctor(manifest: RunManifest) -> str:
    """How the checks before the run went."""
    if manifest.doctor is None:
        return "doctor: not asked"
    names: dict[str, list[str]] = {}
    for check in manifest.doctor:
        names.setdefault(check.status, []).append(check.name)
    rest = [f"{status}: {', '.join(names[status])}" for status in names if status != "passed"]
    return "; ".join((f"doctor: {len(names.get('passed', []))} checks passed", *rest))


def _limit(value: int | None, unit: str) -> str:
    return f"{value if value is not None else 'unlimited'} {unit}"


def _problems(manifest: RunManifest) -> list[str]:
    return [f"{manifest.provider.label}: {problem}" for problem in manifest.problems]


def show_comparison(outcomes: Sequence[RunOutcome], not_run: Sequence[NotRun]) -> None:
    """Providers side by side, what failed, and those that could not begin."""
    from memory.bench.report.comparison import summary_table, unequal

    print_table(*summary_table([one.metrics for one in outcomes]))
    for what in unequal([one.manifest for one in outcomes]):
        say(what, "yellow")
    for outcome in outcomes:
        for problem in _problems(outcome.manifest):
            say(f"failed: {problem}", "bold red")
    for one in not_run:
        say(f"failed: {one.provider} did not run: {one.error.message}", "bold red")


def comparison_json(
    report: Path, outcomes: Sequence[RunOutcome], not_run: Sequence[NotRun]
) -> dict[str, Any]:
    """Several runs for ``--json``."""
    from memory.bench.report.comparison import differences, unequal

    return {
        "report": str(report),
        "unequal": list(unequal([outcome.manifest for outcome in outcomes])),
        "runs": [run_json(outcome) for outcome in outcomes],
        "differences": [
            one.model_dump(mode="json") for one in differences([run.directory for run in outcomes])
        ],
        "not_run": [one.model_dump(mode="json") for one in not_run],
    }


def play(context: typer.Context, run: Callable[..., Awaitable[T]], given: Any, settings: RunSettings) -> T:
    """Run what was given, with bars for its progress, and its failures and files told.

    Args:
        run: :func:`memory.bench.run_benchmark` or ``run_many``.
        given: its configuration, or several.
    """
    import anyio

    async def go() -> T:
        with progress() as bars:
            return await run(
                given,
                settings=settings,
                progress=_told(bars),
                on_directory=made,
                on_wait=tell_of_waiting,
                on_error=tracebacks(context),
            )

    with _saying_where() as made:
        return anyio.run(go)


@contextmanager
def _saying_where() -> Iterator[Callable[[Path], None]]:
    """Told of every directory that is made; should the work be ended, says on stderr where its files are."""
    made: list[Path] = []
    try:
        yield made.append
    except BaseException:
        for directory in filter(Path.exists, made):
            state = "finished" if (directory / "report.html").exists() else "incomplete"
            complain(f"{state}: {directory}", warning=True)
        raise


def run_json(outcome: RunOutcome) -> dict[str, Any]:
    """One run for ``--json``."""
    return {
        "run_id": outcome.manifest.run_id,
        "provider": outcome.manifest.provider.label,
        "kind": outcome.manifest.provider.kind,
        "status": outcome.manifest.status,
        "directory": str(outcome.directory),
        "report": str(outcome.report),
        "problems": _problems(outcome.manifest),
        "metrics": outcome.metrics.model_dump(mode="json"),
    }


def end_badly(*outcomes: RunOutcome, comparison: Comparison | None = None) -> None:
    """Exit with 1 if anything failed; figures of a failed run have been shown all the same."""
    if any(outcome.manifest.status != "completed" for outcome in outcomes) or (
        comparison is not None and comparison.not_run
    ):
        raise typer.Exit(FAILED)
