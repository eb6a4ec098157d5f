"""A cell's state and surroundings, and how its sessions deal with the roles and the memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Unpack, cast

from memory.bench.data.timeline import Beat, Probe, Script, Timeline
from memory.bench.engine.files import (
    NO_ANSWER,
    CellJournal,
    HarnessFailed,
    Interrupted,
    Stopped,
    Times,
    TraceFile,
)
from memory.bench.engine.roles import Exchange, Roles, Verdict
from memory.bench.engine.settings import ExperimentSettings
from memory.bench.scores.answers import Vocabulary
from memory.bench.scores.model import ProbeRecord
from memory.bench.scores.sections import WholeTurns
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError
from memory.contract.events import MemoryEvent, Message
from memory.contract.requests import CROSS_CONTEXT, AdapterMode, ContextBudget
from memory.contract.scope import MemoryScope
from memory.runtime._channel import SessionSettings, UserTurn
from memory.runtime._loop import AgentSession
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields

ACCUMULATION = AdapterMode(read_only=False, reason="accumulation")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_MAX_FAILURES = 5  # this many failed retrievals in a row end a cell
_POLICY = TurnPolicy(recall_s=3600, open_after=_MAX_FAILURES)  # calls have their own deadlines


TEST_COUNTS = (
    "skipped",
    "asked_tokens",
    "context_tokens",
    "recalled",
    "dated",
    "versioned",
    "asked_again",
    "answered_otherwise",
    "failed_again",
)
"""Counts of a test session. The last three count requests that were asked again, got another section, or
failed then."""


def _record(item: ProbeRecord | Mapping[str, Any]) -> ProbeRecord:
    return item if isinstance(item, ProbeRecord) else ProbeRecord.load(item)


@dataclass
class CellState:
    """The state of a cell, summed over the lines of its journal.

    ``records`` holds the results of requests, and ``again`` the records that differ the second time.
    ``texts`` holds what was said and shown, if it is kept. The other fields belong to :class:`CellRecord`.
    """

    sessions: int = 0
    tests: int = 0
    probes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    readiness: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    records: list[ProbeRecord] = field(default_factory=list)
    again: list[ProbeRecord] = field(default_factory=list)
    texts: list[Mapping[str, Any]] = field(default_factory=list)
    models: dict[str, Counter[str]] = field(default_factory=dict)
    resumed: int = 0
    native_scope: dict[str, str] | None = None  # of the last process; no journal holds it

    @property
    def steps(self) -> int:
        return self.sessions + self.tests + self.probes

    def of_record(self) -> dict[str, Any]:
        """The fields of a cell's record that its journal decides."""
        counts = self.counts
        observed = "dated" if counts["dated"] else "versioned" if counts["versioned"] else "weak"
        sums = ("counts", "writes", "readiness", "models")
        return {
            "sessions": self.sessions,
            "tests": self.tests,
            "probes": self.probes,
            "resumed": self.resumed,
            **{name: dict(sorted(getattr(self, name).items())) for name in sums},
            "pet_observability": observed if counts["recalled"] else None,
            "warnings": tuple(f"{text} ({count}x)" for text, count in self.warnings.most_common(40)),
        }

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one line of the journal."""
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
            self.counts["messages"] += row["messages"]
        elif kind == "session":
            self.sessions += 1
        elif kind == "probes_ended":
            self.probes += 1
        elif kind in ("test", "probes"):
            self.tests += kind == "test"
            self.probes += row.get("last", False)
            self.readiness[row["readiness"]] += 1
            for count in TEST_COUNTS:
                self.counts[count] += row[count]
            self.again += map(_record, row["again"])
            self.records += map(_record, row["records"])
            self.texts += row.get("texts", ())
        if warnings := row.get("warnings"):
            self.warnings.update(warnings)
        for role, spent in row.get("models", {}).items():
            self.models.setdefault(role, Counter()).update(spent)


def looked_for(own: Timeline, timelines: Iterable[Timeline]) -> dict[str, Any]:
    """What sections are searched for: the persona's turns and words, and the phrases of other personas."""
    others = (each for each in timelines if each.persona_id != own.persona_id)
    return {
        "turns": WholeTurns({turn.event_id: turn.text for turn in own.turns}),
        "vocabulary": Vocabulary(turn.text for turn in own.turns),
        "foreign": tuple(phrase for other in others for phrase in other.canaries),
    }


@dataclass(frozen=True, slots=True)
class Readiness:
    """The memory's readiness before tests begin, and warnings for the record."""

    state: str
    warnings: tuple[str, ...] = ()


class Request(NamedTuple):
    """A question of a test session to the memory."""

    probe_id: str
    session_id: str
    query: str
    where: Script | Probe  # what it belongs to


class CellMemory(TurnMemory):
    """The slot as the session loop sees it. It writes nothing: the cell writes each turn after noting it."""

    def __init__(self, slot: MemorySlot, recall_fields: RecallFields) -> None:
        super().__init__(slot, _POLICY)
        self._recall_fields = recall_fields
        # A request's recall also serves its later turns, whose words would tell the memory the right setting.
        self.held: Recall | None = None

    async def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        """The held recall if there is one; otherwise ask the memory."""
        if self.held is not None:
            return self.held
        return await super().recall(user, session_id=session_id, scope=scope, **self._recall_fields)

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Nothing is written."""
        return True


@contextmanager
def role_calls(role: str) -> Iterator[None]:
    """Turns errors of a role's model into failures of the harness, because the memory did not cause them."""
    try:
        yield
    except BackendError as error:
        failure = Interrupted if isinstance(error, NO_ANSWER) else HarnessFailed
        raise failure(f"the {role}: {error}") from error


