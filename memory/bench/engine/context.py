"""What a player sits at: the slot, the roles, the journal, and how everyone is dealt with."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack, cast

from memory.bench.data.timeline import Beat, Script
from memory.bench.engine.record import PlayJournal
from memory.bench.engine.roles import Exchange, Roles, Verdict
from memory.bench.engine.run_manifest import write_atomic
from memory.bench.scores.records import BeatRecord
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields, event_from_turn

CsField = Literal["scenario", "context", "attribute"]
_MOST_FAILURES = 5
"""Retrievals that may fail one after another before a cell is abandoned."""
_POLICY = TurnPolicy(recall_s=3600, open_after=_MOST_FAILURES)  # calls have deadlines of their own
_NUMBER = re.compile(r"\d+")


class Stopped(MemslotError):
    """The cell cannot go on."""

    @classmethod
    def full(cls, file: str, error: OSError) -> Stopped:
        """A file cannot be written."""
        return cls(f"{file} cannot be written ({error.strerror}); make room and resume")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file of an experiment, whole or not at all.

    Raises:
        Stopped: it cannot be written.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        raise Stopped.full(path.name, error) from error


@dataclass(frozen=True, slots=True)
class PlayerSettings:
    """How a cell is played.

    Attributes:
        budget: of every retrieval.
        cs: which CS fields a retrieval names.
        read_only: whether test sessions close the slot for writes.
        wait_timeout_s: longest wait for readiness before a test session.
        score_unknown: score test sessions although the provider cannot say whether it is ready.
    """

    budget: ContextBudget
    cs: tuple[CsField, ...] = ("context",)
    read_only: bool = True
    wait_timeout_s: float = 120.0
    score_unknown: bool = False


@dataclass
class Played:
    """What is known of a cell; the sum of its journal's lines.

    Attributes:
        sessions, tests, asked: ended, of the timeline's sessions, test sessions, and points where it asks probes.
        counts: ``events``, ``native_records``, ``turns``, ``retrieve_errors``, ``written_tokens``,
            ``asked_tokens``, ``context_tokens``; ``llm_calls`` and ``llm_tokens`` of the provider's own models as
            it wrote, and for how many events either is ``_unknown``; of test sessions ``skipped`` (writes that
            were refused, as they should be), ``recalled``, and of those ``dated`` and ``versioned``.
        writes, readiness, store: receipts, readiness answers and comparisons of the store by state.
        records, texts: of test sessions, what each beat was worth, and what was said and shown where that is kept.
        models: calls, tokens and unread answers of the roles' models, by role.
        resumed: how often the cell was taken up again.
    """

    sessions: int = 0
    tests: int = 0
    asked: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    readiness: Counter[str] = field(default_factory=Counter)
    store: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    records: list[BeatRecord] = field(default_factory=list)
    texts: list[Mapping[str, str]] = field(default_factory=list)
    models: dict[str, Counter[str]] = field(default_factory=dict)
    resumed: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one line of the journal into account."""
        kind = row["kind"]
        if kind == "resumed":
            self.resumed += 1
        elif kind == "turn":
            self.counts["turns"] += 1
            self.counts["context_tokens"] += row["tokens"] or 0
            self.counts["asked_tokens"] += row.get("asked", 0)
            self.counts["retrieve_errors"] += row["error"] is not None
        elif kind == "written":
            self.writes[row["status"]] += 1
            self.counts["events"] += 1
            self.counts["native_records"] += row["native"]
            self.counts["written_tokens"] += row["tokens"]
            for name, spent in zip(("llm_calls", "llm_tokens"), row.get("llm", (None, None)), strict=True):
                self.counts[name if spent is not None else f"{name}_unknown"] += 1 if spent is None else spent
        elif kind == "session":
            self.sessions += 1
        elif kind in ("test", "probes"):
            self.tests += kind == "test"
            self.asked += kind == "probes"
            self.readiness[row["readiness"]] += 1
            self.store[row["store"]] += 1
            for count in ("skipped", "recalled", "dated", "versioned"):
                self.counts[count] += row[count]
            self.records += (
                one if isinstance(one, BeatRecord) else BeatRecord.load(one) for one in row["beats"]
            )
            self.texts += row.get("texts", ())
        if warnings := row.get("warnings"):
            self.warnings.update(warnings)
        for role, spent in row.get("models", {}).items():
            self.models.setdefault(role, Counter()).update(spent)


