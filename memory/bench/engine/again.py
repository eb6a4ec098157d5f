"""Answers and judges the requests of an experiment again, from the sections it kept. No memory is asked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.bench.engine.context import CellState
from memory.bench.engine.experiment import Listeners, Outcome, finish
from memory.bench.engine.files import (
    METER_FILE,
    OTHERWISE_FILE,
    file_hashes,
    json_lines,
    make_directory,
    new_id,
    read_lines,
    write_record,
    write_whole,
)
from memory.bench.engine.manifest import CELL_FILE, CellRecord, Manifest, RunRecord, read_manifest
from memory.bench.engine.matrix import Experiment
from memory.bench.engine.probe_session import Answering, completed
from memory.bench.engine.replay import replayed
from memory.bench.engine.role_set import RoleSet, check_roles, role_records
from memory.contract.errors import ConfigError
from memory.runtime._provider import Provider

_LEFT_BEHIND = ("store", "store-test", ".lock", METER_FILE)


def answer_again(
    experiment: Experiment,
    source: Path,
    *,
    models: Mapping[str, Provider] | None = None,
    listeners: Listeners | None = None,
) -> Outcome:
    """Play the test sessions of a run again, with the roles of another file and the sections shown then.

    The new run has the providers, cells and memories of the old one. Its sections are not asked a second time.

    Args:
        experiment: gives the roles, their limits and the output directory; its data must be those of the run.
        source: the directory of a run that kept its texts.
        models: by role, in place of those that the settings name.

    Raises:
        ConfigError: the run is incomplete, kept no texts, or was made of other data.
    """
    earlier, listeners = read_manifest(source), listeners or Listeners()
    data = _same_data(experiment, earlier, source)
    with experiment.placing():
        roles = role_records(experiment.settings)
        check_roles(experiment.settings, models)
    began = datetime.now(UTC)
    experiment_id = new_id(f"{next(iter(earlier.data.values())).timeline}-again", began)
    directory = experiment.settings.directory / experiment_id
    note = f"Answered and judged again from {earlier.experiment_id}. No memory was asked."
    run = RunRecord(began_at=began, ended_at=None, executor="local", workers=1)
    update = {"experiment_id": experiment_id, "created_at": began, "roles": roles, "runs": (run,)}
    manifest = earlier.model_copy(update={**update, "notes": (*earlier.notes, note), "record_sha256": None})
    manifest = manifest.model_copy(update={"hashes": manifest.parts()})
    make_directory(directory, experiment.problem.place((experiment.block, "output")))
    listeners.on_directory(directory)
    try:
        cells = []
        for cell in earlier.cells:
            given = _Given(experiment, manifest, cell, data[str(cell.seed)], models)
            cells.append(given.played(source, directory))
        manifest = manifest.model_copy(update={"cells": tuple(cells)})
        run = run.model_copy(update={"ended_at": datetime.now(UTC)})
        return finish(directory, manifest, (run,), listeners)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _same_data(experiment: Experiment, earlier: Manifest, source: Path) -> dict[str, TimelineSet]:
    if earlier.status == "incomplete":
        raise ConfigError(f"{source} holds an incomplete experiment; resume it to its end")
    found = {seed: experiment.timelines(int(seed)) for seed in earlier.data}
    for seed, kept in earlier.data.items():
        if found[seed].data_hash != kept.sha256:
            raise ConfigError(
                f"{source.name} was made of other data than the file names; give those with --data"
            )
    if not any((source / "cells").glob("*/texts.jsonl")):
        raise ConfigError(
            f"{source.name} kept no texts, so nobody can answer again; play it with keep_texts: true"
        )
    return found


class _Given:
    """A cell, and what it is played again with."""

    def __init__(
        self,
        experiment: Experiment,
        manifest: Manifest,
        cell: CellRecord,
        data: TimelineSet,
        models: Mapping[str, Provider] | None,
    ) -> None:
        self._experiment, self._manifest, self._cell, self._data = experiment, manifest, cell, data
        self._models = models

    def played(self, source: Path, directory: Path) -> CellRecord:
        """Write the cell's files below ``directory``; returns its record."""
        cell, name = self._cell, f"cells/{self._cell.cell_id}"
        place = directory / name
        if not (source / name / "journal.jsonl").exists():
            return cell
        shutil.copytree(source / name, place, ignore=shutil.ignore_patterns(*_LEFT_BEHIND))
        (timeline,) = (each for each in self._data.timelines if each.persona_id == cell.persona_id)
        rows = anyio.run(self._rows, read_lines(place / "journal.jsonl"), timeline, directory)
        state = CellState()
        for row in rows:
            state.add(row)
        write_whole(place / "journal.jsonl", json_lines(rows))
        write_whole(place / "texts.jsonl", json_lines(state.texts_of(cell.persona_id)))
        answering = Answering(self._manifest.by_model("reader"), self._manifest.by_model("answer_judge"))
        records = completed(state.records, timeline, answering=answering, fault=cell.fault, error=cell.error)
        write_whole(place / "results.jsonl", json_lines(records))
        (place / OTHERWISE_FILE).unlink(missing_ok=True)
        record = cell.model_copy(update={**state.of_record(), "files": file_hashes(place)})
        record = CellRecord.model_validate(record.model_dump())
        write_record(record, place / CELL_FILE)
        return record

    async def _rows(
        self, rows: list[dict[str, Any]], timeline: Timeline, directory: Path
    ) -> list[dict[str, Any]]:
        """The journal's lines, with the answers and verdicts of these roles in those of test sessions."""
        settings, cell = self._experiment.settings, self._cell
        variant = next(each for each in self._manifest.variants if each.label == cell.label)
        found = []
        roles = RoleSet(settings, self._data, directory, replicate=cell.replicate, providers=self._models)
        async with roles:
            for row in rows:
                if row["kind"] in ("test", "probes"):
                    _, run = await replayed(row, cell, variant, roles.roles, timeline, self._data.timelines)
                    records = [record.row() for record in run.records]
                    unasked = {"asked_again": 0, "answered_otherwise": 0, "failed_again": 0}
                    own = {"records": records, "texts": run.texts, "again": [], "texts_again": []}
                    row = {**row, **unasked, **own, "models": roles.take_usage()}
                found.append(row)
        return found
