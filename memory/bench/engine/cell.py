"""One cell, from a configuration to a record: what a worker does, in whatever process it lives."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from memory.adapter._lockfile import FileLock
from memory.bench.engine.context import Played, Stopped, Table, write_whole
from memory.bench.engine.manifest import (
    CELL_FILE,
    CellRecord,
    PhaseRecord,
    read_cell,
    write_record,
)
from memory.bench.engine.matrix import CellSpec, Experiment
from memory.bench.engine.models import CeilingReached
from memory.bench.engine.play import Player
from memory.bench.engine.provenance import wire_truth
from memory.bench.engine.record import AppendedLines, PlayJournal, drop_torn_line, json_lines
from memory.bench.engine.role_set import Seats
from memory.bench.engine.run_cell import error_record
from memory.bench.engine.run_manifest import ErrorRecord
from memory.bench.engine.rundir import file_hashes
from memory.bench.scores.run_metrics import percentile
from memory.contract.errors import MemslotError
from memory.contract.receipts import Trace
from memory.contract.scope import MemoryScope
from memory.plugins.opening import build_slot
from memory.plugins.redaction import Scrubber
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider

Tell = Callable[[str, int, int], None]
"""Called with a cell's id, its sessions and test sessions ended, and how many it has."""
_MOST_WARNINGS = 40
_UNSTABLE = re.compile(r"(-wal|-shm|-journal|\.lock|\.tmp|\.part)\Z")


@dataclass(frozen=True)
class Job:
    """A cell to be played. Can be sent to another process, and to another machine that sees ``directory``."""

    experiment: Experiment
    spec: CellSpec
    directory: Path
    scope_run_id: str


def cell_directory(job: Job) -> Path:
    """Where a cell keeps everything."""
    return job.directory / "cells" / job.spec.cell_id


def open_record(job: Job) -> CellRecord:
    """What is known of a cell before it is played."""
    spec = job.spec
    given = job.experiment.scope
    return CellRecord(
        cell_id=spec.cell_id,
        label=spec.label,
        persona_id=spec.persona_id,
        seed=spec.seed,
        replicate=spec.replicate,
        scope=MemoryScope(
            run_id=f"{job.scope_run_id}.{spec.cell_id}",
            persona_id=spec.persona_id,
            backend_namespace=given.backend_namespace if given else None,
            agent_id=given.agent_id if given else None,
        ),
    )


def tallied(played: Played) -> dict[str, Any]:
    """The fields of a cell's record that its journal tells."""
    counts = played.counts
    dated, versioned = counts["dated"], counts["versioned"]
    observed = "dated" if dated else "versioned" if versioned else "weak"
    return {
        "sessions": played.sessions,
        "tests": played.tests,
        "counts": dict(sorted(counts.items())),
        "writes": dict(sorted(played.writes.items())),
        "readiness": dict(sorted(played.readiness.items())),
        "store": dict(sorted(played.store.items())),
        "pet_observability": observed if counts["recalled"] else None,
        "models": {role: dict(spent) for role, spent in sorted(played.models.items())},
        "warnings": tuple(
            f"{text} ({count}x)" for text, count in played.warnings.most_common(_MOST_WARNINGS)
        ),
        "resumed": played.resumed,
    }


def kept_texts(played: Played, persona_id: str) -> list[dict[str, str]]:
    """What was said and shown in test sessions, as ``texts.jsonl`` keeps it."""
    return [{"persona_id": persona_id, **text} for text in played.texts]


