"""The course of a run: sessions that build up a memory, and probes that ask it.

A session is a fixed transcript, or a script that is played with an assistant. Probes measure what a memory
retrieves; test sessions measure how an assistant behaves with it. All data sets share these types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from pydantic import JsonValue

from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.scope import MemoryScope

CONTEXTS = ("work", "personal")
Cell = tuple[str, str]
"""Context and attribute."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One event of a session, not yet bound to a scope."""

    turn_id: str  # position within the conversation
    event_id: str  # unique within the whole timeline set; scores refer to it
    timestamp: datetime  # timezone-aware
    messages: tuple[Message, ...]
    scenario: str | None = None
    context: str | None = None
    attribute: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)  # passed to the backend unchanged

    @property
    def text(self) -> str:
        return "\n".join(message.content for message in self.messages)

    def event(self, scope: MemoryScope, session_id: str, *, labels: bool = False) -> MemoryEvent:
        """The event of this turn in a scope. ``labels`` adds the attribute, which no real host knows."""
        return MemoryEvent(
            event_id=self.event_id,
            scope=scope,
            session_id=session_id,
            turn_id=self.turn_id,
            timestamp=self.timestamp,
            messages=self.messages,
            scenario=self.scenario,
            context=self.context,
            attribute=self.attribute if labels else None,
            metadata=dict(self.metadata),
        )


def exchange(user: str, assistant: str) -> tuple[Message, ...]:
    """The two messages of one turn."""
    return Message(role="user", content=user), Message(role="assistant", content=assistant)


def turns_of(
    persona_id: str,
    session_id: str,
    start: datetime,
    said: Iterable[tuple[tuple[Message, ...], str | None]],
    scenario: str | None,
    context: str | None,
) -> tuple[Turn, ...]:
    """The turns of a fixed transcript, a minute apart. ``said`` holds messages and attribute of each turn."""
    return tuple(
        Turn(
            turn_id=f"{session_id}.{number}",
            event_id=f"{persona_id}:{session_id}.{number}",
            timestamp=start + timedelta(minutes=number - 1),
            messages=messages,
            scenario=scenario,
            context=context,
            attribute=attribute,
        )
        for number, (messages, attribute) in enumerate(said, start=1)
    )


BeatKind = Literal[
    "task", "named", "statement", "elsewhere", "hearsay", "exception", "distraction", "neutral", "other"
]
"""``task``: a request to which an attribute matters. ``named``: a request that also names the attribute.
``statement``: a preference told in its own context. ``elsewhere``: a preference told in the other context.
``hearsay``, ``exception``, ``distraction``: talk that must not be taken for a preference. ``neutral``: a
request in which no preference of the user belongs. ``other``: free text of a data set."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One thing that the user wants from a session."""

    beat_id: str  # unique within the session
    kind: BeatKind
    goal: str  # what the user wants, in the words that open the beat
    constraint: str = ""  # what satisfies the user; for model simulators
    branch: str = ""  # what the user says if the behaviour does not suit; empty: nothing
    hint: str = ""  # what the user says if it still does not suit; names what is wanted
    attribute: str | None = None  # the attribute of communication that matters to it
    truth: PreferenceTruth | None = None  # the truth when it is played; None if nothing is judged


@dataclass(frozen=True, slots=True)
class Script:
    """A session to be played: the user's situation, and the beats."""

    life_context: str  # the user's situation in a sentence or more; for model simulators
    scenario: str | None
    context: str | None
    start: datetime  # of the first turn; later turns are a minute apart
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """A session in time order: a fixed transcript (``turns``), or a ``script`` to be played."""

    session_id: str
    turns: tuple[Turn, ...] = ()
    script: Script | None = None
    change: bool = False  # whether it contains a forced change of a preference

    @property
    def start(self) -> datetime | None:
        if self.script is not None:
            return self.script.start
        return self.turns[0].timestamp if self.turns else None


@dataclass(frozen=True, slots=True)
class TestSession:
    """A session that is played while nothing is written, and judged."""

    __test__: ClassVar[bool] = False

    after: int  # number of sessions ingested before it
    session_id: str
    script: Script


@dataclass(frozen=True, slots=True)
class Preference:
    """The value of a persona's cell (context and attribute) from some moment on."""

    context: str
    attribute: str
    value: str  # marker of the setting
    stated_at: datetime
    since: int  # number of sessions up to its statement, inclusive

    @property
    def cell(self) -> Cell:
        return self.context, self.attribute


@dataclass(frozen=True, slots=True)
class EvidenceTruth:
    """The turns that hold the answer."""

    turns: tuple[str, ...]  # event ids of the gold turns that exist, each once
    unresolved: int = 0  # gold ids that name no turn
    answer: str | None = None  # the right answer in words; evidence recall does not use it


@dataclass(frozen=True, slots=True)
class AbstainTruth:
    """A question that the conversation does not answer. The right reply says so."""

    trap: str | None = None  # the wrong answer that the question suggests


@dataclass(frozen=True, slots=True)
class PreferenceTruth:
    """The settings of a cell, as markers, at the time of the probe. Case does not matter."""

    current: str | None  # the setting in force; None if the user has no preference here
    stale: tuple[str, ...] = ()  # earlier settings of this cell
    other: tuple[str, ...] = ()  # settings of the other context that this cell never had
    decoys: tuple[str, ...] = ()  # settings mentioned as another person's habit or a single exception
    change: str | None = None  # id of the change that brought the current value; None for the first
    since: int = 0  # as in Preference, for the current value


