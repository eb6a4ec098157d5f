"""What the cell of an experiment has from outside, what is known of it, and how its sessions deal with the
user, the assistant, the judge and the memory; tested or not, the same.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from memory.bench.data.timeline import Beat, Probe, Script
from memory.bench.engine.files import NO_ANSWER, CellJournal, HarnessFailed, Interrupted
from memory.bench.engine.roles import Exchange, Roles, Verdict
from memory.bench.engine.settings import CsField, EventContext
from memory.bench.scores.model import ProbeRecord
from memory.bench.scores.sections import WholeTurns
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import CROSS_CONTEXT, ContextBudget
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields, event_from_turn

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


@dataclass(frozen=True, slots=True)
class CellSettings:
    """How a cell is played.

    Attributes:
        budget: of every retrieval.
        event_context: how an event tells its context.
        cs: which CS fields a retrieval names.
        read_only: whether test sessions close the slot for writes.
        wait_timeout_s: longest wait for readiness before a test session.
        bulk: write fixed transcripts session by session, where the provider can.
    """

    budget: ContextBudget
    event_context: EventContext = "field"
    cs: tuple[CsField, ...] = ("context",)
    read_only: bool = True
    wait_timeout_s: float = 120.0
    bulk: bool = False


@dataclass
class CellState:
    """What is known of a cell; the sum of its journal's lines.

    Attributes:
        sessions, tests, probes: ended, of the timeline's sessions, test sessions, and points where it asks probes.
        counts: ``events``, ``native_records``, ``turns``, ``retrieve_errors``, ``written_tokens``,
            ``asked_tokens``, ``context_tokens``; of test sessions ``skipped`` (writes that were refused, as they
            should be), ``recalled``, and of those ``dated`` and ``versioned``.
        writes, readiness, store: receipts, readiness answers and comparisons of the store by state.
        records, texts: of test sessions, what requests were worth, and what was said and shown where that is kept.
        models: calls, tokens and unread answers of the roles' models, by role.
        resumed: how often the cell was taken up again.
    """

    sessions: int = 0
    tests: int = 0
    probes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    readiness: Counter[str] = field(default_factory=Counter)
    store: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    records: list[ProbeRecord] = field(default_factory=list)
    texts: list[Mapping[str, Any]] = field(default_factory=list)
    models: dict[str, Counter[str]] = field(default_factory=dict)
    resumed: int = 0

    @property
    def steps(self) -> int:
        """Steps of the timeline that have ended."""
        return self.sessions + self.tests + self.probes

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one line of the journal into account."""
        kind = row["kind"]
        if kind == "resumed":
            self.resumed += 1
        elif kind == "turn":
            self.counts["turns"] += 1
            self.counts["context_tokens"] += row["tokens"] or 0
            self.counts["asked_tokens"] += row["asked"]
            self.counts["retrieve_errors"] += row["error"] is not None
        elif kind == "written":
            self.writes[row["status"]] += 1
            self.counts["events"] += 1
            self.counts["native_records"] += row["native"]
            self.counts["written_tokens"] += row["tokens"]
        elif kind == "session":
            self.sessions += 1
        elif kind == "probes_ended":
            self.probes += 1
        elif kind in ("test", "probes"):
            self.tests += kind == "test"
            self.probes += row.get("last", False)
            self.readiness[row["readiness"]] += 1
            self.store[row["store"]] += 1
            for count in ("skipped", "recalled", "dated", "versioned"):
                self.counts[count] += row[count]
            self.records += (
                item if isinstance(item, ProbeRecord) else ProbeRecord.load(item) for item in row["records"]
            )
            self.texts += row.get("texts", ())
        if warnings := row.get("warnings"):
            self.warnings.update(warnings)
        for role, spent in row.get("models", {}).items():
            self.models.setdefault(role, Counter()).update(spent)


