"""The judged requests of ``results.jsonl`` (ids, counts and relations, never a text and never a time), and the
figures of ``metrics.json``. A share of nothing is null, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

Group = Literal["CS", "PET", "IQI", "over-personalisation", "questions", "retrieval"]
Better = Literal["higher", "lower"]
PartName = Literal["attribute", "category", "context", "persona"]


class Record(BaseModel):
    """What all records and settings share: frozen, no unknown fields, no input in errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class Estimate(Record):
    """A mean over requests, each averaged over its replicates first."""

    value: float | None
    """The mean; null where nothing could be counted, or where more than 2 % is missing."""
    n: int
    """Requests it is over, the missing ones aside."""
    clusters: int = 0
    """Personas these belong to."""
    low: float | None = None
    """Lower end of the 95 % interval by persona (see ``memory.bench.scores.intervals``); null with too few."""
    high: float | None = None
    """Upper end."""
    failed: int = 0
    """Of ``n``: the provider failed or refused them; they count as misses."""
    unready: int = 0
    """Of ``n``: asked while nobody knew that the memory was ready; they count as it behaved."""
    missing: int = 0
    """Not in ``n``: the harness broke."""
    worst: float | None = None
    """The mean if all that is missing had gone as badly as can be; null where nothing is."""
    best: float | None = None
    """The mean if all that failed, was unready or is missing had gone as well as can be; null where nothing did."""


class Difference(Record):
    """How much more one provider shows than another, on the requests that both have."""

    figure: str
    """What is compared."""
    first: str
    """Label of the one provider."""
    second: str
    """Label of the other."""
    value: float | None
    """The first one's share less the second one's; null without a request in common."""
    n: int
    """Requests in common."""
    clusters: int
    """Personas they belong to."""
    low: float | None
    """Lower end of the 95 % interval by persona; null with too few of them."""
    high: float | None
    """Upper end."""
    p: float | None = None
    """Two-sided p value by persona; of all but the primary comparison corrected by Holm's method."""
    primary: bool = False
    """Whether it is the one comparison that was chosen before anything was played."""


class Latency(Record):
    """How long it takes until something is noticed, as Kaplan and Meier estimate it; null where nobody knows."""

    median: float | None
    """Sessions until half have happened; null where fewer did while anybody looked."""
    n: int
    """What was waited for."""
    clusters: int
    """Personas."""
    censored: int
    """Of ``n``: had not happened when it was looked for last."""
    low: float | None = None
    """Lower end of the 95 % interval by persona."""
    high: float | None = None
    """Upper end; null where it may take longer than anybody looked."""


class Spread(Record):
    """A distribution; null where nothing was measured."""

    mean: float | None
    p50: float | None
    p95: float | None
    smallest: float | None = None
    largest: float | None = None


class Measure(Record):
    """One figure of one provider."""

    name: str
    """Which."""
    group: Group
    """What it belongs to."""
    better: Better
    """Which way is good."""
    estimate: Estimate
    """The share; null where nothing could be counted."""


class Part(Record):
    """A figure of a part of the requests."""

    figure: str
    """Which figure."""
    by: PartName
    """What the part shares."""
    label: str
    """Which."""
    estimate: Estimate
    """The share."""
    shown: dict[str, int]
    """First replies by what they showed; empty where nobody replies."""


class CurvePoint(Record):
    """The headline figure at one point."""

    at: int
    """Sessions ingested; or, after a change, sessions since then."""
    estimate: Estimate
    """The share, over all personas asked there."""


class ProviderMetrics(Record):
    """The figures of one provider with one setting."""

    label: str
    """Its name in the experiment."""
    shown: str
    """The same as tables show it: a control under another name, and what stands in for a model, are in it."""
    requests: int
    """Requests planned."""
    failed: int
    """The provider failed or refused them; they count as misses."""
    unready: int
    """Asked while nobody knew that the memory was ready; they count as it behaved."""
    missing: int
    """Not known, because the harness broke; bounds stand in their place."""
    unreadable: int
    """Whose judgement could not be read: missing in figures of replies."""
    leaks: int
    """Requests whose section shows a phrase of another persona. Anything but 0 is a broken isolation."""
    agreement: float | None
    """Mean share of a judge's votes that say the same; null where nothing was judged."""
    measures: tuple[Measure, ...]
    """The figures."""
    turns: Spread
    """Replies until a request was done or given up."""
    latency: Spread
    """Of the changes that were noticed: sessions from the change to the first request that shows it."""
    time_to_notice: Latency
    """The same of all changes, those that were never noticed among them."""
    detection_by_chance: float | None
    """Share of the changes that replies at random would notice, one of four settings at a time."""
    changes: int
    """Changes that were tested."""
    noticed: int
    """Changes that some request shows."""
    tokens: Spread
    """Tokens of the section, per first reply."""
    items: Spread
    """Entries of it."""
    first_relevant_tokens: Spread
    """Tokens of it up to the end of the first entry that tells what is asked for; of those that have one."""
    shortfall: Spread
    """By how much sections stayed below ``budget.min_tokens``; null without one."""
    cut: int
    """Sections that would have been longer without the budget."""
    parts: tuple[Part, ...]
    """The headline figures by attribute, by category, by context, by persona."""
    curve: tuple[CurvePoint, ...]
    """The first headline figure along the timeline."""
    after_change: tuple[CurvePoint, ...]
    """The same of what has changed, by sessions since the change."""
    shifts: tuple[int, ...]
    """After how many sessions preferences changed, over all personas."""


class Metrics(Record):
    """The figures of an experiment, as ``metrics.json`` holds them: no times, so a resumed run has the same."""

    format_version: Literal[2] = 2
    """Version of this form."""
    experiment_id: str
    """The experiment."""
    headlines: tuple[str, ...]
    """Figures that parts are given of; the first one decides."""
    providers: tuple[ProviderMetrics, ...]
    """In the order of the file."""
    differences: tuple[Difference, ...]
    """Of each figure, each provider against each before it, on the requests both have."""


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
