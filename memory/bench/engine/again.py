"""Plays test sessions again with their recorded sections. No memory is asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.bench.engine.cell import derived_files
from memory.bench.engine.context import CellContext, CellState, looked_for
from memory.bench.engine.experiment import Listeners, Outcome, finish
from memory.bench.engine.files import (
    CellJournal,
    Times,
    TraceFile,
    each_line,
    file_hashes,
    json_lines,
    make_directory,
    new_id,
    write_whole,
)
from memory.bench.engine.manifest import CellRecord, Manifest, VariantRecord, read_manifest
from memory.bench.engine.matrix import Experiment
from memory.bench.engine.models import RoleSet, role_records
from memory.bench.engine.probe_session import Answering, ProbeSession, completed
from memory.bench.engine.roles import Roles
from memory.bench.engine.settings import ExperimentSettings
from memory.bench.engine.test_session import TestSessionRun
from memory.contract import errors
from memory.contract.errors import ConfigError
from memory.contract.formatting import Utf8TokenCounter
from memory.contract.receipts import ContextEntry, RetrieveResult, Trace
from memory.contract.requests import RetrieveRequest
from memory.plugins.redaction import Scrubber
from memory.runtime._policy import Recall
from memory.runtime._provider import Provider
from memory.slot.slot import MemorySlot
from memory.testing import FakeBackend

Row = Mapping[str, Any]  # a line of a JSON lines file


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
        experiment: gives the roles and the output directory; its data must be that of the run.
        source: the directory of a run that kept its texts.
        models: by role; replace those that the settings name.

    Raises:
        ConfigError: the run is incomplete, kept no texts, or has other data.
    """
    earlier, listeners = read_manifest(source), listeners or Listeners()
    data = _same_data(experiment, earlier, source)
    with experiment.placing():
        roles = role_records(experiment.settings, models)
    began = datetime.now(UTC)
    experiment_id = new_id(f"{next(iter(earlier.data.values())).timeline}-again", began)
    directory = experiment.settings.directory / experiment_id
    note = f"Answered and judged again from {earlier.experiment_id}. No memory was asked."
    update = {"experiment_id": experiment_id, "created_at": began, "roles": roles}
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
        return finish(directory, manifest, listeners)
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
    old, place = (each / "cells" / cell.cell_id for each in (source, directory))
    place.mkdir(parents=True)
    timeline, state = data.of(cell.persona_id), CellState()
    variant = next(each for each in manifest.variants if each.label == cell.label)
    roles = RoleSet(experiment.settings, data, replicate=cell.replicate, providers=models)

    async def rows() -> list[dict[str, Any]]:
        async with roles:
            return [await row_of(row) for row in each_line(old / "journal.jsonl")]

    async def row_of(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] not in ("test", "probes"):
            return row
        anew = await played_anew(
            experiment.settings, row, cell, variant, roles.roles, timeline, data.timelines
        )
        return {**anew, "models": roles.take_usage()}

    found = anyio.run(rows)
    for row in found:
        state.add(row)
    answering = Answering(manifest.by_model("reader"), manifest.by_model("answer_judge"))
    records = completed(state.records, timeline, answering=answering, fault=cell.fault, error=cell.error)
    files = derived_files(state, records, cell.persona_id)
    for name, content in {**files, "journal.jsonl": json_lines(found)}.items():
        write_whole(place / name, content)
    for name in ("times.jsonl", "traces.jsonl"):
        if (old / name).exists():
            shutil.copyfile(old / name, place / name)
    return CellRecord.model_validate({**cell.model_dump(), **state.of_record(), "files": file_hashes(place)})


async def played_anew(
    settings: ExperimentSettings,
    session: Row,
    record: CellRecord,
    variant: VariantRecord,
    roles: Roles,
    timeline: Timeline,
    timelines: Iterable[Timeline],
) -> dict[str, Any]:
    """The journal's line of a test session, recomputed with these roles from its recorded sections."""
    context = CellContext(
        MemorySlot(FakeBackend(), token_counter=Utf8TokenCounter()),
        record.scope,
        settings,
        variant.budget,
        roles,
        CellJournal(Path()),
        TraceFile(Path(), Scrubber({})),
        Times(Path()),
        **looked_for(timeline, timelines),
    )
    own_counter = variant.counter == Utf8TokenCounter.name
    records = {row["probe_id"]: row for row in session["records"]}
    first = _recalls(session, "texts", records, record, own_counter=own_counter)
    run: TestSessionRun
    if session["kind"] == "test":
        test = next(each for each in timeline.tests if each.session_id == session["session"])
        asked = [f"{timeline.persona_id}:{test.session_id}:{beat.beat_id}" for beat in test.script.beats]
        nothing = Recall("", failure=errors.BackendError("nothing was shown"))
        run = TestSessionRun(context, test, dict.fromkeys(asked, nothing) | first)
    else:
        run = ProbeSession(context, [each for each in timeline.probes if each.probe_id in records], first)
    await run.ask_all(session["readiness"], variant.consistency)
    if session["texts_again"]:
        again = records | {row["probe_id"]: row for row in session["again"]}
        second = _recalls(session, "texts_again", again, record, own_counter=own_counter)
        await run.repeat(first | second)
    found, differing = ([each.row() for each in rows] for rows in (run.records, run.again))
    own = {"records": found, "texts": run.texts, "again": differing, "texts_again": run.texts_again}
    return {**session, **own}


def _recalls(
    session: Row, texts: str, records: Mapping[str, Row], cell: CellRecord, *, own_counter: bool
) -> dict[str, Recall]:
    """The recorded answers of the memory, by probe id."""
    found: dict[str, Recall] = {}
    for probe_id, record in records.items():
        if record["error"]:
            failure = getattr(errors, record["error"], errors.BackendError)("nothing was shown")
            found[probe_id] = Recall("", failure=failure)
    for row in session[texts]:
        if row["probe_id"] in found:  # later rows are replies to complaints and hints
            continue
        section: str = row["context"]
        trace = _trace_of(records.get(row["probe_id"], {}))
        if own_counter:
            trace = trace.model_copy(update={"token_count": Utf8TokenCounter().count(section)})
        result = RetrieveResult(
            request=RetrieveRequest(query=row["user"], scope=cell.scope, session_id=session["session"]),
            raw=None,
            entries=(ContextEntry(section, event_ids=tuple(row["event_ids"] or ())),),
            formatted_context=section,
            trace=trace,
        )
        found[row["probe_id"]] = Recall(section, result=result)
    return found


def _trace_of(record: Row) -> Trace:
    """A trace from which ``test_session.measured`` derives the record's own counts."""
    items, retrieved = record.get("items") or 0, record.get("retrieved") or 0
    return Trace(
        backend_name="recorded",
        scope=None,
        native_operation="recorded",
        token_count=record.get("tokens"),
        shortfall_tokens=record.get("shortfall"),
        retrieved_count=retrieved,
        included_count=items,
        left_out_count=(record.get("left_out") or 0) - retrieved + items,
    )
