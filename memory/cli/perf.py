"""``memslot tools perf``: compares a backend behind the slot with its bare library on this machine."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.plugins.console import AsJson, print_json, print_table, progress, say

if TYPE_CHECKING:
    from memory.bench.perf.measure import Figure, Report

_IN_MEMORY = Path("/dev/shm")


def perf(
    backend: Annotated[str, typer.Argument(metavar="BACKEND", help="The backend to measure.")] = "mem0",
    scopes: Annotated[int, typer.Option(min=2, help="Scopes that share a store.")] = 50,
    memories: Annotated[int, typer.Option(min=20, help="Memories of each of them.")] = 200,
    large: Annotated[int, typer.Option(min=20, help="Memories of the one large scope.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which all take their turns.")] = 30,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller stores and fewer rounds: half a minute, rougher figures.")
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--in",
            exists=True,
            file_okay=False,
            help="Where the disk is measured; default: the directory for temporary files.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a backend beside its bare library. It measures searches, adds, many scopes, and starts.

    Needs no key and no server. Everything happens in one run, in alternating order, so that ratios hold on a busy
    machine too.
    """
    import anyio

    from memory.bench.perf.measure import Sizes, measure

    sizes = Sizes(scopes, memories, large, rounds)
    if quick:
        sizes = Sizes(max(2, scopes // 5), max(20, memories // 4), max(20, large // 10), max(3, rounds // 3))

    with progress() as report_progress, _places(directory) as (place, in_memory):
        found = anyio.run(
            lambda: measure(
                backend, place, sizes=sizes, in_memory=in_memory, report_progress=report_progress
            ),
        )
    if as_json:
        print_json({"backend": backend, **found.to_json()})
        return
    show(found)


def show(found: Report) -> None:
    print_table(
        ("ms, median of the rounds", "bare", "async", "memslot", "memslot / bare", "least"),
        [_row(figure) for figure in found.figures],
    )
    say("")
    sizes = found.sizes
    print_table(
        (f"{sizes.scopes} scopes over one", "bare", "memslot"),
        [
            (name, *(f"{statistics.median(found.growth(who)[name]):.2f}" for who in ("bare", "memslot")))
            for name in ("search", "add")
        ],
    )
    say(
        f"rounds: {sizes.rounds}; bare: the library on a thread, all scopes in one store; async: the library's own "
        "asynchronous form",
        "dim",
    )


def _row(figure: Figure) -> tuple[str, ...]:
    times = (figure.median(contestant) for contestant in ("bare", "async", "memslot"))
    ratios = figure.ratios()
    return (
        figure.name,
        *("-" if ms is None else f"{ms:.2f}" for ms in times),
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f}",
    )


@contextmanager
def _places(directory: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """Two temporary directories: one on the given disk, and one in memory or None."""
    with tempfile.TemporaryDirectory(prefix="memslot-perf-", dir=directory) as place:
        if not _IN_MEMORY.is_dir():
            yield Path(place), None
            return
        with tempfile.TemporaryDirectory(prefix="memslot-perf-", dir=_IN_MEMORY) as fast:
            yield Path(place), Path(fast)
