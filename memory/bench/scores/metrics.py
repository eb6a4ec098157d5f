"""From records to figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from memory.bench.scores.figures import BY_NAME, FIGURES, HEADLINES, Figure, Requests, Unit, averaged
from memory.bench.scores.intervals import Waited, corrected, difference, estimate, latency
from memory.bench.scores.model import (
    CurvePoint,
    Difference,
    Estimate,
    Measure,
    Metrics,
    Part,
    PartName,
    ProbeRecord,
    ProviderMetrics,
    Sample,
    Spread,
)

MAX_MISSING = 0.02
"""Share of a figure's requests that may be missing before it has no value."""


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of the values lie, interpolated; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(values: Iterable[float | None]) -> Spread:
    """A distribution of what is known."""
    found = [float(value) for value in values if value is not None]
    return Spread(
        mean=fmean(found) if found else None,
        p50=percentile(found, 0.5),
        p95=percentile(found, 0.95),
        smallest=min(found, default=None),
        largest=max(found, default=None),
    )


def experiment_metrics(
    experiment_id: str,
    providers: Sequence[tuple[str, Sequence[Sample]]],
    *,
    shown: Mapping[str, str] | None = None,
    alike: Mapping[str, object] | None = None,
    primary: tuple[str, str] | None = None,
) -> Metrics:
    """The figures of an experiment, from label and records of each provider; clusters as all of them share them.

    Args:
        shown: label -> what tables are to show for it.
        alike: label -> what must be the same of two that are compared, such as group and budget.
        primary: labels of the two whose difference in the first headline figure was of interest before anything was
            played; the p values of all other comparisons are corrected.
    """
    requests = {label: Requests(samples) for label, samples in providers}
    units = {label: request.units for label, request in requests.items()}
    headlines = tuple(name for name in HEADLINES if any(found[name] for found in units.values()))
    differences = list(_differences(units, alike or {}))
    wanted = set(primary or ())
    decisive = (item for item in differences if item.figure in headlines[:1])
    chosen = next((item for item in decisive if {item.first, item.second} == wanted), None)
    return Metrics(
        experiment_id=experiment_id,
        headlines=headlines,
        providers=tuple(
            provider_metrics(label, request, headlines, (shown or {}).get(label))
            for label, request in requests.items()
        ),
        differences=tuple(corrected(differences, chosen)),
    )


def provider_metrics(
    label: str, requests: Requests, headlines: Sequence[str], shown: str | None = None
) -> ProviderMetrics:
    """The figures of one provider."""
    records = [record for _, record, _ in requests.samples]
    answered = [record for record in records if record.answered]
    status = Counter(record.status for record in records)
    own = [record for record in answered if record.of_memory and record.judged]
    agreements = [record.agreement for record in answered if record.agreement is not None]
    latencies = [change.latency for change in requests.changes]
    return ProviderMetrics(
        label=label,
        shown=shown or label,
        requests=len(records),
        failed=status["failed"],
        unready=status["unready"],
        missing=status["missing"],
        unreadable=sum(record.judged and record.fit_first is None for record in answered),
        leaks=sum(bool(record.leaks) for record in answered),
        agreement=fmean(agreements) if agreements else None,
        measures=tuple(
            Measure(
                name=item.name,
                group=item.group,
                better=item.better,
                estimate=_estimated(item, requests.units[item.name]),
            )
            for item in FIGURES
        ),
        turns=spread(record.turns for record in own),
        latency=spread(latencies),
        time_to_notice=latency(_waits(requests)),
        detection_by_chance=fmean(change.by_chance for change in requests.changes)
        if requests.changes
        else None,
        changes=len(latencies),
        noticed=sum(latency is not None for latency in latencies),
        tokens=spread(record.tokens for record in answered),
        items=spread(record.items for record in answered),
        first_relevant_tokens=spread(record.first_relevant_tokens for record in answered),
        shortfall=spread(record.shortfall for record in answered),
        cut=sum(bool(record.left_out) for record in answered),
        parts=tuple(part for name in headlines for part in _parts(BY_NAME[name], requests)),
        curve=tuple(_curve(headlines, requests, lambda record: record.after)),
        after_change=tuple(_curve(headlines, requests, _age)),
        shifts=tuple(sorted({change.since for change in requests.changes})),
    )


