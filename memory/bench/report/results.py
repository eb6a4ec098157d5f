"""The content of pages and tables: one experiment, or several side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.bench.engine.experiment import load_samples, measure, rival_of
from memory.bench.engine.manifest import CellRecord, Manifest, VariantRecord, read_manifest, shown_labels
from memory.bench.scores.metrics import experiment_metrics
from memory.bench.scores.model import Estimate, Measure, Metrics, ProviderMetrics


@dataclass(frozen=True)
class Entry:
    """A provider with one setting, in one experiment."""

    variant: VariantRecord
    metrics: ProviderMetrics
    cells: tuple[tuple[Path, CellRecord], ...]  # directory and record of each
    manifest: Manifest

    @property
    def shown(self) -> str:
        return self.metrics.shown

    @property
    def is_architecture(self) -> bool:
        """Whether it is a memory architecture, not a control."""
        return self.variant.standing == "architecture"

    @property
    def is_reference(self) -> bool:
        return self.variant.standing == "reference"

    def estimate(self, figure: str) -> Estimate:
        return self.measure(figure).estimate

    def measure(self, figure: str) -> Measure:
        return next(measure for measure in self.metrics.measures if measure.name == figure)


@dataclass(frozen=True)
class Results:
    """Experiments that are shown together, architectures first."""

    name: str  # title of the page
    manifests: tuple[Manifest, ...]
    entries: tuple[Entry, ...]
    metrics: Metrics

    @property
    def headline(self) -> str | None:
        """The figure that decides; None if nothing is known."""
        return next(iter(self.metrics.headlines), None)


def results_of(directory: Path, manifest: Manifest, metrics: Metrics) -> Results:
    """One experiment with its figures."""
    entries = _entries([(directory, manifest)], [{}], metrics)
    return Results(manifest.experiment_id, (manifest,), entries, metrics)


def read_results(directories: Sequence[Path]) -> Results:
    """Experiments with figures recomputed from their cells. Repeated labels get the experiment's id."""
    parts = [(directory, read_manifest(directory)) for directory in directories]
    if len(parts) == 1:
        ((directory, manifest),) = parts
        return results_of(directory, manifest, measure(directory, manifest))
    often = Counter(variant.label for _, manifest in parts for variant in manifest.variants)
    labels: list[dict[str, str]] = []
    given = [(manifest, variant) for _, manifest in parts for variant in manifest.variants]
    played = [manifest.cells_of(variant.label) for manifest, variant in given]
    texts = iter(shown_labels([variant for _, variant in given], played))
    samples, rivals = [], {}
    for directory, manifest in parts:
        labels.append({})
        for variant in manifest.variants:
            name = variant.label
            if often[name] > 1:
                name += f", {manifest.experiment_id}"
            labels[-1][variant.label] = name
            samples.append((name, load_samples(directory, manifest.cells_of(variant.label))))
            rivals[name] = rival_of(manifest, variant, next(texts).replace(variant.label, name, 1))
    data = {tuple(sorted(item.sha256 for item in manifest.data.values())) for _, manifest in parts}
    metrics = experiment_metrics("several", samples, rivals, comparable=len(data) == 1)
    manifests = tuple(manifest for _, manifest in parts)
    return Results(f"{len(parts)} experiments", manifests, _entries(parts, labels, metrics), metrics)


def _entries(
    parts: Sequence[tuple[Path, Manifest]], labels: Sequence[dict[str, str]], metrics: Metrics
) -> tuple[Entry, ...]:
    figures = {provider.label: provider for provider in metrics.providers}
    entries = [
        Entry(
            variant,
            figures[names.get(variant.label, variant.label)],
            tuple((directory / "cells" / cell.cell_id, cell) for cell in manifest.cells_of(variant.label)),
            manifest,
        )
        for (directory, manifest), names in zip(parts, labels, strict=True)
        for variant in manifest.variants
    ]
    # Architectures, then controls, then references.
    return tuple(sorted(entries, key=lambda item: (not item.is_architecture, item.is_reference)))