@dataclass(frozen=True)
class Table:
    """What a player needs from outside.

    Attributes:
        slot: open, in accumulation mode; left as it is with its scope.
        roles: who plays.
        journal: what was done, and where it is noted.
        fingerprint: the native store's state, to be compared, or None where it cannot be counted.
        asking: names the probe that the traces of what follows belong to, or None.
        check: raises where what happened cannot be kept; called before it is noted.
        times: called with a phase and its milliseconds.
        progress: called after each session and test session.
        spent: what the roles' models cost since it was asked last, by role.
        keep_texts: put what test sessions said and were shown into the journal.
        scrub: cleans warnings.
    """

    slot: MemorySlot
    roles: Roles
    journal: PlayJournal
    fingerprint: Callable[[], object] = lambda: None
    asking: Callable[[str | None], None] = lambda _: None
    check: Callable[[], None] = lambda: None
    times: Callable[[str, float], None] = lambda phase, ms: None
    progress: Callable[[Played], None] = lambda _: None
    spent: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    keep_texts: bool = True
    scrub: Callable[[str], str] = str

    def timed(self, phase: str) -> _Timed:
        """Measure a phase, also one that fails."""
        return _Timed(self.times, phase)

    def clean(self, warnings: Iterable[str]) -> list[str]:
        """Warnings for a record: without what must not be shown, those that differ in a number alone as one."""
        return [_NUMBER.sub("…", self.scrub(text)) for text in warnings]


class _Timed:
    __slots__ = ("_began", "_phase", "_times")

    def __init__(self, times: Callable[[str, float], None], phase: str) -> None:
        self._times, self._phase = times, phase

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._times(self._phase, (time.perf_counter() - self._began) * 1000)


class GameMemory(TurnMemory):
    """The slot as the session loop has it here. What the loop records is kept for the player.

    Args:
        slot: the memory.

    Attributes:
        asked: how recalls ask.
        told: time, ids and CS fields of the turn that is recorded next.
        event: what was recorded last.
    """

    asked: RecallFields
    told: TurnFields
    event: MemoryEvent

    def __init__(self, slot: MemorySlot) -> None:
        super().__init__(slot, _POLICY)

    def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Coroutine[Any, Any, Recall]:
        """As any host recalls, by the matrix's budget and CS fields."""
        fields.update(self.asked)
        return super().recall(user, session_id=session_id, scope=scope, **fields)

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Keep what any host would hand over, with the time and the ids of the timeline."""
        fields.update(self.told)
        self.event = event_from_turn(session_id, self.slot.scope_or_default(scope), **fields)
        return True


class Dealings:
    """How a session deals with the user, the assistant, the judge and the memory; tested or not, the same.

    Args:
        table: what there is.
        scope: the persona's.
        settings: how it is asked.

    Attributes:
        readiness: tells whether what was written is retrievable; None where the memory cannot.
    """

    def __init__(self, table: Table, scope: MemoryScope, settings: PlayerSettings) -> None:
        self.table, self.scope, self.settings = table, scope, settings
        self.readiness = table.slot.capability(SupportsReadiness)
        self._memory = GameMemory(table.slot)
        self._failures_in_a_row = 0

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """What the user says next, or None."""
        with self.table.timed("simulate"):
            return await self.table.roles.simulator.say(script, beat, exchanges)

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """What the judge says of the last exchange."""
        with self.table.timed("judge"):
            return await self.table.roles.judge.judge(script, beat, exchanges)

    def memory(self, script: Script) -> GameMemory:
        """The memory as the session that begins has it."""
        cs = {name: getattr(script, name, None) for name in self.settings.cs}
        self._memory.asked = cast(RecallFields, {**cs, "budget": self.settings.budget})
        return self._memory

    def outcome(self, recall: Recall) -> str | None:
        """None of a retrieval that worked, else the failure's name; several in a row are raised."""
        error = recall.failure
        if error is None:
            self._failures_in_a_row = 0
            return None
        self._failures_in_a_row += 1
        if not isinstance(error, BackendError) or self._failures_in_a_row >= _MOST_FAILURES:
            raise error
        return type(error).__name__
