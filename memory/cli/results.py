"""``memslot report`` and ``memslot view``: the results of runs, and their verification."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory import InputError
from memory.cli._group import FAILED
from memory.contract._quantity import quantity
from memory.plugins.console import AsJson, print_json, print_table, say

if TYPE_CHECKING:
    from memory.bench.report.results import Results


def report(
    directory: Annotated[
        Path, typer.Argument(help="Directory of a run.", metavar="RUN_DIR", show_default=False)
    ],
    failures: Annotated[
        bool, typer.Option("--failures", help="List the requests that lost, worst first, and nothing else.")
    ] = False,
    max_rows: Annotated[int, typer.Option("--max", help="At most so many --failures of each.", min=1)] = 20,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compute hashes, scores, figures and page anew, and say what differs; exits with 1.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="--verify with the data file that the run read; generated data needs none.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's figures and page again."""
    from memory.bench.report.report import write_report

    if failures and verify:
        raise InputError("--failures and --verify each print something else; give one of them")
    found = newest(directory)
    if verify:
        _verify(found, data, as_json=as_json)
        return
    if failures:
        _failures(found, max_rows, as_json=as_json)
        return
    page, results = write_report(found)
    show_results(results, found, page, as_json=as_json)


def _failures(directory: Path, max_rows: int, *, as_json: bool) -> None:
    """List requests that failed, are missing or not shown, or did not give what the user wanted."""
    from memory.bench.report.page import judged_requests
    from memory.bench.report.results import read_results

    lost = [
        {
            "provider": entry.shown,
            "verdict": item.verdict,
            **item.record.row(),
            "asked": item.said[0]["user"] if item.said else None,
        }
        for entry in read_results(directory).entries
        for item in judged_requests(entry)[:max_rows]
        if item.rank < 3
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


def _verify(directory: Path, data: Path | None, *, as_json: bool) -> None:
    """Verify a run, and exit with 1 if anything differs. A part that cannot be checked is no failure."""
    from memory.bench.engine.verify import verify as compute_anew
    from memory.bench.report.report import rendered

    found = compute_anew(directory, data, render=rendered)
    if as_json:
        print_json({"directory": str(directory), "ok": not found.deviations, **asdict(found)})
    else:
        for item in found.checked:
            say(f"checked: {item}", "dim")
        for item in found.unchecked:
            say(f"not checked: {item}", "yellow")
        for memory in found.learning:
            say(f"warning: {memory}", "bold yellow")
        for deviation in found.deviations:
            values = f"recorded {deviation.recorded}, computed {deviation.computed or 'nothing'}"
            say(f"differs: {deviation.where}: {values}", "bold red")
        say(quantity(len(found.deviations), "deviations") if found.deviations else "no deviation")
    if found.deviations:
        raise typer.Exit(FAILED)


def view(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[CONFIG] [DIR]",
            help="The file of a memory, the directory of results, or both; memslot.yaml and manifests without.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Of 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 0,
) -> None:
    """Show a memory, its turns and its runs in your browser.

    It shows what is remembered of a person, what a question finds, with score and time, and what a prompt gets.
    You can delete a row if the backend can. The journal keeps the turns. Runs until interrupted.
    """
    from memory import open_memory_sync
    from memory.bench.report.view import runs_below
    from memory.cli._view import ViewServer

    places = places or [place for place in (Path("memslot.yaml"), Path("manifests")) if place.exists()]
    files = [place for place in places if place.is_file()]
    directories = [place for place in places if place not in files]
    if not places or len(files) > 1 or len(directories) > 1:
        raise InputError("give the file of one memory, the directory of results, or both")
    for directory in directories:
        runs_below(directory)
    with ExitStack() as open_things:
        memory = None
        for file in files:
            memory = open_things.enter_context(open_memory_sync(file))
            memory.slot.delivery.scope_or_default(None)
        try:
            server = ViewServer(
                memory, config=next(iter(files), None), runs=next(iter(directories), None), port=port
            )
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror or error}; 0 takes a free one") from error
        open_things.enter_context(server)
        say(f"{' and '.join(map(str, places))} at {server.url} (Ctrl+C ends it)")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def show_results(results: Results, directory: Path, report: Path, *, as_json: bool) -> None:
    """Print figures side by side, remarks, the verdict, the path of the page, and how to resume."""
    from memory.bench.report.tables import summary
    from memory.bench.report.verdict import banner, problems, remarks, resumption, unequal, verdict

    if as_json:
        print_json(as_data(results, directory, report))
        return
    if text := banner(results):
        say(text, "bold yellow")
    print_table(*summary(results))
    for what in (*results.manifest.notes, *unequal(results)):
        say(what, "yellow")
    for remark in remarks(results) if len(results.entries) == 1 else ():
        say(f"warning: {remark}", "yellow")
    for problem in problems(results):
        say(f"failed: {problem}", "bold red")
    for sentence in verdict(results):
        say(sentence, "bold")
    say(f"report: {report}")
    for line in resumption(results, directory):
        say(line, "bold red")


def as_data(results: Results, directory: Path, report: Path) -> dict[str, Any]:
    from memory.bench.report.verdict import banner, problems, unequal, verdict

    return {
        "directory": str(directory),
        "report": str(report),
        "status": results.manifest.status,
        "banner": banner(results),
        "verdict": verdict(results),
        "notes": results.manifest.notes,
        "left_out": {item.label: item.why for item in results.manifest.left_out},
        "problems": problems(results),
        "unequal": unequal(results),
        "metrics": results.metrics.model_dump(mode="json"),
    }


def newest(directory: Path) -> Path:
    """The directory itself if it holds results, else its subdirectory with the newest results."""
    from memory.bench.engine.manifest import MANIFEST_FILE

    if (directory / MANIFEST_FILE).exists():
        return directory
    found = [*directory.glob(f"*/{MANIFEST_FILE}")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else directory
