"""``memslot run``: measures a memory's answers, and an agent's behaviour with the memory."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli._group import FAILED, tracebacks
from memory.cli.results import show_results
from memory.plugins.console import AsJson, complain, progress, say

if TYPE_CHECKING:
    from memory.bench.engine.experiment import Outcome
    from memory.bench.engine.matrix import Experiment

FAIR_TOKENS = 2_000
"""The budget of each provider in a comparison whose file gives none."""
DEMO = Path(__file__).parents[1] / "bench" / "data" / "demo.yaml"


def run(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG",
            help="The YAML file to run; 'demo' is a small game that comes with memslot.",
            show_default=False,
        ),
    ],
    providers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Memories to compare, in place of the file's; one without a block runs with its defaults.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data set's file or directory, in place of the file's data.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the directory of the results is made; default: manifests.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Ask only the first so many questions of each conversation.", min=1, show_default=False
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Take up what is in this directory where it stopped.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Answer and judge the requests of this run again, with the file's roles; no memory is asked.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Play in so many worker processes of this machine.", min=1, max=64, show_default=False
        ),
    ] = None,
    no_doctor: Annotated[
        bool, typer.Option("--no-doctor", help="Begin without the doctor's checks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare memories on the same conversations, and write a report.

    With a bench: block an assistant plays with each memory, and is judged. Any other file asks the memories alone:
    those of run.providers, or the one that the file selects. Several memories get 2,000 tokens each if the file
    gives no budget. A memory that fails stops no other. Exits with 1 if one failed.
    The demo plays a game with mem0 against the controls. It needs no key and no server, and its model is scripted.
    """
    from memory.bench.data.sets import kind_of_file
    from memory.bench.engine.matrix import load_experiment
    from memory.plugins.blocks import load_yaml

    is_demo = config == Path("demo") and not config.exists()
    content = load_yaml(DEMO if is_demo else config)[0]
    written = content.get("run") or {}
    written = written if isinstance(written, Mapping) else {}
    given: dict[str, Any] = {
        "data": data and data.expanduser().absolute(),
        "output": out,
        "limit_questions": limit,
        "doctor": False if no_doctor else None,
        "executor": None if workers is None else {"kind": "processes", "workers": workers},
    }
    if "bench" not in content:
        alone = not (providers or written.get("providers"))
        given |= {"block": "run", "selected": alone, "fair_tokens": None if alone else FAIR_TOKENS}
        if data is not None and "timeline" not in written:
            given["timeline"] = kind_of_file(data)
    if is_demo and not as_json:
        say(
            "Five people tell an assistant how they want to be dealt with, and change their minds. It is judged "
            "with each memory in turn. Generated data, a scripted model: nothing leaves this machine."
        )
    with _scripted() if is_demo else nullcontext():
        # The demo's paths are relative to the working directory, not to the installed package.
        experiment = load_experiment(content if is_demo else config, providers=providers or None, **given)
        outcome = play(context, experiment, resume=resume, source=source, as_json=as_json)
    conclude(outcome, as_json=as_json)


@contextmanager
def _scripted() -> Iterator[None]:
    """The demo's scripted model, if mem0 is installed and will ask it."""
    from memory.testing import ScriptedLLM

    wanted = importlib.util.find_spec("mem0") is not None
    with ScriptedLLM(record=False) if wanted else nullcontext() as llm:
        os.environ["SCRIPTED_LLM_URL"] = llm.base_url if llm else "http://127.0.0.1:1"
        yield


def play(
    context: typer.Context,
    experiment: Experiment,
    *,
    resume: Path | None = None,
    source: Path | None = None,
    as_json: bool = False,
) -> Outcome:
    """Play or resume an experiment, and report progress and failures.

    Raises:
        ConfigError, PluginError: the experiment cannot begin; nothing was written.
    """
    from memory.bench.engine.again import answer_again
    from memory.bench.engine.experiment import Listeners, begin
    from memory.bench.report.report import write_page

    place: Path | None = None  # None until there is a directory of results

    def made(directory: Path) -> None:
        nonlocal place
        place = directory
        if not as_json:
            say(f"writing to {directory}", "dim")

    for left_out in () if as_json else experiment.left_out:
        say(f"left out: {left_out.label}, which {left_out.why}", "yellow")
    try:
        with progress() as bars:
            listeners = Listeners(
                progress=lambda at: bars("steps", at.done, at.total, at.label),
                on_directory=made,
                on_error=tracebacks(context),
                write_page=write_page,
            )
            if source is not None:
                return answer_again(experiment, source, listeners=listeners)
            return begin(experiment, resume, listeners=listeners)
    except BaseException:
        if place is not None and source is None:
            complain(f"incomplete: {place}; --resume {place} goes on", warning=True)
        raise


def conclude(outcome: Outcome, *, as_json: bool) -> None:
    """Show an experiment's results. Exits with 1 if it did not complete."""
    from memory.bench.report.results import results_of

    results = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    show_results(results, outcome.directory, outcome.report, as_json=as_json)
    if outcome.manifest.status != "completed":
        raise typer.Exit(FAILED)
