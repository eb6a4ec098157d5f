"""``memslot bench``: an agent with each memory, a simulated user and a judge, along a timeline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli._group import FAILED
from memory.plugins.console import AsJson, complain, print_json, print_table, say

if TYPE_CHECKING:
    from memory.bench.engine.experiment import At, Outcome

_TELL_EVERY_S = 5.0


def bench(
    matrix: Annotated[
        Path,
        typer.Argument(metavar="MATRIX", help="The YAML file of the experiment.", show_default=False),
    ],
    resume: Annotated[
        Path | None,
        typer.Option(help="Take up the experiment in this directory where it stopped.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the experiment's directory is made; default: manifests.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data set's file or directory; takes precedence over bench.data.", show_default=False
        ),
    ] = None,
    no_doctor: Annotated[
        bool, typer.Option("--no-doctor", help="Begin without the doctor's checks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play an experiment: providers x settings x users x seeds x replicates, and judge how the assistant behaves.

    Accumulation sessions are played and remembered; test sessions are played while the memory is read-only. A cell
    that fails is marked with its reason and the others are played. Exits with 1 if one did not end well.
    """
    from memory.bench.engine.experiment import begin
    from memory.bench.engine.experiment import resume as take_up
    from memory.bench.engine.matrix import load_experiment

    given: dict[str, Any] = {"output": out, "data": data and data.expanduser().absolute()}
    if no_doctor:
        given["doctor"] = False
    experiment = load_experiment(matrix, **given)
    tell = _Teller(quiet=as_json)
    for what in () if as_json else experiment.left_out:
        say(f"left out: {what}", "yellow")
    try:
        if resume is not None:
            tell.place = resume
            outcome = take_up(experiment, resume, progress=tell)
        else:
            outcome = begin(experiment, progress=tell, on_directory=tell.directory)
    except KeyboardInterrupt:
        if tell.place is not None:
            complain(f"incomplete: {tell.place}; --resume {tell.place} goes on", warning=True)
        raise
    _tell(outcome, as_json=as_json)
    if outcome.manifest.status != "completed":
        raise typer.Exit(FAILED)


class _Teller:
    """Progress as lines, a few seconds apart, that read well in a log too."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._next = time.monotonic() + _TELL_EVERY_S
        self.place: Path | None = None

    def directory(self, path: Path) -> None:
        self.place = path
        if not self._quiet:
            say(f"writing to {path}", "dim")

    def __call__(self, at: At) -> None:
        if self._quiet or (time.monotonic() < self._next and at.done < at.total):
            return
        self._next = time.monotonic() + _TELL_EVERY_S
        left = "" if at.left_s is None else f", about {at.left_s:.0f} s left"
        say(f"{at.done} of {at.total} sessions ({at.done / at.total:.0%}){left}; now {at.label}", "dim")


def _show(outcome: Outcome) -> None:
    from memory.bench.report.fairness import problems_of, unequal
    from memory.bench.report.report import summary

    columns, rows = summary(outcome.metrics)
    print_table(columns, rows)
    for what in unequal(outcome.manifest):
        say(what, "yellow")
    for problem in problems_of(outcome.manifest, outcome.metrics):
        complain(problem)
    say(f"report: {outcome.report}")


def _tell(outcome: Outcome, *, as_json: bool) -> None:
    if not as_json:
        _show(outcome)
        return
    print_json(
        {
            "directory": str(outcome.directory),
            "report": str(outcome.report),
            "status": outcome.manifest.status,
            "metrics": outcome.metrics.model_dump(mode="json"),
        }
    )


def show_again(directory: Path, *, as_json: bool, table: str | None = None) -> None:
    """The figures of an experiment, measured anew from what its cells left, and its report."""
    from memory.bench.engine.experiment import Outcome, measure
    from memory.bench.engine.manifest import read_experiment
    from memory.bench.report.report import write_game_report

    manifest = read_experiment(directory)
    metrics = measure(directory, manifest)
    write_game_report(directory, manifest, metrics)
    if table is not None:
        from memory.bench.report import export
        from memory.bench.report.comparison import difference_table
        from memory.bench.report.page import spanned
        from memory.bench.report.report import summary

        shown = summary(metrics, spanned)
        paired = difference_table([one for one in export.game_differences(metrics) if one.figure in shown[0]])
        columns, rows = paired
        forms = {
            "csv": lambda: export.game_csv(metrics),
            "markdown": lambda: export.markdown(shown, *([paired] if rows else [])),
            "latex": lambda: export.latex(export.turned(*shown), *([[columns, *rows]] if rows else [])),
        }
        typer.echo(forms[table](), nl=False)
        return
    _tell(Outcome(directory, manifest, metrics), as_json=as_json)
