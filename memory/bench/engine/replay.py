"""Replays test sessions with their recorded sections, and compares records with recomputed ones."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel

from memory.bench.data.timeline import Beat, Probe, Script, Timeline
from memory.bench.engine.context import CellContext, CellMemory, CellSettings, SessionDriver, looked_for
from memory.bench.engine.files import CellJournal
from memory.bench.engine.manifest import CellRecord, VariantRecord
from memory.bench.engine.probe_session import ProbeSession
from memory.bench.engine.roles import Exchange, Roles, Verdict, lettered
from memory.bench.engine.test_session import TestSessionRun
from memory.contract.errors import BackendError
from memory.contract.formatting import Utf8TokenCounter
from memory.contract.receipts import RetrieveResult, Trace
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, request_of
from memory.testing import FakeBackend

Row = Mapping[str, Any]  # a line of a JSON lines file


class SilentJudge:
    """Replaces a model judge, which is not asked again. It gives no verdict, so one reply ends a request."""

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        return Verdict(fit=None)


class SilentAnswerJudge:
    """The same for answers."""

    async def judge(self, category: str, question: str, answer: str, reply: str) -> Verdict:
        return Verdict(fit=None)


class RecordedReader:
    """Gives the recorded replies of a reader."""

    def __init__(self, texts: Iterable[Row]) -> None:
        self._replies: dict[str, deque[str]] = {}
        for text in texts:
            self._replies.setdefault(text["user"], deque()).append(text["reply"])

    async def read(self, question: str, section: str, now: str, options: Sequence[str]) -> str:
        asked = f"{question}\n{lettered(options)}" if options else question
        return self._replies[asked].popleft()


class ReplayDriver(SessionDriver):
    """Drives sessions with a memory that shows its recorded sections."""

    def __init__(
        self,
        record: CellRecord,
        variant: VariantRecord,
        roles: Roles,
        timeline: Timeline,
        timelines: Iterable[Timeline],
        session: Row,
    ) -> None:
        """``session`` is the journal's line of one test session."""
        # The session loop uses only the slot's token counter.
        context = CellContext(
            MemorySlot(FakeBackend(), token_counter=Utf8TokenCounter()),
            roles,
            CellJournal(Path()),
            **looked_for(timeline, timelines),
            mark_probe=self._mark_probe,
        )
        super().__init__(context, record.scope, CellSettings(budget=variant.budget, read_only=False))
        self._rows = first_rows(session["texts"])
        self._records = {row["probe_id"]: row for row in session["records"]}
        self._probe = ""
        self._named: list[tuple[RetrieveResult, list[str] | None]] = []

    def _mark_probe(self, probe_id: str | None) -> None:
        self._probe = probe_id or self._probe

    def memory(self, where: Script | Probe) -> CellMemory:
        return _RecordedMemory(self.context.slot, self._section)

    def event_ids(self, result: RetrieveResult) -> list[str] | None:
        return next((names for known, names in self._named if known is result), None)

    def _section(self, request: RetrieveRequest) -> Recall:
        row, record = self._rows.get(self._probe), self._records[self._probe]
        if row is None or record["error"]:
            return Recall("", failure=BackendError("nothing was shown"))
        return self._shown(request, row, record)

    def _shown(self, request: RetrieveRequest, row: Row, record: Row) -> Recall:
        section: str = row["context"]
        trace = _trace_of(record)
        result = RetrieveResult(request=request, raw=None, formatted_context=section, trace=trace)
        self._named.append((result, row["event_ids"]))
        return Recall(section, result=result)

    def second(self, first: Mapping[str, Recall], session: Row) -> dict[str, Recall]:
        """The recalls of the second round, by request."""
        held, again = dict(first), {row["probe_id"]: row for row in session["again"]}
        for probe, row in first_rows(session["texts_again"]).items():
            result = first[probe].result
            if result is not None and row["context"] != first[probe].section:
                held[probe] = self._shown(result.request, row, again.get(probe, self._records[probe]))
        return held

    def outcome(self, recall: Recall) -> str | None:
        return self._records[self._probe]["error"] if recall.failure else None


