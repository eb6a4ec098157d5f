"""``memslot bench``: an agent with each memory, a simulated user and a judge, along a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory.cli._experiments import (
    Data,
    Limit,
    NoDoctor,
    Out,
    Resume,
    Workers,
    conclude,
    overrides,
    play,
)
from memory.plugins.console import AsJson


def bench(
    context: typer.Context,
    matrix: Annotated[
        Path,
        typer.Argument(metavar="MATRIX", help="The YAML file of the experiment.", show_default=False),
    ],
    resume: Resume = None,
    out: Out = None,
    data: Data = None,
    limit: Limit = None,
    workers: Workers = None,
    no_doctor: NoDoctor = False,
    as_json: AsJson = False,
) -> None:
    """Play an experiment: providers x settings x users x seeds x replicates, and judge how the assistant behaves.

    Accumulation sessions are played and remembered; test sessions are played while the memory is read-only. A cell
    that fails is marked with its reason and the others are played. Exits with 1 if one did not end well, or if a
    provider failed a request.
    """
    from memory.bench.engine.matrix import load_experiment

    given = overrides(data=data, out=out, limit=limit, no_doctor=no_doctor, workers=workers)
    conclude(play(context, load_experiment(matrix, **given), resume=resume, as_json=as_json), as_json=as_json)
