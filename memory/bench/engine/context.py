"""A cell's surroundings, and the driver of its sessions.

Accumulation and test sessions deal with the roles and the memory in the same way.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, Unpack, cast

from memory.bench.data.timeline import Beat, Probe, Script, Timeline
from memory.bench.engine.cell_state import CellState
from memory.bench.engine.files import NO_ANSWER, CellJournal, HarnessFailed, Interrupted, Stopped
from memory.bench.engine.openings import Openings, Way
from memory.bench.engine.roles import Exchange, Roles, Verdict
from memory.bench.engine.settings import CsField, EventContext
from memory.bench.scores.answers import Vocabulary
from memory.bench.scores.sections import WholeTurns
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError, InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import CROSS_CONTEXT, ContextBudget
from memory.contract.scope import MemoryScope
from memory.runtime._channel import SessionSettings, UserTurn
from memory.runtime._loop import AgentSession
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields, event_from_turn

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


@dataclass(frozen=True, slots=True)
class CellSettings:
    """How a cell is played; see :class:`memory.bench.engine.settings.ExperimentSettings`."""

    budget: ContextBudget
    event_context: EventContext = "field"
    cs: tuple[CsField, ...] = ("context",)
    labels: bool = False
    read_only: bool = True  # whether the slot refuses writes in test sessions
    wait_timeout_s: float = 120.0


@dataclass
class CellContext:
    """What a cell gets from outside."""

    slot: MemorySlot  # open, in accumulation mode; its owner closes it
    roles: Roles
    journal: CellJournal
    turns: WholeTurns = field(default_factory=lambda: WholeTurns({}))
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary(()))
    foreign: tuple[str, ...] = ()  # phrases of other personas, to detect leaks
    fingerprint: Callable[[], object] = lambda: None  # of the native store; None if it has none
    openings: Openings | None = None  # None: tests use the slot itself
    mark_probe: Callable[[str | None], None] = lambda _: None  # names the probe in the traces that follow
    asking_again: Callable[[bool], None] = lambda _: None  # suspends traces while True
    check: Callable[[], None] = lambda: None  # raises if a trace is lost, before a step is noted
    add_time: Callable[[str, float], None] = lambda phase, ms: None
    progress: Callable[[CellState], None] = lambda _: None
    take_usage: Callable[[], Mapping[str, Mapping[str, int]]] = dict  # since the last call, by role
    keep_texts: bool = True
    scrub: Callable[[str], str] = str

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add_time(phase, (time.perf_counter() - began) * 1000)

    @contextmanager
    def probe(self, probe_id: str) -> Iterator[None]:
        """Name the probe in traces of calls made within, so that results and traces can be joined."""
        self.mark_probe(probe_id)
        try:
            yield
        finally:
            self.mark_probe(None)

    def clean(self, warnings: Iterable[str]) -> list[str]:
        """Warnings for a record: scrubbed, and without numbers, so that equal ones are counted together."""
        return [_NUMBER.sub("…", self.scrub(text)) for text in warnings]


def looked_for(own: Timeline, timelines: Iterable[Timeline]) -> dict[str, Any]:
    """What sections are searched for: the persona's turns and words, and the phrases of other personas."""
    others = (each for each in timelines if each.persona_id != own.persona_id)
    return {
        "turns": WholeTurns({turn.event_id: turn.text for turn in own.turns}),
        "vocabulary": Vocabulary(turn.text for turn in own.turns),
        "foreign": tuple(phrase for other in others for phrase in other.canaries),
    }


_MAX_FAILURES = 5  # this many failed retrievals in a row end a cell
_POLICY = TurnPolicy(recall_s=3600, open_after=_MAX_FAILURES)  # calls have their own deadlines


