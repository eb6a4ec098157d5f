"""From scored probes to figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from memory.bench.scores.figures import (
    CostScores,
    CurvePoint,
    DetectionScores,
    Difference,
    EvidenceBy,
    EvidenceRow,
    EvidenceScores,
    PreferenceRow,
    PreferenceScores,
    Spread,
)
from memory.bench.scores.intervals import difference, estimate
from memory.bench.scores.scoring import EvidenceHit, PreferenceHit

Readiness = Literal["ready", "pending", "unknown", "failed", "not_offered"]


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One probe as ``results.jsonl`` keeps it: ids, counts and times, never a text.

    Attributes:
        probe_id, persona_id, category, context, attribute: as in the timeline.
        after: sessions ingested when it was asked.
        change, since: of the preference in force (see :class:`memory.bench.data.timeline.PreferenceTruth`).
        tokens: of the context section. None after an error.
        items: entries in the section.
        retrieved: native records returned, before any were left out.
        names_events: whether any entry returned names the event it comes from.
        retrieve_ms, format_ms: wall time.
        evidence, preference: the score, by the kind of the probe; both None where it is not scored.
        left_out: records that the provider had for the answer and the budget had no room for; None after an error.
        shortfall: tokens by which the section stayed below the budget's ``min_tokens``; None without one.
        status: ``scored``; ``unconfirmed`` where it is, though the provider could not say whether memory was ready;
            ``not_ready`` where it was asked while memory was not known to be ready, which is not
            scored; ``failed`` after an error.
        readiness: the provider's answer before the test session; ``not_offered`` where it never says.
        error: class name of the error that the retrieval raised, or None.
        cross_context: whether it asked across contexts, so that no CS field was filtered by.
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
    left_out: int | None = None
    shortfall: int | None = None
    status: Literal["scored", "unconfirmed", "not_ready", "failed"] = "scored"
    readiness: Readiness = "not_offered"
    error: str | None = None
    cross_context: bool = False


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


def evidence_scores(records: Sequence[ProbeRecord]) -> EvidenceScores | None:
    """Evidence recall over ``records``; None where no probe is scored by evidence."""
    asked = [(record, record.evidence) for record in records if record.evidence is not None]
    if not asked:
        return None
    by = evidence_by(records)
    scored = [(record, hit) for record, hit in asked if hit.gold]

    def rows(key: Callable[[ProbeRecord], str], labels: Iterable[str]) -> tuple[EvidenceRow, ...]:
        return tuple(
            _evidence_row(name, [one for one in scored if key(one[0]) == name], by) for name in labels
        )

    return EvidenceScores(
        by=by,
        overall=_evidence_row("overall", scored, by),
        answerable=_evidence_row(
            "without adversarial", [one for one in scored if one[0].category != "adversarial"], by
        ),
        categories=rows(lambda record: record.category, sorted({record.category for record, _ in scored})),
        personas=rows(
            lambda record: record.persona_id, dict.fromkeys(record.persona_id for record, _ in scored)
        ),
        without_evidence=sum(not hit.gold and not hit.unresolved for _, hit in asked),
        unresolvable=sum(not hit.gold and bool(hit.unresolved) for _, hit in asked),
        unresolved_ids=sum(hit.unresolved for _, hit in asked),
    )


def evidence_by(records: Iterable[ProbeRecord]) -> EvidenceBy | None:
    """What counts as found evidence in a run: event ids where any entry names one, else text; None of nothing."""
    shown = [record for record in records if record.evidence is not None and record.items]
    if not shown:
        return None
    return "event_id" if any(record.names_events for record in shown) else "text"


def _recall(hit: EvidenceHit, by: EvidenceBy | None) -> float:
    return (hit.by_id if by == "event_id" else hit.by_text) / hit.gold


def _evidence_row(
    label: str, scored: Sequence[tuple[ProbeRecord, EvidenceHit]], by: EvidenceBy | None
) -> EvidenceRow:
    shares = [_recall(hit, by) for _, hit in scored]
    turns = sum(hit.gold for _, hit in scored)
    found = sum(round(share * hit.gold) for share, (_, hit) in zip(shares, scored, strict=True))
    return EvidenceRow(
        label=label,
        questions=len(scored),
        turns=turns,
        recall=estimate(
            (record.persona_id, share) for (record, _), share in zip(scored, shares, strict=True)
        ),
        pooled=found / turns if turns else None,
        any_found=_mean(share > 0 for share in shares),
        all_found=_mean(share == 1 for share in shares),
        verbatim=_mean(hit.by_text / hit.gold for _, hit in scored),
    )


def preference_scores(records: Sequence[ProbeRecord]) -> PreferenceScores | None:
    """Preference scores over ``records``; None where no probe asks for a preference."""
    asked = [record for record in records if record.preference is not None]
    if not asked:
        return None

    def rows(key: Callable[[ProbeRecord], str | None]) -> tuple[PreferenceRow, ...]:
        labels = sorted({label for record in asked if (label := key(record))})
        return tuple(_preference_row(label, [one for one in asked if key(one) == label]) for label in labels)

    return PreferenceScores(
        overall=_preference_row("overall", asked),
        groups=(
            *rows(lambda record: record.category),
            *rows(lambda record: record.context),
            *rows(lambda record: "changed" if record.change else "steady"),
        ),
        attributes=rows(lambda record: record.attribute),
        detection=_detection(asked, {record.change for record in records if record.preference is None}),
        leaks=sum(record.preference.leak for record in asked if record.preference),
    )


def _clean(hit: PreferenceHit) -> bool:
    return hit.current and not hit.stale and not hit.unlabelled


def _preference_row(label: str, records: Sequence[ProbeRecord]) -> PreferenceRow:
    hits = [(record.persona_id, record.preference) for record in records if record.preference is not None]
    changed = [(persona, hit) for persona, hit in hits if hit.has_stale]
    differing = [(persona, hit) for persona, hit in hits if hit.has_other]
    return PreferenceRow(
        label=label,
        nothing_shown=estimate((record.persona_id, not record.items) for record in records),
        fit=estimate((persona, hit.current) for persona, hit in hits),
        clean_fit=estimate((persona, _clean(hit)) for persona, hit in hits),
        stale=estimate((persona, hit.stale and not hit.current) for persona, hit in changed),
        stale_shown=estimate((persona, hit.stale) for persona, hit in changed),
        contamination=estimate((persona, hit.unlabelled) for persona, hit in differing),
        decoy=estimate((persona, hit.decoy) for persona, hit in hits),
    )


def _detection(records: Sequence[ProbeRecord], partly: Collection[str | None]) -> DetectionScores:
    """Detection, of changes all of whose probes are scored: nobody knows what the others would have shown."""
    by_change: dict[str, list[tuple[int, str, PreferenceHit]]] = {}
    by_age: dict[int, list[PreferenceHit]] = {}
    for record in records:
        if record.change is not None and record.since is not None and record.preference is not None:
            age = record.after - record.since
            by_change.setdefault(record.change, []).append((age, record.persona_id, record.preference))
            by_age.setdefault(age, []).append(record.preference)
    latencies: list[float] = []
    lost: list[tuple[str, bool]] = []
    for change, probes in by_change.items():
        probes.sort(key=lambda probe: probe[0])
        first = next((place for place, (_, _, hit) in enumerate(probes) if hit.current), None)
        if first is not None:
            latencies += [] if change in partly else [probes[first][0]]
            lost.extend((persona, not hit.current) for _, persona, hit in probes[first + 1 :])
    return DetectionScores(
        changes=len(by_change.keys() - partly),
        detected=len(latencies),
        latency=_spread(latencies),
        reversion=estimate(lost),
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


def paired_differences(runs: Sequence[tuple[str, Sequence[ProbeRecord]]]) -> tuple[Difference, ...]:
    """Each provider against each before it, on the probes both are scored on.

    Args:
        runs: label and records of each provider.
    """
    told = [(label, _values(records)) for label, records in runs]
    found = []
    for place, (second, others) in enumerate(told):
        for first, values in told[:place]:
            for figure, shares in values.items():
                other = others.get(figure, {})
                both = ((key[0], shares[key] - other[key]) for key in shares if key in other)
                found.append(difference(figure, first, second, both))
    return tuple(one for one in found if one.n)


def _values(records: Sequence[ProbeRecord]) -> dict[str, dict[tuple[str, str], float]]:
    """Figure -> persona and probe -> what it scored there."""
    by, values = evidence_by(records), dict[str, dict[tuple[str, str], float]]()
    for record in records:
        key = (record.persona_id, record.probe_id)
        if record.evidence is not None and record.evidence.gold:
            values.setdefault("evidence recall", {})[key] = _recall(record.evidence, by)
        if record.preference is not None:
            values.setdefault("fit", {})[key] = record.preference.current
            values.setdefault("clean fit", {})[key] = _clean(record.preference)
    return values


def cost_scores(
    records: Sequence[ProbeRecord], write_ms: Sequence[float], ingest_ms: float, wait_ms: float
) -> CostScores:
    """The cost of a run; failed probes are left out."""
    answered = [record for record in records if record.error is None]
    short = [record.shortfall for record in answered if record.shortfall is not None]
    return CostScores(
        short=sum(missing > 0 for missing in short) if short else None,
        shortfall=_spread(missing for missing in short if missing),
        cut=sum(bool(record.left_out) for record in answered),
        tokens=_spread(record.tokens for record in answered),
        items=_spread(record.items for record in answered),
        retrieve_ms=_spread(record.retrieve_ms for record in answered),
        format_ms=_spread(record.format_ms for record in answered),
        write_ms=_spread(write_ms),
        ingest_ms=ingest_ms,
        wait_ms=wait_ms,
        events=len(write_ms),
    )
