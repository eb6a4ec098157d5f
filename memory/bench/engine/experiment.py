"""An experiment from its matrix to its figures: begun, or taken up again where it stopped.

``<output>/<experiment id>/`` holds ``experiment.json`` (the manifest), ``metrics.json``, ``report.html``, and below
``cells/`` a directory for each cell: ``cell.json``, ``results.jsonl`` (judged beats), ``traces.jsonl``,
``texts.jsonl`` where texts are kept, ``journal.jsonl`` (what a resumed cell goes on from), ``times.jsonl`` and
``store``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.cell import Job, cell_directory, open_record
from memory.bench.engine.executors import Executor, make_executor
from memory.bench.engine.manifest import (
    CELL_FILE,
    EXPERIMENT_FILE,
    CellRecord,
    ExperimentManifest,
    RunRecord,
    VariantRecord,
    read_cell,
    read_experiment,
    write_record,
)
from memory.bench.engine.matrix import CellSpec, Experiment, Variant
from memory.bench.engine.provenance import (
    check_records,
    data_record,
    provider_record,
    traits_record,
    version_record,
    wire_truth,
)
from memory.bench.engine.record import JOURNAL_VERSION
from memory.bench.engine.role_set import role_records
from memory.bench.engine.run_cell import error_record
from memory.bench.engine.run_manifest import CheckRecord, ErrorRecord
from memory.bench.engine.rundir import file_hashes, make_directory, new_run_id, owned
from memory.bench.scores.metrics import GameMetrics, Scored, game_metrics
from memory.bench.scores.records import BeatRecord
from memory.contract.errors import ConfigError, MemslotError
from memory.doctor.runner import run_doctor
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider

_TELLING_S, _TELLING_SHARE = 5.0, 0.02


@dataclass(frozen=True, slots=True)
class At:
    """How far an experiment is; sessions and test sessions over all cells. ``left_s``: None if not known yet."""

    cell_id: str
    label: str
    done: int
    total: int
    left_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """An experiment that has ended, well or not: ``manifest.status`` tells."""

    directory: Path
    manifest: ExperimentManifest
    metrics: GameMetrics

    @property
    def report(self) -> Path:
        """The report's file."""
        return self.directory / "report.html"


Progress = Callable[[At], None]


def begin(
    experiment: Experiment,
    *,
    registry: MemoryAdapterRegistry | None = None,
    executor: Executor | None = None,
    models: Mapping[str, Provider] | None = None,
    progress: Progress | None = None,
    on_directory: Callable[[Path], None] | None = None,
) -> Outcome:
    """Play an experiment. Not to be called from within an event loop.

    Args:
        experiment: what :func:`memory.bench.engine.matrix.load_experiment` returned.
        registry: in place of the installed plugins, in this process.
        executor: in place of the one that the settings name.
        models: in place of those that the settings name, by role, in this process.
        progress: called as sessions end.
        on_directory: called with the directory once it is made.

    Raises:
        ConfigError, PluginError: it cannot begin; nothing was written.

    A cell that fails does not raise: it is marked with its reason, and the others are played.
    """
    registry = registry or MemoryAdapterRegistry()
    created = datetime.now(UTC)
    experiment_id = new_run_id(f"game-{experiment.settings.timeline}", created)
    directory = experiment.settings.directory / experiment_id
    manifest = _first_manifest(experiment, registry, experiment_id, created)
    make_directory(directory)
    if on_directory is not None:
        on_directory(directory)
    executor = executor or make_executor(experiment.settings.executor, registry, models)
    with owned(directory):
        return _Run(experiment, directory, manifest, registry, executor, progress).go()