async def played_anew(
    session: Row,
    record: CellRecord,
    variant: VariantRecord,
    roles: Roles,
    timeline: Timeline,
    timelines: Iterable[Timeline],
) -> dict[str, Any]:
    """The journal's line of a test session, recomputed with these roles from its recorded sections."""
    driver = ReplayDriver(record, variant, roles, timeline, timelines, session)
    run: TestSessionRun
    if session["kind"] == "test":
        test = next(each for each in timeline.tests if each.session_id == session["session"])
        run = TestSessionRun(driver, test)
    else:
        wanted = {row["probe_id"] for row in session["records"]}
        run = ProbeSession(driver, [probe for probe in timeline.probes if probe.probe_id in wanted])
    await run.ask_all(session["readiness"], variant.traits.consistency)
    if session["texts_again"]:
        await run.repeat(driver.second(run.recalled, session))
    records, again = ([each.row() for each in found] for found in (run.records, run.again))
    own = {"records": records, "texts": run.texts, "again": again, "texts_again": run.texts_again}
    return {**session, **own}


def _trace_of(record: Row) -> Trace:
    """A trace from which ``test_session.measured`` derives the record's own counts."""
    return Trace(
        backend_name="recorded",
        scope=None,
        native_operation="recorded",
        token_count=record["tokens"],
        shortfall_tokens=record["shortfall"],
        retrieved_count=record["retrieved"],
        included_count=record["items"],
        left_out_count=(record["left_out"] or 0) - (record["retrieved"] or 0) + (record["items"] or 0),
    )


def first_rows(texts: Iterable[Row]) -> dict[str, Row]:
    """The first row of each request. Later rows are replies to complaints and hints."""
    found: dict[str, Row] = {}
    for row in texts:
        found.setdefault(row["probe_id"], row)
    return found


class _RecordedMemory(CellMemory):
    def __init__(self, slot: MemorySlot, section: Callable[[RetrieveRequest], Recall]) -> None:
        super().__init__(slot)
        self._section, self.recall_fields = section, {}

    async def ask(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        return self._section(request_of(user, session_id, self.slot.delivery.scope_or_default(scope)))


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


def same(where: str, recorded: object, computed: object) -> Iterator[Deviation]:
    if recorded != computed:
        yield Deviation(where, str(recorded), str(computed))


def compared(where: str, recorded: Any, computed: Any) -> Iterator[Deviation]:
    """The differences between two records, or two JSON values, leaf by leaf."""
    before, now = dict(_leaves(recorded)), dict(_leaves(computed))
    for name in {**before, **now}:
        yield from same(f"{where}: {name}", before.get(name, "absent"), now.get(name, "absent"))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def rows_differ(
    where: str, recorded: Sequence[Mapping[str, Any]], computed: Sequence[Mapping[str, Any]]
) -> Iterator[Deviation]:
    for number, (item, other) in enumerate(zip_longest(recorded, computed), start=1):
        yield from compared(f"{where}, line {number}", item, json.loads(json.dumps(other)))


def page_differs(page: Path, computed: str) -> Iterator[Deviation]:
    """The first line in which a page differs from the recomputed one."""
    try:
        recorded = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield Deviation(page.name, "missing or damaged", "a report")
        return
    if recorded == computed:
        return
    pairs = zip(recorded.splitlines(), computed.splitlines(), strict=False)
    place, (first, other) = next(
        ((at, pair) for at, pair in enumerate(pairs, start=1) if pair[0] != pair[1]),
        (0, ("shorter", "longer")),
    )
    yield Deviation(f"{page.name}, line {place}", first.strip()[:80], other.strip()[:80])


def few(found: Iterable[Deviation]) -> Iterator[Deviation]:
    """The first 20 deviations, and the number of the others by file."""
    rest = iter(found)
    yield from islice(rest, 20)
    more = Counter(item.where.split(",")[0].split(":")[0] for item in rest)
    for file, count in more.items():
        yield Deviation(file, f"{count} further deviations", "")
