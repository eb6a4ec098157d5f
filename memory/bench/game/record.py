"""What a played cell keeps: one line for each beat that is judged, and the journal it resumes from."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal

from pydantic_core import to_json

from memory.bench.manifest import write_atomic
from memory.bench.timeline import BeatKind
from memory.contract.errors import ConfigError

JOURNAL_VERSION = 1
"""Counts up when a journal of before could not be continued."""

BeatStatus = Literal["scored", "not_ready", "unreadable", "failed"]
Shown = Literal["current", "stale", "other", "decoy", "unknown", "nothing"]
"""How a reply relates to the truth: the setting in force; one this cell had before; the other context's; hearsay
or a single case; any other; none."""


@dataclass(frozen=True, slots=True)
class BeatRecord:
    """One judged beat as ``results.jsonl`` keeps it: ids, counts and relations, never a text and never a time.

    Attributes:
        probe_id: ``<persona>:<test session>:<beat>``, unique within the cell.
        after: sessions ingested when it was played.
        status: only ``scored`` ones count.
        change, since: of the preference in force, as in :class:`memory.bench.timeline.PreferenceTruth`.
        has_stale, has_other: whether the cell had an earlier value; whether the other context's differs.
        first, last: what the first and the last reply showed; None where a judge that reads does not say.
        fit_first, fit_last: whether they suited.
        turns: replies it took.
        coherent: whether the session had shown the same before; None where this attribute was not met before.
        shows: whether the section held the setting in force, an older one, the other context's.
        relevant: of each item of the section, in its order, whether it tells the setting in force.
        gold, found: turns that tell it, and how many of them the section names by id; ``found`` is None where no
            item names a turn.
        tokens, shortfall: of the section of the first reply.
        readiness: the memory's state as the session began.
        votes, agreement: of the judge on the first reply.
        error: class name of the error that ended it, or None.
    """

    probe_id: str
    persona_id: str
    session_id: str
    beat_id: str
    kind: BeatKind
    after: int
    status: BeatStatus
    context: str | None = None
    attribute: str | None = None
    change: str | None = None
    since: int | None = None
    has_stale: bool = False
    has_other: bool = False
    first: Shown | None = None
    last: Shown | None = None
    fit_first: bool | None = None
    fit_last: bool | None = None
    turns: int = 0
    coherent: bool | None = None
    shows_current: bool | None = None
    shows_stale: bool | None = None
    shows_other: bool | None = None
    relevant: tuple[bool, ...] = ()
    gold: int = 0
    found: int | None = None
    tokens: int | None = None
    shortfall: int | None = None
    readiness: str = "not_offered"
    votes: int = 1
    agreement: float | None = None
    error: str | None = None

    @classmethod
    def load(cls, row: Mapping[str, Any]) -> BeatRecord:
        """From a line of ``results.jsonl``; fields this version does not know are left out."""
        given = {name: row[name] for name in _FIELDS if name in row}
        return cls(**{**given, "relevant": tuple(given.get("relevant", ()))})

    def row(self) -> dict[str, Any]:
        """As a line of ``results.jsonl``."""
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(field.name for field in fields(BeatRecord))


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a crash has left without its end, so that what is appended begins a line."""
    data = path.read_bytes() if path.exists() else b""
    if (end := data.rfind(b"\n") + 1) < len(data):
        os.truncate(path, end)


def json_lines(rows: Iterable[object]) -> bytes:
    """One JSON object a line."""
    return b"".join(to_json(row) + b"\n" for row in rows)


class AppendedLines:
    """A file to which JSON objects are appended, one a line and one ``write``.

    Args:
        path: the file; made when the first line is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            OSError: it could not be written whole.
        """
        if self._file is None:
            drop_torn_line(self.path)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        line = to_json(row) + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


class PlayJournal(AppendedLines):
    """The append-only journal of one cell: what has happened, in order, so that it is not done twice.

    A line is on its way to the disk before what follows it is begun. A last line torn by a crash is dropped when it
    is read.
    """

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is there.

        Raises:
            ConfigError: a line other than the last is damaged.
        """
        if not self.path.exists():
            return
        drop_torn_line(self.path)
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise ConfigError(
                    f"{self.path.name}, line {number}, is damaged; start the cell again in a new run"
                )
            yield row

    def add(self, kind: str, **row: Any) -> None:
        """Append one line.

        Raises:
            OSError: it could not be written whole.
        """
        self.append({"kind": kind, **row})

    def without_texts(self) -> None:
        """Write the file anew without what was said, once it is needed no more.

        Raises:
            OSError: it cannot be written.
        """
        self.close()
        kept = (
            {name: value for name, value in row.items() if name not in ("user", "reply", "texts")}
            for row in self.lines()
        )
        write_atomic(self.path, json_lines(kept))
