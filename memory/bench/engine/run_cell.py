"""One persona under one provider, from a fresh scope to the last probe."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from memory.bench.data.timeline import (
    CONTEXTS,
    ChoiceTruth,
    EvidenceTruth,
    PreferenceTruth,
    Probe,
    Session,
    Timeline,
)
from memory.bench.engine.run_manifest import CellRecord, ErrorRecord
from memory.bench.engine.run_settings import RunSettings
from memory.bench.engine.rundir import RunDirectory
from memory.bench.scores.run_metrics import ProbeRecord, Readiness
from memory.bench.scores.scoring import WholeTurns, score_evidence, score_preference
from memory.contract.adapter import SupportsBulkIngest, SupportsReadiness
from memory.contract.errors import BackendError, MemslotError
from memory.contract.receipts import RetrieveResult, WriteReceipt
from memory.contract.requests import CROSS_CONTEXT, AdapterMode, ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.doctor.waiting import Patience
from memory.slot.slot import MemorySlot

Phase = Literal["setup", "ingest", "wait", "probe"]

_MOST_FAILURES = 5
"""Retrievals that may fail one after another before a cell is abandoned."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_SCORED_UNKNOWN = "probes are scored although the provider could not say whether memory was ready"


def error_record(error: BaseException) -> ErrorRecord:
    """An error for the manifest. Only memslot's own messages are known to hold no user text."""
    own = isinstance(error, MemslotError)
    backend = error if isinstance(error, BackendError) else None
    return ErrorRecord(
        type=type(error).__name__,
        message=str(error)
        if own
        else "not an error of memslot's own, so its message, which may hold user text, is withheld",
        operation=(backend.operation or None) if backend else None,
        diagnostics=backend.diagnostics if backend else {},
    )


class _Stopped(MemslotError):
    """The cell cannot go on."""


@dataclass
class Tally:
    """What a run adds up over its cells. Times are milliseconds of wall time; ``scrub`` cleans warnings."""

    doctor_ms: float = 0.0
    setup_ms: float = 0.0
    ingest_ms: float = 0.0
    wait_ms: float = 0.0
    retrieve_ms: float = 0.0
    format_ms: float = 0.0
    write_ms: list[float] = field(default_factory=list)
    written_tokens: int = 0
    context_tokens: int = 0
    warnings: Counter[str] = field(default_factory=Counter)
    records: list[ProbeRecord] = field(default_factory=list)
    scrub: Callable[[str], str] = str

    def warn(self, warnings: Iterable[str]) -> None:
        """Count warnings, those that differ in a number alone as one."""
        self.warnings.update(_NUMBER.sub("…", self.scrub(text)) for text in warnings)


@dataclass(frozen=True)
class Work:
    """What the cells of one run share.

    Attributes:
        slot: the open slot. Cells leave it in accumulation mode, and leave their scopes as they are.
        settings, budget: how it is asked.
        read_only: whether test sessions close the slot for writes.
        files: gets a line for each probe.
        tally: gets the sums.
        progress: called with the phase, and the events and probes just done.
        patience: told of waits.
        on_error: called with each error that becomes a line of a record.
    """

    slot: MemorySlot
    settings: RunSettings
    budget: ContextBudget
    read_only: bool
    files: RunDirectory
    tally: Tally
    progress: Callable[[Phase, int, int], None]
    patience: Patience
    on_error: Callable[[Exception], None] | None = None


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


