"""``memslot verify``: whether what a run left agrees with itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli._group import FAILED
from memory.plugins.console import AsJson, print_json, say

if TYPE_CHECKING:
    from memory.bench.engine.replay import Verified


def verify(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directory of a run, a comparison or an experiment; or several.",
            metavar="RUN_DIR...",
            show_default=False,
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
    from memory.bench.engine.verify import verify as compute_anew
    from memory.bench.report.report import parts_of, rendered

    all_found = {
        directory: compute_anew(directory, data, render=rendered) for directory in parts_of(directories)
    }
    if as_json:
        payload = [
            {"directory": str(directory), "ok": not found.deviations, **asdict(found)}
            for directory, found in all_found.items()
        ]
        print_json(payload[0] if len(payload) == 1 else payload)
    else:
        for directory, found in all_found.items():
            _show(found, f"{directory}: " if len(all_found) > 1 else "")
    if any(found.deviations for found in all_found.values()):
        raise typer.Exit(FAILED)


def _show(found: Verified, of: str) -> None:
    for item in found.checked:
        say(f"checked: {item}", "dim")
    for item in found.unchecked:
        say(f"not checked: {item}", "yellow")
    for deviation in found.deviations:
        payload = f"recorded {deviation.recorded}, computed {deviation.computed or 'nothing'}"
        say(f"differs: {deviation.where}: {payload}", "bold red")
    many = len(found.deviations)
    say(f"{of}{many or 'no'} deviation{'s' if many > 1 else ''}")
