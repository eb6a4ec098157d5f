"""The content of pages and tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memory.bench.engine.experiment import measure
from memory.bench.engine.manifest import CellRecord, Manifest, VariantRecord, read_manifest
from memory.bench.scores.model import Estimate, Measure, Metrics, ProviderMetrics


@dataclass(frozen=True)
class Entry:
    """A provider with one setting."""

    variant: VariantRecord
    metrics: ProviderMetrics
    cells: tuple[tuple[Path, CellRecord], ...]  # directory and record of each

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
    """An experiment, its architectures first."""

    manifest: Manifest
    entries: tuple[Entry, ...]
    metrics: Metrics

    @property
    def headline(self) -> str | None:
        """The figure that decides; None if nothing is known."""
        return next(iter(self.metrics.headlines), None)


def results_of(directory: Path, manifest: Manifest, metrics: Metrics) -> Results:
    entries = [
        Entry(
            variant,
            figures,
            tuple((directory / "cells" / cell.cell_id, cell) for cell in manifest.cells_of(variant.label)),
        )
        for variant, figures in zip(manifest.variants, metrics.providers, strict=True)
    ]
    # Architectures, then controls, then references.
    entries.sort(key=lambda item: (not item.is_architecture, item.is_reference))
    return Results(manifest, tuple(entries), metrics)


def read_results(directory: Path) -> Results:
    """An experiment with its figures computed from its cells."""
    manifest = read_manifest(directory)
    return results_of(directory, manifest, measure(directory, manifest))
