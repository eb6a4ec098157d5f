"""A run: one provider, one timeline set, one directory with everything about it.

The doctor's checks come first. Each persona gets a fresh scope. Sessions are written in time order; at a probe the
runner waits until ready, makes the slot read-only, asks, scores, and opens the slot again (spec 4.2). Scopes are
kept for later analysis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pydantic import BaseModel

from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.diagnostics import diagnosed
from memory.bench.engine.provenance import (
    check_records,
    data_record,
    provider_record,
    traits_record,
    version_record,
    wire_truth,
)
from memory.bench.engine.run_cell import Cell, Phase, Tally, Work, error_record
from memory.bench.engine.run_manifest import CellRecord, ErrorRecord, RunManifest, TimingRecord, TokenRecord
from memory.bench.engine.run_settings import (
    RunSettings,
    budget_of,
    load_timelines,
    published_config,
    run_hash,
    run_settings,
)
from memory.bench.engine.rundir import RunDirectory, file_hashes, new_run_id
from memory.bench.report.run_report import write_report
from memory.bench.scores.figures import RunMetrics
from memory.bench.scores.run_metrics import cost_scores, evidence_scores, preference_scores
from memory.contract.errors import BackendUnavailable
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.doctor.report import Waiting
from memory.doctor.runner import run_doctor
from memory.doctor.waiting import Patience
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.hookspecs import PluginInfo
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.slot import MemorySlot

_MOST_WARNINGS = 40
RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``events`` and ``probes`` count over all personas."""

    provider: str
    persona_id: str
    phase: Phase
    events: int
    events_total: int
    probes: int
    probes_total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run that has ended, well or not: ``manifest.status`` tells."""

    directory: Path
    manifest: RunManifest
    metrics: RunMetrics

    @property
    def report(self) -> Path:
        """The report's file."""
        return self.directory / "report.html"