def resume(
    experiment: Experiment,
    directory: Path,
    *,
    registry: MemoryAdapterRegistry | None = None,
    executor: Executor | None = None,
    models: Mapping[str, Provider] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Take an experiment up again: cells that are not completed go on from their journals.

    Args:
        experiment: its matrix, as it is now.
        directory: the experiment's.
        registry, executor, models, progress: as for :func:`begin`.

    Raises:
        ConfigError: the directory holds no experiment, or one whose journals this version does not continue, or
            another process works on it, or the matrix, the data or the prompts have changed since, so that its
            cells would not be comparable.
    """
    registry = registry or MemoryAdapterRegistry()
    earlier = read_experiment(directory)
    if earlier.journal_version != JOURNAL_VERSION:
        raise ConfigError(
            f"{directory.name} cannot be resumed: its journals are of version {earlier.journal_version}, and this "
            f"memslot continues {JOURNAL_VERSION}; take the memslot that began it"
        )
    now = _first_manifest(experiment, registry, earlier.experiment_id, earlier.created_at)
    drifted = [
        part for part in {**earlier.hashes, **now.hashes} if earlier.hashes.get(part) != now.hashes.get(part)
    ]
    if drifted:
        raise ConfigError(
            f"{directory.name} cannot be resumed: {', '.join(sorted(drifted))} changed since it began; "
            "restore what changed, or begin a new experiment"
        )
    executor = executor or make_executor(experiment.settings.executor, registry, models)
    with owned(directory):
        return _Run(experiment, directory, earlier, registry, executor, progress).go()


def load_beats(directory: Path, cells: Sequence[CellRecord]) -> list[Scored]:
    """The judged beats of cells, with their clusters.

    Raises:
        ConfigError: a line is damaged.
    """
    found: list[Scored] = []
    for cell in cells:
        file = directory / "cells" / cell.cell_id / "results.jsonl"
        if not file.exists():
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                beat = BeatRecord.load(json.loads(line))
                ended = cell.status == "completed"
                found.append(Scored(f"{cell.seed}/{cell.persona_id}", beat, cell.replicate, ended))
            except (ValueError, TypeError):
                raise ConfigError(f"{file}, line {number}, is damaged") from None
    return found


@dataclass
class _Run:
    experiment: Experiment
    directory: Path
    manifest: ExperimentManifest
    registry: MemoryAdapterRegistry
    executor: Executor
    progress: Progress | None
    done: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    first: tuple[float, int] | None = None
    stopped: bool = False

    def go(self) -> Outcome:
        self.cells = {cell.cell_id: cell for cell in self.manifest.cells}
        settings = self.experiment.settings.executor
        run = RunRecord(
            began_at=datetime.now(UTC),
            ended_at=None,
            executor=settings.kind,
            workers=1 if settings.kind == "local" else settings.workers,
        )
        earlier = self.manifest.runs
        self._update(runs=(*earlier, run), status="incomplete")
        jobs = self._jobs()
        self._update()
        self._examine(jobs)
        fit = [job for job in jobs if self.manifest.variants[job.spec.variant].error is None]
        self._count_done(jobs)
        for record in self.executor.run(fit, self._tell, lambda: not self.stopped):
            self.stopped = self.stopped or record.status == "stopped"
            self.cells[record.cell_id] = record
            self._update()
        run = run.model_copy(update={"ended_at": datetime.now(UTC)})
        return self._finish((*earlier, run))

    def _finish(self, runs: tuple[RunRecord, ...]) -> Outcome:
        """Figures and page, and only then the word that it has ended."""
        from memory.bench.report.report import write_game_report

        ended = self.manifest.model_copy(
            update={"runs": runs, "status": self.manifest.outcome(), "files": file_hashes(self.directory)}
        )
        self.manifest = ended.model_copy(update={"record_sha256": ended.own_hash()})
        metrics = measure(self.directory, self.manifest)
        write_record(metrics, self.directory / "metrics.json")
        write_game_report(self.directory, self.manifest, metrics)
        write_record(self.manifest, self.directory / EXPERIMENT_FILE)
        return Outcome(self.directory, self.manifest, metrics)

    def _update(self, **fields: Any) -> None:
        cells = tuple(self.cells[cell.cell_id] for cell in self.manifest.cells)
        self.manifest = self.manifest.model_copy(update={"cells": cells, "record_sha256": None, **fields})
        write_record(self.manifest, self.directory / EXPERIMENT_FILE)

    def _jobs(self) -> list[Job]:
        """The cells that are not completed. What a cell says of itself counts, not what was last heard of it."""
        jobs = []
        for spec in self.experiment.cells():
            job = _job(self.experiment, spec, self.directory, self.manifest.experiment_id)
            said = cell_directory(job).joinpath(CELL_FILE).exists()
            self.cells[spec.cell_id] = read_cell(cell_directory(job)) if said else open_record(job)
            if self.cells[spec.cell_id].status != "completed":
                jobs.append(job)
        return jobs

    # -- the doctor -------------------------------------------------------------------------------------

    def _examine(self, jobs: Sequence[Job]) -> None:
        """The doctor's checks of every provider that has cells left, in this process."""
        import anyio

        wanted = {job.spec.variant for job in jobs} if self.experiment.settings.doctor else set()
        variants = list(self.manifest.variants)
        for number in sorted(wanted):
            variant = variants[number].model_copy(update={"error": None})
            try:
                checks, failure = anyio.run(self._doctor, self.experiment.settings.providers[number])
                variant = variant.model_copy(update={"doctor": checks, "error": failure})
            except Exception as error:  # one plugin's defect must not cost the others their night
                variant = variant.model_copy(update={"error": error_record(error)})
            variants[number] = variant
            self._update(variants=tuple(variants))

    async def _doctor(self, variant: Variant) -> tuple[tuple[CheckRecord, ...], ErrorRecord | None]:
        config = self.experiment.config(variant)
        info = self.registry.selected(config)
        config, _ = wire_truth(config, info, self.experiment.timelines(self.experiment.settings.seeds[0]))
        scrub = config.scrubber(config.parse_options(info.options))
        with TemporaryDirectory(prefix="memslot-doctor-") as place:
            report = await run_doctor(
                config,
                registry=self.registry,
                ready_timeout_s=self.experiment.settings.wait_timeout_s,
                data_dir=Path(place),
            )
            checks, failure = check_records(report, place, scrub)
        return checks, error_record(failure) if failure else None

    # -- progress ---------------------------------------------------------------------------------------

    def _count_done(self, jobs: Sequence[Job]) -> None:
        for spec in self.experiment.cells():
            timeline = self.experiment.timelines(spec.seed).timelines[spec.persona]
            self.totals[spec.cell_id] = timeline.steps
        open_cells = {job.spec.cell_id for job in jobs}
        self.done = {name: total for name, total in self.totals.items() if name not in open_cells}

    def _tell(self, cell_id: str, done: int, total: int) -> None:
        self.done[cell_id], self.totals[cell_id] = done, total
        if self.progress is None:
            return
        all_done, everything = sum(self.done.values()), sum(self.totals.values())
        now = time.monotonic()
        since, before = self.first = self.first or (now, all_done)
        # A worker's start, and a session or two, say nothing of the rest.
        telling = now - since >= _TELLING_S or all_done - before >= _TELLING_SHARE * everything
        played = all_done - before if telling else 0
        left = (everything - all_done) * (now - since) / played if played > 0 else None
        with suppress(Exception):  # a display that fails must not cost a cell
            self.progress(At(cell_id, self.cells[cell_id].label, all_done, everything, left))


def measure(directory: Path, manifest: ExperimentManifest) -> GameMetrics:
    """The figures of an experiment, from the results its cells have written.

    Raises:
        ConfigError: results are damaged.
    """
    cells = {
        one.label: [cell for cell in manifest.cells if cell.label == one.label] for one in manifest.variants
    }
    return game_metrics(
        manifest.experiment_id,
        [(label, load_beats(directory, own)) for label, own in cells.items()],
        {variant.label: variant.shown for variant in manifest.variants},
        {variant.label: variant.group for variant in manifest.variants},
    )


# -- what the manifest begins with -----------------------------------------------------------------------


def _job(experiment: Experiment, spec: CellSpec, directory: Path, experiment_id: str) -> Job:
    return Job(experiment, spec, directory.absolute(), experiment_id)


def _first_manifest(
    experiment: Experiment, registry: MemoryAdapterRegistry, experiment_id: str, created: datetime
) -> ExperimentManifest:
    settings = experiment.settings
    data = {str(seed): experiment.timelines(seed) for seed in settings.seeds}
    first = data[str(settings.seeds[0])]
    variants = [_variant(experiment, variant, registry, first) for variant in settings.providers]
    shown = settings.model_dump(mode="json", exclude={"output", "data", "executor", "providers", "roles"})
    directory = settings.directory / experiment_id
    manifest = ExperimentManifest(
        experiment_id=experiment_id,
        created_at=created,
        versions=version_record(
            registry.selected(experiment.config(settings.providers[0])), variants[0].provider
        ),
        bench={**shown, "providers": [variant.label for variant in settings.providers]},
        left_out=experiment.left_out,
        hashes={},
        data={seed: data_record(one) for seed, one in data.items()},
        roles=role_records(settings),
        variants=tuple(variants),
        cells=tuple(
            open_record(_job(experiment, spec, directory, experiment_id)) for spec in experiment.cells()
        ),
    )
    return manifest.model_copy(update={"hashes": manifest.parts()})


def _variant(
    experiment: Experiment, variant: Variant, registry: MemoryAdapterRegistry, data: TimelineSet
) -> VariantRecord:
    config = experiment.config(variant)
    info = registry.selected(config)
    examined, wired = wire_truth(config, info, data)
    options = examined.parse_options(info.options)
    with TemporaryDirectory(prefix="memslot-") as place:
        try:
            slot = build_slot(examined, registry=registry, data_dir=Path(place))
        except MemslotError as error:
            raise type(error)(f"bench.providers, {variant.label}: {error}") from error
        capabilities, traits = tuple(sorted(slot.capabilities())), slot.traits
    provider = provider_record(info, traits)
    return VariantRecord(
        label=variant.label,
        group=variant.group,
        provider=provider,
        distributions=version_record(info, provider).distributions,
        config=examined.redacted(options),
        config_hash=examined.config_hash(options),
        wired=wired,
        budget=config.memory.budget,
        counter=config.token_counter().name,
        capabilities=capabilities,
        traits=traits_record(traits),
        read_only=config.memory.read_only_test_sessions,
    )
