"""From scored probes to figures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from memory.bench.figures import (
    CostScores,
    CurvePoint,
    DetectionScores,
    Estimate,
    EvidenceBy,
    EvidenceRow,
    EvidenceScores,
    PreferenceRow,
    PreferenceScores,
    Spread,
)
from memory.bench.scoring import EvidenceHit, PreferenceHit

__all__ = ["ProbeRecord", "Readiness", "cost_scores", "evidence_scores", "percentile", "preference_scores"]

_RESAMPLES = 1000
Readiness = Literal["ready", "pending", "unknown", "failed", "not_offered"]


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One probe as ``results.jsonl`` keeps it: ids, counts and times, never a text.

    Attributes:
        probe_id, persona_id, category, context, attribute: as in the timeline.
        after: sessions ingested when it was asked.
        change, since: of the preference in force (see :class:`memory.bench.timeline.PreferenceTruth`).
        tokens: of the context section. None after an error.
        items: entries in the section.
        retrieved: native records returned, before any were left out.
        names_events: whether any entry returned names the event it comes from.
        retrieve_ms, format_ms: wall time.
        evidence, preference: the score, by the kind of the probe; both None where it is not scored.
        shortfall: tokens by which the section stayed below the budget's ``min_tokens``; None without one.
        status: ``scored``; ``not_ready`` where it was asked while memory was not known to be ready, which is not
            scored; ``failed`` after an error.
        readiness: the provider's answer before the test session; ``not_offered`` where it never says.
        error: class name of the error that the retrieval raised, or None.
    """

    probe_id: str
    persona_id: str
    category: str
    after: int
    context: str | None = None
    attribute: str | None = None
    change: str | None = None
    since: int | None = None
    tokens: int | None = None
    items: int | None = None
    retrieved: int | None = None
    names_events: bool = False
    retrieve_ms: float | None = None
    format_ms: float | None = None
    evidence: EvidenceHit | None = None
    preference: PreferenceHit | None = None
    shortfall: int | None = None
    status: Literal["scored", "not_ready", "failed"] = "scored"
    readiness: Readiness = "not_offered"
    error: str | None = None


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of the values lie, interpolated; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _spread(values: Iterable[float | None]) -> Spread:
    found = [value for value in values if value is not None]
    return Spread(
        mean=_mean(found),
        p50=percentile(found, 0.5),
        p95=percentile(found, 0.95),
        least=min(found, default=None),
        most=max(found, default=None),
    )


def _share(values: Iterable[float], seed: int | None = None) -> Estimate:
    """The mean; with a seed also its interval, by resampling the probes."""
    found = [float(value) for value in values]
    if seed is None or not found:
        return Estimate(value=_mean(found), n=len(found))
    dice = random.Random(seed)
    means = [fmean(dice.choices(found, k=len(found))) for _ in range(_RESAMPLES)]
    return Estimate(
        value=fmean(found), n=len(found), low=percentile(means, 0.025), high=percentile(means, 0.975)
    )


def evidence_scores(records: Sequence[ProbeRecord], seed: int) -> EvidenceScores | None:
    """Evidence recall over ``records``; None where no probe is scored by evidence."""
    asked = [(record, record.evidence) for record in records if record.evidence is not None]
    if not asked:
        return None
    by: EvidenceBy | None = None
    if any(record.items for record, _ in asked):
        by = "event_id" if any(record.names_events for record, _ in asked) else "text"
    scored = [(record, hit) for record, hit in asked if hit.gold]

    def row(
        label: str, chosen: Iterable[tuple[ProbeRecord, EvidenceHit]], seed: int | None = None
    ) -> EvidenceRow:
        return _evidence_row(label, [hit for _, hit in chosen], by, seed)

    return EvidenceScores(
        by=by,
        overall=row("overall", scored, seed),
        answerable=row(
            "without adversarial", (one for one in scored if one[0].category != "adversarial"), seed
        ),
        categories=tuple(
            row(name, (one for one in scored if one[0].category == name))
            for name in dict.fromkeys(record.category for record, _ in sorted(scored, key=_category))
        ),
        personas=tuple(
            row(name, (one for one in scored if one[0].persona_id == name))
            for name in dict.fromkeys(record.persona_id for record, _ in scored)
        ),
        without_evidence=sum(not hit.gold and not hit.unresolved for _, hit in asked),
        unresolvable=sum(not hit.gold and bool(hit.unresolved) for _, hit in asked),
        unresolved_ids=sum(hit.unresolved for _, hit in asked),
    )