@dataclass
class CellContext:
    """What a cell gets from outside, and how its sessions use it.

    Attributes:
        slot: open, in accumulation mode; its owner closes it.
        foreign: phrases of other personas, to detect leaks.
        read_only: whether the slot refuses writes in test sessions.
        take_usage: the role models' usage since the last call, by role.
        failures: of retrievals, since the last one that worked.
    """

    slot: MemorySlot
    scope: MemoryScope
    settings: ExperimentSettings
    budget: ContextBudget
    roles: Roles
    journal: CellJournal
    traces: TraceFile
    times: Times
    turns: WholeTurns = field(default_factory=lambda: WholeTurns({}))
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary(()))
    foreign: tuple[str, ...] = ()
    progress: Callable[[CellState], None] = lambda _: None
    take_usage: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    read_only: bool = True
    scrub: Callable[[str], str] = str
    failures: list[BackendError] = field(default_factory=list)

    def clean(self, warnings: Iterable[str]) -> list[str]:
        """Warnings for a record: scrubbed, and without numbers, so that equal ones are counted together."""
        return [_NUMBER.sub("…", self.scrub(text)) for text in warnings]

    async def ready(self) -> Readiness:
        """Wait until the memory is ready for tests. Raises Stopped if it failed to process the writes."""
        if (waiting := self.slot.capability(SupportsReadiness)) is None:
            late = self.slot.traits.consistency != "immediate"
            why = "writes become retrievable later, and the provider cannot say when"
            return Readiness("not_offered", (why,) if late else ())
        with self.times.of("wait"):
            answer = await waiting.wait_until_ready(self.scope, self.settings.wait_timeout_s)
        why = f": {answer.detail}" if answer.detail else ""
        if answer.state == "failed":
            raise Stopped(f"the backend failed to process what was written{why}")
        if answer.state == "ready":
            return Readiness("ready")
        return Readiness(answer.state, (f"a test session began while readiness was {answer.state}{why}",))

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        with self.times.of("simulate"), role_calls("simulator"):
            return await self.roles.simulator(script, beat, exchanges)

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        with self.times.of("judge"), role_calls("judge"):
            return await self.roles.judge(script, beat, exchanges)

    def memory(self, where: Script | Probe) -> CellMemory:
        """The memory for a session or a question, with the fields of its retrievals."""
        fields: dict[str, Any] = {name: getattr(where, name, None) for name in self.settings.cs}
        fields["budget"] = self.budget
        if isinstance(where, Probe) and where.cross_context:
            fields["filters"] = {CROSS_CONTEXT: True}
        return CellMemory(self.slot, cast(RecallFields, fields))

    async def recall(self, asked: Request, phase: str = "retrieve") -> Recall:
        """What the memory shows for a request. ``phase`` is where its time counts."""
        memory = self.memory(asked.where)
        recall = await memory.recall(asked.query, session_id=asked.session_id, scope=self.scope)
        self.times.add(phase, recall.took_ms)
        return recall

    def outcome(self, recall: Recall) -> str | None:
        """The failure's name; None for a retrieval that worked. Repeated and unknown failures are raised."""
        error = recall.failure
        if error is None:
            self.failures.clear()
            return None
        if not isinstance(error, BackendError) or len(self.failures) + 1 >= _MAX_FAILURES:
            raise error
        self.failures.append(error)
        return type(error).__name__


class Conversation:
    """One session of the assistant, with its earlier exchanges."""

    def __init__(
        self, context: CellContext, session_id: str, script: Script, earlier: Sequence[Exchange] = ()
    ) -> None:
        self._context = context
        self.turns = len(earlier)
        self._memory = context.memory(script)
        identity = context.roles.identity.fill(
            context=script.context or "usual", now=script.start.isoformat(" ", "minutes")[:16]
        )
        self._session = AgentSession(
            context.roles.assistant,
            self._memory,
            scope=context.scope,
            settings=SessionSettings(identity=identity, window_tokens=None),
            session_key=session_id,
        )
        self._session.history = [said for exchange in earlier for said in _messages(exchange)]

    async def turn(self, user: str, held: Recall | None = None) -> tuple[str, Recall]:
        """Play one turn. Returns the reply (empty if the assistant said nothing) and the recall.

        Args:
            held: an earlier recall; the memory is then not asked.

        Raises:
            MemslotError: the assistant failed.
        """
        self._memory.held = held
        self.turns += 1
        report = await self._session.turn(UserTurn(content=user))
        if held is None:
            self._context.times.add("retrieve", report.recall.took_ms)
        self._context.times.add("answer", report.took_ms - report.before_model_ms)
        if report.failure is not None:
            with role_calls("assistant"):
                raise report.failure
        return report.output.content, report.recall


def turn_event(
    scope: MemoryScope, session_id: str, script: Script, number: int, attribute: str | None, said: Exchange
) -> MemoryEvent:
    """The event of a turn. ``attribute`` is None without labels. Raises InputError if nothing was said."""
    turn_id = f"{session_id}.{number}"
    return MemoryEvent(
        event_id=f"{scope.persona_id}:{turn_id}",
        scope=scope,
        session_id=session_id,
        turn_id=turn_id,
        timestamp=script.start + timedelta(minutes=number - 1),
        messages=tuple(_messages(said)),
        scenario=script.scenario,
        context=script.context,
        attribute=attribute,
    )


def _messages(exchange: Exchange) -> list[Message]:
    said = [Message(role="user", content=exchange.user)]
    return [*said, Message(role="assistant", content=exchange.reply)] if exchange.reply.strip() else said
