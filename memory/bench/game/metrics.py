"""From judged beats to figures: what users would say of an assistant with this memory.

The eight figures are those of MemPABench, each one complaint of a user, in its three groups: CS (context
sensitivity), PET (preference evolution tracking), IQI (interaction quality); over-personalisation stands beside
them. How MemPABench computes its own was not public in detail when this was written: the definitions are below, and
figures of the two do not compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict

from memory.bench.figures import Difference, Estimate, Spread
from memory.bench.game.record import BeatRecord
from memory.bench.intervals import difference, estimate
from memory.bench.metrics import percentile

__all__ = [
    "Curve",
    "GameMetrics",
    "Group",
    "Measure",
    "Scored",
    "VariantMetrics",
    "game_metrics",
    "variant_metrics",
]

Group = Literal["CS", "PET", "IQI", "over-personalisation", "retrieval"]
Scored = tuple[str, BeatRecord]
"""A cluster (one persona of one seed) and a beat."""


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Measure(_Figures):
    """One figure of one provider."""

    name: str
    """Which."""
    group: Group
    """What it belongs to."""
    better: Literal["higher", "lower"]
    """Which way is good."""
    estimate: Estimate
    """The share; null where nothing could be counted."""


class Row(_Figures):
    """Style fit of a part of the beats."""

    by: Literal["attribute", "kind", "context", "persona"]
    """What the part shares."""
    label: str
    """Which."""
    fit: Estimate
    """Share of first replies that suit."""
    shown: dict[str, int]
    """First replies by what they showed."""


class Curve(_Figures):
    """Style fit at one insertion point."""

    after: int
    """Sessions ingested."""
    fit: Estimate
    """Share of first replies that suit, over all personas tested there."""


class VariantMetrics(_Figures):
    """The figures of one provider with one setting."""

    label: str
    """Its name in the experiment."""
    shown: str
    """The same as tables show it: a control under another name, and what stands in for a model, are in it."""
    beats: int
    """Beats judged."""
    scored: int
    """Those that count."""
    not_ready: int
    """Played while the memory could not say that it is ready; not counted."""
    failed: int
    """Whose retrieval failed; not counted."""
    unreadable: int
    """Whose judgement could not be read; not counted."""
    agreement: float | None
    """Mean share of a judge's votes that say the same; null where nothing was judged."""
    measures: tuple[Measure, ...]
    """The figures."""
    turns: Spread
    """Replies until a request was done or given up."""
    latency: Spread
    """Of the changes that were noticed: sessions from the change to the first test that shows it."""
    changes: int
    """Changes that were tested."""
    noticed: int
    """Changes that some test shows."""
    tokens: Spread
    """Tokens of the section, per first reply."""
    shortfall: Spread
    """By how much sections stayed below ``budget.min_tokens``; null without one."""
    rows: tuple[Row, ...]
    """Style fit by attribute, by kind of request, by context, by persona."""
    curve: tuple[Curve, ...]
    """Style fit along the timeline."""
    shifts: tuple[int, ...]
    """After how many sessions preferences changed, over all personas."""


class GameMetrics(_Figures):
    """The figures of an experiment, as ``metrics.json`` holds them: no times, so a resumed run has the same."""

    format_version: Literal[1] = 1
    """Version of this form."""
    experiment_id: str
    """The experiment."""
    variants: tuple[VariantMetrics, ...]
    """In the order of the file."""
    differences: tuple[Difference, ...]
    """Each provider against each before it, on the beats both are scored on."""


def _tell(values: Iterable[tuple[str, float | bool]]) -> Estimate:
    return estimate((cluster, float(value)) for cluster, value in values)


def _spread(values: Iterable[float | int | None]) -> Spread:
    found = [float(value) for value in values if value is not None]
    mean = fmean(found) if found else None
    return Spread(mean=mean, p50=percentile(found, 0.5), p95=percentile(found, 0.95))


def variant_metrics(label: str, beats: Sequence[Scored], shown: str | None = None) -> VariantMetrics:
    """The figures of one provider.

    Args:
        label: its name.
        shown: the same as tables are to show it.
        beats: of all its cells.
    """
    scored = [(cluster, one) for cluster, one in beats if one.status == "scored"]
    own = _own(scored)
    latencies, later, changes, shifts = _changes(own)
    judged = [one.agreement for _, one in scored if one.agreement is not None]
    return VariantMetrics(
        label=label,
        shown=shown or label,
        beats=len(beats),
        scored=len(scored),
        **{
            status: sum(one.status == status for _, one in beats)
            for status in ("not_ready", "failed", "unreadable")
        },
        agreement=fmean(judged) if judged else None,
        measures=(*_context(own), *_evolution(later, latencies), *_interaction(scored), *_retrieval(own)),
        turns=_spread(one.turns for _, one in own),
        latency=_spread(latency for _, latency in latencies if latency is not None),
        changes=changes,
        noticed=sum(latency is not None for _, latency in latencies),
        tokens=_spread(one.tokens for _, one in scored),
        shortfall=_spread(one.shortfall for _, one in scored),
        rows=tuple(_rows(own)),
        curve=tuple(
            Curve(after=after, fit=_fit(one for one in own if one[1].after == after))
            for after in sorted({one.after for _, one in own})
        ),
        shifts=shifts,
    )


