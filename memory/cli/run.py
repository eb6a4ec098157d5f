"""``memslot run`` and ``memslot report``: one provider over a timeline, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli._group import tracebacks
from memory.cli.doctor import tell_of_waiting
from memory.plugins.console import AsJson, print_json, progress, say

if TYPE_CHECKING:
    from memory.bench import RunOutcome, RunSettings
    from memory.plugins.config import MemslotConfig

__all__ = ["Data", "Limit", "NoDoctor", "Out", "report", "run", "settings_of"]

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
    import anyio

    from memory.bench import run_benchmark
    from memory.cli._results import end_badly, run_json, saying_where, show_run, told
    from memory.plugins.config import load_config

    loaded = load_config(config)
    settings = settings_of(loaded, no_doctor=no_doctor, data=data, output=out, limit_questions=limit)

    async def go() -> RunOutcome:
        with progress() as bars:
            return await run_benchmark(
                loaded,
                settings=settings,
                progress=told(bars),
                on_directory=made,
                on_wait=tell_of_waiting,
                on_error=tracebacks(context),
            )

    with saying_where() as made:
        outcome = anyio.run(go)
    if as_json:
        print_json(run_json(outcome))
    else:
        show_run(outcome.manifest, outcome.metrics)
        say(f"report: {outcome.report}")
    end_badly(outcome)


def report(
    directory: Annotated[
        Path,
        typer.Argument(help="Directory of a run or a comparison.", metavar="RUN_DIR", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Show the figures of a run or a comparison again, and write its report anew."""
    from memory.bench import RunOutcome, read_metrics, write_comparison_report, write_report
    from memory.bench.comparison_report import read_comparison
    from memory.bench.manifest import read_manifest
    from memory.cli._results import comparison_json, run_json, show_comparison, show_run

    directory = _newest(directory)

    def outcome(of: Path) -> RunOutcome:
        return RunOutcome(of, read_manifest(of), read_metrics(of))

    if (directory / "comparison.json").exists():
        page = write_comparison_report(directory)
        record = read_comparison(directory)
        outcomes = [outcome(directory.parent / run_id) for run_id in record.runs]
        if as_json:
            print_json(comparison_json(page, outcomes, record.not_run))
        else:
            show_comparison(outcomes, record.not_run)
            say(f"report: {page}")
        return
    one = outcome(directory)
    page = write_report(directory, one.manifest, one.metrics)
    if as_json:
        print_json(run_json(one))
    else:
        show_run(one.manifest, one.metrics)
        say(f"report: {page}")


def _newest(directory: Path) -> Path:
    """The directory itself if a run or a comparison is in it, else the one below it that ended last."""
    names = ("comparison.json", "manifest.json")
    if any((directory / name).exists() for name in names):
        return directory
    found = [path for name in names for path in directory.glob(f"*/{name}")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else directory
