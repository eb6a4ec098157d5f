"""Plays an experiment from the command line, and shows its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli._group import FAILED, tracebacks
from memory.plugins.console import complain, print_json, print_table, progress, say

if TYPE_CHECKING:
    from memory.bench.engine.experiment import Outcome
    from memory.bench.engine.matrix import Experiment
    from memory.bench.report.results import Results

Out = Annotated[
    Path | None,
    typer.Option(help="Where the directory of the results is made; default: manifests.", show_default=False),
]


def play(
    context: typer.Context,
    experiment: Experiment,
    *,
    resume: Path | None = None,
    source: Path | None = None,
    as_json: bool = False,
) -> Outcome:
    """Play or resume an experiment, and report progress and failures.

    Raises:
        ConfigError, PluginError: the experiment cannot begin; nothing was written.
    """
    from memory.bench.engine.again import answer_again
    from memory.bench.engine.experiment import Listeners, begin
    from memory.bench.engine.experiment import resume as take_up
    from memory.bench.report.report import write_page

    place: Path | None = None  # None until there is a directory of results

    def made(directory: Path) -> None:
        nonlocal place
        place = directory
        if not as_json:
            say(f"writing to {directory}", "dim")

    for left_out in () if as_json else experiment.left_out:
        say(f"left out: {left_out.label}, which {left_out.why}", "yellow")
    try:
        with progress() as bars:
            listeners = Listeners(
                progress=lambda at: bars("steps", at.done, at.total, at.label),
                on_directory=made,
                on_error=tracebacks(context),
                write_page=write_page,
            )
            if source is not None:
                return answer_again(experiment, source, listeners=listeners)
            if resume is not None:
                return take_up(experiment, resume, listeners=listeners)
            return begin(experiment, listeners=listeners)
    except BaseException:
        if place is not None and source is None:
            complain(f"incomplete: {place}; --resume {place} goes on", warning=True)
        raise


def conclude(outcome: Outcome, *, as_json: bool) -> None:
    """Show an experiment's results. Exits with 1 if it did not complete."""
    from memory.bench.report.results import results_of

    results = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    show_results(results, outcome.directory, outcome.report, as_json=as_json)
    if outcome.manifest.status != "completed":
        raise typer.Exit(FAILED)


def show_results(results: Results, directory: Path, report: Path, *, as_json: bool) -> None:
    """Print figures side by side, remarks, the verdict, the path of the page, and how to resume."""
    from memory.bench.report.tables import by_category, summary
    from memory.bench.report.verdict import banner, problems, remarks, resumption, unequal, verdict

    if as_json:
        print_json(as_data(results, directory, report))
        return
    if text := banner(results):
        say(text, "bold yellow")
    columns, rows = summary(results)
    print_table(columns, rows)
    if len(results.entries) == 1 and results.headline is not None:
        parts = by_category(results, results.headline)
        if len(parts[1]) > 1:
            say("")
            print_table(*parts)
    for what in (*results.manifest.notes, *unequal(results)):
        say(what, "yellow")
    for remark in remarks(results) if len(results.entries) == 1 else ():
        say(f"warning: {remark}", "yellow")
    for problem in problems(results):
        say(f"failed: {problem}", "bold red")
    for sentence in verdict(results):
        say(sentence, "bold")
    say(f"report: {report}")
    for line in resumption(results, directory):
        say(line, "bold red")


def as_data(results: Results, directory: Path, report: Path) -> dict[str, Any]:
    from memory.bench.report.verdict import banner, problems, unequal, verdict

    return {
        "directory": str(directory),
        "report": str(report),
        "status": results.manifest.status,
        "banner": banner(results),
        "verdict": verdict(results),
        "notes": results.manifest.notes,
        "left_out": {item.label: item.why for item in results.manifest.left_out},
        "problems": problems(results),
        "unequal": unequal(results),
        "metrics": results.metrics.model_dump(mode="json"),
    }


def newest(directory: Path) -> Path:
    """The directory itself if it holds results, else its subdirectory with the newest results."""
    from memory.bench.engine.manifest import MANIFEST_FILE

    if (directory / MANIFEST_FILE).exists():
        return directory
    found = [*directory.glob(f"*/{MANIFEST_FILE}")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else directory
