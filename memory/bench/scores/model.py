"""The records of ``results.jsonl`` and the figures of ``metrics.json``.

Records hold ids, counts and relations, never texts or times. A share without requests is null, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

Group = Literal["CS", "PET", "IQI", "over-personalisation", "questions", "retrieval"]
Better = Literal["higher", "lower"]
Standing = Literal["architecture", "control", "reference"]
"""The part of a provider in a comparison. The references are the floor, which shows nothing, and the ceiling,
which shows the truth."""


class Record(BaseModel):
    """The base of all records and settings: frozen, no unknown fields, no input in error messages."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class Estimate(Record):
    """A mean over requests. Each request is averaged over its replicates first."""

    value: float | None  # the mean; null without requests, or if more than 2 % are missing
    n: int  # number of requests, without the missing ones
    clusters: int = 0  # personas of these requests
    low: float | None = None  # lower end of the 95 % interval by persona; null if none is given
    high: float | None = None  # upper end
    failed: int = 0  # of n: the provider failed or refused the request, which counts as a miss
    unready: int = 0  # of n: asked before the memory was known to be ready; the answer counts
    missing: int = 0  # not in n: the harness failed, or the judgement cannot be read
    worst: float | None = None  # the mean if each missing request had the worst value; null without any
    best: float | None = None  # the mean if each failed, unready or missing request had the best value


class Difference(Record):
    """The difference of a figure between two providers, over the requests that both have."""

    figure: str
    first: str  # label of a provider
    second: str
    value: float | None  # mean of the first minus the second; null without a common request
    n: int  # common requests
    clusters: int  # personas of these requests
    low: float | None  # lower end of the 95 % interval by persona, corrected for the family; null with few
    high: float | None  # upper end
    p: float | None = None  # two-sided, corrected for the family; below 0.05 if the interval excludes 0
    family: int = 1  # number of comparisons made together


class Measure(Record):
    """One figure of one provider."""

    name: str
    estimate: Estimate
    again: float | None = None  # second share minus the first; null if nothing was asked a second time


class Part(Record):
    """A headline figure over the requests of one category."""

    figure: str
    label: str
    estimate: Estimate


class ProviderMetrics(Record):
    """The figures of one provider with one setting."""

    label: str
    shown: str  # the label in tables, with the equivalent control and any stand-in for a model
    requests: int  # planned
    failed: int  # the provider failed or refused the request, which counts as a miss
    unready: int  # asked before the memory was known to be ready; the answer counts
    missing: int  # unknown because the harness failed; bounds stand in their place
    unreadable: int  # the judgement cannot be read; missing in figures of replies
    leaks: int  # sections with a phrase of another persona; isolation is broken unless it is 0
    measures: tuple[Measure, ...]
    tokens: float | None  # mean tokens of the section, per first reply; null without an answer
    cut: int  # sections that the budget shortened
    parts: tuple[Part, ...]  # headline figures by category


class Metrics(Record):
    """The content of ``metrics.json``. It holds no times, so that a resumed run has the same figures."""

    experiment_id: str
    headlines: tuple[str, ...]  # figures that ``parts`` break down; the first one decides
    chance: float | None  # the share that guessing reaches in the first one; null if nothing can be guessed
    providers: tuple[ProviderMetrics, ...]  # in the order of the file
    differences: tuple[Difference, ...]  # one family of comparisons, in the first headline


