"""``memslot run``, ``compare``, ``bench`` and ``demo``: measure what a memory shows, and how an agent behaves
with it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memory.cli._experiments import Data, Limit, NoDoctor, Out, Resume, Workers, conclude, overrides, play
from memory.cli.backends import complete_provider
from memory.cli.results import report
from memory.plugins.console import AsJson, complain, say

FAIR_TOKENS = 2_000
"""The budget of each provider of a comparison whose file gives none."""
_EXTRA = "memslot[mem0]"
DEMO = Path(__file__).parents[1] / "bench" / "data" / "demo.yaml"


def run(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file to run.", show_default=False)
    ],
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    resume: Resume = None,
    workers: Workers = None,
    no_doctor: NoDoctor = False,
    as_json: AsJson = False,
) -> None:
    """Run a provider over a timeline, score what it retrieves, and write the report.

    An experiment of the one provider that the file selects, in which nobody plays: sessions are written in time
    order, and requests are put to the memory while it is read-only. Exits with 1 if the backend failed.
    """
    given = overrides(data=data, out=out, limit=limit, no_doctor=no_doctor, workers=workers)
    given |= _timeline(config, data)
    _play(context, config, resume, as_json, block="run", selected=True, **given)


def compare(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG",
            help="The YAML file; providers without a block run with defaults. Or directories of results.",
            show_default=False,
        ),
    ],
    providers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Providers, in place of run.providers.",
            show_default=False,
            autocompletion=complete_provider,
        ),
    ] = None,
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    resume: Resume = None,
    workers: Workers = None,
    no_doctor: NoDoctor = False,
    as_json: AsJson = False,
) -> None:
    """Run several providers over the same timeline and show them side by side.

    A file without a token budget gives each of them 2,000 tokens.
    Exits with 1 if one failed or could not begin; the others are run all the same.
    """
    if config.is_dir():
        report([config, *map(Path, providers or ())], as_json=as_json)
        return
    given = overrides(data=data, out=out, limit=limit, no_doctor=no_doctor, workers=workers)
    given |= _timeline(config, data)
    given["fair_tokens"] = FAIR_TOKENS
    _play(context, config, resume, as_json, block="run", providers=providers or None, **given)


def _play(context: typer.Context, config: Path, resume: Path | None, as_json: bool, **given: Any) -> None:
    from memory.bench.engine.matrix import load_experiment

    experiment = load_experiment(config, **given)
    conclude(play(context, experiment, resume=resume, as_json=as_json), as_json=as_json)


def _timeline(config: Path, data: Path | None) -> dict[str, Any]:
    """``--data`` alone is what its content says: a published data set, or conversations of the user's own."""
    from memory.bench.data.sets import kind_of_file
    from memory.plugins.blocks import load_yaml

    if data is None:
        return {}
    written = load_yaml(config)[0].get("run")
    return {} if isinstance(written, Mapping) and "timeline" in written else {"timeline": kind_of_file(data)}


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
    given = overrides(data=data, out=out, limit=limit, no_doctor=no_doctor, workers=workers)
    _play(context, matrix, resume, as_json, **given)


def demo(
    context: typer.Context,
    out: Out = None,
    install: Annotated[
        bool | None,
        typer.Option(
            "--install/--no-install",
            help=f"Install {_EXTRA} first if it is missing; asked on a terminal otherwise.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a small game with mem0 against the controls: no key, no server, no model but a scripted one."""
    from memory.bench.engine.matrix import load_experiment
    from memory.bench.engine.models import scripted_model
    from memory.plugins.blocks import load_yaml

    if importlib.util.find_spec("mem0") is None:
        _offer(install, as_json=as_json)
    if not as_json:
        say(
            "Five people tell an assistant how they want to be dealt with, and change their minds. It is judged "
            "with each memory in turn. Generated data, a scripted model: nothing leaves this machine."
        )
    with scripted_model("SCRIPTED_LLM_URL", wanted=importlib.util.find_spec("mem0") is not None):
        experiment = load_experiment(load_yaml(DEMO)[0], output=out)
        began = time.monotonic()
        outcome = play(context, experiment, as_json=as_json)
    if not as_json:
        say(f"took {time.monotonic() - began:.0f} s", "dim")
    conclude(outcome, as_json=as_json)


def _offer(install: bool | None, *, as_json: bool) -> None:
    """Install mem0's SDK where that is wanted; pip shows how far it is."""
    if install is None and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        install = typer.confirm(f"mem0 is not installed. Install {_EXTRA} now?", default=True)
    if not install:
        return
    command = [sys.executable, "-m", "pip", "install", _EXTRA]
    if as_json:  # standard output holds that and nothing else
        done = subprocess.run(command, check=False, stdout=sys.stderr)
    else:
        say(" ".join(["pip", *command[3:]]), "dim")
        done = subprocess.run(command, check=False)
    if done.returncode:
        complain("pip could not install it; the demo goes on without mem0", warning=True)