class CellMemory(TurnMemory):
    """The slot as the session loop sees it. It keeps recorded turns for the cell instead of writing them."""

    recall_fields: RecallFields
    turn_fields: TurnFields  # of the next recorded turn
    event: MemoryEvent  # the last recorded turn
    # A request's recall also serves its later turns, whose words would tell the memory the right setting.
    held: Recall | None = None

    def __init__(self, slot: MemorySlot) -> None:
        super().__init__(slot, _POLICY)

    async def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        """The held recall if there is one; otherwise ask the memory."""
        if self.held is not None:
            return self.held
        fields.update(self.recall_fields)
        return await self.ask(user, session_id=session_id, scope=scope, **fields)

    def ask(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Coroutine[Any, Any, Recall]:
        return super().recall(user, session_id=session_id, scope=scope, **fields)

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Keep the event that a host would record, with the time and the ids of the timeline."""
        fields.update(self.turn_fields)
        self.event = event_from_turn(session_id, self.slot.delivery.scope_or_default(scope), **fields)
        return True


@contextmanager
def role_calls(role: str) -> Iterator[None]:
    """Turns errors of a role's model into failures of the harness, because the memory did not cause them."""
    try:
        yield
    except BackendError as error:
        failure = Interrupted if isinstance(error, NO_ANSWER) else HarnessFailed
        raise failure(f"the {role}: {error}") from error


@dataclass(frozen=True, slots=True)
class Readiness:
    """The memory's readiness before tests begin, and warnings for the record."""

    state: str
    warnings: tuple[str, ...] = ()


class SessionDriver:
    """Runs the sessions of a cell.

    Args:
        before: the driver that this one replaces; its count of failures continues.
    """

    def __init__(
        self,
        context: CellContext,
        scope: MemoryScope,
        settings: CellSettings,
        before: SessionDriver | None = None,
    ) -> None:
        self.context, self.scope, self.settings = context, scope, settings
        self._memory = CellMemory(context.slot)
        self._in_a_row: Counter[str] = before._in_a_row if before else Counter()

    async def ready(self) -> Readiness:
        """Wait until the memory is ready for tests. Raises Stopped if it failed to process the writes."""
        slot = self.context.slot
        if (waiting := slot.capability(SupportsReadiness)) is None:
            if slot.traits.consistency == "immediate":
                return Readiness("not_offered")
            return Readiness(
                "not_offered", ("writes become retrievable later, and the provider cannot say when",)
            )
        with self.context.timed("wait"):
            answer = await waiting.wait_until_ready(self.scope, self.settings.wait_timeout_s)
        why = f": {answer.detail}" if answer.detail else ""
        if answer.state == "failed":
            raise Stopped(f"the backend failed to process what was written{why}")
        if answer.state == "ready":
            return Readiness("ready")
        return Readiness(answer.state, (f"a test session began while readiness was {answer.state}{why}",))

    @asynccontextmanager
    async def as_it_stood(self, way: Way, told: Sequence[MemoryEvent]) -> AsyncIterator[SessionDriver]:
        """A driver for one test, with the memory in its state before any test."""
        openings = self.context.openings
        if openings is None or way == "same":
            yield self
            return
        async with AsyncExitStack() as stack:
            with self.context.timed("reader"):
                opened = openings.reader(way, self.scope, told)
                slot, fingerprint = await stack.enter_async_context(opened)
            context = replace(self.context, slot=slot, fingerprint=fingerprint)
            yield SessionDriver(context, self.scope, self.settings, self)
            with self.context.timed("reader"):
                await stack.aclose()

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        with self.context.timed("simulate"), role_calls("simulator"):
            return await self.context.roles.simulator.say(script, beat, exchanges)

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        with self.context.timed("judge"), role_calls("judge"):
            return await self.context.roles.judge.judge(script, beat, exchanges)

    def memory(self, where: Script | Probe) -> CellMemory:
        """The memory for a new session, with the fields of its retrievals."""
        fields: dict[str, Any] = {name: getattr(where, name, None) for name in self.settings.cs}
        fields["budget"] = self.settings.budget
        if isinstance(where, Probe) and where.cross_context:
            fields["filters"] = {CROSS_CONTEXT: True}
        self._memory.recall_fields = cast(RecallFields, fields)
        return self._memory

    def event_ids(self, result: RetrieveResult) -> list[str] | None:
        """The ids of the events that a section's entries name, sorted; None without any."""
        named = {event_id for entry in result.context_entries for event_id in entry.event_ids}
        return sorted(named) or None

    def outcome(self, recall: Recall) -> str | None:
        """The failure's name; None for a retrieval that worked. Repeated and unknown failures are raised."""
        error = recall.failure
        if error is None:
            self._in_a_row.clear()
            return None
        self._in_a_row["failures"] += 1
        if not isinstance(error, BackendError) or self._in_a_row["failures"] >= _MAX_FAILURES:
            raise error
        return type(error).__name__


class Said(NamedTuple):
    """One turn. ``event`` is what the loop hands to the memory."""

    reply: str  # empty if the assistant said nothing
    recall: Recall
    event: MemoryEvent


class Conversation:
    """One session of the assistant, with its earlier exchanges.

    A ``probe`` gives the fields of retrievals in place of the script.
    """

    def __init__(
        self,
        driver: SessionDriver,
        session_id: str,
        script: Script,
        earlier: Sequence[Exchange] = (),
        probe: Probe | None = None,
    ) -> None:
        self._driver, self.script = driver, script
        self.turns = len(earlier)
        self._memory = driver.memory(probe or script)
        identity = driver.context.roles.identity.fill(
            context=script.context or "usual", now=script.start.isoformat(" ", "minutes")[:16]
        )
        self._session = AgentSession(
            driver.context.roles.assistant,
            self._memory,
            scope=driver.scope,
            settings=SessionSettings(identity=identity, window_tokens=None),
            session_key=session_id,
        )
        self._session.history = [said for exchange in earlier for said in _messages(exchange)]

    async def recall(self, user: str, held: Recall | None = None, phase: str = "retrieve") -> Recall:
        """The recall for the user's words, without a reply."""
        session_id = self._session.session_id
        self._memory.held = held
        recall = await self._memory.recall(user, session_id=session_id, scope=self._driver.scope)
        if held is None:
            self._driver.context.add_time(phase, recall.took_ms)
        return recall

    async def turn(self, user: str, attribute: str | None = None, held: Recall | None = None) -> Said:
        """Play one turn.

        Args:
            attribute: recorded with the turn.
            held: an earlier recall; the memory is then not asked.

        Raises:
            MemslotError: the assistant failed, or nothing was said.
        """
        self._memory.held = held
        self.turns += 1
        session_id = self._session.session_id
        self._memory.turn_fields = _fields(self._driver.scope, session_id, self.script, self.turns, attribute)
        report = await self._session.turn(UserTurn(content=user))
        if held is None:
            self._driver.context.add_time("retrieve", report.recall.took_ms)
        self._driver.context.add_time("answer", report.took_ms - report.before_model_ms)
        if report.failure is not None:
            with role_calls("assistant"):
                raise report.failure
        if not report.recorded:
            raise InputError(f"{session_id}: turn {self.turns} says nothing but recalled context")
        return Said(report.output.content, report.recall, self._memory.event)


def turn_event(
    scope: MemoryScope, session_id: str, script: Script, number: int, attribute: str | None, said: Exchange
) -> MemoryEvent:
    """The event of an earlier turn, as the loop handed it over. ``attribute`` is None without labels."""
    fields = _fields(scope, session_id, script, number, attribute)
    fields["messages"] = _messages(said)
    return event_from_turn(session_id, scope, **fields)


def _fields(
    scope: MemoryScope, session_id: str, script: Script, number: int, attribute: str | None
) -> TurnFields:
    turn_id = f"{session_id}.{number}"
    return TurnFields(
        event_id=f"{scope.persona_id}:{turn_id}",
        turn_id=turn_id,
        timestamp=script.start + timedelta(minutes=number - 1),
        scenario=script.scenario,
        context=script.context,
        attribute=attribute,
    )


def _messages(exchange: Exchange) -> list[Message]:
    said = [Message(role="user", content=exchange.user)]
    return [*said, Message(role="assistant", content=exchange.reply)] if exchange.reply.strip() else said