ProbeStatus = Literal["scored", "unready", "failed", "missing"]
"""``scored``: the memory was ready. ``unready``: it was not known to be ready after the wait; its answer
counts. ``failed``: the provider failed or refused the request, which counts as a miss. ``missing``: the
harness failed; bounds stand in its place."""
Shown = Literal["current", "stale", "other", "decoy", "unknown", "nothing"]
"""How a reply relates to the truth. ``current``: the setting in force. ``stale``: an earlier one of this
cell. ``other``: one of the other context. ``decoy``: hearsay or a single case. ``unknown``: any other
setting. ``nothing``: no setting."""


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """A request of a test session, or a question to the memory. Each planned one has a record."""

    probe_id: str  # unique within the cell; of a request: <persona>:<test session>:<beat>
    persona_id: str
    session_id: str
    kind: str  # a memory.bench.data.timeline.BeatKind, or "question"
    after: int  # number of sessions ingested before it
    status: ProbeStatus = "scored"
    category: str | None = None  # of a question; None in test sessions
    context: str | None = None
    attribute: str | None = None
    judged: bool = True  # whether a reply to it is judged; False if only the memory is asked
    wanted: bool = False  # whether a preference is in force that the section should show
    repeated: bool = False  # whether its session asked for this attribute before
    cross_context: bool = False  # asked across contexts, so without a filter by CS fields
    change: str | None = None  # change and since: see memory.bench.data.timeline.PreferenceTruth
    since: int | None = None
    has_stale: bool = False  # whether the cell had an earlier value
    has_other: bool = False  # whether the other context has or had another value
    first: Shown | None = None  # what the first reply showed; None without a reply, or for an answer in words
    last: Shown | None = None
    fit_first: bool | None = None  # whether it suits; None of a judged one: the judgement cannot be read
    fit_last: bool | None = None
    turns: int = 0  # number of replies
    coherent: bool | None = None  # whether its session showed the same before; None for a new attribute
    shows_current: bool | None = None  # this and the next four: whether the section holds such a setting
    shows_stale: bool | None = None
    shows_other: bool | None = None
    shows_unlabelled: bool | None = None  # the other context's, in an entry that does not name that context
    shows_unknown: bool | None = None  # a setting of the attribute that never came up for this user
    taken: Shown | None = None  # the setting that the fixed reader takes from the section
    choices: int | None = None  # number of settings or given answers to guess from
    leaks: bool | None = None  # whether the section holds a phrase of another persona
    read: bool = False  # whether a reader answers it in words that can be scored
    has_answer: bool = False  # whether the data has an answer in words
    answer_f1: float | None = None  # token F1; of an unanswerable question 1 if the reply says so
    exact: bool | None = None  # exact match
    answer_shown: float | None = None  # IDF-weighted share of the answer's words in the section
    nonsense_shown: float | None = None  # the same share for as many of the most frequent words
    gold: int = 0  # number of turns that hold the answer
    unresolved: int = 0  # gold ids in the data that name no turn
    found: int | None = None  # gold turns whose text stands in the section
    ranks: list[int] | None = None  # rank of the entry of each found turn, from 1
    items: int | None = None  # entries shown
    retrieved: int | None = None  # native records returned
    left_out: int | None = None  # records for which the budget had no room
    tokens: int | None = None  # of the section of the first reply
    shortfall: int | None = None  # tokens below ``budget.min_tokens``
    readiness: str = "not_offered"  # of the memory at the start of the session
    votes: int = 1  # of the judge on the first reply
    agreement: float | None = None  # share of these votes that agree
    error: str | None = None  # class name of the error that ended the request

    @classmethod
    def load(cls, row: Mapping[str, Any]) -> ProbeRecord:
        """Build a record from a line of ``results.jsonl``. Unknown fields are ignored."""
        return cls(**{name: row[name] for name in _FIELDS if name in row})

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def answered(self) -> bool:
        """Whether the memory answered."""
        return self.status in ("scored", "unready")

    @property
    def of_memory(self) -> bool:
        """Whether it tests the memory: it is neither neutral nor a repetition, which tests the assistant."""
        return self.kind != "neutral" and not self.repeated


_FIELDS = tuple(field.name for field in fields(ProbeRecord))


class Sample(NamedTuple):
    """A record with its ``cluster`` (one persona of one seed) and its ``replicate`` (from 1)."""

    cluster: str
    record: ProbeRecord
    replicate: int = 1
