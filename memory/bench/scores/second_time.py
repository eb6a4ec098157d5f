"""The contamination control: each figure as if all requests had been asked a second time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from memory.bench.scores.figures import FIGURES, Requests
from memory.bench.scores.model import ProviderMetrics, Sample


def with_second_time(
    found: ProviderMetrics, first: Sequence[Sample], otherwise: Sequence[Sample]
) -> ProviderMetrics:
    """The figures of a provider, each with its shift in the second round.

    Args:
        first: every request of the provider.
        otherwise: the requests whose answer differed the second time, as answered then.
    """
    moved = _moved(first, otherwise) if otherwise else {}
    measures = (
        item
        if item.estimate.value is None
        else item.model_copy(update={"again": moved.get(item.name) if otherwise else 0.0})
        for item in found.measures
    )
    return found.model_copy(update={"measures": tuple(measures)})


def _moved(first: Sequence[Sample], otherwise: Sequence[Sample]) -> dict[str, float]:
    """The share of the second time minus the first, for each figure that has both."""
    then = {(sample.cluster, sample.replicate, sample.record.probe_id): sample for sample in otherwise}
    second = [then.get((each.cluster, each.replicate, each.record.probe_id), each) for each in first]
    units, again = Requests(first).units, Requests(second).units
    moved = {}
    for figure in FIGURES:
        before, after = (
            [unit.value for unit in both[figure.name] if unit.value is not None] for both in (units, again)
        )
        if before and after:
            moved[figure.name] = fmean(after) - fmean(before)
    return moved