def timings(directory: Path) -> dict[str, PhaseRecord]:
    """Time by phase, as far as a cell's directory tells."""
    phases: dict[str, list[float]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (directory / "times.jsonl").read_text(encoding="utf-8").splitlines():
            for phase, values in json.loads(line).items():
                phases.setdefault(phase, []).extend(values)
    return {
        phase: PhaseRecord(
            calls=len(values),
            total_ms=round(sum(values), 3),
            p50=percentile(values, 0.5),
            p95=percentile(values, 0.95),
            p99=percentile(values, 0.99),
        )
        for phase, values in sorted((phase, sorted(values)) for phase, values in phases.items())
    }


def run_job(
    job: Job,
    tell: Tell | None = None,
    registry: MemoryAdapterRegistry | None = None,
    models: Mapping[str, Provider] | None = None,
) -> CellRecord:
    """Play a cell on an event loop of its own; see :func:`play_cell`."""
    import anyio

    return anyio.run(play_cell, job, tell, registry, models)


async def play_cell(
    job: Job,
    tell: Tell | None = None,
    registry: MemoryAdapterRegistry | None = None,
    models: Mapping[str, Provider] | None = None,
) -> CellRecord:
    """Play a cell from where its journal ends, and write its record. One that is completed stays as it is.

    Args:
        job: the cell.
        tell: told how far it is.
        registry: in place of the installed plugins.
        models: in place of those that the settings name, by role.

    Returns:
        The record. A cell that fails does not raise: its record says why.
    """
    directory = cell_directory(job)
    if (directory / CELL_FILE).exists():
        with contextlib.suppress(MemslotError):
            record = read_cell(directory)
            if record.status == "completed":
                return record
    directory.mkdir(parents=True, exist_ok=True)
    # A worker that was given up for lost may still be at it.
    lock = FileLock(
        directory / ".lock", what=f"the cell {job.spec.cell_id}", instead="wait until it has ended"
    )
    try:
        lock.acquire()
    except MemslotError as error:
        return open_record(job).model_copy(update={"status": "failed", "error": error_record(error)})
    try:
        record = await _Cell(job, directory, tell, registry or MemoryAdapterRegistry(), models).go()
        try:
            write_record(record, directory / CELL_FILE)
        except Stopped as error:  # without its record a cell has not ended
            record = record.model_copy(update={"status": "failed", "error": error_record(error)})
    finally:
        lock.release()
    return record


class _Cell:
    def __init__(
        self,
        job: Job,
        directory: Path,
        tell: Tell | None,
        registry: MemoryAdapterRegistry,
        models: Mapping[str, Provider] | None,
    ) -> None:
        self.job, self.directory, self.tell = job, directory, tell
        self.registry, self.models = registry, models
        self.spent: defaultdict[str, list[float]] = defaultdict(list)
        self.times = AppendedLines(directory / "times.jsonl")
        self.played = Played()
        self.steps = 0
        self.native_scope: dict[str, str] | None = None
        self.scrub: Scrubber | None = None

    async def go(self) -> CellRecord:
        began = time.perf_counter()
        status, error = "completed", None
        try:
            await self._play()
        except CeilingReached as reached:
            status, error = "stopped", self._error(reached)
        except Exception as failure:  # one cell's defect must not cost the others their night
            status, error = "failed", self._error(failure)
        finally:
            self._note_times()
            self.times.close()
        try:
            self._write_results()
        except Stopped as failure:
            status, error = "failed", error or self._error(failure)
        return CellRecord.model_validate(
            {
                **open_record(self.job).model_dump(),
                "native_scope": self.native_scope,
                "status": status,
                "error": error,
                **tallied(self.played),
                "timings": timings(self.directory),
                "wall_ms": round((time.perf_counter() - began) * 1000, 3),
                "files": file_hashes(self.directory),
            }
        )

    def _error(self, error: Exception) -> ErrorRecord:
        record = error_record(error)
        if self.scrub is None:
            return record
        shown = {"message": self.scrub(record.message), "diagnostics": self.scrub(record.diagnostics)}
        return record.model_copy(update=shown)

    async def _play(self) -> None:
        job, experiment = self.job, self.job.experiment
        variant = experiment.settings.providers[job.spec.variant]
        config = experiment.config(variant)
        self.scrub = config.scrubber()
        info = self.registry.selected(config)
        data = experiment.timelines(job.spec.seed)
        timeline = data.timelines[job.spec.persona]
        config, _ = wire_truth(config, info, data)
        self.scrub = config.scrubber(config.parse_options(info.options), {str(job.directory): "<run>"})
        journal = PlayJournal(self.directory / "journal.jsonl")
        seats = Seats(experiment.settings, data, job.directory, job.spec.replicate, self.models)
        self.steps = timeline.steps
        record = open_record(job)
        with _Traces(self.directory / "traces.jsonl", self.scrub) as traces:
            opened = time.perf_counter()
            slot = build_slot(
                config,
                token_counter=config.token_counter(),
                trace_sink=traces,
                registry=self.registry,
                data_dir=self.directory / "store",
                neutral_sections=True,
            )
            self._time("open", (time.perf_counter() - opened) * 1000)
            async with slot, seats:
                table = Table(
                    slot=slot,
                    roles=seats.roles,
                    spent=seats.spent,
                    journal=journal,
                    fingerprint=_Fingerprint(self.directory / "store"),
                    asking=traces.asking,
                    check=traces.check,
                    times=self._time,
                    progress=self._progress,
                    keep_texts=experiment.settings.texts_kept,
                    scrub=self.scrub,
                )
                player = Player(table, timeline, record.scope, experiment.player(config))
                self.played = player.played
                try:
                    await self._check_health(slot)
                    await player.play()
                    traces.check()
                finally:
                    closing = time.perf_counter()
                    journal.close()
                    with contextlib.suppress(MemslotError):
                        self.native_scope = dict(slot.native_scope(record.scope))
        self._time("close", (time.perf_counter() - closing) * 1000)
        self._finish(journal)

    def _write_results(self) -> None:
        write_whole(self.directory / "results.jsonl", json_lines(self.played.records))

    async def _check_health(self, slot: Any) -> None:
        began = time.perf_counter()
        health = await slot.health()
        self._time("health", (time.perf_counter() - began) * 1000)
        if health.status == "unavailable":
            why = "; ".join(health.warnings)
            raise Stopped(f"{health.backend_name} is unavailable{': ' if why else ''}{why}")

    def _finish(self, journal: PlayJournal) -> None:
        """Write what was said in test sessions where texts are kept, else forget it."""
        if not self.job.experiment.settings.texts_kept:
            try:
                journal.without_texts()
            except OSError as error:
                raise Stopped.full(journal.path.name, error) from error
            return
        texts = kept_texts(self.played, self.job.spec.persona_id)
        write_whole(self.directory / "texts.jsonl", json_lines(texts))

    # -- time -------------------------------------------------------------------------------------------

    def _time(self, phase: str, ms: float) -> None:
        self.spent[phase].append(ms)

    def _progress(self, played: Played) -> None:
        self._note_times()
        if self.tell is not None:
            done = played.sessions + played.tests + played.asked
            self.tell(self.job.spec.cell_id, done, self.steps)

    def _note_times(self) -> None:
        """Times stand apart from everything that a resumed cell must have the same."""
        if self.spent:
            with contextlib.suppress(OSError):
                self.times.append(
                    {phase: [round(ms, 3) for ms in each] for phase, each in self.spent.items()}
                )
            self.spent.clear()


class _Traces:
    """The sink of a cell's traces; a cell that goes on appends."""

    def __init__(self, path: Path, scrub: Scrubber) -> None:
        self._path, self._scrub = path, scrub
        self._file: IO[bytes] | None = None
        self._probe_id: str | None = None
        self._lost: OSError | None = None

    def __enter__(self) -> _Traces:
        drop_torn_line(self._path)
        self._file = open(self._path, "ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def emit(self, trace: Trace) -> None:
        """Append one trace, with the probe it belongs to."""
        if self._file is None or self._file.closed or self._lost:
            return
        if trace.warnings:
            trace = trace.model_copy(update={"warnings": self._scrub(trace.warnings)})
        # Spliced, because to build the row and dump it again costs more than all else a line costs.
        line = f'{trace.model_dump_json()[:-1]},"probe_id":{json.dumps(self._probe_id)}}}\n'.encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._lost = error

    def check(self) -> None:
        """Refuse to go on where a trace is lost: what it tells could never be checked.

        Raises:
            Stopped: one could not be written.
        """
        if self._lost:
            raise Stopped.full(self._path.name, self._lost) from self._lost

    def asking(self, probe_id: str | None) -> None:
        """Traces of the calls that follow name the probe."""
        self._probe_id = probe_id


class _Fingerprint:
    """What the files below a directory hold; a file is read again only where its time or size has changed."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[int, int, int], bytes]] = {}

    def __call__(self) -> dict[str, bytes] | None:
        """Hashes by path; None without any file. Logs and locks beside databases are left out."""
        found = {}
        for path, now in _files(self._store):
            stamp = (now.st_ino, now.st_size, now.st_mtime_ns)
            if path not in self._known or self._known[path][0] != stamp:
                self._known[path] = (stamp, hashlib.sha256(Path(path).read_bytes()).digest())
            found[path] = self._known[path][1]
        return found or None


def _files(place: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files below a directory that are neither log nor lock; none where there is no directory."""
    try:
        found = os.scandir(place)
    except FileNotFoundError:
        return
    with found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif not _UNSTABLE.search(entry.name) and stat.S_ISREG((now := entry.stat()).st_mode):
                yield entry.path, now
