"""Verifies that the files of an experiment agree, by computing each part anew from the one before it.

Not covered: a provider's own files below ``store``, and locks. The wall times of cells cannot be recomputed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel, ValidationError

from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.again import Row, played_anew
from memory.bench.engine.cell import derived_files, timings
from memory.bench.engine.context import CellState
from memory.bench.engine.experiment import measure, read_metrics
from memory.bench.engine.files import CellJournal, each_line, file_hashes, json_lines
from memory.bench.engine.manifest import MANIFEST_FILE, CellRecord, Manifest, read_manifest, shown_labels
from memory.bench.engine.matrix import cell_specs
from memory.bench.engine.models import RoleSet
from memory.bench.engine.probe_session import Answering, completed
from memory.bench.engine.provenance import data_record
from memory.bench.engine.settings import ExperimentSettings, load_timelines
from memory.bench.scores.metrics import llm_use
from memory.bench.scores.model import Metrics
from memory.contract._model import first_problem
from memory.contract.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Deviation:
    """A recorded value that differs from the recomputed one. ``where`` names file and field."""

    where: str
    recorded: str
    computed: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The checked parts, the deviations, and the parts that could not be checked.

    Attributes:
        learning: memories that answered a request differently the second time, with counts.
    """

    checked: tuple[str, ...]
    deviations: tuple[Deviation, ...]
    unchecked: tuple[str, ...]
    learning: tuple[str, ...] = ()


Render = Callable[[Path, Manifest, Metrics], str]  # renders an experiment's page; the room ``report`` has it


def verify(directory: Path, data: Path | None = None, *, render: Render | None = None) -> Verified:
    """Compute anew everything that can be; the page only with ``render``. Not for use in an event loop.

    Args:
        data: the file of data or wordings of the run. The manifest holds only its name and hash.

    Raises:
        ConfigError: the experiment is incomplete, or its manifest is damaged.
    """
    return _Check(directory, data, render).verified()


