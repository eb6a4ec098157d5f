"""One judged request as ``results.jsonl`` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from memory.bench.data.timeline import BeatKind

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
        change, since: of the preference in force, as in :class:`memory.bench.data.timeline.PreferenceTruth`.
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
