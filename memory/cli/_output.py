"""What every command writes with: coloured tables on a terminal, plain and complete lines elsewhere.

Results go to stdout, progress and errors to stderr, so that a pipe carries results only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.text import Text

__all__ = ["STYLES", "Report", "print_json", "print_table", "progress", "say"]

STYLES = {
    "installed": "green",
    "passed": "green",
    "completed": "green",
    "failed": "bold red",
    "broken": "bold red",
    "pending": "yellow",
    "skipped": "dim",
}
"""Colours of the words that say how something went; looked up by the first word of a cell."""


def say(text: str, style: str = "") -> None:
    """One line on stdout, never cut or wrapped by us, coloured on terminals only."""
    Console(highlight=False).print(Text(text, style), soft_wrap=True)


def print_json(data: Any) -> None:
    """``data`` as indented JSON on stdout."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table: drawn and folded to the width of a terminal; elsewhere one line a row, columns aligned."""
    console = Console(highlight=False)
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    if console.is_terminal:
        console.print(_drawn(headers, cells))
    else:
        for line in _aligned(headers, cells):
            typer.echo(line)


def _drawn(headers: Sequence[str], rows: list[list[str]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(*headers, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(Text(cell, STYLES.get(cell.partition(" ")[0].rstrip(":"), "")) for cell in row))
    return table


def _aligned(headers: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    lines = [list(headers), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


class Report(Protocol):
    """Told how far long work has come."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@contextmanager
def progress() -> Iterator[Report]:
    """Progress of long work on stderr: a bar on a terminal, elsewhere a line at every tenth."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        yield from _bars(console)
    else:
        yield _lines()


def _bars(console: Console) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


def _lines() -> Report:
    tenths: dict[str, int] = {}

    def report(what: str, done: int, total: int) -> None:
        tenth = 10 if done >= total else done * 10 // total
        if tenth > tenths.get(what, 0):
            tenths[what] = tenth
            typer.echo(f"{what}: {done} of {total}", err=True)

    return report
