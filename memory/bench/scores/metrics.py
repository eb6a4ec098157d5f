"""Computes figures from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean
from typing import Any

from memory.bench.scores.figures import BY_NAME, FIGURES, HEADLINES, Figure, Requests, Unit, averaged
from memory.bench.scores.intervals import difference, estimate
from memory.bench.scores.model import (
    Difference,
    Estimate,
    Measure,
    Metrics,
    Part,
    ProviderMetrics,
    Sample,
    Standing,
)

MAX_MISSING = 0.02
"""The largest share of missing requests with which a figure still has a value."""


@dataclass(frozen=True, slots=True)
class Rival:
    """The properties that decide with which providers a provider is compared."""

    shown: str  # its label in tables
    standing: Standing = "control"  # only architectures and controls are compared, never references
    alike: object = None  # must be equal for two providers to be compared, such as group and budget
    named: bool = False  # whether the settings name it as the control


def experiment_metrics(
    experiment_id: str,
    providers: Sequence[tuple[str, Sequence[Sample]]],
    rivals: Mapping[str, Rival] | None = None,
) -> Metrics:
    """The figures of an experiment.

    Args:
        providers: label and records of each provider. Equal clusters are the same persona.
        rivals: by label; a provider without an entry counts as a control.
    """
    known = {label: Rival(label) for label, _ in providers} | dict(rivals or {})
    requests = {label: Requests(samples) for label, samples in providers}
    units = {label: request.units for label, request in requests.items()}
    headlines = tuple(name for name in HEADLINES if any(found[name] for found in units.values()))
    found = tuple(
        provider_metrics(label, request, headlines, known[label]) for label, request in requests.items()
    )
    ranked = {each.label: known[each.label] for each in found if not (each.failed or each.missing)}
    return Metrics(
        experiment_id=experiment_id,
        headlines=headlines,
        chance=_chance(headlines, requests.values()),
        providers=found,
        differences=tuple(_differences(headlines[0], units, ranked)) if headlines else (),
    )


def _chance(headlines: Sequence[str], requests: Iterable[Requests]) -> float | None:
    """The share that guessing reaches in the first headline; None without choices."""
    if not headlines or headlines[0] in ("answer F1", "evidence recall"):
        return None
    choices = [record.choices for each in requests for _, record, _ in each.samples if record.choices]
    return fmean(1 / number for number in choices) if choices else None


def provider_metrics(
    label: str, requests: Requests, headlines: Sequence[str], rival: Rival
) -> ProviderMetrics:
    """The figures of one provider. References have no intervals: floors and ceilings are not samples."""
    reference = rival.standing == "reference"
    records = [record for _, record, _ in requests.samples]
    answered = [record for record in records if record.answered]
    tokens = [record.tokens for record in answered if record.tokens is not None]
    status = Counter(record.status for record in records)
    return ProviderMetrics(
        label=label,
        shown=rival.shown,
        requests=len(records),
        failed=status["failed"],
        unready=status["unready"],
        missing=status["missing"],
        unreadable=sum(record.judged and record.fit_first is None for record in answered),
        leaks=sum(bool(record.leaks) for record in answered),
        measures=tuple(
            Measure(
                name=item.name,
                estimate=_estimated(item, requests.units[item.name], reference=reference),
            )
            for item in FIGURES
        ),
        tokens=fmean(tokens) if tokens else None,
        cut=sum(bool(record.left_out) for record in answered),
        parts=tuple(part for name in headlines for part in _parts(BY_NAME[name], requests)),
    )


def _estimated(figure: Figure, averaged: Sequence[Unit], *, reference: bool = False) -> Estimate:
    """A figure over averaged units, with bounds if any unit failed, was unready or is missing."""
    known = [(unit.cluster, unit.value) for unit in averaged if unit.value is not None]
    found = estimate(known)
    if reference:
        found = found.model_copy(update={"low": None, "high": None})
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
    groups: dict[str, list[Sample]] = {}
    for sample in requests.samples:
        record = sample.record
        label = record.category
        if record.kind != "question":
            label = f"{record.category or record.kind}, {'changed' if record.change else 'steady'}"
        if label:
            groups.setdefault(label, []).append(sample)
    for label, samples in sorted(groups.items()):
        found = _estimated(figure, averaged(figure.units(Requests(samples))))
        if found.n or found.missing:
            yield Part(figure=figure.name, label=label, estimate=found)


def _differences(
    figure: str, units: Mapping[str, Mapping[str, list[Unit]]], ranked: Mapping[str, Rival]
) -> Iterator[Difference]:
    """Compares each architecture with the named control, or with every control if none is named.

    Without architectures, the controls are compared. All comparisons form one family.
    """
    compared = []
    for first, second in _pairs(ranked):
        mine, others = (
            {(unit.cluster, unit.key): unit.value for unit in units[label][figure] if unit.value is not None}
            for label in (first, second)
        )
        if both := [(key[0], mine[key] - others[key]) for key in mine if key in others]:
            compared.append((first, second, both))
    for first, second, both in compared:
        yield difference(figure, first, second, both, len(compared))


def _pairs(ranked: Mapping[str, Rival]) -> Iterator[tuple[str, str]]:
    rivals = [
        label for label, rival in ranked.items() if rival.standing == "architecture" and not rival.named
    ]
    controls = [label for label, rival in ranked.items() if rival.standing == "control" or rival.named]
    named = [label for label in controls if ranked[label].named] or controls
    pairs = (
        product(rivals, named)
        if rivals
        else ((first, second) for first, second in product(controls, named) if first not in named)
        if named != controls
        else combinations(controls, 2)
    )
    yield from (pair for pair in pairs if ranked[pair[0]].alike == ranked[pair[1]].alike)


PHASES = ("ingest", "retrieve")


def llm_use(traces: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Calls and tokens by phase, from the rows of ``traces.jsonl``; None if any trace does not report them.

    ``ingest`` covers writes, and the waits and mode switches that may finish them. Diagnostic queries are
    left out.
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


def with_second_time(
    found: ProviderMetrics, first: Sequence[Sample], otherwise: Sequence[Sample]
) -> ProviderMetrics:
    """The figures of a provider, each with its share of the second time minus the first.

    Args:
        first: every request of the provider.
        otherwise: the requests whose answer differed the second time, as answered then.
    """
    then = {(sample.cluster, sample.replicate, sample.record.probe_id): sample for sample in otherwise}
    second = [then.get((each.cluster, each.replicate, each.record.probe_id), each) for each in first]
    before, after = Requests(first).units, Requests(second).units
    measures = (
        item
        if item.estimate.value is None
        else item.model_copy(update={"again": _mean(after[item.name]) - _mean(before[item.name])})
        for item in found.measures
    )
    return found.model_copy(update={"measures": tuple(measures)})


def _mean(units: Sequence[Unit]) -> float:
    """The mean of the known values; 0 without one."""
    known = [unit.value for unit in units if unit.value is not None]
    return fmean(known) if known else 0.0