@dataclass(frozen=True)
class CellContext:
    """What a cell needs from outside.

    Attributes:
        slot: open, in accumulation mode; left as it is with its scope.
        roles: who plays.
        journal: what was done, and where it is noted.
        turns: those of the timeline's fixed transcripts, to be found in sections.
        foreign: phrases of other personas, so that a leak shows.
        fingerprint: the native store's state, to be compared, or None where it cannot be counted.
        mark_probe: names the probe that the traces of what follows belong to, or None.
        check: raises where what happened cannot be kept; called before it is noted.
        add_time: called with a phase and its milliseconds.
        progress: called after each step.
        take_usage: what the roles' models cost since it was asked last, by role.
        keep_texts: put what test sessions said and were shown into the journal.
        scrub: cleans warnings.
    """

    slot: MemorySlot
    roles: Roles
    journal: CellJournal
    turns: WholeTurns = field(default_factory=lambda: WholeTurns({}))
    foreign: tuple[str, ...] = ()
    fingerprint: Callable[[], object] = lambda: None
    mark_probe: Callable[[str | None], None] = lambda _: None
    check: Callable[[], None] = lambda: None
    add_time: Callable[[str, float], None] = lambda phase, ms: None
    progress: Callable[[CellState], None] = lambda _: None
    take_usage: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    keep_texts: bool = True
    scrub: Callable[[str], str] = str

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Measure a phase, also one that fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add_time(phase, (time.perf_counter() - began) * 1000)

    @contextmanager
    def probe(self, probe_id: str) -> Iterator[None]:
        """Traces of calls made within name the probe, so that results and traces join."""
        self.mark_probe(probe_id)
        try:
            yield
        finally:
            self.mark_probe(None)

    def clean(self, warnings: Iterable[str]) -> list[str]:
        """Warnings for a record: without what must not be shown, those that differ in a number alone as one."""
        return [_NUMBER.sub("…", self.scrub(text)) for text in warnings]


_MAX_FAILURES = 5
"""Retrievals that may fail one after another before a cell is abandoned."""
_POLICY = TurnPolicy(recall_s=3600, open_after=_MAX_FAILURES)  # calls have deadlines of their own


class CellMemory(TurnMemory):
    """The slot as the session loop has it here. What the loop records is kept for the cell.

    Args:
        slot: the memory.

    Attributes:
        recall_fields: how recalls ask.
        turn_fields: time, ids and CS fields of the turn that is recorded next.
        event: what was recorded last.
    """

    recall_fields: RecallFields
    turn_fields: TurnFields
    event: MemoryEvent

    def __init__(self, slot: MemorySlot) -> None:
        super().__init__(slot, _POLICY)

    def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Coroutine[Any, Any, Recall]:
        """As any host recalls, by the matrix's budget and CS fields."""
        fields.update(self.recall_fields)
        return super().recall(user, session_id=session_id, scope=scope, **fields)

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Keep what any host would hand over, with the time and the ids of the timeline."""
        fields.update(self.turn_fields)
        self.event = event_from_turn(session_id, self.slot.scope_or_default(scope), **fields)
        return True


@contextmanager
def role_calls(role: str) -> Iterator[None]:
    """What a role's model raises becomes the harness's failure: the memory has no part in it.

    Raises:
        Interrupted: the model did not answer.
        HarnessFailed: it failed for good.
    """
    try:
        yield
    except BackendError as error:
        failure = Interrupted if isinstance(error, NO_ANSWER) else HarnessFailed
        raise failure(f"the {role}: {error}") from error


class SessionDriver:
    """Carries a cell's sessions out.

    Args:
        context: what there is.
        scope: the persona's.
        settings: how it is asked.

    Attributes:
        readiness: says whether what was written is retrievable; None where the memory cannot.
    """

    def __init__(self, context: CellContext, scope: MemoryScope, settings: CellSettings) -> None:
        self.context, self.scope, self.settings = context, scope, settings
        self.readiness = context.slot.capability(SupportsReadiness)
        self._memory = CellMemory(context.slot)
        self._failures_in_a_row = 0

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """What the user says next, or None."""
        with self.context.timed("simulate"), role_calls("simulator"):
            return await self.context.roles.simulator.say(script, beat, exchanges)

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """What the judge says of the last exchange."""
        with self.context.timed("judge"), role_calls("judge"):
            return await self.context.roles.judge.judge(script, beat, exchanges)

    def memory(self, where: Script | Probe) -> CellMemory:
        """The memory as the session that begins has it."""
        fields: dict[str, Any] = {name: getattr(where, name, None) for name in self.settings.cs}
        fields["budget"] = self.settings.budget
        if isinstance(where, Probe) and where.cross_context:
            fields["filters"] = {CROSS_CONTEXT: True}
        self._memory.recall_fields = cast(RecallFields, fields)
        return self._memory

    def event_ids(self, result: RetrieveResult) -> list[str] | None:
        """Ids of the events that entries of a section name, sorted; None where none names any."""
        named = {event_id for entry in result.context_entries for event_id in entry.event_ids}
        return sorted(named) or None

    def outcome(self, recall: Recall) -> str | None:
        """None of a retrieval that worked, else the failure's name; several in a row are raised."""
        error = recall.failure
        if error is None:
            self._failures_in_a_row = 0
            return None
        self._failures_in_a_row += 1
        if not isinstance(error, BackendError) or self._failures_in_a_row >= _MAX_FAILURES:
            raise error
        return type(error).__name__
