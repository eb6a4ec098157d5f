"""From judged beats to figures: what users would say of an assistant with this memory.

The eight figures are those of MemPABench, each one complaint of a user, in its three groups: CS (context
sensitivity), PET (preference evolution tracking), IQI (interaction quality); over-personalisation stands beside
them. How MemPABench computes its own was not public in detail when this was written: the definitions are below, and
figures of the two do not compare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from memory.bench.scores.figures import Difference, Estimate, Spread
from memory.bench.scores.intervals import difference, estimate
from memory.bench.scores.records import BeatRecord
from memory.bench.scores.run_metrics import percentile

Group = Literal["CS", "PET", "IQI", "over-personalisation", "questions", "retrieval"]
Better = Literal["higher", "lower"]
_Unit = tuple[str, str, float]
"""Cluster, id within it, and value, of what a share is over."""


class Scored(NamedTuple):
    """A judged beat, and whose it is.

    Attributes:
        cluster: one persona of one seed.
        beat: how it went.
        replicate: which time the persona was played.
        ended: its cell was played to the end. Of one that was not, the late requests are missing, which are not
            as hard as the early ones; so none of it counts.
    """

    cluster: str
    beat: BeatRecord
    replicate: int = 1
    ended: bool = True


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Measure(_Figures):
    """One figure of one provider."""

    name: str
    """Which."""
    group: Group
    """What it belongs to."""
    better: Better
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
    unended: int = 0
    """Of cells that were not played to their end; not counted, whatever their status."""
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
    """Of each figure, each provider against each before it, on what both are scored on."""


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
    sorted_out = _Beats(beats)
    scored, own = sorted_out.scored, sorted_out.own
    latencies = [latency for _, _, latency in sorted_out.changes]
    judged = [one.beat.agreement for one in scored if one.beat.agreement is not None]
    return VariantMetrics(
        label=label,
        shown=shown or label,
        beats=len(beats),
        scored=len(scored),
        **{
            status: sum(one.beat.status == status and one.ended for one in beats)
            for status in ("not_ready", "failed", "unreadable")
        },
        unended=sum(not one.ended for one in beats),
        agreement=fmean(judged) if judged else None,
        measures=tuple(
            Measure(name=name, group=group, better=better, estimate=_tell(units(sorted_out)))
            for name, group, better, _, units in _MEASURES
        ),
        turns=_spread(one.beat.turns for one in own),
        latency=_spread(latencies),
        changes=len(latencies),
        noticed=sum(latency is not None for latency in latencies),
        tokens=_spread(one.beat.tokens for one in scored),
        shortfall=_spread(one.beat.shortfall for one in scored),
        rows=tuple(_rows(own)),
        curve=tuple(
            Curve(after=after, fit=_tell(_fit(found))) for after, found in sorted(_points(own).items())
        ),
        shifts=tuple(
            sorted(
                {one.beat.since for one in own if one.beat.change is not None and one.beat.since is not None}
            )
        ),
    )


class _Beats:
    """The beats of one provider, sorted by what is counted of them.

    Attributes:
        scored: those that count.
        own: of them, those that tell of the memory. What was met before in its session tells of the assistant.
        changes: cluster, id and latency of each change all of whose tests count; None where no test shows it.
        later: beats after their change was noticed.
        whole: sessions all of whose beats count.
    """

    def __init__(self, beats: Sequence[Scored]) -> None:
        self.scored = [one for one in beats if one.ended and one.beat.status == "scored"]
        self.own = [one for one in self.scored if _tells(one.beat)]
        self.changes: list[tuple[str, str, int | None]] = []
        self.later: list[Scored] = []
        left_out = [one for one in beats if not one.ended or one.beat.status != "scored"]
        self.whole = {_session(one) for one in self.scored} - {_session(one) for one in left_out}
        partly = {_change(one) for one in left_out if _tells(one.beat)}
        by_change: dict[tuple[str, int, str | None], list[Scored]] = {}
        for one in self.own:
            if one.beat.change is not None and one.beat.since is not None:
                by_change.setdefault(_change(one), []).append(one)
        for key, found in by_change.items():
            found.sort(key=lambda one: (one.beat.after, one.beat.probe_id))
            place = next((at for at, one in enumerate(found) if one.beat.fit_first), None)
            self.later += [] if place is None else found[place + 1 :]
            # With a test missing, nobody knows whether that one would have shown it, and how early.
            if key not in partly:
                noticed = None if place is None else found[place].beat.after - (found[place].beat.since or 0)
                self.changes.append((key[0], str(key[2]), noticed))

    def sessions(self) -> Iterable[_Unit]:
        """Of each whole test session with a verdict, whether every first reply suited."""
        fits: dict[tuple[str, int, str], bool] = {}
        for one in self.scored:
            if one.beat.fit_first is not None and one.beat.kind != "other" and _session(one) in self.whole:
                fits[_session(one)] = fits.get(_session(one), True) and one.beat.fit_first
        return ((cluster, session, float(fit)) for (cluster, _, session), fit in fits.items())


def _tells(beat: BeatRecord) -> bool:
    return beat.kind != "neutral" and beat.coherent is None


def _session(one: Scored) -> tuple[str, int, str]:
    return one.cluster, one.replicate, one.beat.session_id


def _change(one: Scored) -> tuple[str, int, str | None]:
    return one.cluster, one.replicate, one.beat.change


def _each(beats: Iterable[Scored], value: Callable[[BeatRecord], float | None]) -> Iterable[_Unit]:
    """The value of each beat that has one."""
    for one in beats:
        if (found := value(one.beat)) is not None:
            yield one.cluster, one.beat.probe_id, float(found)


def _fit(beats: Iterable[Scored]) -> Iterable[_Unit]:
    return _each(beats, lambda one: one.fit_first)


def _tell(units: Iterable[_Unit]) -> Estimate:
    return estimate((cluster, value) for cluster, _, value in units)


def _points(beats: Iterable[Scored]) -> dict[int, list[Scored]]:
    found: dict[int, list[Scored]] = {}
    for one in beats:
        found.setdefault(one.beat.after, []).append(one)
    return found


def _reciprocal(relevant: Sequence[bool]) -> float:
    return next((1 / place for place, hit in enumerate(relevant, start=1) if hit), 0.0)


def _ndcg(relevant: Sequence[bool], gold: int) -> float:
    def gain(places: Iterable[int]) -> float:
        return math.fsum(1 / math.log2(place + 1) for place in places)

    found = [place for place, hit in enumerate(relevant, start=1) if hit]
    return gain(found) / gain(range(1, max(gold, len(found)) + 1))


def _is_ranked(one: BeatRecord) -> bool:
    """Whether it is known which items tell: by their text, or by the turns they name."""
    return one.shows_current is not None or (one.gold > 0 and one.found is not None)


def _own(value: Callable[[BeatRecord], float | None]) -> Callable[[_Beats], Iterable[_Unit]]:
    return lambda of: _each(of.own, value)


def _all(value: Callable[[BeatRecord], float | None]) -> Callable[[_Beats], Iterable[_Unit]]:
    return lambda of: _each(of.scored, value)


_MEASURES: tuple[tuple[str, Group, Better, str, Callable[[_Beats], Iterable[_Unit]]], ...] = (
    ("style fit", "CS", "higher", "First replies that suit. Attributes met again in a session are left out.",
     _own(lambda one: one.fit_first if one.kind != "other" else None)),
    ("discrimination", "CS", "higher",
     "Of the first replies that show this context's setting or the other's, where these differ: this one's.",
     _own(lambda one: one.first == "current" if one.has_other and one.first in ("current", "other") else None)),
    ("contamination", "CS", "lower",
     "Of all first replies where the settings of the contexts differ: they show the other's.",
     _own(lambda one: one.first == "other" if one.has_other else None)),
    ("detection", "PET", "higher", "Changes that some test shows, of those all of whose tests are scored.",
     lambda of: ((cluster, change, float(late is not None)) for cluster, change, late in of.changes)),
    ("reversion", "PET", "lower",
     "Of the first replies after a change was noticed: they show an older setting again.",
     lambda of: _each(of.later, lambda one: one.first == "stale")),
    ("felt effort", "IQI", "lower", "Requests that took more than one reply, or were given up.",
     _all(lambda one: one.turns > 1 or one.fit_last is False if one.kind != "other" else None)),
    ("coherence", "IQI", "higher", "Of the attributes met again in a session: they are shown as before.",
     _all(lambda one: one.coherent)),
    ("overall", "IQI", "higher", "Test sessions in which every first reply suited, all of them being scored.",
     _Beats.sessions),
    ("over-personalisation", "over-personalisation", "lower",
     "Of the requests in which no preference of the user's belongs: one is shown.",
     _all(lambda one: not one.fit_first if one.kind == "neutral" and one.fit_first is not None else None)),
    ("right answers", "questions", "higher", "Questions whose answer is right.",
     _own(lambda one: one.fit_first if one.kind == "other" else None)),
    ("shown", "retrieval", "higher", "Sections that hold the setting in force.",
     _own(lambda one: one.shows_current)),
    ("stale rate", "retrieval", "lower",
     "Of the sections for a setting that has changed: they hold an older one and not the one in force.",
     _own(lambda one: bool(one.shows_stale and not one.shows_current) if one.has_stale else None)),
    ("evidence recall", "retrieval", "higher", "Share of the turns that told it which the section names.",
     _own(lambda one: one.found / one.gold if one.gold and one.found is not None else None)),
    ("precision", "retrieval", "higher", "Of the items of a section, those that tell it; an empty one has none.",
     _own(lambda one: fmean(one.relevant) if one.relevant and _is_ranked(one) else None)),
    ("MRR", "retrieval", "higher", "One over the place of the first item that tells it; 0 without any.",
     _own(lambda one: _reciprocal(one.relevant) if _is_ranked(one) else None)),
    ("nDCG", "retrieval", "higher",
     "Items that tell it by place, against all turns that told it standing first; each is worth the same.",
     _own(lambda one: _ndcg(one.relevant, one.gold) if one.gold and _is_ranked(one) else None)),
)  # fmt: skip
MEANINGS = {name: meaning for name, _, _, meaning, _ in _MEASURES}
"""What each figure counts."""


def _rows(own: Sequence[Scored]) -> Iterable[Row]:
    keys: Mapping[Literal["attribute", "kind", "context", "persona"], Callable[[BeatRecord], str | None]] = {
        "attribute": lambda one: one.attribute,
        "kind": lambda one: f"{one.kind}, {'changed' if one.change else 'steady'}",
        "context": lambda one: one.context,
        "persona": lambda one: one.persona_id,
    }
    for by, key in keys.items():
        parts: dict[str, list[Scored]] = {}
        for one in own:
            if label := key(one.beat):
                parts.setdefault(label, []).append(one)
        for label, beats in sorted(parts.items()):
            shown = Counter(one.beat.first or "unsaid" for one in beats)
            yield Row(by=by, label=label, fit=_tell(_fit(beats)), shown=dict(sorted(shown.items())))


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
    sorted_out = [(label, _Beats(beats)) for label, beats in variants]
    for name, *_, units in _MEASURES:
        found = [(label, _means(units(beats))) for label, beats in sorted_out]
        for place, (second, others) in enumerate(found):
            for first, values in found[:place]:
                both = [(key[0], values[key] - others[key]) for key in values if key in others]
                if both and groups.get(first) == groups.get(second):
                    yield difference(name, first, second, both)


def _means(units: Iterable[_Unit]) -> dict[tuple[str, str], float]:
    """Of each unit the mean over replicates."""
    found: dict[tuple[str, str], list[float]] = {}
    for cluster, key, value in units:
        found.setdefault((cluster, key), []).append(value)
    return {key: fmean(values) for key, values in found.items()}
