"""The judged requests of ``results.jsonl`` (ids, counts and relations, never a text and never a time), and the
figures of ``metrics.json``. A share of nothing is null, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

Group = Literal["CS", "PET", "IQI", "over-personalisation", "questions", "retrieval"]
Better = Literal["higher", "lower"]
Standing = Literal["architecture", "control", "reference"]
"""What a provider is in a comparison. References are the floor, which shows nothing, and the ceiling, the truth."""


class Record(BaseModel):
    """What all records and settings share: frozen, no unknown fields, no input in errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class Estimate(Record):
    """A mean over requests, each averaged over its replicates first."""

    value: float | None  # the mean; null where nothing could be counted, or where more than 2 % is missing
    n: int  # requests it is over, the missing ones aside
    clusters: int = 0  # personas these belong to
    low: float | None = None  # end of the 95 % interval by persona (see intervals); null with too few
    high: float | None = None
    failed: int = 0  # of n: the provider failed or refused them; they count as misses
    unready: int = 0  # of n: asked while nobody knew that the memory was ready; they count as it behaved
    missing: int = 0  # not in n: the harness broke
    worst: float | None = None  # if all that is missing had gone as badly as can be; null where nothing is
    best: float | None = None  # if all that failed, was unready or is missing had gone as well as can be


class Difference(Record):
    """How much more one provider shows than another, on the requests that both have."""

    figure: str
    first: str  # label of a provider
    second: str
    value: float | None  # the first one's share less the second one's; null without a request in common
    n: int  # requests in common
    clusters: int  # personas they belong to
    low: (
        float | None
    )  # end of the 95 % interval by persona, corrected for the family; null with too few personas
    high: float | None
    p: float | None = (
        None  # two-sided, by persona, corrected for the family; below 0.05 where the interval lacks 0
    )
    family: int = 1  # comparisons that are made together


class Latency(Record):
    """How long it takes until something is noticed, as Kaplan and Meier estimate it."""

    median: float | None  # sessions until half have happened; null where fewer did while anybody looked
    n: int  # what was waited for
    censored: int  # of n: had not happened when it was looked for last


class Spread(Record):
    """A distribution; null where nothing was measured."""

    mean: float | None
    p50: float | None
    p95: float | None


class Measure(Record):
    """One figure of one provider."""

    name: str
    group: Group  # what it belongs to
    better: Better  # which way is good
    estimate: Estimate  # the share; null where nothing could be counted
    again: float | None = (
        None  # the share of the second time less this one; null where nothing was asked again
    )


class Part(Record):
    """A headline figure over the requests of one category."""

    figure: str
    label: str
    estimate: Estimate


class ProviderMetrics(Record):
    """The figures of one provider with one setting."""

    label: str
    shown: str  # the same as tables show it, with the control's own name and what stands in for a model
    requests: int  # planned
    failed: int  # the provider failed or refused them; they count as misses
    unready: int  # asked while nobody knew that the memory was ready; they count as it behaved
    missing: int  # not known, because the harness broke; bounds stand in their place
    unreadable: int  # whose judgement could not be read: missing in figures of replies
    leaks: int  # whose section shows a phrase of another persona: anything but 0 is a broken isolation
    agreement: float | None  # mean share of a judge's votes that say the same; null where nothing was judged
    measures: tuple[Measure, ...]  # the figures
    latency: Latency  # sessions from a change to the first request that shows it
    detection_by_chance: float | None  # share of changes that replies at random, one of four, would notice
    changes: int  # changes that were tested
    noticed: int  # changes that some request shows
    tokens: Spread  # tokens of the section, per first reply
    cut: int  # sections that would have been longer without the budget
    parts: tuple[Part, ...]  # the headline figures by category


class Metrics(Record):
    """The figures of an experiment, as ``metrics.json`` holds them: no times, so a resumed run has the same."""

    experiment_id: str
    headlines: tuple[str, ...]  # figures that parts are given of; the first one decides
    chance: float | None  # what guessing reaches in the first one; null where nothing can be guessed
    providers: tuple[ProviderMetrics, ...]  # in the order of the file
    differences: tuple[
        Difference, ...
    ]  # the one family: architectures against controls, in the first headline


