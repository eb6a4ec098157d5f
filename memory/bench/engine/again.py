"""Answers and judges an experiment's requests again, from its recorded sections. No memory is asked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.cell_state import CellState
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
from memory.bench.engine.replay import played_anew
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
    """Play the test sessions of a run again, with the roles of another file and the recorded sections.

    The new run has the providers, cells and sections of the old one.

    Args:
        experiment: gives the roles, their limits and the output directory; its data must be that of the run.
        source: the directory of a run that kept its texts.
        models: by role; replace those that the settings name.

    Raises:
        ConfigError: the run is incomplete, kept no texts, or has other data.
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
        cells = [
            _played(experiment, manifest, cell, data[str(cell.seed)], models, source, directory)
            for cell in earlier.cells
        ]
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


def _played(
    experiment: Experiment,
    manifest: Manifest,
    cell: CellRecord,
    data: TimelineSet,
    models: Mapping[str, Provider] | None,
    source: Path,
    directory: Path,
) -> CellRecord:
    """Write a cell's files below ``directory``. Returns its record."""
    name = f"cells/{cell.cell_id}"
    place = directory / name
    if not (source / name / "journal.jsonl").exists():
        return cell
    shutil.copytree(source / name, place, ignore=shutil.ignore_patterns(*_LEFT_BEHIND))
    (timeline,) = (each for each in data.timelines if each.persona_id == cell.persona_id)
    variant = next(each for each in manifest.variants if each.label == cell.label)
    roles = RoleSet(experiment.settings, data, directory, replicate=cell.replicate, providers=models)

    async def rows() -> list[dict[str, Any]]:
        async with roles:
            return [await row_of(row) for row in read_lines(place / "journal.jsonl")]

    async def row_of(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] not in ("test", "probes"):
            return row
        anew = await played_anew(row, cell, variant, roles.roles, timeline, data.timelines)
        return {**anew, "models": roles.take_usage()}

    found, state = anyio.run(rows), CellState()
    for row in found:
        state.add(row)
    write_whole(place / "journal.jsonl", json_lines(found))
    write_whole(place / "texts.jsonl", json_lines(state.texts_of(cell.persona_id)))
    answering = Answering(manifest.by_model("reader"), manifest.by_model("answer_judge"))
    records = completed(state.records, timeline, answering=answering, fault=cell.fault, error=cell.error)
    write_whole(place / "results.jsonl", json_lines(records))
    (place / OTHERWISE_FILE).unlink(missing_ok=True)
    if state.again:
        write_whole(place / OTHERWISE_FILE, json_lines(state.again))
    record = cell.model_copy(update={**state.of_record(), "files": file_hashes(place)})
    record = CellRecord.model_validate(record.model_dump())
    write_record(record, place / CELL_FILE)
    return record
