"""Checks a cell's record and results against its journal.

If texts were kept, it also recomputes from the recorded sections what needs no model: replies, verdicts,
scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.bench.engine.cell import timings
from memory.bench.engine.cell_state import CellState
from memory.bench.engine.files import (
    OTHERWISE_FILE,
    CellJournal,
    each_line,
    file_hashes,
    read_lines,
)
from memory.bench.engine.manifest import CELL_FILE, MANIFEST_FILE, CellRecord, Manifest, read_cell
from memory.bench.engine.probe_session import Answering, completed
from memory.bench.engine.replay import (
    Deviation,
    RecordedReader,
    Row,
    SilentJudge,
    compared,
    first_rows,
    played_anew,
    rows_differ,
    same,
)
from memory.bench.engine.roles import Roles
from memory.bench.scores.metrics import llm_use
from memory.bench.scores.model import OF_SECTION
from memory.contract.errors import ConfigError
from memory.contract.formatting import Utf8TokenCounter


class CellCheck:
    """The check of one cell. ``unchecked`` collects what could not be checked, with the reason."""

    def __init__(
        self,
        directory: Path,  # of the experiment
        manifest: Manifest,
        record: CellRecord,  # as the manifest has it
        data: TimelineSet | None,
        roles: Roles | None,  # None if they cannot be repeated
        unchecked: list[str],
    ) -> None:
        self._manifest, self._record, self._roles, self._unchecked = manifest, record, roles, unchecked
        self._name = f"cells/{record.cell_id}"
        self._directory = directory / self._name
        self._timelines = data.timelines if data else ()
        own = (each for each in self._timelines if each.persona_id == record.persona_id)
        self._timeline: Timeline | None = next(own, None)
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
            yield from self._verdicts(rows)
        except Exception as error:  # a damaged line can raise anything
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

    def _verdicts(self, rows: Sequence[Row]) -> Iterator[Deviation]:
        tests = [row for row in rows if row["kind"] in ("test", "probes")]
        if not all("texts" in row for row in tests):
            self._unchecked.append("verdicts: texts were not kept (keep_texts)")
            return
        if self._variant.counter != Utf8TokenCounter.name:
            self._unchecked.append("verdicts: the token counter is not memslot's own")
            return
        for row in tests:
            yield from self._token_counts(row)
            if self._timeline is not None and self._roles is not None:
                yield from anyio.run(self._again, row, self._timeline, self._roles)

    def _token_counts(self, session: Row) -> Iterator[Deviation]:
        counter, shown = Utf8TokenCounter(), first_rows(session["texts"])
        for record in session["records"]:
            if (text := shown.get(record["probe_id"])) is not None and record["error"] is None:
                where = f"{self._name}/texts.jsonl, {record['probe_id']}: tokens"
                yield from same(where, record["tokens"], counter.count(text["context"]))

    async def _again(self, row: Row, timeline: Timeline, roles: Roles) -> list[Deviation]:
        """Play a test session again with its recorded sections."""
        if row["kind"] == "probes" and roles.reads:
            roles = replace(roles, reader=RecordedReader(row["texts"]))
        anew = await played_anew(row, self._record, self._variant, roles, timeline, self._timelines)
        where = f"{self._name}/journal.jsonl, {row['session']}"
        if isinstance(roles.judge, SilentJudge):
            return [*rows_differ(f"{where}: records", _kept(row["records"]), _kept(anew["records"]))]
        parts = ("records", "texts", "again")
        return [each for part in parts for each in rows_differ(f"{where}: {part}", row[part], anew[part])]


def _kept(records: Iterable[Row]) -> list[dict[str, Any]]:
    """For answered requests, the fields that section and reply decide without a judge."""
    names = (*OF_SECTION, "answer_f1", "exact")
    return [{name: record[name] for name in names} for record in records if record["error"] is None]
