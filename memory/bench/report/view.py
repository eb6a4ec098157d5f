"""Lists the runs below a directory, for ``memslot view``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from memory.bench.engine.experiment import read_metrics
from memory.bench.engine.manifest import MANIFEST_FILE, Manifest, read_manifest
from memory.bench.report.page import Block, Page
from memory.bench.report.report import REPORT_FILE
from memory.bench.report.results import results_of
from memory.bench.report.verdict import verdict
from memory.contract._quantity import quantity
from memory.contract.errors import ConfigError


@dataclass(frozen=True)
class Run:
    """A run with the first sentence of its verdict, or with the reason why there is none."""

    path: Path  # relative to the viewed directory
    verdict: str
    manifest: Manifest | None = None  # None if it cannot be read
    shown: tuple[str, ...] = ()  # the providers, in the order and with the labels of the page


def runs_below(directory: Path) -> list[Run]:
    """The runs in a directory and up to three levels below it, newest first. Unreadable runs come last.

    Raises:
        ConfigError: it is not a directory.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory}: is no directory; give the one in which results were written")
    files = (file for depth in range(4) for file in directory.glob("*/" * depth + MANIFEST_FILE))
    found = [_run(directory, place) for place in sorted({file.parent for file in files})]
    found.sort(key=lambda run: run.manifest.created_at.timestamp() if run.manifest else 0, reverse=True)
    return found


def _run(directory: Path, place: Path) -> Run:
    path = place.relative_to(directory)
    try:
        manifest = read_manifest(place)
    except ConfigError as error:
        return Run(path, str(error))
    try:
        results = results_of(place, manifest, read_metrics(place))
    except (ConfigError, ValueError):
        return Run(path, "nothing was measured yet", manifest)
    return Run(path, verdict(results)[0], manifest, tuple(entry.shown for entry in results.entries))


def listing(directory: Path) -> str:
    """The list of runs as a page, with links to each run's page."""
    runs = runs_below(directory)
    columns = ["run", "who won", "when", "status", "requests that lost"]
    note = "Made anew at each visit. A run without a link has no page: memslot report RUN_DIR writes it."
    table = Block("Runs", columns=columns, rows=[_row(directory, run) for run in runs], note=note)
    title = f"{quantity(len(runs), 'runs')} in {directory.name or directory}"
    return Page(
        title=f"memslot: {directory.name}",
        verdict=[title if runs else f"{title}: nothing was played here yet."],
        blocks=[table] if runs else [],
    ).render()


def _row(directory: Path, run: Run) -> list[str]:
    page = run.path / REPORT_FILE
    has_page = (directory / page).is_file()

    def link(text: str, fragment: str = "") -> str:
        address = f"/runs/{quote(page.as_posix())}{fragment}"
        return Markup('<a href="{}">{}</a>').format(address, text) if has_page else text

    name = link(str(run.path) if run.path.parts else directory.name)
    if run.manifest is None:
        return [name, run.verdict, "–", "cannot be read", "–"]
    lost = Markup(", ").join(
        link(shown, f"#requests-{number}") for number, shown in enumerate(run.shown, start=1)
    )
    return [
        name, run.verdict, f"{run.manifest.created_at:%Y-%m-%d %H:%M}", run.manifest.status, lost or "–"
    ]  # fmt: skip


def page_of(directory: Path, path: str) -> str | None:
    """The page of a run, by its path relative to the directory; None for any other file."""
    if path not in {(run.path / REPORT_FILE).as_posix() for run in runs_below(directory)}:
        return None
    return (directory / path).read_text(encoding="utf-8")
