"""Output of all commands: coloured on a terminal, plain elsewhere, and never cut.

Only laid-out text imports rich, so that hooks, which print a line of JSON, start without it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="The YAML file of the memory.", show_default=False)
]
Persona = Annotated[str | None, typer.Option(help="Only this person's events.", show_default=False)]

# Colours of result words, looked up by the first word of a cell.
STYLES = {
    **dict.fromkeys(("installed", "passed", "completed"), "green"),
    **dict.fromkeys(("failed", "broken"), "bold red"),
    "pending": "yellow",
    "skipped": "dim",
}
_PIPE_WIDTH = 120


def say(text: str, style: str = "") -> None:
    """Print one line to stdout, neither cut nor wrapped, and coloured only on a terminal."""
    from rich.text import Text

    _console().print(Text(text, style), soft_wrap=True)


def complain(text: str, *, warning: bool = False) -> None:
    """Print one line to stderr for each problem in a text: warnings in yellow, errors in red.

    A problem begins at the start of a line. Lines that begin with a space continue it.
    """
    colour = None if os.environ.get("NO_COLOR") else "yellow" if warning else "red"
    for problem in re.split(r"\n(?=\S)", text):
        typer.secho(" ".join(problem.split()), fg=colour, err=True)


def usage_line(error: Exception, command: str) -> str | None:
    """The mistake in a command line, and the ``--help`` that explains it. None for any other error."""
    # Depending on its version, typer bundles click or imports it. Errors of both have this method.
    usage = getattr(error, "format_message", None)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else command
    if usage is None:
        return None
    # Newer versions of typer put "Value error, " before a message about a choice.
    said = usage().rstrip(".").replace(": Value error, ", ": ")
    return f"{said}; see '{command} --help'"


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that is as wide as the terminal or COLUMNS, elsewhere 120 characters. Long cells fold."""
    from rich.table import Table
    from rich.text import Text

    console = _console()
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console.width = _PIPE_WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(Text(header), overflow="fold", no_wrap=not table.columns)
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        table.add_row(*(Text(cell, _style(cell)) for cell in cells))
    with console.capture() as laid_out:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in laid_out.get().splitlines()))


def _style(cell: str) -> str:
    return STYLES.get(cell.partition(" ")[0].rstrip(":"), "")


class Report(Protocol):
    def __call__(self, what: str, done: int, total: int, part: str = "") -> None:
        """Report that ``done`` of ``total`` steps of ``what`` are done. ``part`` names the current one."""


@contextmanager
def progress() -> Iterator[Report]:
    """Show progress on stderr: as a bar with the time left on a terminal, elsewhere as a line now and then."""
    console = _console(stderr=True)
    if console.is_terminal:
        yield from _bars(console)
    else:
        yield _lines()


def _bars(console: Console) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    what = TextColumn("{task.description}", markup=False)
    part = TextColumn("{task.fields[part]}", markup=False)
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True), part)
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int, part: str = "") -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, part=part)
            bars.update(tasks[what], completed=done, total=total, part=part)

        yield report


def _lines() -> Report:
    last = time.monotonic()

    def report(what: str, done: int, total: int, part: str = "") -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= 5.0:
            last = time.monotonic()
            typer.echo(f"{what}: {done} of {total}{f', {part}' if part else ''}", err=True)

    return report
