"""Whether what a cell left agrees with itself: its record and results from the journal, that against the traces;
where texts were kept and all play by rules, replies, verdicts and scores from the sections that were shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.bench.engine.cell import timings
from memory.bench.engine.context import CellState
from memory.bench.engine.files import (
    AGAIN_FILE,
    OTHERWISE_FILE,
    CellJournal,
    each_line,
    file_hashes,
    read_lines,
)
from memory.bench.engine.manifest import CELL_FILE, MANIFEST_FILE, CellRecord, Manifest, read_cell
from memory.bench.engine.probe_session import Answering, ProbeSession, completed
from memory.bench.engine.replay import (
    Deviation,
    RecordedReader,
    ReplayDriver,
    Row,
    SilentJudge,
    compared,
    read_traces,
    rows_differ,
    same,
)
from memory.bench.engine.roles import Roles
from memory.bench.engine.test_session import TestSessionRun, measured
from memory.bench.scores.metrics import llm_use
from memory.bench.scores.model import OF_SECTION, ProbeRecord
from memory.contract.errors import ConfigError
from memory.contract.formatting import Utf8TokenCounter
from memory.contract.receipts import Trace

Traces = Sequence[tuple[Trace, str | None]]


class CellCheck:
    """A cell that is looked at. ``unchecked`` takes what could not be looked at, and why."""

    def __init__(
        self,
        directory: Path,  # of the experiment
        manifest: Manifest,
        record: CellRecord,  # as the manifest has it
        data: TimelineSet | None,
        roles: Roles | None,  # None where what they did cannot be repeated
        unchecked: list[str],
    ) -> None:
        self._manifest, self._record, self._roles, self._unchecked = manifest, record, roles, unchecked
        self._name = f"cells/{record.cell_id}"
        self._directory = directory / self._name
        self._timelines = data.timelines if data else ()
        own = (each for each in self._timelines if each.persona_id == record.persona_id)
        self._timeline: Timeline | None = next(own, None)
        # Not of a cell that stopped, or may have been taken up again: it has made others.
        once = len(manifest.runs) == 1 and manifest.runs[0].executor != "dask"
        self._every_call_counts = once and record.status == "completed" and not record.resumed
        variants = manifest.variants
        self._variant = next((variant for variant in variants if variant.label == record.label), variants[0])

    def deviations(self) -> Iterator[Deviation]:
        record = self._record
        if not (self._directory / CELL_FILE).exists():
            if record.status in ("completed", "stopped"):
                yield Deviation(f"{self._name}/{CELL_FILE}", "missing", record.status)
            elif record.status != "not_run":
                self._unchecked.append(f"{self._name}: it {record.status} and left no record")
            return
        try:
            kept = read_cell(self._directory)
            yield from compared(f"{self._name}/{CELL_FILE}", kept, record)
            now = file_hashes(self._directory)
            for name in {**kept.files, **now} if kept.files else ():
                before, after = kept.files.get(name, "missing"), now.get(name, "missing")
                yield from same(f"{self._name}/{name}", before[:12], after[:12])
            yield from self._contents()
        except (ConfigError, OSError) as error:
            yield Deviation(self._name, "damaged", str(error))

    def _contents(self) -> Iterator[Deviation]:
        journal, record = self._directory / "journal.jsonl", self._record
        begun = journal.exists() or bool(record.counts) or record.status == "completed"
        if begun and not (journal.exists() and journal.read_bytes().endswith(b"\n")):
            yield Deviation(f"{self._name}/journal.jsonl", "missing, or its last line is torn", "whole lines")
            return
        rows, state = list(CellJournal(journal).lines()), CellState()
        try:
            for row in rows:
                state.add(row)
            yield from self._state(state)
            traces = read_traces(self._directory / "traces.jsonl")
            # Who answered, and as what: as each of its calls says.
            provider = self._variant.provider
            seen = {(trace.backend_name, trace.condition_kind) for trace, _ in traces}
            expected = {(provider.name, provider.kind)} if seen else set()
            yield from same(f"{MANIFEST_FILE}: {self._variant.label}: provider and kind", expected, seen)
            yield from self._calls(rows, traces)
            yield from self._verdicts(rows, traces)
        except Exception as error:  # whatever a damaged line makes of itself
            why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            yield Deviation(f"{self._name}/journal.jsonl", "cannot be used", why)

    def _state(self, state: CellState) -> Iterator[Deviation]:
        record = self._record
        computed = CellRecord.model_validate(
            {
                **record.model_dump(),
                **state.of_record(),
                "timings": timings(self._directory),
                "usage": llm_use(each_line(self._directory / "traces.jsonl")),
            }
        )
        yield from compared(f"{MANIFEST_FILE}: {self._name}", record, computed)
        if record.status == "completed" and self._timeline is not None:
            yield from same(f"{MANIFEST_FILE}: {self._name}: steps", state.steps, self._timeline.steps)
        yield from self._results(state)
        otherwise = read_lines(self._directory / OTHERWISE_FILE)
        yield from rows_differ(
            f"{self._name}/{OTHERWISE_FILE}", otherwise, [record.row() for record in state.again]
        )
        if (self._directory / "texts.jsonl").exists():
            kept = read_lines(self._directory / "texts.jsonl")
            yield from rows_differ(f"{self._name}/texts.jsonl", kept, state.texts_of(record.persona_id))
        elif record.status == "completed" and state.records:
            settings = self._manifest.settings
            if (kept_texts := settings.get("keep_texts")) is None:
                kept_texts = settings.get("timeline") == "game"
            if kept_texts:
                yield Deviation(f"{self._name}/texts.jsonl", "missing", "what was said and shown")

    def _results(self, state: CellState) -> Iterator[Deviation]:
        where, record = f"{self._name}/results.jsonl", self._record
        kept, known = read_lines(self._directory / "results.jsonl"), state.records
        if self._timeline is not None:
            answering = Answering(self._manifest.by_model("reader"), self._manifest.by_model("answer_judge"))
            known = completed(
                known, self._timeline, answering=answering, fault=record.fault, error=record.error
            )
        yield from rows_differ(where, kept[: len(known)], [item.row() for item in known])
        rest = {row.get("status") for row in kept[len(known) :]}
        if rest:
            expected = "failed" if record.fault == "provider" else "missing"
            yield from same(f"{where}: requests it did not get to", sorted(map(str, rest)), [expected])
        budget = self._variant.budget
        for row in kept:
            probe = f"{where}, {row.get('probe_id')}"
            for name, limit in (("tokens", budget.max_tokens), ("items", budget.max_items)):
                if limit is not None and (row.get(name) or 0) > limit:
                    yield Deviation(f"{probe}: {name}", str(row[name]), f"at most {limit} by the budget")

    def _calls(self, rows: Sequence[Row], traces: Traces) -> Iterator[Deviation]:
        """Turns in their order, writes, and what test sessions offered."""
        where = f"{self._name}/journal.jsonl"
        asked = [
            (each.token_count, each.error)
            for each, probe in traces
            if each.operation == "retrieve" and not probe
        ]
        turns = [(row["tokens"], row["error"]) for row in rows if row["kind"] == "turn"]
        yield from self._within(f"{where}: turns", turns, asked)
        # A provider that keeps nothing is reminded of its clock, without a line in the journal.
        writes = [trace for trace, _ in traces if trace.operation == "record_event"]
        sent = {(trace.event_id, trace.consistency or "unknown") for trace in writes}
        written = {(row["event"], row["status"]) for row in rows if row["kind"] == "written"}
        in_bulk = any(trace.operation == "record_events" for trace, _ in traces)
        for event, status in sorted(written - sent) if self._every_call_counts and not in_bulk else ():
            yield Deviation(f"{where}: {event}", status, "no such write in traces.jsonl")
        refused = sum(bool(trace.read_only) for trace in writes)
        tests = sum(row["skipped"] for row in rows if row["kind"] in ("test", "probes"))
        if tests > refused or (tests < refused and self._every_call_counts):
            yield Deviation(f"{where}: skipped", str(tests), f"{refused} in traces.jsonl")

    def _within(self, where: str, kept: Sequence[Any], seen: Sequence[Any]) -> Iterator[Deviation]:
        if not self._every_call_counts:
            left = iter(seen)
            missing = next((item for item in kept if item not in left), None)
            if missing is not None:
                yield Deviation(where, str(missing), "not in traces.jsonl")
            return
        for place, (item, other) in enumerate(zip_longest(kept, seen), start=1):
            if item != other:
                yield Deviation(f"{where}, {place}", str(item), str(other))
                return

    def _verdicts(self, rows: Sequence[Row], traces: Traces) -> Iterator[Deviation]:
        retrieved: dict[str, list[Trace]] = {}
        for trace, probe in traces:
            if probe is not None and trace.operation == "retrieve":
                retrieved.setdefault(probe, []).append(trace)
        tests = [row for row in rows if row["kind"] in ("test", "probes")]
        for record in (ProbeRecord.load(item) for row in tests for item in row["records"]):
            yield from self._retrievals(record, retrieved.get(record.probe_id, []))
        if not all("texts" in row for row in tests):
            self._unchecked.append("verdicts: texts were not kept (keep_texts)")
            return
        if self._variant.counter != Utf8TokenCounter.name:
            self._unchecked.append("verdicts: the token counter is not memslot's own")
            return
        yield from self._token_counts(tests, retrieved)
        if self._timeline is not None and self._roles is not None:
            for row in tests:
                yield from anyio.run(self._again, row, retrieved, self._timeline, self._roles)

    def _retrievals(self, record: ProbeRecord, traces: Sequence[Trace]) -> Iterator[Deviation]:
        where = f"{self._name}/results.jsonl, {record.probe_id}"
        if not traces:
            yield Deviation(where, "a retrieval", "none in traces.jsonl")
            return
        own = traces[-1]  # a request is put once; the session may have been played before, and killed
        yield from same(f"{where}: error", record.error, own.error)
        if record.error is None:
            for name, seen in measured(own).items():
                yield from same(f"{where}: {name}", getattr(record, name), seen)

    def _token_counts(
        self, tests: Iterable[Row], retrieved: Mapping[str, Sequence[Trace]]
    ) -> Iterator[Deviation]:
        counter = Utf8TokenCounter()
        for row in (text for test in tests for text in test["texts"]):
            probe, tokens = row["probe_id"], counter.count(row["context"])
            seen = [item.token_count for item in retrieved.get(probe, ()) if item.error is None]
            yield from same(f"{self._name}/texts.jsonl, {probe}: tokens", tokens, seen[-1] if seen else None)

    async def _again(
        self, row: Row, retrieved: Mapping[str, Sequence[Trace]], timeline: Timeline, roles: Roles
    ) -> list[Deviation]:
        """A test session once more, with the sections that were shown then."""
        if row["kind"] == "probes" and roles.reads:
            roles = replace(roles, reader=RecordedReader(row["texts"]))
        driver = ReplayDriver(
            self._record, self._variant, roles, timeline, self._timelines, row["texts"], retrieved
        )
        run: TestSessionRun
        if row["kind"] == "test":
            test = next(each for each in timeline.tests if each.session_id == row["session"])
            run = TestSessionRun(driver, test)
        else:
            wanted = {record["probe_id"] for record in row["records"]}
            probes = [probe for probe in timeline.probes if probe.probe_id in wanted]
            run = ProbeSession(driver, probes)
        await run.ask_all(row["readiness"], self._variant.traits.consistency)
        where = f"{self._name}/journal.jsonl, {row['session']}"
        rows = [record.row() for record in run.records]
        second = await self._second(driver, run, row)
        if isinstance(roles.judge, SilentJudge):
            return [*rows_differ(f"{where}: records", _kept(row["records"]), _kept(rows))]
        return [
            *rows_differ(f"{where}: records", row["records"], rows),
            *rows_differ(f"{where}: texts", row["texts"], run.texts),
            *rows_differ(f"{where}: again", row["again"], second),
        ]

    async def _second(self, driver: ReplayDriver, run: TestSessionRun, row: Row) -> list[Row]:
        """The records of the second time, with the sections that were shown then."""
        texts = row["texts_again"]
        if not texts:
            return []
        traces: dict[str, list[Trace]] = {}
        for trace, probe in read_traces(self._directory / AGAIN_FILE):
            traces.setdefault(probe or "", []).append(trace)
        await run.repeat(driver.second(run.recalled, texts, traces))
        return [record.row() for record in run.again]


def _kept(records: Iterable[Row]) -> list[dict[str, Any]]:
    """What section and recorded reply decide without a judge, of the requests that were answered."""
    names = (*OF_SECTION, "answer_f1", "exact")
    return [{name: record[name] for name in names} for record in records if record["error"] is None]
