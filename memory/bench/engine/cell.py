"""Plays one cell, from its configuration to its record, in any process."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from memory.bench.data.timeline import Timeline
from memory.bench.engine.context import CellContext, CellState, looked_for
from memory.bench.engine.files import (
    OTHERWISE_FILE,
    CellJournal,
    HarnessFailed,
    Interrupted,
    Stopped,
    Times,
    TraceFile,
    each_line,
    exclusively,
    file_hashes,
    json_lines,
    write_whole,
)
from memory.bench.engine.manifest import CellRecord, ErrorRecord, error_record
from memory.bench.engine.matrix import CellSpec, Experiment
from memory.bench.engine.models import RoleSet
from memory.bench.engine.play import CellPlayer, Openings
from memory.bench.engine.probe_session import Answering, completed
from memory.bench.engine.provenance import wire_truth
from memory.bench.scores.metrics import llm_use
from memory.bench.scores.model import ProbeRecord
from memory.contract._model import MAX_ID_LENGTH
from memory.contract.errors import ConfigError
from memory.contract.receipts import BackendHealth
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig
from memory.plugins.opening import build_slot
from memory.plugins.redaction import Scrubber
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider
from memory.slot.slot import MemorySlot

Progress = Callable[[str, int, int], None]  # called with a cell's id, its finished steps and its total
Fault = Literal["provider", "harness"]


@dataclass(frozen=True)
class Job:
    """A cell to be played. It can be sent to another process, or to a machine that sees ``directory``."""

    experiment: Experiment
    spec: CellSpec
    directory: Path
    experiment_id: str

    @property
    def cell_directory(self) -> Path:
        return self.directory / "cells" / self.spec.cell_id

    @property
    def timeline(self) -> Timeline:
        return self.experiment.timelines(self.spec.seed).timelines[self.spec.persona]

    def write_files(self, state: CellState, fault: Fault | None, error: ErrorRecord | None) -> None:
        """Write the files that the journal decides, with records of requests never asked."""
        roles = self.experiment.settings.roles
        answering = Answering(roles.reader.provider is not None, roles.answer_judge.provider is not None)
        records = completed(state.records, self.timeline, answering=answering, fault=fault, error=error)
        for name, content in derived_files(state, records, self.spec.persona_id).items():
            write_whole(self.cell_directory / name, content)


def derived_files(state: CellState, records: Sequence[ProbeRecord], persona_id: str) -> dict[str, bytes]:
    """The files that a cell's journal decides, by name. ``records`` holds one for each planned request."""
    files = {
        "results.jsonl": json_lines(records),
        OTHERWISE_FILE: json_lines(state.again),
        "texts.jsonl": json_lines({"persona_id": persona_id, **text} for text in state.texts),
    }
    return {name: content for name, content in files.items() if content or name == "results.jsonl"}


def open_record(job: Job) -> CellRecord:
    """The record of a cell before it is played."""
    spec, given = job.spec, job.experiment.scope
    # The scope must not tell a memory the seed of the data that it will be asked about.
    secret = hashlib.sha256(f"{job.experiment_id}/{spec.cell_id}".encode()).hexdigest()[:20]
    own = {"run_id": f"{given.run_id}.{secret}" if given else secret, "persona_id": spec.persona_id}
    if (over := len(own["run_id"]) - MAX_ID_LENGTH) > 0:
        raise ConfigError(f"memory.scope.run_id: a run extends it; shorten it by {over} characters")
    return CellRecord(
        cell_id=spec.cell_id,
        label=spec.label,
        persona_id=spec.persona_id,
        seed=spec.seed,
        replicate=spec.replicate,
        scope=MemoryScope.model_validate({**(given.model_dump() if given else {}), **own}),
    )


def timings(directory: Path) -> dict[str, float]:
    """Milliseconds by phase, as far as a cell's files record them."""
    phases: Counter[str] = Counter()
    with contextlib.suppress(ConfigError):
        for row in each_line(directory / "times.jsonl"):
            phases.update({phase: sum(values) for phase, values in row.items()})
    return {phase: round(ms, 3) for phase, ms in sorted(phases.items())}


def run_job(
    job: Job,
    progress: Progress | None = None,
    registry: MemoryAdapterRegistry | None = None,
    models: Mapping[str, Provider] | None = None,
) -> CellRecord:
    """Play a cell from the end of its journal, on its own event loop. Returns its record.

    A failing cell does not raise; its record says why.
    """
    directory = job.cell_directory
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with exclusively(directory, "cell"):  # a worker that was taken for lost may still be working
            return anyio.run(_Cell(job, progress, registry or MemoryAdapterRegistry(), models).run)
    except ConfigError as error:  # locked elsewhere
        return ended_record(job, "failed", error_record(error))