def _own(beats: Iterable[Scored]) -> list[Scored]:
    """What tells of the memory. What was met before in the session tells whether the assistant is coherent."""
    return [
        (cluster, one)
        for cluster, one in beats
        if one.status == "scored" and one.kind != "neutral" and one.coherent is None
    ]


def _fit(beats: Iterable[Scored]) -> Estimate:
    return _tell((cluster, one.fit_first) for cluster, one in beats if one.fit_first is not None)


def _context(own: Sequence[Scored]) -> list[Measure]:
    """Style fit: share of first replies that suit; of questions, that are right. Discrimination: of those whose
    attribute differs in the other context and that show one of the two, share that show this one's. Contamination:
    of all whose attribute differs, share that show the other's."""
    differing = [(cluster, one) for cluster, one in own if one.has_other]
    either = [(cluster, one) for cluster, one in differing if one.first in ("current", "other")]
    return [
        Measure(name="style fit", group="CS", better="higher", estimate=_fit(own)),
        Measure(
            name="discrimination",
            group="CS",
            better="higher",
            estimate=_tell((cluster, one.first == "current") for cluster, one in either),
        ),
        Measure(
            name="contamination",
            group="CS",
            better="lower",
            estimate=_tell((cluster, one.first == "other") for cluster, one in differing),
        ),
    ]


def _changes(
    own: Sequence[Scored],
) -> tuple[list[tuple[str, int | None]], list[tuple[str, BeatRecord]], int, tuple[int, ...]]:
    """Of each change its latency, or None; the beats after it was noticed; how many; and where they are."""
    by_change: dict[tuple[str, str], list[BeatRecord]] = {}
    for cluster, one in own:
        if one.change is not None and one.since is not None:
            by_change.setdefault((cluster, one.change), []).append(one)
    latencies: list[tuple[str, int | None]] = []
    later: list[tuple[str, BeatRecord]] = []
    for (cluster, _), beats in by_change.items():
        beats.sort(key=lambda one: (one.after, one.probe_id))
        place = next((at for at, one in enumerate(beats) if one.fit_first), None)
        if place is None:
            latencies.append((cluster, None))
        else:
            latencies.append((cluster, beats[place].after - (beats[place].since or 0)))
            later.extend((cluster, one) for one in beats[place + 1 :])
    shifts = sorted({one.since for beats in by_change.values() for one in beats if one.since is not None})
    return latencies, later, len(by_change), tuple(shifts)


def _evolution(later: Sequence[Scored], latencies: Sequence[tuple[str, int | None]]) -> list[Measure]:
    """Detection: share of changes that some test shows; how fast is ``latency``. Reversion: of the first replies
    after a change was noticed, share that show an older setting again."""
    return [
        Measure(
            name="detection",
            group="PET",
            better="higher",
            estimate=_tell((cluster, latency is not None) for cluster, latency in latencies),
        ),
        Measure(
            name="reversion",
            group="PET",
            better="lower",
            estimate=_tell((cluster, one.first == "stale") for cluster, one in later),
        ),
    ]


def _interaction(scored: Sequence[Scored]) -> list[Measure]:
    """Felt effort: share of requests that took more than one reply. Coherence: of the attributes met again in a
    session, share that are shown as before. Overall: share of test sessions in which every first reply suited.
    Over-personalisation: of the requests in which no preference of the user's belongs, share that show one."""
    sessions: dict[tuple[str, str], list[BeatRecord]] = {}
    for cluster, one in scored:
        sessions.setdefault((cluster, one.session_id), []).append(one)
    neutral = [(cluster, one) for cluster, one in scored if one.kind == "neutral"]
    return [
        Measure(
            name="felt effort",
            group="IQI",
            better="lower",
            estimate=_tell((cluster, one.turns > 1) for cluster, one in scored if one.kind != "other"),
        ),
        Measure(
            name="coherence",
            group="IQI",
            better="higher",
            estimate=_tell((cluster, one.coherent) for cluster, one in scored if one.coherent is not None),
        ),
        Measure(
            name="overall",
            group="IQI",
            better="higher",
            estimate=_tell(
                (cluster, all(one.fit_first for one in beats)) for (cluster, _), beats in sessions.items()
            ),
        ),
        Measure(
            name="over-personalisation",
            group="over-personalisation",
            better="lower",
            estimate=_tell((cluster, not one.fit_first) for cluster, one in neutral),
        ),
    ]


