"""``memslot verify``: whether what a run left agrees with itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from memory.cli._group import FAILED
from memory.plugins.console import AsJson, print_json, say

__all__ = ["verify"]


def verify(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Directory of a run, a comparison or an experiment.", metavar="RUN_DIR", show_default=False
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="The data file that the run read; generated data needs none.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute hashes, scores, figures and report anew from what a run left, and say what differs.

    Exits with 1 if anything does. What could not be checked is said, and is no failure.
    """
    from memory.bench.verify import verify as look

    found = look(directory, data)
    if as_json:
        print_json({"ok": not found.deviations, **asdict(found)})
    else:
        for one in found.checked:
            say(f"checked: {one}", "dim")
        for one in found.unchecked:
            say(f"not checked: {one}", "yellow")
        for deviation in found.deviations:
            told = f"recorded {deviation.recorded}, computed {deviation.computed or 'nothing'}"
            say(f"differs: {deviation.where}: {told}", "bold red")
        say(f"{len(found.deviations)} deviations" if found.deviations else "no deviation")
    if found.deviations:
        raise typer.Exit(FAILED)
