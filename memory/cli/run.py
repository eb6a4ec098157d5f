"""``memslot run``, ``compare`` and ``report``: what a memory shows of what it was told, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from memory.cli._experiments import (
    Data,
    Form,
    Limit,
    NoDoctor,
    Out,
    Resume,
    Workers,
    conclude,
    newest,
    overrides,
    play,
    show_results,
    written,
)
from memory.cli.backends import complete_provider
from memory.plugins.console import AsJson, print_json, print_table


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
    _play(context, config, resume, as_json, selected=True, **_timeline(config, data), **given)


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

    Exits with 1 if one failed or could not begin; the others are run all the same.
    """
    if config.is_dir():
        report([config, *map(Path, providers or ())], as_json=as_json)
        return
    given = overrides(data=data, out=out, limit=limit, no_doctor=no_doctor, workers=workers)
    _play(context, config, resume, as_json, providers=providers or None, **_timeline(config, data), **given)


def _play(context: typer.Context, config: Path, resume: Path | None, as_json: bool, **given: Any) -> None:
    from memory.bench.engine.matrix import load_experiment

    experiment = load_experiment(config, block="run", **given)
    conclude(play(context, experiment, resume=resume, as_json=as_json), as_json=as_json)


def _timeline(config: Path, data: Path | None) -> dict[str, Any]:
    """``--data`` alone means LoCoMo."""
    from memory.plugins.yaml import load_yaml

    if data is None:
        return {}
    content, _ = load_yaml(config)
    return {} if "timeline" in (content.get("run") or {}) else {"timeline": "locomo"}


def failures(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR", help="Directory of a run, a comparison or an experiment.", show_default=False
        ),
    ],
    provider: Annotated[
        str | None, typer.Option(help="Of this one alone, by its label.", show_default=False)
    ] = None,
    max_rows: Annotated[int, typer.Option("--max", help="At most so many of each provider.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List the requests that lost, worst first: failed, missing, not shown, or not what the user wanted."""
    from memory.bench.report.page import judged_requests
    from memory.bench.report.report import parts_of
    from memory.bench.report.results import read_results

    lost = [
        {
            "provider": entry.shown,
            "verdict": verdict,
            **record.row(),
            "asked": said[0]["user"] if said else None,
        }
        for entry in read_results(parts_of([newest(directory)])).entries
        if provider in (None, entry.metrics.label)
        for rank, verdict, record, said in judged_requests(entry)[:max_rows]
        if rank < 3
    ]
    if as_json:
        print_json(lost)
        return
    columns = ("provider", "verdict", "persona", "attribute or category", "after", "asked")
    rows = [
        (row["provider"], row["verdict"], row["persona_id"], row["attribute"] or row["category"] or row["kind"],
         str(row["after"]), row["asked"] or row["probe_id"])
        for row in lost
    ]  # fmt: skip
    print_table(columns, rows)


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directory of a run or an experiment, or several to be shown side by side.",
            metavar="RUN_DIR...",
            show_default=False,
        ),
    ],
    table: Annotated[
        Form | None,
        typer.Option("--as", help="Print the figures in this form and nothing else.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show figures again, and write the report anew; of several runs, side by side."""
    found = [newest(directories[0]), *directories[1:]]
    place, page, results = written(found)
    if table is not None:
        from memory.bench.report.export import FORMS

        typer.echo(FORMS[table](results), nl=False)
        return
    show_results(results, place, page, as_json=as_json)
