"""The figures of an experiment, as ``metrics.json`` holds them. A share of nothing is null, never zero."""

from __future__ import annotations

from typing import Literal

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