def _category(scored: tuple[ProbeRecord, EvidenceHit]) -> str:
    return scored[0].category


def _evidence_row(
    label: str, hits: list[EvidenceHit], by: EvidenceBy | None, seed: int | None
) -> EvidenceRow:
    found = [hit.by_id if by == "event_id" else hit.by_text for hit in hits]
    gold = [hit.gold for hit in hits]
    return EvidenceRow(
        label=label,
        questions=len(hits),
        turns=sum(gold),
        recall=_share((part / whole for part, whole in zip(found, gold, strict=True)), seed),
        pooled=sum(found) / sum(gold) if gold else None,
        any_found=_mean(part > 0 for part in found),
        all_found=_mean(part == whole for part, whole in zip(found, gold, strict=True)),
        verbatim=_mean(hit.by_text / hit.gold for hit in hits),
    )


def preference_scores(records: Sequence[ProbeRecord], seed: int) -> PreferenceScores | None:
    """Preference scores over ``records``; None where no probe asks for a preference."""
    asked = [record for record in records if record.preference is not None]
    if not asked:
        return None

    def rows(key: Callable[[ProbeRecord], str | None]) -> tuple[PreferenceRow, ...]:
        labels = sorted({label for record in asked if (label := key(record))})
        return tuple(_preference_row(label, [one for one in asked if key(one) == label]) for label in labels)

    return PreferenceScores(
        overall=_preference_row("overall", asked, seed),
        groups=(
            *rows(lambda record: record.category),
            *rows(lambda record: record.context),
            *rows(lambda record: "changed" if record.change else "steady"),
        ),
        attributes=rows(lambda record: record.attribute),
        detection=_detection(asked),
        leaks=sum(record.preference.leak for record in asked if record.preference),
    )


def _preference_row(label: str, records: Sequence[ProbeRecord], seed: int | None = None) -> PreferenceRow:
    hits = [record.preference for record in records if record.preference is not None]
    changed = [hit for hit in hits if hit.has_stale]
    differing = [hit for hit in hits if hit.has_other]
    return PreferenceRow(
        label=label,
        fit=_share((hit.current for hit in hits), seed),
        clean_fit=_share((hit.current and not hit.stale and not hit.unlabelled for hit in hits), seed),
        stale=_share((hit.stale and not hit.current for hit in changed), seed),
        stale_shown=_share(hit.stale for hit in changed),
        contamination=_share((hit.unlabelled for hit in differing), seed),
        decoy=_share(hit.decoy for hit in hits),
    )


def _detection(records: Sequence[ProbeRecord]) -> DetectionScores:
    by_change: dict[str, list[tuple[int, PreferenceHit]]] = {}
    by_age: dict[int, list[PreferenceHit]] = {}
    for record in records:
        if record.change is not None and record.since is not None and record.preference is not None:
            age = record.after - record.since
            by_change.setdefault(record.change, []).append((age, record.preference))
            by_age.setdefault(age, []).append(record.preference)
    latencies: list[float] = []
    lost: list[bool] = []
    for probes in by_change.values():
        probes.sort(key=lambda probe: probe[0])
        first = next((place for place, (_, hit) in enumerate(probes) if hit.current), None)
        if first is not None:
            latencies.append(probes[first][0])
            lost.extend(not hit.current for _, hit in probes[first + 1 :])
    return DetectionScores(
        changes=len(by_change),
        detected=len(latencies),
        latency=_spread(latencies),
        reversion=_share(lost),
        curve=tuple(
            CurvePoint(
                sessions=age,
                probes=len(hits),
                fit=_mean(hit.current for hit in hits),
                stale=_mean(hit.stale and not hit.current for hit in hits),
            )
            for age, hits in sorted(by_age.items())
        ),
    )


def cost_scores(
    records: Sequence[ProbeRecord], write_ms: Sequence[float], ingest_ms: float, wait_ms: float
) -> CostScores:
    """The cost of a run; failed probes are left out."""
    answered = [record for record in records if record.error is None]
    short = [record.shortfall for record in answered if record.shortfall is not None]
    return CostScores(
        short=sum(missing > 0 for missing in short) if short else None,
        shortfall=_spread(missing for missing in short if missing),
        tokens=_spread(record.tokens for record in answered),
        items=_spread(record.items for record in answered),
        retrieve_ms=_spread(record.retrieve_ms for record in answered),
        format_ms=_spread(record.format_ms for record in answered),
        write_ms=_spread(write_ms),
        ingest_ms=ingest_ms,
        wait_ms=wait_ms,
        events=len(write_ms),
    )
