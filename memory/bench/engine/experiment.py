"""Takes an experiment from its matrix to its figures, from the beginning or from where it stopped.

``docs/experiment.md`` describes its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from memory.bench.engine.cell import Job, open_record
from memory.bench.engine.context import CellState
from memory.bench.engine.executors import Executor, make_executor
from memory.bench.engine.files import (
    OTHERWISE_FILE,
    each_line,
    exclusively,
    make_directory,
    new_id,
    read_record,
    write_record,
)
from memory.bench.engine.manifest import (
    MANIFEST_FILE,
    CellRecord,
    ErrorRecord,
    Manifest,
    VariantRecord,
    error_record,
    read_manifest,
    shown_labels,
)
from memory.bench.engine.matrix import Experiment
from memory.bench.engine.provenance import (
    first_manifest,
    wire_truth,
    without_broken,
)
from memory.bench.engine.settings import Variant
from memory.bench.scores.metrics import Rival, experiment_metrics, with_second_time
from memory.bench.scores.model import Metrics, ProbeRecord, Sample
from memory.contract.errors import ConfigError
from memory.doctor.report import CheckResult
from memory.doctor.runner import Doctor
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider

METRICS_FILE = "metrics.json"


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of an experiment. ``done`` and ``total`` count steps over all cells."""

    cell_id: str
    label: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """An experiment that has ended. ``manifest.status`` says how."""

    directory: Path
    manifest: Manifest
    metrics: Metrics

    @property
    def report(self) -> Path:
        return self.directory / "report.html"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks of a running experiment."""

    progress: Callable[[Position], None] | None = None
    on_directory: Callable[[Path], None] = lambda directory: None  # when work in it begins
    on_error: Callable[[Exception], None] | None = None  # with an error that the manifest will record
    write_page: Callable[[Path, Manifest, Metrics], object] | None = None  # before the final manifest


def begin(
    experiment: Experiment,
    resume: Path | None = None,
    *,
    registry: MemoryAdapterRegistry | None = None,
    executor: Executor | None = None,
    models: Mapping[str, Provider] | None = None,
    listeners: Listeners | None = None,
) -> Outcome:
    """Play an experiment. Do not call it within an event loop.

    A failing cell does not raise: its record says why, and the other cells are played.

    Args:
        resume: an earlier experiment's directory. Cells not completed continue from their journals.
        registry, executor, models: replace the installed ones in this process; ``models`` by role.

    Raises:
        ConfigError, PluginError: nothing has been written. Matrix, data or prompts may have changed since the
            earlier experiment, so that the cells would not be comparable.
    """
    earlier = read_manifest(resume) if resume is not None else None
    created = earlier.created_at if earlier else datetime.now(UTC)
    settings = experiment.settings
    directory = resume or settings.directory / new_id(settings.timeline, created)
    registry = registry or MemoryAdapterRegistry()
    experiment, variants = without_broken(experiment, registry)
    jobs = (Job(experiment, spec, directory, directory.name) for spec in experiment.cells())
    cells = tuple(map(open_record, jobs))
    with experiment.placing():
        manifest = first_manifest(experiment, variants, directory.name, created, models, cells)
        executor = executor or make_executor(settings.executor, registry, models)
    if earlier is None:
        make_directory(directory, experiment.problem.place((experiment.block, "output")))
    else:
        _check_hashes(directory.name, earlier.hashes, manifest.hashes)
    listeners = listeners or Listeners()
    with exclusively(directory), experiment.placing():
        listeners.on_directory(directory)
        return _Run(experiment, directory, earlier or manifest, registry, executor, listeners).play()


def _check_hashes(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    if drifted := [part for part in {**before, **after} if before.get(part) != after.get(part)]:
        raise ConfigError(
            f"{name} cannot be resumed: {', '.join(sorted(drifted))} changed since it began; "
            "restore what changed, or begin a new experiment"
        )


def load_samples(directory: Path, cells: Sequence[CellRecord], file: str = "results.jsonl") -> list[Sample]:
    """The records of cells with their clusters. Raises ConfigError if a line is damaged."""
    found: list[Sample] = []
    for cell in cells:
        path = directory / "cells" / cell.cell_id / file
        for number, row in enumerate(each_line(path), start=1):
            try:
                record = ProbeRecord.load(row)
            except TypeError:
                raise ConfigError(f"{path}, line {number}, is damaged") from None
            found.append(Sample(f"{cell.seed}/{cell.persona_id}", record, cell.replicate))
    return found


def measure(directory: Path, manifest: Manifest) -> Metrics:
    """The figures of an experiment, computed from the results of its cells."""
    variants = manifest.variants
    played = [manifest.cells_of(each.label) for each in variants]
    samples = {
        each.label: load_samples(directory, cells) for each, cells in zip(variants, played, strict=True)
    }
    metrics = experiment_metrics(
        manifest.experiment_id,
        [*samples.items()],
        {
            variant.label: rival_of(manifest, variant, text)
            for variant, text in zip(variants, shown_labels(variants, played), strict=True)
        },
    )
    providers = []
    for found in metrics.providers:
        cells = manifest.cells_of(found.label)
        if any(cell.counts.get("asked_again") for cell in cells):
            otherwise = load_samples(directory, cells, OTHERWISE_FILE)
            found = with_second_time(found, samples[found.label], otherwise)
        providers.append(found)
    return metrics.model_copy(update={"providers": tuple(providers)})


def rival_of(manifest: Manifest, variant: VariantRecord, shown: str) -> Rival:
    """With which providers a provider is compared. ``shown`` is its label in tables."""
    return Rival(
        shown=shown,
        standing=variant.standing,
        alike=(variant.group, variant.budget.max_tokens, manifest.settings.get("event_context")),
        named=manifest.settings.get("control") in (variant.label, variant.series, *variant.also),
    )


def read_metrics(directory: Path) -> Metrics:
    """The recorded figures of an experiment. Raises ConfigError if they are missing or damaged."""
    return read_record(Metrics, directory / METRICS_FILE)


def finish(directory: Path, manifest: Manifest, listeners: Listeners) -> Outcome:
    """Write figures and page, and only then the manifest that says that the experiment has ended."""
    metrics = measure(directory, manifest)
    status = manifest.outcome(troubled=any(provider.failed for provider in metrics.providers))
    manifest = manifest.model_copy(update={"status": status})
    manifest = manifest.model_copy(update={"record_sha256": manifest.own_hash()})
    write_record(metrics, directory / METRICS_FILE)
    if listeners.write_page is not None:
        listeners.write_page(directory, manifest, metrics)
    write_record(manifest, directory / MANIFEST_FILE)
    return Outcome(directory, manifest, metrics)


@dataclass
class _Run:
    experiment: Experiment
    directory: Path
    manifest: Manifest
    registry: MemoryAdapterRegistry
    executor: Executor
    listeners: Listeners
    done: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def play(self) -> Outcome:
        self.cells = {cell.cell_id: cell for cell in self.manifest.cells}
        jobs = []
        for spec in self.experiment.cells():
            job = Job(self.experiment, spec, self.directory.absolute(), self.manifest.experiment_id)
            self.totals[spec.cell_id] = job.timeline.steps
            if self.cells[spec.cell_id].status == "completed":
                self.done[spec.cell_id] = job.timeline.steps
            else:
                jobs.append(job)
        self._update(status="incomplete")
        self._examine(jobs)
        ready = [job for job in jobs if self.manifest.variants[job.spec.variant].error is None]
        for record in self.executor.run(ready, self._report):
            self.cells[record.cell_id] = record
            self._update()
        self._fill_results(jobs)
        return finish(self.directory, self.manifest, self.listeners)

    def _fill_results(self, jobs: Sequence[Job]) -> None:
        """Write records for cells without results, so that nothing leaves a denominator."""
        for job in jobs:
            if not (job.cell_directory / "results.jsonl").exists():
                cell, variant = self.cells[job.spec.cell_id], self.manifest.variants[job.spec.variant]
                job.cell_directory.mkdir(parents=True, exist_ok=True)
                fault = cell.fault or ("provider" if variant.error else "harness")
                job.write_files(CellState(), fault, cell.error or variant.error)

    def _update(self, **fields: Any) -> None:
        cells = tuple(self.cells[cell.cell_id] for cell in self.manifest.cells)
        self.manifest = self.manifest.model_copy(update={"cells": cells, "record_sha256": None, **fields})
        write_record(self.manifest, self.directory / MANIFEST_FILE)

    def _examine(self, jobs: Sequence[Job]) -> None:
        """Run the doctor's checks of each provider with open cells, in this process."""
        wanted = {job.spec.variant for job in jobs} if self.experiment.settings.doctor else set()
        variants = list(self.manifest.variants)
        for number in sorted(wanted):
            found: dict[str, Any]
            try:
                checks = anyio.run(self._doctor, self.experiment.settings.providers[number])
                failed = next((check for check in checks if check.status == "failed"), None)
                why = f"doctor: {failed.name}: {failed.evidence}" if failed else ""
                error = ErrorRecord(type="CheckFailed", message=why) if failed else None
                found = {"doctor": checks, "error": error}
            except Exception as failure:  # one plugin's defect must not stop the others
                if self.listeners.on_error is not None:
                    self.listeners.on_error(failure)
                found = {"error": error_record(failure)}
            variants[number] = variants[number].model_copy(update=found)
            self._update(variants=tuple(variants))

    async def _doctor(self, variant: Variant) -> tuple[CheckResult, ...]:
        config = self.experiment.config(variant)
        info = self.registry.selected(config)
        config, _ = wire_truth(config, info, self.experiment.timelines(self.experiment.settings.seeds[0]))
        with TemporaryDirectory(prefix="memslot-doctor-") as place:
            scrub = config.scrubber(config.parse_options(info.options), {place: "<doctor>"})
            report = await Doctor(
                config,
                registry=self.registry,
                on_error=self.listeners.on_error,
                ready_timeout_s=self.experiment.settings.wait_timeout_s,
                data_dir=Path(place),
            ).run()
        return tuple(
            check.model_copy(update={"fix": None, "evidence": scrub(check.evidence)})
            for check in report.checks
        )

    def _report(self, cell_id: str, done: int, total: int) -> None:
        self.done[cell_id], self.totals[cell_id] = done, total
        if self.listeners.progress is None:
            return
        all_done, everything = sum(self.done.values()), sum(self.totals.values())
        with suppress(Exception):  # a failing display must not fail a cell
            self.listeners.progress(Position(cell_id, self.cells[cell_id].label, all_done, everything))