def ended_record(job: Job, status: str, error: ErrorRecord) -> CellRecord:
    """The record of a cell that wrote none itself."""
    return open_record(job).model_copy(update={"status": status, "error": error, "fault": "harness"})


def _built(config: MemslotConfig, place: Path, **given: Any) -> MemorySlot:
    # A cell waits for each write and ends if one fails. Only a configured journal keeps writes for later.
    memory = config.memory.model_copy(update={"journal": config.journal})
    config = replace(config, memory=memory)
    return build_slot(config, data_dir=place, neutral_sections=True, **given)


class _Cell:
    def __init__(
        self,
        job: Job,
        progress: Progress | None,
        registry: MemoryAdapterRegistry,
        models: Mapping[str, Provider] | None,
    ) -> None:
        self.job, self.directory, self.progress = job, job.cell_directory, progress
        self.registry, self.models = registry, models
        self.times = Times(self.directory / "times.jsonl")
        self.state = CellState()
        self.timeline = job.timeline
        self.health: BackendHealth | None = None
        self.scrub: Scrubber | None = None

    async def run(self) -> CellRecord:
        began = time.perf_counter()
        status, error = "completed", None
        fault: Fault | None = None
        try:
            await self._play()
        except Interrupted as reached:
            status, error, fault = "stopped", self._error(reached), "harness"
        except Exception as failure:  # one cell's defect must not stop the others
            # Any other error counts as the provider's, whose code may have raised it.
            harness = isinstance(failure, (HarnessFailed, ConfigError, OSError))
            status, error, fault = "failed", self._error(failure), "harness" if harness else "provider"
        finally:
            self.times.flush()
        try:
            self.job.write_files(self.state, fault, error)
        except HarnessFailed as failure:
            status, error, fault = "failed", error or self._error(failure), fault or "harness"
        return CellRecord.model_validate(
            {
                **open_record(self.job).model_dump(),
                "health": self.health and self.health.model_dump(),
                "status": status,
                "error": error,
                "fault": fault,
                "native_scope": self.state.native_scope,
                **self.state.of_record(),
                "usage": llm_use(each_line(self.directory / "traces.jsonl")),
                "timings": timings(self.directory),
                "wall_ms": round((time.perf_counter() - began) * 1000, 3),
                "files": file_hashes(self.directory),
            }
        )

    def _error(self, error: Exception) -> ErrorRecord:
        """The error's record, without hidden values of the configuration and paths of this machine."""
        record = error_record(error)
        if self.scrub is None:
            return record
        return record.model_copy(update={"message": self.scrub(record.message)})

    async def _play(self) -> None:
        job, experiment = self.job, self.job.experiment
        config = experiment.config(experiment.settings.providers[job.spec.variant])
        info = self.registry.selected(config)
        data = experiment.timelines(job.spec.seed)
        config, _ = wire_truth(config, info, data)
        self.scrub = config.scrubber(config.parse_options(info.options), {str(job.directory): "<run>"})
        journal = CellJournal(self.directory / "journal.jsonl")
        roles = RoleSet(
            experiment.settings,
            data,
            replicate=job.spec.replicate,
            providers=self.models,
        )
        traces = TraceFile(self.directory / "traces.jsonl", self.scrub)
        build = partial(
            _built, config, token_counter=config.token_counter(), trace_sink=traces, registry=self.registry
        )
        async with roles, AsyncExitStack() as stack:
            with self.times.of("open"):
                openings = await stack.enter_async_context(Openings(build, self.directory / "store"))
            context = CellContext(
                slot=openings.slot,
                scope=open_record(job).scope,
                settings=experiment.settings,
                budget=config.memory.budget,
                roles=roles.roles,
                journal=journal,
                traces=traces,
                times=self.times,
                **looked_for(self.timeline, data.timelines),
                progress=self._report,
                take_usage=roles.take_usage,
                read_only=config.memory.read_only_test_sessions,
                scrub=self.scrub,
            )
            player = CellPlayer(context, openings, self.timeline)
            self.state = player.state
            with self.times.of("health"):
                health = await openings.slot.health()
            self._check_health(health, self.scrub)
            await player.play()
            traces.check()
            with self.times.of("close"):
                await stack.aclose()
        if not experiment.settings.texts_kept:
            journal.without_texts()

    def _check_health(self, health: BackendHealth, scrub: Scrubber) -> None:
        shown = {"details": scrub(health.details), "warnings": scrub(health.warnings), "latency_ms": None}
        self.health = health.model_copy(update=shown)
        if health.status == "unavailable":
            why = "; ".join(health.warnings)
            raise Stopped(f"{health.backend_name} is unavailable{': ' if why else ''}{why}")

    def _report(self, state: CellState) -> None:
        self.times.flush()
        if self.progress is not None:
            self.progress(self.job.spec.cell_id, state.steps, self.timeline.steps)