def _retrieval(own: Sequence[Scored]) -> list[Measure]:
    """Of the section of each first reply. Shown: it holds the setting in force. Stale: of the changed ones, it
    holds an older one and not that. Evidence recall: share of the turns that told it which the section names.
    Precision, MRR, nDCG: over its items, one that tells the setting in force being relevant."""
    changed = [(cluster, one) for cluster, one in own if one.has_stale]
    with_items = [(cluster, one) for cluster, one in own if one.relevant]
    ranked = [(cluster, one) for cluster, one in own if one.gold or one.shows_current is not None]

    def measure(
        name: str, values: Iterable[tuple[str, float | bool]], better: Literal["higher", "lower"] = "higher"
    ) -> Measure:
        return Measure(name=name, group="retrieval", better=better, estimate=_tell(values))

    return [
        measure(
            "shown",
            ((cluster, one.shows_current) for cluster, one in own if one.shows_current is not None),
        ),
        measure(
            "stale rate",
            ((cluster, bool(one.shows_stale and not one.shows_current)) for cluster, one in changed),
            "lower",
        ),
        measure(
            "evidence recall",
            ((cluster, one.found / one.gold) for cluster, one in own if one.gold and one.found is not None),
        ),
        measure("precision", ((cluster, fmean(one.relevant)) for cluster, one in with_items)),
        measure("MRR", ((cluster, _reciprocal(one.relevant)) for cluster, one in ranked)),
        measure("nDCG", ((cluster, _ndcg(one.relevant, one.gold)) for cluster, one in own if one.gold)),
    ]


def _reciprocal(relevant: Sequence[bool]) -> float:
    return next((1 / place for place, hit in enumerate(relevant, start=1) if hit), 0.0)


def _ndcg(relevant: Sequence[bool], gold: int) -> float:
    def gain(places: Iterable[int]) -> float:
        return math.fsum(1 / math.log2(place + 1) for place in places)

    found = [place for place, hit in enumerate(relevant, start=1) if hit]
    ideal = gain(range(1, max(gold, len(found)) + 1))
    return gain(found) / ideal if ideal else 0.0


def _rows(own: Sequence[Scored]) -> Iterable[Row]:
    keys: Mapping[Literal["attribute", "kind", "context", "persona"], Callable[[BeatRecord], str | None]] = {
        "attribute": lambda one: one.attribute,
        "kind": lambda one: f"{one.kind}, {'changed' if one.change else 'steady'}",
        "context": lambda one: one.context,
        "persona": lambda one: one.persona_id,
    }
    for by, key in keys.items():
        parts: dict[str, list[Scored]] = {}
        for beat in own:
            if label := key(beat[1]):
                parts.setdefault(label, []).append(beat)
        for label, beats in sorted(parts.items()):
            shown: dict[str, int] = {}
            for _, one in beats:
                shown[one.first or "unsaid"] = shown.get(one.first or "unsaid", 0) + 1
            yield Row(by=by, label=label, fit=_fit(beats), shown=dict(sorted(shown.items())))


def game_metrics(
    experiment_id: str,
    variants: Sequence[tuple[str, Sequence[Scored]]],
    shown: Mapping[str, str] | None = None,
    groups: Mapping[str, str | None] | None = None,
) -> GameMetrics:
    """The figures of an experiment.

    Args:
        experiment_id: its id.
        variants: label and beats of each provider, in the order of the file; clusters as all of them share them.
        shown: label -> what tables are to show for it.
        groups: label -> experiment group; providers of different groups are not compared.
    """
    return GameMetrics(
        experiment_id=experiment_id,
        variants=tuple(variant_metrics(label, beats, (shown or {}).get(label)) for label, beats in variants),
        differences=tuple(_differences(variants, groups or {})),
    )


def _differences(
    variants: Sequence[tuple[str, Sequence[Scored]]], groups: Mapping[str, str | None]
) -> Iterable[Difference]:
    fits = [(label, _by_beat(beats)) for label, beats in variants]
    for place, (second, others) in enumerate(fits):
        for first, values in fits[:place]:
            both = [(key[0], values[key] - others[key]) for key in values if key in others]
            if both and groups.get(first) == groups.get(second):
                yield difference("fit", first, second, both)


def _by_beat(beats: Sequence[Scored]) -> dict[tuple[str, str], float]:
    """Style fit over replicates, of each beat."""
    found: dict[tuple[str, str], list[float]] = {}
    for cluster, one in _own(beats):
        if one.fit_first is not None:
            found.setdefault((cluster, one.probe_id), []).append(float(one.fit_first))
    return {key: fmean(values) for key, values in found.items()}