ProbeStatus = Literal["scored", "unready", "failed", "missing"]
"""``scored``: the memory was ready. ``unready``: nobody knew that it was, after the wait; it counts as it behaved.
``failed``: the provider failed or refused the request; a miss. ``missing``: the harness broke; bounds instead."""
Shown = Literal["current", "stale", "other", "decoy", "unknown", "nothing"]
"""How a reply relates to the truth: the setting in force; one this cell had before; the other context's; hearsay
or a single case; any other; none."""


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """A request of a test session, or a question to the memory. Every planned one has a record."""

    probe_id: str  # unique within the cell; a request's is <persona>:<test session>:<beat>
    persona_id: str
    session_id: str
    kind: str  # of the beat (see memory.bench.data.timeline.BeatKind), or "question"
    after: int  # sessions ingested when it was asked
    status: ProbeStatus = "scored"
    category: str | None = None  # for tables: of a data set's questions, or the kind
    context: str | None = None
    attribute: str | None = None
    judged: bool = True  # whether a reply to it is judged; nobody replies where the memory alone is asked
    wanted: bool = False  # whether a preference is in force here that the section should show
    repeated: bool = False  # whether its session asked for this attribute before
    cross_context: bool = False  # asked across contexts, so that no CS field was filtered by
    change: str | None = None  # this and since: as in memory.bench.data.timeline.PreferenceTruth
    since: int | None = None
    has_stale: bool = False  # whether the cell had an earlier value
    has_other: bool = False  # whether the other context's differs
    first: Shown | None = None  # what the first reply showed; None where a judge that reads does not say
    last: Shown | None = None
    fit_first: bool | None = None  # whether it suited; None of a judged request: the judgement cannot be read
    fit_last: bool | None = None
    turns: int = 0  # replies it took
    coherent: bool | None = None  # its session had shown the same before; None: attribute not met before
    shows_current: bool | None = None  # whether the section holds such a setting
    shows_stale: bool | None = None
    shows_other: bool | None = None
    shows_unlabelled: bool | None = None  # the other context's in an entry that does not name that context
    shows_unknown: bool | None = None  # a setting of the attribute that this user never had or heard of
    taken: Shown | None = None  # the setting that a fixed reader takes from the section
    choices: int | None = None  # settings or given answers of which a guess would take one
    leaks: bool | None = None  # whether it holds a phrase of another persona
    read: bool = False  # whether a reader answers it in its own words, and a right answer is known
    has_answer: bool = False  # whether the data gives an answer in words
    answer_f1: float | None = None  # token F1 of the reply; of a question without an answer 1 for saying so
    exact: bool | None = None  # whether the reply is the answer, word by word
    answer_shown: float | None = None  # share of the answer's words in the section, rare ones weighing more
    nonsense_shown: float | None = None  # the same of as many words, the most frequent ones
    gold: int = 0  # turns that hold the answer
    unresolved: int = 0  # ids of the data that name no turn
    found: int | None = None  # of gold, those whose words stand in the section
    ranks: list[int] | None = None  # of each that was found the place of its entry in the section, from 1
    items: int | None = None  # entries shown
    retrieved: int | None = None  # native records returned
    left_out: int | None = None  # those the budget had no room for
    tokens: int | None = None  # this and shortfall: of the section of the first reply
    shortfall: int | None = None
    readiness: str = "not_offered"  # the memory's state as the session began
    votes: int = 1  # this and agreement: of the judge on the first reply
    agreement: float | None = None
    error: str | None = None  # class name of the error that ended it

    @classmethod
    def load(cls, row: Mapping[str, Any]) -> ProbeRecord:
        """From a line of ``results.jsonl``; fields this version does not know are left out."""
        return cls(**{name: row[name] for name in _FIELDS if name in row})

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def answered(self) -> bool:
        """Whether the memory answered."""
        return self.status in ("scored", "unready")

    @property
    def of_memory(self) -> bool:
        """Whether it tells of the memory. A repeated request tells about the assistant."""
        return self.kind != "neutral" and not self.repeated


_FIELDS = tuple(field.name for field in fields(ProbeRecord))
# Fields that the section alone decides.
OF_SECTION = ("shows_current", "shows_stale", "shows_other", "shows_unlabelled", "shows_unknown", "taken",
              "choices", "leaks", "found", "ranks", "answer_shown", "nonsense_shown")  # fmt: skip


class Sample(NamedTuple):
    """A record, and whose it is: ``cluster`` is one persona of one seed, ``replicate`` which time it was played."""

    cluster: str
    record: ProbeRecord
    replicate: int = 1
