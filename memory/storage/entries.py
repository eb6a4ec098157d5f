"""Entries of the outbox: how they are read, listed, tried again and forgotten."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from memory.contract._quantity import quantity
from memory.storage.insert import OUTBOX_TABLES, OUTBOX_VERSION
from memory.storage.store import Store, digest_of
from memory.storage.tables import Tables

OUTBOX = Tables("outbox", OUTBOX_VERSION, OUTBOX_TABLES)
OPEN = ("waiting", "unknown")
IS_OPEN = "state IN ('waiting', 'unknown')"
IN_LANE = "kind = ? AND destination = ? AND scope = ?"
LONGEST_PAUSE_S = 60.0
LATE_S = 60.0
_PAGE = 200
NO_ANSWER, UNREADABLE = "NoAnswer", "Unreadable"

# A hook's prompt without attempts still waits for the assistant's answer, and not for its destination.
_IS_DUE = "(kind != 'hook' OR attempts > 0)"


class Lane(NamedTuple):
    """The unit of ordered delivery: a destination, and a scope as :func:`~memory.storage.store.scope_key`."""

    destination: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the outbox.

    Attributes:
        seq: the number that users see; it increases within a lane.
        payload: JSON text.
        state: ``waiting``, ``unknown`` (sent without an answer), ``aside``, ``reset``, or the result.
        sent: whether an earlier attempt may have arrived.
        attempts: failed or unanswered attempts so far.
        next_try: seconds since the epoch; its lane sends nothing before that time.
        error: class of the last failure.
        outcome: the destination's answer as JSON text.
        recorded_at: UTC, ISO 8601.
        readable: whether the payload is unchanged.
    """

    seq: int
    kind: str
    destination: str
    scope: str
    persona: str
    key: str
    payload: str
    state: str
    sent: bool
    attempts: int
    next_try: float
    error: str | None
    outcome: str | None
    recorded_at: str
    readable: bool

    @classmethod
    def of(cls, row: Sequence[Any]) -> Entry:
        """The entry in a row of ``_COLUMNS``."""
        values = dict(zip(_COLUMNS, row, strict=True))
        digest = values.pop("digest")
        values["sent"] = bool(values["sent"])
        return cls(**values, readable=digest is None or digest_of(values["payload"]) == digest)

    @property
    def due(self) -> bool:
        """Whether it may be sent now. A time beyond the longest pause means that the clock was set back."""
        return not 0 < self.next_try - time.time() <= LONGEST_PAUSE_S


_COLUMNS = (*(field.name for field in fields(Entry) if field.name != "readable"), "digest")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an attempt.

    Attributes:
        state: ``waiting`` (certainly not stored, so sent again after a pause), ``unknown`` (no answer),
            ``aside`` (refused for good), ``held`` (not attempted), or the result, such as ``committed``.
        why: the reason, for those who wait behind the entry.
        error: class of the failure.
        outcome: JSON text to keep.
    """

    state: str
    why: str = ""
    error: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """The problems of an outbox, for health."""

    aside: int = 0  # entries that were set aside
    first_aside: int | None = None  # the number of the first such entry
    late: int = 0  # entries that have waited for more than a minute

    def warnings(self) -> list[str]:
        """One sentence for each problem, with the remedy."""
        found = []
        if self.aside:
            found.append(
                f"{quantity(self.aside, 'entries are', 'entry is')} set aside (the first is number "
                f"{self.first_aside}): look at 'memslot journal list', then retry or forget it by 'memslot journal'"
            )
        if self.late:
            found.append(
                f"{quantity(self.late, 'entries have', 'entry has')} waited for more than {LATE_S:g} s; "
                "bring the destination back"
            )
        return found


def read_entries(db: Any, where: str, values: Sequence[Any] = ()) -> list[Entry]:
    """The entries that meet a condition; part of a call of the store."""
    found = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM outbox WHERE {where}", values).fetchall()
    return [Entry.of(row) for row in found]


def trouble_of(db: Any, kind: str | None = None, lane: Lane | None = None) -> Trouble:
    """The problems of one kind of entries, of one lane, or of all; part of a call of the store."""
    whose = "" if kind is None else " AND kind = ?"
    values = () if kind is None else (kind,)
    if lane is not None:
        whose += " AND destination = ? AND scope = ?"
        values = (*values, *lane)
    aside, first = db.execute(
        f"SELECT count(*), min(seq) FROM outbox WHERE state = 'aside'{whose}", values
    ).fetchone()
    long_ago = (datetime.now(UTC) - timedelta(seconds=LATE_S)).isoformat(timespec="milliseconds")
    [late] = db.execute(
        f"SELECT count(*) FROM outbox WHERE {IS_OPEN}{whose} AND recorded_at < ? AND {_IS_DUE}",
        (*values, long_ago.replace("+00:00", "Z")),
    ).fetchone()
    return Trouble(aside, first, late)


def list_entries(store: Store, where: str = "seq > 0", values: tuple[Any, ...] = ()) -> Iterator[Entry]:
    """The entries that meet a condition, in the order of their numbers, read in pages. Blocks."""
    where, after = f"{where} AND seq > ? ORDER BY seq LIMIT ?", 0
    while True:
        given = (*values, after, _PAGE)
        page = store.call(lambda db: read_entries(db, where, given), writes=False)  # noqa: B023
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].seq


def retry_entries(store: Store, numbers: Collection[int] = ()) -> list[int]:
    """Let entries that were set aside wait again: the named ones, or all. Returns their numbers. Blocks."""
    chosen = f" AND seq IN ({', '.join('?' * len(numbers))})" if numbers else ""
    again = (
        "UPDATE outbox SET state = 'waiting', attempts = 0, next_try = 0 "
        f"WHERE state = 'aside'{chosen} RETURNING seq"
    )
    found = store.call(lambda db: db.execute(again, tuple(numbers)).fetchall())
    return sorted(seq for (seq,) in found)


def forget_entries(store: Store, numbers: Collection[int]) -> list[int]:
    """Remove entries from the disk for good, whatever their state. Returns the removed numbers. Blocks."""
    erase = "DELETE FROM outbox WHERE seq = ?"
    gone = store.call(lambda db: [seq for seq in numbers if db.execute(erase, (seq,)).rowcount])
    store.fold()
    return gone
