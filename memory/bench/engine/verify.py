"""Whether what an experiment left still agrees with itself: each part computed anew from the one before it.

The manifest's hashes; each cell's record, results and texts from its journal; what the journal tells of calls
against the traces; where texts were kept and everyone played by rules, the replies, verdicts and scores from the
sections shown; the figures from the results; the page from the figures. Not covered: a provider's own files below
``store``, and locks. Times of whole cells are taken as told, under the manifest's hash of itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import anyio

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.bench.engine.cell import kept_texts, tallied, timings
from memory.bench.engine.context import Played
from memory.bench.engine.experiment import measure
from memory.bench.engine.manifest import (
    CELL_FILE,
    EXPERIMENT_FILE,
    CellRecord,
    ExperimentManifest,
    read_cell,
    read_experiment,
)
from memory.bench.engine.matrix import BenchSettings, CellSpec, load_timelines
from memory.bench.engine.probe_session import Asked
from memory.bench.engine.provenance import data_record
from memory.bench.engine.record import PlayJournal
from memory.bench.engine.replay import Row, Shown, told_before
from memory.bench.engine.role_set import Seats
from memory.bench.engine.roles import Roles
from memory.bench.engine.run_verify import Deviation, Verified, compared, few, page_differs, read_traces
from memory.bench.engine.rundir import file_hashes
from memory.bench.engine.test_session import Tested, counts_as_known
from memory.bench.report.report import render_game_report
from memory.bench.scores.metrics import GameMetrics
from memory.bench.scores.records import BeatRecord
from memory.contract.errors import ConfigError
from memory.contract.receipts import Trace
from memory.contract.tokens import Utf8TokenCounter


def verify_experiment(directory: Path, data: Path | None = None) -> Verified:
    """Compute anew what can be. Not to be called from within an event loop.

    Args:
        directory: the experiment's.
        data: the data that was read, where it was not generated.

    Raises:
        ConfigError: the manifest or the figures cannot be read, or the experiment is incomplete.
    """
    return _Experiment(directory, data).verified()


class _Experiment:
    def __init__(self, directory: Path, data: Path | None) -> None:
        self.directory, self.data = directory, data
        self.manifest: ExperimentManifest = read_experiment(directory)
        file = directory / "metrics.json"
        try:
            self.metrics = GameMetrics.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ConfigError(f"{file} is missing or damaged; resume the experiment to its end") from None
        if self.manifest.status == "incomplete":
            raise ConfigError(f"{directory} holds an incomplete experiment; resume it to its end")
        self.unchecked: list[str] = ["stores: a provider's own files are not covered"]

    def verified(self) -> Verified:
        found = list(few(self._manifest()))
        data: dict[int, TimelineSet] = {}
        roles: Roles | None = None
        if not found:  # what is played is known for sure
            data, wrong = self._timelines()
            found += wrong
            roles = self._roles(data)
        for record in self.manifest.cells:
            timeline = _timeline(data.get(record.seed), record.persona_id)
            found += few(_Cell(self, record, timeline, roles).deviations())
        found += few(self._figures())
        checked = ["manifest: hashes", "cells: against their journals", "journals: against traces"]
        if not any("verdicts:" in why for why in self.unchecked):
            checked.append("verdicts: from the sections shown")
        checked += ["metrics: from the judged beats", "report: from metrics"]
        return Verified(tuple(checked), tuple(found), tuple(dict.fromkeys(self.unchecked)))

    def _manifest(self) -> Iterator[Deviation]:
        told = self.manifest
        if told.record_sha256 is None:
            self.unchecked.append(f"{EXPERIMENT_FILE}: it holds no hash of itself")
        else:
            yield from _same(f"{EXPERIMENT_FILE}, all of it", told.record_sha256[:12], told.own_hash()[:12])
        yield from _same(f"{EXPERIMENT_FILE}: files", told.files, file_hashes(self.directory))
        computed = told.parts()
        for part in {**told.hashes, **computed}:
            yield from _same(f"{EXPERIMENT_FILE}: hashes.{part}", told.hashes.get(part), computed.get(part))
        yield from _same(f"{EXPERIMENT_FILE}: status", told.status, told.outcome())
        yield from self._cells()

    def _cells(self) -> Iterator[Deviation]:
        """Each cell of the matrix once, in its order, and no other."""
        told = self.manifest
        planned = [
            CellSpec(number, int(seed), replicate, place, "", variant.label)
            for replicate in range(1, cast(int, told.bench.get("replicates", 1)) + 1)
            for seed, data in told.data.items()
            for place in range(data.personas)
            for number, variant in enumerate(told.variants)
        ]
        expected = [
            f"{one.cell_id} ({one.label}, seed {one.seed}, replicate {one.replicate})" for one in planned
        ]
        seen = [
            f"{one.cell_id} ({one.label}, seed {one.seed}, replicate {one.replicate})" for one in told.cells
        ]
        for cell in sorted({*expected, *seen}):
            yield from _same(f"{EXPERIMENT_FILE}: {cell}", seen.count(cell), expected.count(cell))
        known = {one.cell_id for one in told.cells}
        for place in sorted((self.directory / "cells").glob("*")):
            if place.name not in known:
                yield Deviation(f"cells/{place.name}", "present", f"no cell of {EXPERIMENT_FILE}")

    def _timelines(self) -> tuple[dict[int, TimelineSet], list[Deviation]]:
        """The data again, by seed: generated, or read from the path that the caller gives."""
        bench = self.manifest.bench
        if bench.get("timeline") != "game" and self.data is None:
            (name,) = {one.name for one in self.manifest.data.values()}
            self.unchecked.append(f"data, verdicts: give {name} with --data")
            return {}, []
        self.settings = BenchSettings.model_validate({**bench, "data": self.data})
        found: dict[int, TimelineSet] = {}
        wrong: list[Deviation] = []
        for seed, told in self.manifest.data.items():
            data = load_timelines(self.settings, int(seed))
            wrong += compared(f"{EXPERIMENT_FILE}: data.{seed}", told, data_record(data))
            found[int(seed)] = data
        return ({} if wrong else found), wrong

    def _roles(self, data: Mapping[int, TimelineSet]) -> Roles | None:
        """Who played, where all of them play alike again."""
        models = [one.role for one in self.manifest.roles if one.kind == "model"]
        if models:
            self.unchecked.append(f"verdicts: what a model says is not asked again ({', '.join(models)})")
        if models or not data:
            return None
        return Seats(self.settings, next(iter(data.values())), self.directory).roles

    def _figures(self) -> Iterator[Deviation]:
        try:
            metrics = measure(self.directory, self.manifest)
            computed = render_game_report(self.directory, self.manifest, metrics)
        except Exception as error:  # whatever damaged results make of themselves
            yield Deviation("metrics.json", "cannot be computed anew", _named(error))
            return
        yield from compared("metrics.json", self.metrics, metrics)
        try:
            page = (self.directory / "report.html").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            yield Deviation("report.html", "missing or damaged", "a report")
        else:
            yield from page_differs("report.html", page, computed)


class _Cell:
    def __init__(
        self, whole: _Experiment, record: CellRecord, timeline: Timeline | None, roles: Roles | None
    ) -> None:
        self.whole, self.record, self.timeline, self.roles = whole, record, timeline, roles
        self.directory = whole.directory / "cells" / record.cell_id
        self.name = f"cells/{record.cell_id}"

    @property
    def _whole(self) -> bool:
        """Whether every call counts: a cell that stopped, or may have been taken up again, has made others."""
        runs, record = self.whole.manifest.runs, self.record
        once = len(runs) == 1 and runs[0].executor != "dask"
        return once and record.status == "completed" and not record.resumed

    def deviations(self) -> Iterator[Deviation]:
        record, variants = self.record, self.whole.manifest.variants
        self.variant = next((one for one in variants if one.label == record.label), variants[0])
        if not (self.directory / CELL_FILE).exists():
            if record.status in ("completed", "stopped"):
                yield Deviation(f"{self.name}/{CELL_FILE}", "missing", record.status)
            elif record.status != "not_run":
                self.whole.unchecked.append(f"{self.name}: it {record.status} and left no record")
            return
        try:
            said = read_cell(self.directory)
            yield from compared(f"{self.name}/{CELL_FILE}", said, record)
            now = file_hashes(self.directory)
            for name in {**said.files, **now} if said.files else ():
                told, seen = said.files.get(name, "missing"), now.get(name, "missing")
                yield from _same(f"{self.name}/{name}", told[:12], seen[:12])
            yield from self._contents()
        except ConfigError as error:
            yield Deviation(self.name, "damaged", str(error))

    def _contents(self) -> Iterator[Deviation]:
        journal = self.directory / "journal.jsonl"
        if not journal.exists() or not journal.read_bytes().endswith(b"\n"):
            yield Deviation(f"{self.name}/journal.jsonl", "missing, or its last line is torn", "whole lines")
            return
        rows, played = list(PlayJournal(journal).lines()), Played()
        try:
            for row in rows:
                played.add(row)
            yield from self._recorded(played)
            traces = read_traces(self.directory / "traces.jsonl")
            yield from self._called(rows, traces)
            yield from self._judged(rows, traces)
        except Exception as error:  # whatever a damaged line makes of itself
            yield Deviation(f"{self.name}/journal.jsonl", "cannot be used", _named(error))

    # -- the record, the results and the texts from the journal ---------------------------------------------

    def _recorded(self, played: Played) -> Iterator[Deviation]:
        computed = self.record.model_copy(update={**tallied(played), "timings": timings(self.directory)})
        yield from compared(f"{EXPERIMENT_FILE}: {self.name}", self.record, computed)
        yield from _rows(
            f"{self.name}/results.jsonl", self._lines("results.jsonl"), [one.row() for one in played.records]
        )
        if (self.directory / "texts.jsonl").exists():
            texts = kept_texts(played, self.record.persona_id)
            yield from _rows(f"{self.name}/texts.jsonl", self._lines("texts.jsonl"), texts)

    def _lines(self, name: str) -> list[Row]:
        file = self.directory / name
        try:
            return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        except (OSError, ValueError):
            raise ConfigError(f"{file} is missing or damaged") from None

    # -- the journal against the traces -----------------------------------------------------------------------

    def _called(self, rows: Sequence[Row], traces: Sequence[tuple[Trace, str | None]]) -> Iterator[Deviation]:
        """Turns in their order, writes, and what test sessions offered."""
        where = f"{self.name}/journal.jsonl"
        asked = [(one.token_count, one.error) for one, probe in traces if _is(one, "retrieve") and not probe]
        turns = [(row["tokens"], row["error"]) for row in rows if row["kind"] == "turn"]
        yield from self._within(f"{where}: turns", turns, asked)
        # A provider that keeps nothing is reminded of its clock, without a line in the journal.
        sent = {(one.event_id, one.consistency or "unknown") for one, _ in traces if _is(one, "record_event")}
        written = {(row["event"], row["status"]) for row in rows if row["kind"] == "written"}
        lost = written - sent if self._whole else set()
        for event, status in sorted(lost):
            yield Deviation(f"{where}: {event}", status, "no such write in traces.jsonl")
        refused = sum(_is(one, "record_event") and bool(one.read_only) for one, _ in traces)
        tests = sum(row["skipped"] for row in rows if row["kind"] in ("test", "probes"))
        if tests > refused or (tests < refused and self._whole):
            yield Deviation(f"{where}: skipped", str(tests), f"{refused} in traces.jsonl")

    def _within(self, where: str, told: Sequence[Any], seen: Sequence[Any]) -> Iterator[Deviation]:
        if not self._whole:
            left = iter(seen)
            missing = next((one for one in told if one not in left), None)
            if missing is not None:
                yield Deviation(where, str(missing), "not in traces.jsonl")
            return
        for place, one in enumerate(told):
            other = seen[place] if place < len(seen) else None
            if one != other:
                yield Deviation(f"{where}, {place + 1}", str(one), str(other))
                return
        if len(seen) > len(told) and self._whole:
            yield Deviation(where, str(len(told)), f"{len(seen)} in traces.jsonl")

    # -- verdicts and scores from what was shown --------------------------------------------------------------

    def _judged(self, rows: Sequence[Row], traces: Sequence[tuple[Trace, str | None]]) -> Iterator[Deviation]:
        retrieved: dict[str, list[Trace]] = {}
        for trace, probe in traces:
            if probe is not None and _is(trace, "retrieve"):
                retrieved.setdefault(probe, []).append(trace)
        tests = [row for row in rows if row["kind"] in ("test", "probes")]
        for record in (BeatRecord.load(one) for row in tests for one in row["beats"]):
            yield from self._measured(record, retrieved.get(record.probe_id, []))
        if not all("texts" in row for row in tests):
            self.whole.unchecked.append("verdicts: texts were not kept (bench.keep_texts)")
            return
        if self.variant.counter == Utf8TokenCounter.name:
            yield from self._counted(tests, retrieved)
        else:
            self.whole.unchecked.append("tokens of sections: the counter is not memslot's own")
        if self.timeline is not None and self.roles is not None:
            for row in tests:
                yield from anyio.run(self._again, row, rows, retrieved)

    def _measured(self, record: BeatRecord, traces: Sequence[Trace]) -> Iterator[Deviation]:
        where = f"{self.name}/results.jsonl, {record.probe_id}"
        turns = max(1, record.turns) if record.error is None else record.turns + 1
        if len(traces) < turns:
            yield Deviation(where, f"{turns} retrievals", f"{len(traces)} in traces.jsonl")
            return
        own = traces[-turns:]
        yield from _same(f"{where}: error", record.error, own[-1].error)
        if record.error is None:
            yield from _same(f"{where}: tokens", record.tokens, own[0].token_count)
            yield from _same(f"{where}: shortfall", record.shortfall, own[0].shortfall_tokens)
            if record.relevant:
                yield from _same(f"{where}: items", len(record.relevant), own[0].included_count)

    def _counted(self, tests: Iterable[Row], retrieved: Mapping[str, Sequence[Trace]]) -> Iterator[Deviation]:
        counter = Utf8TokenCounter()
        shown: dict[str, list[int]] = {}
        for row in (text for test in tests for text in test["texts"]):
            shown.setdefault(row["probe_id"], []).append(counter.count(row["context"]))
        for probe, tokens in shown.items():
            seen = [one.token_count for one in retrieved.get(probe, ()) if one.error is None]
            yield from _same(f"{self.name}/texts.jsonl, {probe}: tokens", tokens, seen[-len(tokens) :])

    async def _again(
        self, row: Row, rows: Sequence[Row], retrieved: Mapping[str, Sequence[Trace]]
    ) -> list[Deviation]:
        """A test session once more, with the sections that were shown then."""
        timeline, roles = cast(Timeline, self.timeline), cast(Roles, self.roles)
        settings = self.whole.settings
        known = counts_as_known(row["readiness"], self.variant.traits.consistency, settings.score_unknown)
        dealings = Shown(self.record, self.variant, roles, row["texts"], retrieved)
        test: Tested
        if row["kind"] == "test":
            session = next(one for one in timeline.tests if one.session_id == row["session"])
            test = Tested(dealings, timeline.persona_id, session, told_before(timeline, rows, session.after))
        else:
            after = row["beats"][0]["after"]
            test = Asked(dealings, timeline.persona_id, after, timeline.probes_after(after))
        records, texts = await test.judged(row["readiness"], known)
        # Which native entries were shown is not kept.
        kept = [{name: one.get(name) for name in ("relevant", "found")} for one in row["beats"]]
        beats = [{**one.row(), **same} for one, same in zip(records, kept, strict=False)]
        where = f"{self.name}/journal.jsonl, {row['session']}"
        return [
            *_rows(f"{where}: beats", row["beats"], beats),
            *_rows(f"{where}: texts", row["texts"], texts),
        ]


def _timeline(data: TimelineSet | None, persona_id: str) -> Timeline | None:
    return next((one for one in data.timelines if one.persona_id == persona_id), None) if data else None


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def _is(trace: Trace, operation: str) -> bool:
    return trace.operation == operation


def _same(where: str, told: object, seen: object) -> Iterator[Deviation]:
    if told != seen:
        yield Deviation(where, str(told), str(seen))


def _rows(where: str, told: Sequence[Row], computed: Sequence[Row]) -> Iterator[Deviation]:
    """Rows against rows, as JSON has them."""
    for number, (one, other) in enumerate(zip_longest(told, computed), start=1):
        yield from compared(f"{where}, line {number}", one, json.loads(json.dumps(other)))