class Cell:
    """Takes one persona through its timeline and keeps the record.

    Args:
        work: what it shares with the other cells.
        timeline: what the persona goes through.
        scope: a fresh scope.
        foreign: phrases that belong to other personas.
    """

    def __init__(self, work: Work, timeline: Timeline, scope: MemoryScope, foreign: Sequence[str]) -> None:
        self._work = work
        self._slot = work.slot
        self._tally = work.tally
        self._timeline = timeline
        self._scope = scope
        self._foreign = foreign
        self._turns = WholeTurns({turn.event_id: turn.text for turn in timeline.turns})
        self._failures_in_a_row = 0
        self._counts: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._readiness: Counter[str] = Counter()
        self._state: Readiness = "not_offered"
        self._known = True  # that memory is ready
        self._outcome: dict[str, Any] = {"status": "failed"}

    @property
    def record(self) -> CellRecord:
        """What is known of this cell by now."""
        return CellRecord(
            persona_id=self._timeline.persona_id,
            scope=self._scope,
            writes=dict(self._writes),
            readiness=dict(self._readiness),
            **self._counts,
            **self._outcome,
        )

    async def run(self) -> None:
        """Go through the timeline. What the backend fails at ends the cell and stands in its record."""
        try:
            await self._set_up()
            await self._test(0)
            for number, session in enumerate(self._timeline.sessions, start=1):
                await self._ingest(session)
                self._counts["sessions"] += 1
                await self._test(number)
        except MemslotError as error:
            self._tell(error)
            self._outcome.update(status="failed", error=error_record(error))
        else:
            self._outcome.update(status="completed")

    async def _set_up(self) -> None:
        self._work.progress("setup", 0, 0)
        self._work.patience.check = self._timeline.persona_id
        start = time.perf_counter()
        try:
            if self._slot.read_only:  # an earlier cell could not switch back
                await self._slot.set_mode(AdapterMode(read_only=False, reason="accumulation"))
            await self._slot.setup_scope(self._scope)
        finally:
            self._tally.setup_ms += _since(start)
        self._outcome["native_scope"] = dict(self._slot.native_scope(self._scope))

    # -- accumulation -----------------------------------------------------------------------------------

    async def _ingest(self, session: Session) -> None:
        events = [turn.event(self._scope, session.session_id) for turn in session.turns]
        bulk = self._slot.capability(SupportsBulkIngest) if self._work.settings.bulk else None
        for batch in [events] if bulk else [[event] for event in events]:
            start = time.perf_counter()
            try:
                receipts = (
                    await bulk.record_events(batch) if bulk else [await self._slot.record_event(batch[0])]
                )
            except MemslotError as error:
                self._count(error.receipts)
                raise
            finally:
                spent = _since(start)
                self._tally.ingest_ms += spent
            self._tally.write_ms.extend([spent / len(batch)] * len(batch))
            self._tally.written_tokens += sum(
                self._slot.token_counter.count(message.content)
                for event in batch
                for message in event.messages
            )
            self._count(receipts)
            self._work.progress("ingest", len(batch), 0)

    def _count(self, receipts: Iterable[WriteReceipt]) -> None:
        for receipt in receipts:
            self._counts["events"] += 1
            self._counts["native_records"] += len(receipt.native_ids)
            self._writes[receipt.status] += 1
            self._tally.warn(receipt.warnings)
        if self._writes["skipped_read_only"]:
            raise _Stopped("a write was skipped because the slot is read-only; the timeline would have a gap")

    # -- test sessions ----------------------------------------------------------------------------------

    async def _test(self, number: int) -> None:
        probes = self._timeline.probes_after(number)
        if not probes:
            return
        await self._wait()
        try:
            if self._work.read_only:  # a switch that fails leaves the slot read-only all the same
                await self._slot.set_mode(AdapterMode(read_only=True, reason="test_session"))
            for probe in probes:
                await self._ask(probe)
        finally:
            self._work.files.flush()
            if self._work.read_only:
                await self._slot.set_mode(AdapterMode(read_only=False, reason="accumulation"))

    async def _wait(self) -> None:
        """Wait until what was written is retrievable, and say so where that is not certain."""
        waiting = self._slot.capability(SupportsReadiness)
        if waiting is None:
            self._readiness[self._state] += 1
            self._known = self._slot.traits.consistency == "immediate"
            if not self._known:
                self._tally.warn(["writes become retrievable later, and the provider cannot say when"])
            return
        start, limit_s = time.perf_counter(), self._work.settings.wait_timeout_s
        try:
            with self._work.patience.waiting_for("what was written to be processed", limit_s):
                answer = await waiting.wait_until_ready(self._scope, limit_s)
        finally:
            self._tally.wait_ms += _since(start)
        self._state, self._known = answer.state, answer.state == "ready"
        self._readiness[answer.state] += 1
        self._work.progress("wait", 0, 0)
        why = f": {answer.detail}" if answer.detail else ""
        if answer.state == "failed":
            raise _Stopped(
                f"the backend failed to process what was written, so its retrievals would not count{why}"
            )
        if answer.state != "ready":
            self._tally.warn([f"a test session began while readiness was {answer.state}{why}"])

    async def _ask(self, probe: Probe) -> None:
        cs: dict[str, Any] = {name: getattr(probe, name) for name in self._work.settings.cs}
        request = RetrieveRequest(
            query=probe.query,
            scope=self._scope,
            session_id=probe.session_id,
            budget=self._work.budget,
            filters={CROSS_CONTEXT: True} if probe.cross_context else {},
            **cs,
        )
        start = time.perf_counter()
        try:
            with self._work.files.asking(probe.probe_id):
                result = await self._slot.retrieve(request)
        except BackendError as error:
            self._failed(probe, error)
            return
        finally:
            spent = _since(start)
            self._tally.retrieve_ms += spent
        self._failures_in_a_row = 0
        unformatted = result.model_copy(update={"formatted_context": ""})
        start = time.perf_counter()
        self._slot.format_context(unformatted)
        formatted = _since(start)
        self._tally.format_ms += formatted
        self._tally.context_tokens += result.trace.token_count or 0
        self._tally.warn(result.trace.warnings)
        self._counts["probes"] += 1
        self._work.files.add_texts(probe.probe_id, self._timeline.persona_id, probe.query, result)
        self._keep(
            self._answered(probe, **self._measured(result, spent, formatted), **self._judged(probe, result))
        )

    def _tell(self, error: Exception) -> None:
        if self._work.on_error is not None:
            self._work.on_error(error)

    def _failed(self, probe: Probe, error: BackendError) -> None:
        self._tell(error)
        self._failures_in_a_row += 1
        self._counts["probe_errors"] += 1
        self._keep(self._answered(probe, status="failed", error=type(error).__name__))
        if self._failures_in_a_row == _MOST_FAILURES:
            raise error

    def _keep(self, record: ProbeRecord) -> None:
        self._tally.records.append(record)
        self._work.files.add_result(record)
        self._work.progress("probe", 0, 1)

    def _judged(self, probe: Probe, result: RetrieveResult) -> dict[str, Any]:
        """The score, or none: what an unready memory does not show is not what it would remember."""
        status = "scored"
        if not self._known:
            status = "unconfirmed"
            if self._state == "pending" or not self._work.settings.score_unknown:
                self._counts["probes_not_ready"] += 1
                return {"status": "not_ready"}
            self._tally.warn([_SCORED_UNKNOWN])
        truth = probe.truth
        if isinstance(truth, EvidenceTruth):
            return {"status": status, "evidence": score_evidence(truth, result, self._turns)}
        if isinstance(truth, ChoiceTruth):
            return {}  # takes an assistant that chooses
        other = next(name for name in CONTEXTS if name != probe.context)
        preference = score_preference(truth, result, other_context=other, foreign=self._foreign)
        return {"status": status, "preference": preference}

    @staticmethod
    def _measured(result: RetrieveResult, spent: float, formatted: float) -> dict[str, Any]:
        return {
            "tokens": result.trace.token_count,
            "shortfall": result.trace.shortfall_tokens,
            "left_out": len(result.entries) - len(result.included) + (result.trace.left_out_count or 0),
            "items": len(result.included),
            "retrieved": len(result.entries),
            "names_events": any(entry.event_ids for entry in result.entries),
            "retrieve_ms": round(spent, 3),
            "format_ms": round(formatted, 3),
        }

    def _answered(self, probe: Probe, **fields: Any) -> ProbeRecord:
        truth = probe.truth
        known: dict[str, Any] = (
            {"change": truth.change, "since": truth.since} if isinstance(truth, PreferenceTruth) else {}
        )
        return ProbeRecord(
            probe_id=probe.probe_id,
            persona_id=self._timeline.persona_id,
            category=probe.category,
            after=probe.after,
            context=probe.context,
            attribute=probe.attribute,
            readiness=self._state,
            cross_context=probe.cross_context,
            **known,
            **fields,
        )
