"""Requests one by one, with what was said, shown and judged: where cells kept the texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import escape

from memory.bench.engine.experiment import load_samples
from memory.bench.engine.files import read_lines
from memory.bench.report.page import Block
from memory.bench.report.results import Entry
from memory.bench.scores.records import ProbeRecord

INSTEAD = {
    "stale": "an older setting",
    "other": "the other context's",
    "decoy": "hearsay or a single case",
    "unknown": "some other setting",
    "nothing": "none",
}
"""What a reply shows in place of the setting in force, in words."""
_MAX_SHOWN = 500
_MAX_BYTES = 1_000_000
"""Of a page, for the requests of all providers together, so that it opens at once."""
_MAX_TEXT = 4_000
"""Characters of a section or a reply; a longer one stands there by its beginning and its end."""
Judged = tuple[int, str, ProbeRecord, Sequence[Mapping[str, Any]]]
"""How well it went, 0 being worst, the same in words, the record, and what was said."""


def request_blocks(entry: Entry, providers: int) -> Iterator[Block]:
    """A block of a provider's requests, those that lost first; none where no texts were kept.

    Raises:
        ConfigError: results or texts cannot be read.
    """
    if any((directory / "texts.jsonl").exists() for directory, _ in entry.cells):
        found = judged_requests(entry)
        details: list[tuple[str, str]] = []
        room = _MAX_BYTES // providers
        for _, verdict, record, said in found[: max(1, _MAX_SHOWN // providers)]:
            title, text = _detail(verdict, record, said)
            room -= len(escape(title + text).encode())
            if details and room < 0:
                break
            details.append((title, text))
        left = len(found) - len(details)
        note = f" {left:,} further ones are in the cells' texts.jsonl and results.jsonl." if left else ""
        yield Block(
            f"Request by request: {entry.shown}", details=details, note=f"Those that lost first.{note}"
        )


def judged_requests(entry: Entry) -> list[Judged]:
    """A provider's requests, those that lost first.

    Raises:
        ConfigError: results or texts cannot be read.
    """
    found: list[Judged] = []
    for directory, cell in entry.cells:
        kept: dict[str, list[Mapping[str, Any]]] = {}
        for row in read_lines(directory / "texts.jsonl"):
            kept.setdefault(str(row.get("probe_id")), []).append(row)
        for _, record, _ in load_samples(directory.parent.parent, [cell]):
            found.append((*_verdict(record), record, kept.get(record.probe_id, [])))
    return sorted(found, key=lambda item: item[0])


def _verdict(record: ProbeRecord) -> tuple[int, str]:
    if record.status == "missing":
        return 0, f"missing ({record.error})"
    if record.status == "failed":
        return 0, f"no memory ({record.error})"
    unready = ", memory not known to be ready" if record.status == "unready" else ""
    rank, words = _outcome(record)
    return rank, words + unready


def _outcome(record: ProbeRecord) -> tuple[int, str]:
    if record.judged and record.fit_first is None:
        return 0, "the judgement cannot be read"
    if record.judged:
        if record.fit_first:
            return 3, "suited"
        instead = f", showed {INSTEAD[record.first]}" if record.first in INSTEAD else ""
        later = f"; suited after {record.turns} replies" if record.fit_last else ""
        return (2 if record.fit_last else 1), f"did not suit{instead}{later}"
    if record.gold:
        found = record.found or 0
        return (3 if found == record.gold else 2 if found else 1), f"{found} of {record.gold} turns found"
    if record.wanted and not record.shows_current:
        return 1, "an old value alone" if record.shows_stale else "not shown"
    if record.wanted:
        named = (("an old value", record.shows_stale), ("the other context", record.shows_unlabelled))
        beside = [name for name, there in named if there]
        return (2, f"shown, beside {' and '.join(beside)}") if beside else (3, "shown")
    return 3, "not judged"


def _detail(verdict: str, record: ProbeRecord, said: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    asked = said[0].get("user") if said else None
    what = ", ".join(filter(None, (record.persona_id, record.attribute, record.category or record.kind)))
    title = f"{verdict}: {asked or record.probe_id} ({what}, after {record.after} sessions)"
    section = (said[0].get("context") if said else None) or "nothing"
    lines = [
        f"{name}: {_shortened(row[name])}" for row in said for name in ("user", "reply") if row.get(name)
    ]
    return title, "\n".join([*lines, "", "Shown to the first reply:", _shortened(section)]).strip()


def _shortened(text: str) -> str:
    left = len(text) - _MAX_TEXT
    if left <= 0:
        return text
    first, last = text[: _MAX_TEXT * 3 // 4], text[-_MAX_TEXT // 4 :]
    return f"{first}\n[{left:,} characters left out; texts.jsonl has all]\n{last}"
