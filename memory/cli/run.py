"""``memslot run`` and ``memslot report``: one provider over a timeline, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.plugins.console import AsJson, print_json, say

if TYPE_CHECKING:
    from memory.bench import NotRun, RunMetrics, RunOutcome, RunSettings
    from memory.bench.scores.figures import Difference
    from memory.plugins.config import MemslotConfig

Data = Annotated[
    Path | None, typer.Option(help="A LoCoMo JSON file, in place of run.data.", show_default=False)
]
Out = Annotated[
    Path | None,
    typer.Option(help="Where the run's directory is made; default: manifests.", show_default=False),
]
Limit = Annotated[
    int | None,
    typer.Option(
        help="Ask only the first so many LoCoMo questions of each conversation.", min=1, show_default=False
    ),
]
NoDoctor = Annotated[bool, typer.Option("--no-doctor", help="Begin without the doctor's checks.")]


def settings_of(config: MemslotConfig, *, no_doctor: bool = False, **given: Any) -> RunSettings:
    """The ``run:`` block with what the command line gives in place; ``--data`` alone means LoCoMo."""
    from memory.bench import run_settings

    if no_doctor:
        given["doctor"] = False
    if given.get("data") is not None and "timeline" not in (config.run or {}):
        given["timeline"] = "locomo"
    return run_settings(config, **given)


def run(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file to run.", show_default=False)
    ],
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    no_doctor: NoDoctor = False,
    as_json: AsJson = False,
) -> None:
    """Run a provider over a timeline, score what it retrieves, and write the report.

    The doctor's checks come first, and a run that fails one ends there. Sessions are written in time order; at each
    probe the memory is read-only. Exits with 1 if the backend failed.
    """
    from memory.bench import run_benchmark
    from memory.cli._results import end_badly, play, run_json, show_run
    from memory.plugins.config import load_config

    loaded = load_config(config)
    settings = settings_of(loaded, no_doctor=no_doctor, data=data, output=out, limit_questions=limit)

    outcome: RunOutcome = play(context, run_benchmark, loaded, settings)
    if as_json:
        print_json(run_json(outcome))
    else:
        show_run(outcome.manifest, outcome.metrics)
        say(f"report: {outcome.report}")
    end_badly(outcome)


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directory of a run, a comparison or an experiment; of several runs, a comparison is made.",
            metavar="RUN_DIR...",
            show_default=False,
        ),
    ],
    table: Annotated[
        Table | None,
        typer.Option("--as", help="Print the figures in this form and nothing else.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show figures again, and write the report anew; of several runs, side by side."""
    from memory.bench import RunOutcome
    from memory.bench.report.comparison import differences, read_runs
    from memory.cli._results import comparison_json, run_json, show_comparison, show_run

    if len(directories) > 1:
        directories = _runs_of(directories)
    directory = _newest(directories[0])
    if (directory / "experiment.json").exists() and len(directories) == 1:
        from memory.cli.bench import show_again

        show_again(directory, as_json=as_json, table=table)
        return
    page, runs, not_run = _written(directory if len(directories) == 1 else None, directories)
    manifests, told = read_runs(runs)
    outcomes = [RunOutcome(*one) for one in zip(runs, manifests, told, strict=True)]
    if table is not None:
        metrics = [one.metrics for one in outcomes]
        typer.echo(table.of(metrics, differences(runs) if len(runs) > 1 else ()), nl=False)
    elif not_run is None:
        if as_json:
            print_json(run_json(outcomes[0]))
        else:
            show_run(outcomes[0].manifest, outcomes[0].metrics)
    elif as_json:
        print_json(comparison_json(page, outcomes, not_run))
    else:
        show_comparison(outcomes, not_run)
    if table is None and not as_json:
        say(f"report: {page}")


class Table(StrEnum):
    """Forms of the figures for other programs."""

    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"

    def of(self, metrics: Sequence[RunMetrics], paired: Sequence[Difference]) -> str:
        """The figures in this form."""
        from memory.bench.report import export

        forms = {"csv": export.figures_csv, "markdown": export.markdown_tables, "latex": export.latex_tables}
        return forms[self](metrics, paired)


def _written(
    one: Path | None, directories: Sequence[Path]
) -> tuple[Path, list[Path], tuple[NotRun, ...] | None]:
    """The report, written anew, the runs in it, and who did not run; None where it is of one run."""
    from memory.bench import write_comparison_report, write_report
    from memory.bench.engine.rundir import new_run_id
    from memory.bench.report.comparison import ComparisonRecord, read_comparison, write_comparison

    if one is None:
        now, parent = datetime.now(UTC), directories[0].absolute().parent
        name = new_run_id("compare-runs", now)
        paths = tuple(Path(os.path.relpath(run.absolute(), parent)).as_posix() for run in directories)
        record = ComparisonRecord(comparison_id=name, created_at=now, runs=paths)
        page = write_comparison(parent / name, record)
        return page, list(directories), ()
    if not (one / "comparison.json").exists():
        return write_report(one), [one], None
    record = read_comparison(one)
    return write_comparison_report(one), [one.parent / run for run in record.runs], record.not_run


def _runs_of(directories: Sequence[Path]) -> list[Path]:
    """Each run once, those of comparisons in their place."""
    from memory.bench.report.comparison import read_comparison
    from memory.contract.errors import InputError

    runs: dict[Path, Path] = {}
    for one in directories:
        if (one / "experiment.json").exists():
            raise InputError(
                f"{one} is an experiment, which is shown by itself; play what is to be compared in one"
            )
        compared = (one / "comparison.json").exists()
        for run in [one.parent / run for run in read_comparison(one).runs] if compared else [one]:
            runs.setdefault(run.resolve(), run)
    return list(runs.values())


def _newest(directory: Path) -> Path:
    """The directory itself if a run or a comparison is in it, else the one below it that ended last."""
    names = ("comparison.json", "experiment.json", "manifest.json")
    if any((directory / name).exists() for name in names):
        return directory
    found = [path for name in names for path in directory.glob(f"*/{name}")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else directory
