"""The parts of a report page, and their rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from memory.bench.engine.experiment import load_samples
from memory.bench.engine.files import each_line
from memory.bench.engine.manifest import Manifest
from memory.bench.report.results import Entry
from memory.bench.scores.figures import read_right
from memory.bench.scores.model import Difference, Estimate, ProbeRecord, Standing
from memory.contract._quantity import quantity


class Bar(NamedTuple):
    """One provider's share in a ranking. Without a value, the page draws no bar."""

    label: str
    estimate: Estimate
    colour: str
    group: Standing


class Line(NamedTuple):
    """One line of a curve. Dashes distinguish lines that coincide. Points are positions from 0 to 1."""

    label: str
    colour: str
    dashes: str
    points: tuple[tuple[float, float], ...]


class Curve(NamedTuple):
    """Shares over whole numbers, with a logarithmic x axis. A tick has a position from 0 to 1 and a label."""

    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A section: any of bars, a curve, a table and points, with a note below."""

    heading: str
    bars: Sequence[Bar] = ()
    curve: Curve | None = None
    columns: Sequence[str] = ()  # headings of the table; without them it is a list of facts
    rows: Sequence[Sequence[str]] = ()
    points: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()  # titles, each with a text that opens below it
    note: str = ""
    folded: bool = False  # whether the section starts closed
    anchor: str = ""  # fragment of the section's address
    groups: Sequence[str] = ()  # architecture, control or reference, for each row of the table


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page, about a run if it has a ``manifest``."""

    title: str
    verdict: Sequence[str]  # sentences on who won; the first one is the page's first line
    manifest: Manifest | None = None
    banner: str = ""
    lines: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    problems: Sequence[str] = ()
    quotes: bool = False  # whether it quotes texts

    def render(self) -> str:
        """The page as HTML, with all text escaped."""
        return _template().render(page=self, version=version("memslot"), quantity=quantity)


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.j2")


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def stacked(estimate: Estimate) -> str:
    """A share, with its interval and its number of requests on a second line."""
    if estimate.low is None or estimate.high is None:
        return f"{share(estimate.value)}\nof {estimate.n:,}"
    return f"{share(estimate.value)}\n{estimate.low:.0%} to {estimate.high:.0%}, of {estimate.n:,}"


def interval(estimate: Estimate | Difference) -> str:
    if estimate.low is None or estimate.high is None:
        return "–"
    sign = "+" if isinstance(estimate, Difference) else ""
    return f"{estimate.low:{sign}.1%} to {estimate.high:{sign}.1%}"


def spanned(estimate: Estimate) -> str:
    return share(estimate.value) + ("" if estimate.low is None else f" ({interval(estimate)})")


def counted(estimate: Estimate) -> str:
    """A share with its interval and its number of requests."""
    return f"{spanned(estimate)} of {estimate.n:,}"


def count(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


INSTEAD = {
    "stale": "an older setting",
    "other": "the other context's",
    "decoy": "hearsay or a single case",
    "unknown": "some other setting",
    "nothing": "none",
}
"""Words for what a reply shows instead of the setting in force."""
# Limits that let a page open quickly.
_MAX_SHOWN = 300  # requests, of all providers together
_MAX_TEXT = 4_000  # characters; the middle of a longer section or reply is left out
_WON = 3


class Judged(NamedTuple):
    """A request, with its rank (0 is worst), verdict in words, and rows of ``texts.jsonl``."""

    rank: int
    verdict: str
    record: ProbeRecord
    said: Sequence[Mapping[str, Any]]


def request_blocks(entries: Sequence[Entry]) -> Iterator[Block]:
    """One block of requests for each provider: all of them if texts were kept, otherwise the lost ones."""
    for number, entry in enumerate(entries, start=1):
        kept = any((directory / "texts.jsonl").exists() for directory, _ in entry.cells)
        listed = [item for item in judged_requests(entry) if kept or item.rank < _WON]
        shown = listed[: max(1, _MAX_SHOWN // len(entries))]
        note = "Those that lost first." + ("" if kept else " Texts were not kept (keep_texts).")
        if left := len(listed) - len(shown):
            note += f" {left:,} further ones are in the cells' results.jsonl."
        heading, anchor = f"Requests of {entry.shown}", f"requests-{number}"
        yield Block(heading, details=[_detail(item) for item in shown], note=note, folded=True, anchor=anchor)


def judged_requests(entry: Entry) -> list[Judged]:
    """A provider's requests, worst first."""
    found: list[Judged] = []
    for directory, cell in entry.cells:
        kept: dict[str, list[Mapping[str, Any]]] = {}
        for row in each_line(directory / "texts.jsonl"):
            kept.setdefault(str(row.get("probe_id")), []).append(row)
        for _, record, _ in load_samples(directory.parent.parent, [cell]):
            rank, verdict = _outcome(record)
            if record.status == "unready":
                verdict += ", memory not known to be ready"
            found.append(Judged(rank, verdict, record, kept.get(record.probe_id, [])))
    return sorted(found, key=lambda item: item.rank)


def _outcome(record: ProbeRecord) -> tuple[int, str]:
    if not record.answered:
        return 0, f"{'missing' if record.status == 'missing' else 'no memory'} ({record.error})"
    if record.judged:
        if record.fit_first is None:
            return 0, "the judgement cannot be read"
        if record.fit_first:
            return _WON, "suited"
        instead = f", showed {INSTEAD[record.first]}" if record.first in INSTEAD else ""
        later = f"; suited after {record.turns} replies" if record.fit_last else ""
        return (2 if record.fit_last else 1), f"did not suit{instead}{later}"
    if record.read:
        rank = _WON if record.exact else 2 if record.answer_f1 else 1
        return rank, f"answer F1 {share(record.answer_f1)}"
    if record.gold:
        rank = _WON if record.found == record.gold else 2 if record.found else 1
        return rank, f"{record.found or 0} of {record.gold} turns found"
    if record.wanted:
        if read_right(record):
            return _WON, "read right"
        instead = INSTEAD.get(record.taken or "", "a setting beside others that the user never had")
        return (2 if record.shows_current else 1), f"read as {instead}"
    return _WON, "not judged"


def _detail(item: Judged) -> tuple[str, str]:
    """A request's title and its text."""
    record, said = item.record, item.said
    asked = said[0].get("user") if said else None
    what = ", ".join(filter(None, (record.persona_id, record.attribute, record.category or record.kind)))
    title = f"{item.verdict}: {asked or record.probe_id} ({what}, after {record.after} sessions)"
    if not said:
        return title, f"probe {record.probe_id}, memory {record.readiness}, {record.error or 'no error'}"
    spoken = ((name, row.get(name)) for row in said for name in ("user", "reply"))
    lines = [f"{name}: {_shortened(text)}" for name, text in spoken if text]
    lines += ["", "Shown to the first reply:", _shortened(said[0].get("context") or "nothing")]
    return title, "\n".join(lines).strip()


def _shortened(text: str) -> str:
    left = len(text) - _MAX_TEXT
    if left <= 0:
        return text
    first, last = text[: _MAX_TEXT * 3 // 4], text[-_MAX_TEXT // 4 :]
    return f"{first}\n[{left:,} characters left out; texts.jsonl has all]\n{last}"
