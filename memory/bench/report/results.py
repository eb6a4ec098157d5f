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
    return _results(manifest.experiment_id, [(directory, manifest)], metrics)


def read_results(directories: Sequence[Path]) -> Results:
    """Experiments with figures recomputed from their cells. Repeated labels get the experiment's id."""
    parts = [(directory, read_manifest(directory)) for directory in directories]
    if len(parts) == 1:
        ((directory, manifest),) = parts
        return results_of(directory, manifest, measure(directory, manifest))
    given = [(directory, manifest, variant) for directory, manifest in parts for variant in manifest.variants]
    often = Counter(variant.label for _, _, variant in given)
    played = [manifest.cells_of(variant.label) for _, manifest, variant in given]
    texts = shown_labels([variant for _, _, variant in given], played)
    samples, rivals = [], {}
    for (directory, manifest, variant), cells, text in zip(given, played, texts, strict=True):
        name = variant.label if often[variant.label] == 1 else f"{variant.label}, {manifest.experiment_id}"
        samples.append((name, load_samples(directory, cells)))
        rivals[name] = rival_of(manifest, variant, text.replace(variant.label, name, 1))
    data = {tuple(sorted(item.sha256 for item in manifest.data.values())) for _, manifest in parts}
    metrics = experiment_metrics("several", samples, rivals, comparable=len(data) == 1)
    return _results(f"{len(parts)} experiments", parts, metrics)


def _results(name: str, parts: Sequence[tuple[Path, Manifest]], metrics: Metrics) -> Results:
    """Experiments with figures of all their providers in order."""
    given = [(directory, manifest, variant) for directory, manifest in parts for variant in manifest.variants]
    entries = [
        Entry(
            variant,
            figures,
            tuple((directory / "cells" / cell.cell_id, cell) for cell in manifest.cells_of(variant.label)),
            manifest,
        )
        for (directory, manifest, variant), figures in zip(given, metrics.providers, strict=True)
    ]
    # Architectures, then controls, then references.
    entries.sort(key=lambda item: (not item.is_architecture, item.is_reference))
    return Results(name, tuple(manifest for _, manifest in parts), tuple(entries), metrics)