def truth_at(
    persona_id: str,
    preferences: Iterable[Preference],
    cell: Cell,
    sessions: int,
    decoys: Iterable[str] = (),
) -> PreferenceTruth:
    """The truth of a cell after ``sessions`` sessions. ``preferences`` are in the order they become known."""
    known = [entry for entry in preferences if entry.attribute == cell[1] and entry.since <= sessions]
    own = [entry for entry in known if entry.cell == cell]
    current = own[-1] if own else None
    mine = {entry.value for entry in own}
    return PreferenceTruth(
        current=current.value if current else None,
        stale=_each(entry.value for entry in own[:-1] if current and entry.value != current.value),
        other=_each(entry.value for entry in known if entry.value not in mine),
        decoys=_each(decoys),
        change=f"{persona_id}:{':'.join(cell)}:{current.since}" if current and len(own) > 1 else None,
        since=current.since if current else 0,
    )


def _each(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


@dataclass(frozen=True, slots=True)
class ChoiceTruth:
    """A question with given answers."""

    options: tuple[str, ...]  # in the order shown
    right: int  # index of the right option


@dataclass(frozen=True, slots=True)
class Probe:
    """A question to the memory at one point of the timeline, with its ground truth.

    ``scenario``, ``context`` and ``attribute`` say where it belongs. The settings decide which the provider
    gets.
    """

    probe_id: str  # unique within the whole timeline set
    after: int  # number of sessions ingested before it
    query: str
    category: str  # for tables, such as "temporal" or "task"
    truth: EvidenceTruth | PreferenceTruth | ChoiceTruth | AbstainTruth  # its type decides the scoring
    session_id: str  # the session that asks
    scenario: str | None = None
    context: str | None = None
    attribute: str | None = None
    cross_context: bool = False  # if so, the provider filters by none of them (spec section 5.2)
    asked_at: datetime | None = None  # the assistant's "now", timezone-aware; None if unknown


@dataclass(frozen=True, slots=True)
class Timeline:
    """One persona's sessions, oldest first, and its probes and tests in the order they are asked."""

    persona_id: str
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]
    preferences: tuple[Preference, ...] = ()  # the true ones, in the order they become known
    canaries: tuple[str, ...] = ()  # phrases that occur only in this persona's turns, to detect leaks
    tests: tuple[TestSession, ...] = ()  # in the order they are played

    def __post_init__(self) -> None:
        where = f"timeline {self.persona_id}"
        starts = [session.start for session in self.sessions if session.start]
        if starts != sorted(starts):
            raise InputError(f"{where}: sessions are not in time order")
        for session in self.sessions:
            times = [turn.timestamp for turn in session.turns]
            if times != sorted(times):
                raise InputError(f"{where}, {session.session_id}: turns are not in time order")
        known = {turn.event_id for turn in self.turns}
        if (twice := repeated(turn.event_id for turn in self.turns)) is not None:
            raise InputError(f"{where}: the event id {twice} occurs twice")
        for what, along in (("probe", self.probes), ("test session", self.tests)):
            points = [entry.after for entry in along]
            if points != sorted(points) or any(not 0 <= at <= len(self.sessions) for at in points):
                raise InputError(f"{where}: a {what} is out of order or past the last session")
        played: tuple[Session | TestSession, ...] = (*self.sessions, *self.tests)
        if (twice := repeated(entry.session_id for entry in played)) is not None:
            raise InputError(f"{where}: the session id {twice} occurs twice")
        if (twice := repeated(probe.probe_id for probe in self.probes)) is not None:
            raise InputError(f"{where}: the probe id {twice} occurs twice")
        for probe in self.probes:
            if isinstance(probe.truth, EvidenceTruth) and not known.issuperset(probe.truth.turns):
                raise InputError(f"{where}: the truth of {probe.probe_id} names an unknown turn")

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns of fixed transcripts, oldest first."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def steps(self) -> int:
        """The number of sessions, of test sessions, and of points at which probes are asked."""
        return len(self.sessions) + len(self.tests) + len({probe.after for probe in self.probes})

    def probes_after(self, sessions: int) -> tuple[Probe, ...]:
        return tuple(probe for probe in self.probes if probe.after == sessions)


@dataclass(frozen=True, slots=True)
class TimelineSet:
    name: str  # the kind of timeline, such as "locomo" or "game"
    timelines: tuple[Timeline, ...]  # one for each persona
    data_hash: str  # of the canonical JSON, so that equal data in different files compares equal
    data_name: str | None = None  # file name without its directory; None for generated data
    seed: int | None = None  # None for data read from a file
    notes: tuple[str, ...] = ()  # what readers of the scores must know about the data
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a game's marker -> forms
    wordings_sha256: str | None = None  # of the user's file of wordings; None for memslot's own

    def __post_init__(self) -> None:
        if (twice := repeated(timeline.persona_id for timeline in self.timelines)) is not None:
            raise InputError(f"{self.name}: two timelines have the persona id {twice}")

    def of(self, persona_id: str) -> Timeline:
        return next(each for each in self.timelines if each.persona_id == persona_id)


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs twice; None without one."""
    return next((name for name, number in Counter(names).items() if number > 1), None)