async def run_benchmark(
    config: str | Path | Mapping[str, Any] | MemslotConfig,
    *,
    settings: RunSettings | None = None,
    data: TimelineSet | None = None,
    registry: MemoryAdapterRegistry | None = None,
    progress: ProgressCallback | None = None,
    on_wait: Callable[[Waiting], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
    on_directory: Callable[[Path], None] | None = None,
) -> RunOutcome:
    """Run one provider over a timeline set and write ``<output>/<run id>/``.

    Args:
        config: a YAML file, its content, or what :func:`memory.plugins.config.load_config` returned.
        settings: in place of the configuration's ``run:`` block.
        data: in place of the timelines that the settings name.
        registry: in place of the installed plugins.
        progress: called after every write, wait and probe; must be quick.
        on_wait: called while the doctor, or a wait for readiness, takes its time.
        on_error: called with each error that becomes a line of the manifest, for its traceback.
        on_directory: called with the run's directory once it is made.

    Raises:
        ConfigError, PluginError: the run cannot begin; nothing was written.

    A backend that fails does not raise: its cells are marked failed in the manifest, with the reason. Where it
    fails a check of the doctor, no cell is run. Should the run itself be ended (an interrupt, a defect), its
    manifest stays ``incomplete``.
    """
    chosen = load_config(config)
    settings = settings or run_settings(chosen)
    with chosen.problem.placing():
        timelines = data or load_timelines(settings)
        run = _Run(chosen, settings, timelines, registry or MemoryAdapterRegistry(), progress)
    run.patience, run.on_error = Patience(on_wait), on_error
    if on_directory is not None:
        on_directory(run.files.path)
    return await run.go()


class _Run:
    patience: Patience
    on_error: Callable[[Exception], None] | None

    def __init__(
        self,
        config: MemslotConfig,
        settings: RunSettings,
        data: TimelineSet,
        registry: MemoryAdapterRegistry,
        progress: ProgressCallback | None,
    ) -> None:
        self.config = config
        self.settings = settings
        self.data = data
        self.progress = progress
        self.budget: ContextBudget = budget_of(config, settings)
        self.tally = Tally()
        self.created = datetime.now(UTC)
        self.began = time.perf_counter()
        given = config.memory.scope
        label = given.run_id if given else data.name
        self.run_id = new_run_id(f"{label}-{config.provider}", self.created)
        info = registry.selected(config)
        self.examined, self.wired = wire_truth(config, info, data)
        options = self.examined.parse_options(info.options)
        path = settings.directory / self.run_id
        here = dict.fromkeys((str(path), str(path.resolve())), "<run>")
        self.scrub = self.tally.scrub = self.examined.scrubber(options, here)
        self.files = RunDirectory(
            path, self.scrub, keep_texts=settings.keep_texts, diagnostics=bool(settings.diagnostics)
        )
        # The run id makes every scope new, whatever an earlier run left in a shared backend.
        self.scopes = [
            MemoryScope(
                run_id=self.run_id,
                persona_id=timeline.persona_id,
                backend_namespace=given.backend_namespace if given else None,
                agent_id=given.agent_id if given else None,
            )
            for timeline in data.timelines
        ]
        self.cells: list[Cell] = []
        self.done = [0, 0]
        self.registry = registry
        with self.files.prepared():  # before the provider, which may put its store there
            self.slot: MemorySlot = build_slot(
                self.examined,
                token_counter=config.token_counter(),
                trace_sink=self.files,
                registry=registry,
                data_dir=self.files.store,
                neutral_sections=True,
            )
            self.manifest = self._first_manifest(info, options)
            self.files.provider = self.manifest.provider.label
            self.files.begin(self.manifest)

    async def go(self) -> RunOutcome:
        try:
            async with self.slot, self.patience.watching():
                if not self.settings.doctor or await self._fit():
                    await self._run_cells()
                    await self._diagnose()
        except BaseException as error:
            self.files.close()
            self._update(error=self._error(error))
            self.files.write_manifest(self.manifest)
            raise
        self._update()
        metrics = self._metrics()
        self.files.write_metrics(metrics)
        cells = self._cell_records()
        failed = any(
            cell.status != "completed" or cell.probe_errors or cell.probes_not_ready for cell in cells
        )
        self._update(
            status="failed" if failed else "completed",
            finished_at=datetime.now(UTC),
            evidence_by=metrics.evidence.by if metrics.evidence else None,
        )
        self.files.finish()
        self._update(files=file_hashes(self.files.path))
        write_report(self.files.path, self.manifest, metrics)
        self.files.write_manifest(self.manifest)
        return RunOutcome(self.files.path, self.manifest, metrics)

    async def _fit(self) -> bool:
        """Whether no check of the doctor fails, which has an adapter and, where it can, a store of its own."""
        start = time.perf_counter()
        with TemporaryDirectory(prefix="memslot-doctor-") as directory:
            report = await run_doctor(
                self.examined,
                registry=self.registry,
                on_wait=self.patience.tell,
                on_error=self.on_error,
                ready_timeout_s=self.settings.wait_timeout_s,
                data_dir=Path(directory),
            )
            records, failure = check_records(report, directory, self.scrub)
        self.tally.doctor_ms = (time.perf_counter() - start) * 1000
        self.tally.warn(f"doctor: {name} could not be seen in time" for name in report.pending)
        self._update(doctor=records)
        if failure is not None:
            self._update(error=self._error(failure))
        return failure is None

    async def _run_cells(self) -> None:
        start = time.perf_counter()
        health = await self.slot.health()
        self.tally.setup_ms += (time.perf_counter() - start) * 1000
        self._update(health=self._clean(health, "details", "warnings"))
        self.files.write_manifest(self.manifest)
        if health.status == "unavailable":
            down = BackendUnavailable(f"{self.config.provider} is unavailable; see health")
            self._update(error=self._error(down))
            return
        for timeline, scope in zip(self.data.timelines, self.scopes, strict=True):
            work = Work(
                slot=self.slot,
                settings=self.settings,
                budget=self.budget,
                read_only=self.config.memory.read_only_test_sessions,
                files=self.files,
                tally=self.tally,
                progress=partial(self._report, timeline.persona_id),
                patience=self.patience,
                on_error=self.on_error,
            )
            others = [other for other in self.data.timelines if other is not timeline]
            self.cells.append(
                Cell(work, timeline, scope, [phrase for other in others for phrase in other.canaries])
            )
            await self.cells[-1].run()

    async def _diagnose(self) -> None:
        """Ask each persona that was reached what the settings name, after the last probe of all."""
        for scope in self.scopes[: len(self.cells)]:
            for operation, arguments in self.settings.diagnostics.items():
                row = await diagnosed(
                    self.slot,
                    scope,
                    operation,
                    arguments,
                    keep_texts=self.settings.keep_texts,
                    clean=lambda error: self._clean(error, "message", "diagnostics"),
                )
                self.files.add_diagnosis(row)

    def _cell_records(self) -> tuple[CellRecord, ...]:
        """Of every persona, those not reached included."""
        begun = [
            cell.record.model_copy(
                update={
                    "error": cell.record.error and self._clean(cell.record.error, "message", "diagnostics")
                }
            )
            for cell in self.cells
        ]
        rest = [CellRecord(persona_id=scope.persona_id, scope=scope) for scope in self.scopes[len(begun) :]]
        return (*begun, *rest)

    def _report(self, persona: str, phase: Phase, events: int, probes: int) -> None:
        self.done[0] += events
        self.done[1] += probes
        if self.progress is not None:
            record = self.manifest.data
            self.progress(
                Progress(
                    self.config.provider,
                    persona,
                    phase,
                    self.done[0],
                    record.turns,
                    self.done[1],
                    record.probes,
                )
            )

    def _error(self, error: BaseException) -> ErrorRecord:
        return self._clean(error_record(error), "message", "diagnostics")

    def _clean(self, record: RecordT, *fields: str) -> RecordT:
        """A record that others wrote into, without what the configuration hides and this machine's paths."""
        return record.model_copy(update={name: self.scrub(getattr(record, name)) for name in fields})

    def _first_manifest(self, info: PluginInfo, options: BaseModel) -> RunManifest:
        config, data = self.config, self.data
        provider = provider_record(info, self.slot.traits)
        not_run = []
        if self.settings.limit_questions is not None:
            not_run.append(
                f"only the first {self.settings.limit_questions} questions of each conversation are asked"
            )
        return RunManifest(
            run_id=self.run_id,
            created_at=self.created,
            provider=provider,
            versions=version_record(info, provider),
            config=published_config(config, options, self.settings),
            config_hash=run_hash(config, options, self.settings),
            wired=self.wired,
            budget=self.budget,
            cs_fields=self.settings.cs,
            seeds={} if data.seed is None else {"timeline": data.seed},
            replicate=self.settings.replicate,
            data=data_record(data),
            capabilities=tuple(sorted(self.slot.capabilities())),
            traits=traits_record(self.slot.traits),
            cells=self._cell_records(),
            tokens=TokenRecord(counter=self.slot.token_counter.name),
            not_run=tuple(not_run),
        )

    def _metrics(self) -> RunMetrics:
        tally, records = self.tally, self.tally.records
        return RunMetrics(
            run_id=self.run_id,
            provider=self.config.provider,
            label=self.manifest.provider.label,
            timeline=self.data.name,
            problems=tuple(self.manifest.problems),
            planned=self.data.probe_count,
            probes=len(records),
            probe_errors=sum(record.status == "failed" for record in records),
            unconfirmed=sum(record.status == "unconfirmed" for record in records),
            not_ready=sum(record.status == "not_ready" for record in records),
            evidence=evidence_scores(records),
            preferences=preference_scores(records),
            cost=cost_scores(records, tally.write_ms, tally.ingest_ms, tally.wait_ms).model_copy(
                update={"llm_calls": self.files.llm.ingest.calls, "llm_tokens": self.files.llm.ingest.tokens}
            ),
        )

    def _update(self, **fields: Any) -> None:
        """Bring the manifest up to date."""
        tally = self.tally
        timings = TimingRecord(
            doctor_ms=tally.doctor_ms,
            setup_ms=tally.setup_ms,
            ingest_ms=tally.ingest_ms,
            wait_ms=tally.wait_ms,
            retrieve_ms=tally.retrieve_ms,
            format_ms=tally.format_ms,
            total_ms=(time.perf_counter() - self.began) * 1000,
        )
        tokens = TokenRecord(
            counter=self.slot.token_counter.name,
            written=tally.written_tokens,
            context=tally.context_tokens,
            ingest_calls=self.files.llm.ingest.calls,
            ingest_model=self.files.llm.ingest.tokens,
            retrieve_calls=self.files.llm.retrieve.calls,
            retrieve_model=self.files.llm.retrieve.tokens,
        )
        warnings = [f"{text} ({count}x)" for text, count in tally.warnings.most_common(_MOST_WARNINGS)]
        if not self.config.memory.read_only_test_sessions:
            warnings.insert(0, "test sessions were not read-only (memory.read_only_test_sessions is false)")
        self.manifest = self.manifest.model_copy(
            update={
                "cells": self._cell_records(),
                "timings": timings,
                "tokens": tokens,
                "warnings": tuple(warnings),
                **fields,
            }
        )