class _Check:
    def __init__(self, directory: Path, data: Path | None, render: Render | None) -> None:
        self.directory, self.data, self.render = directory, data, render
        self.manifest = read_manifest(directory)
        if self.manifest.status == "incomplete":
            raise ConfigError(f"{directory} holds an incomplete experiment; resume it to its end")
        self.metrics = read_metrics(directory)
        self.unchecked: list[str] = ["stores: a provider's own files are not covered"]
        self.timelines: dict[int, TimelineSet] = {}

    def verified(self) -> Verified:
        found = list(_few(self._manifest()))
        if not found:  # the manifest is intact, so it says what was played
            found += _few(self._data())
        for record in self.manifest.cells:
            found += _few(self._cell(record))
        found += _few(self._figures())
        checked = ["manifest: hashes", "cells: against their journals"]
        if not any("verdicts:" in why for why in self.unchecked):
            checked.append("verdicts: from the sections shown")
        checked += ["metrics: from the results", *(["report: from metrics"] if self.render else [])]
        unchecked = tuple(dict.fromkeys(self.unchecked))
        return Verified(tuple(checked), tuple(found), unchecked, tuple(_learning(self.manifest)))

    def _manifest(self) -> Iterator[Deviation]:
        kept = self.manifest
        yield from _same(f"{MANIFEST_FILE}, all of it", kept.record_sha256, kept.own_hash())
        yield from _compared(f"{MANIFEST_FILE}: hashes", kept.hashes, kept.parts())
        troubled = any(provider.failed for provider in self.metrics.providers)
        yield from _same(f"{MANIFEST_FILE}: status", kept.status, kept.outcome(troubled=troubled))
        personas = {int(seed): [""] * data.personas for seed, data in kept.data.items()}
        replicates: Any = kept.settings.get("replicates", 1)
        planned = cell_specs([each.label for each in kept.variants], personas, replicates)
        expected = Counter(f"{spec.cell_id} ({spec.label})" for spec in planned)
        seen = Counter(f"{cell.cell_id} ({cell.label})" for cell in kept.cells)
        yield from _compared(f"{MANIFEST_FILE}: cells", seen, expected)

    def _data(self) -> Iterator[Deviation]:
        """Load the data by seed (generated, or read from the given path), and compare it with its record."""
        given, records = self.manifest.settings, self.manifest.data
        game = given.get("timeline") == "game"
        own_words = any(item.wordings_sha256 for item in records.values())
        if (own_words or not game) and self.data is None:
            name = next(iter(records.values())).name or "the file of wordings"
            self.unchecked.append(f"data, verdicts: give {name} with --data")
            return
        read = {"wordings": self.data if own_words else None, "data": None if game else self.data}
        try:
            self.settings = ExperimentSettings.model_validate({**given, **read})
        except ValidationError as error:
            yield Deviation(f"{MANIFEST_FILE}: settings", "cannot be used", first_problem(error))
            return
        for seed, kept in records.items():
            data = load_timelines(self.settings, int(seed))
            wrong = list(_compared(f"{MANIFEST_FILE}: data.{seed}", kept, data_record(data)))
            yield from wrong
            if not wrong:
                self.timelines[int(seed)] = data

    def _cell(self, record: CellRecord) -> Iterator[Deviation]:
        """The differences of a cell's files from its journal, and of its journal from a replay."""
        name = f"cells/{record.cell_id}"
        place = self.directory / name
        if not record.files:
            if record.status != "not_run":
                self.unchecked.append(f"{name}: it {record.status} and left no record")
            return
        try:
            now = file_hashes(place)
            for file in {**record.files, **now}:
                yield from _same(
                    f"{name}/{file}", record.files.get(file, "missing"), now.get(file, "missing")
                )
            rows, state = list(CellJournal(place / "journal.jsonl").lines()), CellState()
            for row in rows:
                state.add(row)
            own = {
                **record.model_dump(),
                **state.of_record(),
                "timings": timings(place),
                "usage": llm_use(each_line(place / "traces.jsonl")),
            }
            yield from _compared(f"{MANIFEST_FILE}: {name}", record, CellRecord.model_validate(own))
            yield from self._derived(record, place, state)
            yield from self._verdicts(record, rows)
        except Exception as error:  # a damaged line can raise anything
            why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            yield Deviation(name, "damaged", why)

    def _derived(self, record: CellRecord, place: Path, state: CellState) -> Iterator[Deviation]:
        """The differences of results and texts from the journal."""
        name, records = f"cells/{record.cell_id}", state.records
        data = self.timelines.get(record.seed)
        if data is not None:
            timeline = data.of(record.persona_id)
            if record.status == "completed":
                yield from _same(f"{MANIFEST_FILE}: {name}: steps", state.steps, timeline.steps)
            answering = Answering(self.manifest.by_model("reader"), self.manifest.by_model("answer_judge"))
            records = completed(
                records, timeline, answering=answering, fault=record.fault, error=record.error
            )
        elif record.status != "completed":
            self.unchecked.append(f"{name}: requests that it did not get to need the data")
            return
        for file, content in derived_files(state, records, record.persona_id).items():
            computed = [json.loads(line) for line in content.splitlines()]
            yield from _rows_differ(f"{name}/{file}", [*each_line(place / file)], computed)

    def _verdicts(self, record: CellRecord, rows: Sequence[Row]) -> Iterator[Deviation]:
        """Play the test sessions again with their recorded sections."""
        tests = [row for row in rows if row["kind"] in ("test", "probes")]
        if models := [role.role for role in self.manifest.roles if role.kind == "model"]:
            self.unchecked.append(f"verdicts: what a model says is not asked again ({', '.join(models)})")
        elif not all("texts" in row for row in tests):
            self.unchecked.append("verdicts: texts were not kept (keep_texts)")
        elif (data := self.timelines.get(record.seed)) is not None:
            roles = RoleSet(self.settings, data).roles
            variant = next(each for each in self.manifest.variants if each.label == record.label)
            timeline = data.of(record.persona_id)
            for row in tests:
                anew = anyio.run(
                    played_anew, self.settings, row, record, variant, roles, timeline, data.timelines
                )
                where = f"cells/{record.cell_id}/journal.jsonl, {row['session']}"
                yield from _compared(where, row, json.loads(json_lines([anew])))

    def _figures(self) -> Iterator[Deviation]:
        try:
            metrics = measure(self.directory, self.manifest)
            computed = self.render(self.directory, self.manifest, metrics) if self.render else None
        except Exception as error:  # damaged results can raise anything
            why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            yield Deviation("metrics.json", "cannot be computed anew", why)
            return
        yield from _compared("metrics.json", self.metrics, metrics)
        page = self.directory / "report.html"
        recorded = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else None
        if computed is not None and computed != recorded:
            yield Deviation(page.name, "missing" if recorded is None else "another page", "the report")


def _learning(manifest: Manifest) -> Iterator[str]:
    """Memories that answered a request differently the second time: they learn, or answer by chance."""
    played = [manifest.cells_of(variant.label) for variant in manifest.variants]
    for cells, shown in zip(played, shown_labels(manifest.variants, played), strict=True):
        asked, otherwise = (
            sum(cell.counts.get(name, 0) for cell in cells) for name in ("asked_again", "answered_otherwise")
        )
        if otherwise:
            yield (
                f"{shown} learns from what it is asked, or answers by chance: {otherwise} of {asked} "
                "requests were answered otherwise a second time"
            )


def _same(where: str, recorded: object, computed: object) -> Iterator[Deviation]:
    if recorded != computed:
        yield Deviation(where, str(recorded)[:80], str(computed)[:80])


def _compared(where: str, recorded: Any, computed: Any) -> Iterator[Deviation]:
    """The differences between two records, or two JSON values, leaf by leaf."""
    before, now = dict(_leaves(recorded)), dict(_leaves(computed))
    for name in {**before, **now}:
        yield from _same(f"{where}: {name}", before.get(name, "absent"), now.get(name, "absent"))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def _rows_differ(where: str, recorded: Sequence[Row], computed: Sequence[Row]) -> Iterator[Deviation]:
    for number, (item, other) in enumerate(zip_longest(recorded, computed), start=1):
        yield from _compared(f"{where}, line {number}", item, other)


def _few(found: Iterable[Deviation]) -> Iterator[Deviation]:
    """The first 20 deviations, and the number of the others."""
    rest = iter(found)
    yield from islice(rest, 20)
    if more := list(rest):
        yield Deviation(more[0].where.split(",")[0], f"{len(more)} further deviations", "")
