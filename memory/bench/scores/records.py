"""One judged request as ``results.jsonl`` keeps it: ids, counts and relations, never a text and never a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

ProbeStatus = Literal["scored", "unready", "failed", "missing"]
"""``scored``: the memory was ready. ``unready``: nobody knew that it was, after the wait; it counts as it behaved.
``failed``: the provider failed or refused the request; a miss. ``missing``: the harness broke; bounds instead."""
Shown = Literal["current", "stale", "other", "decoy", "unknown", "nothing"]
"""How a reply relates to the truth: the setting in force; one this cell had before; the other context's; hearsay
or a single case; any other; none."""


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """A request of a test session, or a question to the memory. Every planned one has a record.

    Attributes:
        probe_id: unique within the cell; a request's is ``<persona>:<test session>:<beat>``.
        kind: of the beat (see :data:`memory.bench.data.timeline.BeatKind`), or ``question``.
        category: for tables: of a data set's questions, or the kind.
        after: sessions ingested when it was asked.
        judged: whether a reply to it is judged; nobody replies where the memory alone is asked.
        wanted: whether a preference is in force here that the section should show.
        repeated: whether its session asked for this attribute before.
        cross_context: whether it asked across contexts, so that no CS field was filtered by.
        change, since: of the preference in force, as in :class:`memory.bench.data.timeline.PreferenceTruth`.
        has_stale, has_other: whether the cell had an earlier value; whether the other context's differs.
        first, last: what the first and the last reply showed; None where a judge that reads does not say.
        fit_first, fit_last: whether they suited; None of a judged request: the judgement could not be read.
        turns: replies it took.
        coherent: whether the session had shown the same before; None where this attribute was not met before.
        shows_current, shows_stale, shows_other, shows_decoy: whether the section holds such a setting.
        shows_unlabelled: whether it holds the other context's in an entry that does not name that context.
        leaks: whether it holds a phrase of another persona.
        gold, unresolved: turns that hold the answer; ids of the data that name no turn.
        found: of ``gold``, those whose words stand in the section.
        overlapping: of ``gold``, those with which a sentence of the section shares its words.
        claimed: of ``gold``, those that entries of the section name by id; None where no entry names any.
        relevant_tokens: of the section, those of entries that hold evidence, or the setting in force.
        first_relevant_tokens: up to the end of the first such entry; None without one.
        items, retrieved, left_out: entries shown; native records returned; those the budget had no room for.
        tokens, shortfall: of the section of the first reply.
        readiness: the memory's state as the session began.
        votes, agreement: of the judge on the first reply.
        error: class name of the error that ended it, or None.
    """

    probe_id: str
    persona_id: str
    session_id: str
    kind: str
    after: int
    status: ProbeStatus = "scored"
    category: str | None = None
    context: str | None = None
    attribute: str | None = None
    judged: bool = True
    wanted: bool = False
    repeated: bool = False
    cross_context: bool = False
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
    shows_unlabelled: bool | None = None
    shows_decoy: bool | None = None
    leaks: bool | None = None
    gold: int = 0
    unresolved: int = 0
    found: int | None = None
    overlapping: int | None = None
    claimed: int | None = None
    relevant_tokens: int | None = None
    first_relevant_tokens: int | None = None
    items: int | None = None
    retrieved: int | None = None
    left_out: int | None = None
    tokens: int | None = None
    shortfall: int | None = None
    readiness: str = "not_offered"
    votes: int = 1
    agreement: float | None = None
    error: str | None = None

    @classmethod
    def load(cls, row: Mapping[str, Any]) -> ProbeRecord:
        """From a line of ``results.jsonl``; fields this version does not know are left out."""
        return cls(**{name: row[name] for name in _FIELDS if name in row})

    def row(self) -> dict[str, Any]:
        """As a line of ``results.jsonl``."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def answered(self) -> bool:
        """Whether the memory answered."""
        return self.status in ("scored", "unready")

    @property
    def of_memory(self) -> bool:
        """Whether it tells of the memory. What was met before in its session tells of the assistant."""
        return self.kind != "neutral" and not self.repeated


_FIELDS = tuple(field.name for field in fields(ProbeRecord))
OF_SECTION = ("shows_current", "shows_stale", "shows_other", "shows_unlabelled", "shows_decoy", "leaks", "found",
              "overlapping", "claimed", "relevant_tokens", "first_relevant_tokens")  # fmt: skip
"""What the section decides alone, whoever replies and judges."""


class Sample(NamedTuple):
    """A record, and whose it is: ``cluster`` is one persona of one seed, ``replicate`` which time it was played."""

    cluster: str
    record: ProbeRecord
    replicate: int = 1
