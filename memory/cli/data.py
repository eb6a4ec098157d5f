"""``memslot tools data``: checks a data set before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory.cli._group import FAILED
from memory.contract._quantity import quantity
from memory.plugins.console import AsJson, print_json, say

commands = typer.Typer(
    help="Data sets and conversations of your own.", rich_markup_mode=None, no_args_is_help=True
)


@commands.command()
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A data set, or conversations.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Say what a file is, what it holds, and what is wrong, by line.

    Exits with 1 where something is wrong.
    """
    from memory.bench.data.own import read_own
    from memory.bench.data.sets import data_sets, kind_of_file

    name = kind_of_file(file)
    problems: list[str] = []
    if name == "own":
        found, wrong = read_own(file)
        problems = [str(problem) for problem in wrong]
    else:
        found = data_sets()[name](file)
    timelines = found.timelines
    holds = {
        "people": len(timelines),
        "sessions": sum(len(each.sessions) for each in timelines),
        "turns": sum(len(each.turns) for each in timelines),
        "questions": sum(len(each.probes) for each in timelines),
        "test sessions": sum(len(each.tests) for each in timelines),
    }
    if as_json:
        print_json({"kind": name, "holds": holds, "notes": found.notes, "problems": problems})
    else:
        counts = ", ".join(quantity(count, what) for what, count in holds.items() if count)
        say(f"{file.name}, read as {name}: {counts}")
        for note in found.notes:
            say(note, "dim")
        for problem in problems:
            say(problem, "bold red")
        say(quantity(len(problems), "problems") if problems else "no problems")
    if problems:
        raise typer.Exit(FAILED)