def _waits(requests: Requests) -> list[Waited]:
    """Waits for changes to be noticed; a change counts once, however often it was played."""
    known = [change for change in requests.changes if change.status != "missing"]
    often = Counter((change.cluster, change.name) for change in known)
    weights = (1 / often[change.cluster, change.name] for change in known)
    return [
        Waited(change.cluster, change.waited, change.noticed is not None, weight)
        for change, weight in zip(known, weights, strict=True)
    ]


def _estimated(figure: Figure, averaged: Sequence[Unit]) -> Estimate:
    """A figure over averaged units; bounds stand beside it where something went wrong."""
    known = [(unit.cluster, unit.value) for unit in averaged if unit.value is not None]
    found = estimate(known)
    counts = Counter(unit.status for unit in averaged)
    missing = len(averaged) - len(known)
    if missing > MAX_MISSING * len(averaged):
        found = Estimate(value=None, n=found.n, clusters=found.clusters)
    trouble = counts["failed"] + counts["unready"] + missing
    best_value = 1.0 - figure.worst
    best = [best_value if unit.status != "scored" or unit.value is None else unit.value for unit in averaged]
    worst = [figure.worst if unit.value is None else unit.value for unit in averaged]
    return found.model_copy(
        update={
            "failed": counts["failed"],
            "unready": counts["unready"],
            "missing": missing,
            "worst": fmean(worst) if missing else None,
            "best": fmean(best) if trouble else None,
        }
    )


def _parts(figure: Figure, requests: Requests) -> Iterator[Part]:
    keys: dict[PartName, Callable[[ProbeRecord], str | None]] = {
        "attribute": lambda record: record.attribute,
        "category": _category,
        "context": lambda record: record.context,
        "persona": lambda record: record.persona_id,
    }
    for by, key in keys.items():
        groups: dict[str, list[Sample]] = {}
        for sample in requests.samples:
            if label := key(sample.record):
                groups.setdefault(label, []).append(sample)
        for label, samples in sorted(groups.items()):
            found = _estimated(figure, averaged(figure.units(Requests(samples))))
            if found.n or found.missing:
                records = [sample.record for sample in samples]
                replies = [record for record in records if record.of_memory and record.judged]
                counts = Counter(record.first or record.status for record in replies)
                shown = dict(sorted(counts.items()))
                yield Part(figure=figure.name, by=by, label=label, estimate=found, shown=shown)


def _category(record: ProbeRecord) -> str | None:
    if record.kind == "question":
        return record.category
    return f"{record.category or record.kind}, {'changed' if record.change else 'steady'}"


def _age(record: ProbeRecord) -> int | None:
    """Sessions since the change that brought the preference in force."""
    return None if record.change is None or record.since is None else record.after - record.since


def _curve(
    headlines: Sequence[str], requests: Requests, point: Callable[[ProbeRecord], int | None]
) -> Iterator[CurvePoint]:
    points: dict[int, list[Sample]] = {}
    for sample in requests.samples:
        if (at := point(sample.record)) is not None:
            points.setdefault(at, []).append(sample)
    for name in headlines[:1]:
        for at, samples in sorted(points.items()):
            found = _estimated(BY_NAME[name], averaged(BY_NAME[name].units(Requests(samples))))
            if found.n or found.missing:
                yield CurvePoint(at=at, estimate=found)


def _differences(
    units: Mapping[str, Mapping[str, list[Unit]]], alike: Mapping[str, object]
) -> Iterator[Difference]:
    for figure in FIGURES:
        values = {
            label: {
                (unit.cluster, unit.key): unit.value for unit in own[figure.name] if unit.value is not None
            }
            for label, own in units.items()
        }
        for place, second in enumerate(values):
            for first in [*values][:place]:
                if alike.get(first) != alike.get(second):
                    continue
                mine, others = values[first], values[second]
                if both := [(key[0], mine[key] - others[key]) for key in mine if key in others]:
                    yield difference(figure.name, first, second, both)


PHASES = ("ingest", "retrieve")


def llm_use(traces: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Calls and tokens by phase, from the rows of ``traces.jsonl``; None once a trace does not say.

    The writes, with the waits and switches that may finish them, are ``ingest``; a diagnostic query belongs to
    neither phase.
    """
    sums: dict[str, dict[str, int | None]] = {phase: {"calls": 0, "tokens": 0} for phase in PHASES}
    for trace in traces:
        if trace["operation"] == "native_query":
            continue
        phase = sums["retrieve" if trace["operation"] == "retrieve" else "ingest"]
        for name, found in (("calls", trace["llm_calls"]), ("tokens", trace["llm_tokens"])):
            known = phase[name]
            phase[name] = None if known is None or found is None else known + found
    return sums
