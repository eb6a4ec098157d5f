"""What a run goes through: sessions that build a memory up, and probes that ask it.

A session is a fixed transcript, or a script that is played with an assistant. A memory is measured by
probes (what is retrieved) or by test sessions (how an assistant that uses it behaves). The same for every data set.
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
        """The event of a scope; ``labels`` tells the attribute, which is the script's and no host's."""
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
    """The messages of user and assistant in one turn."""
    return Message(role="user", content=user), Message(role="assistant", content=assistant)


def turns_of(
    persona_id: str,
    session_id: str,
    start: datetime,
    said: Iterable[tuple[tuple[Message, ...], str | None]],
    scenario: str | None,
    context: str | None,
) -> tuple[Turn, ...]:
    """The turns of a fixed transcript, a minute apart; each is its messages and its attribute."""
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
"""``task``: a request to which an attribute matters; ``named``: one that also names it. ``statement``: a preference
is told; ``elsewhere``: told in one context about the other. ``hearsay``, ``exception``, ``distraction``: talk that
must not be taken for a preference. ``neutral``: a request in which no preference of the user's belongs. ``other``:
free text of a data set that says no more."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One thing the user wants of a session."""

    beat_id: str  # unique within the session
    kind: BeatKind
    goal: str  # what the user wants, and opens with
    constraint: str = ""  # what has to hold for it to be done; for judges that read
    branch: str = ""  # what the user says where the behaviour does not suit; empty: nothing
    hint: str = ""  # what the user says after that, if it still does not; names what is wanted
    attribute: str | None = None  # which attribute of communication matters to it
    truth: PreferenceTruth | None = None  # in force when it is played; None where nothing is judged


@dataclass(frozen=True, slots=True)
class Script:
    """A session that is played: the user's situation, and the beats."""

    life_context: str  # the user's situation in a sentence or more; for simulators that write
    scenario: str | None
    context: str | None
    start: datetime  # of the first turn; the next ones are a minute apart
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """What belongs together, in time order: a fixed transcript (``turns``), or a ``script`` to be played."""

    session_id: str
    turns: tuple[Turn, ...] = ()
    script: Script | None = None
    change: bool = False  # whether it brings a forced change of a preference

    @property
    def start(self) -> datetime | None:
        if self.script is not None:
            return self.script.start
        return self.turns[0].timestamp if self.turns else None


@dataclass(frozen=True, slots=True)
class TestSession:
    """A session that is played while nothing is written, and judged."""

    __test__: ClassVar[bool] = False

    after: int  # how many sessions have been ingested when it begins
    session_id: str
    script: Script


@dataclass(frozen=True, slots=True)
class Preference:
    """A value that a persona's cell (context x attribute) takes from some moment on."""

    context: str
    attribute: str
    value: str  # the setting, as its phrase
    stated_at: datetime
    since: int  # sessions of the timeline that had passed, the one that states it included

    @property
    def cell(self) -> Cell:
        return self.context, self.attribute


@dataclass(frozen=True, slots=True)
class EvidenceTruth:
    """The turns that hold the answer."""

    turns: tuple[str, ...]  # event ids of the gold turns that exist in the conversation, without repetition
    unresolved: int = 0  # gold ids that name no turn
    answer: str | None = None  # for judges that read; evidence recall does not use it


@dataclass(frozen=True, slots=True)
class AbstainTruth:
    """A question that the conversation does not answer: the right reply says so."""

    trap: str | None = None  # the wrong answer that the question suggests
    reason: str | None = None  # what the data says of why there is no answer


@dataclass(frozen=True, slots=True)
class PreferenceTruth:
    """The phrases (markers) of a cell's preference at the time of the probe. Case does not matter."""

    current: str | None  # of the value in force; None where the user has no preference here
    stale: tuple[str, ...] = ()  # this cell had before
    other: tuple[str, ...] = ()  # the other context has or had for this attribute; none of the above
    decoys: tuple[str, ...] = ()  # were mentioned as someone else's habit or a single exception
    change: str | None = None  # names the change that brought the current value; None: it is the first one
    since: int = 0  # as in Preference, of the current value


def truth_at(
    persona_id: str,
    preferences: Iterable[Preference],
    cell: Cell,
    sessions: int,
    decoys: Iterable[str] = (),
) -> PreferenceTruth:
    """The truth of a cell after so many sessions. ``preferences`` are in the order of their becoming known."""
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
    right: int  # index of the right one


@dataclass(frozen=True, slots=True)
class Probe:
    """A question put to the memory at one point of the timeline, with its ground truth.

    ``scenario``, ``context`` and ``attribute`` say where it belongs; the runner's settings say which of them are
    passed to the provider.
    """

    probe_id: str  # unique within the whole timeline set
    after: int  # how many sessions have been ingested when it is asked
    query: str
    category: str  # for tables, such as "temporal" or "task"
    truth: EvidenceTruth | PreferenceTruth | ChoiceTruth | AbstainTruth  # its type says how it is scored
    session_id: str  # the session that asks
    scenario: str | None = None
    context: str | None = None
    attribute: str | None = None
    cross_context: bool = False  # on purpose (spec section 5.2): the provider filters by none of them
    asked_at: datetime | None = None  # timezone-aware "now" of the assistant; None: nobody says


@dataclass(frozen=True, slots=True)
class Timeline:
    """One persona's sessions, oldest first, and the probes along them, in the order they are asked."""

    persona_id: str
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]
    preferences: tuple[Preference, ...] = ()  # the true ones in the order they become known
    canaries: tuple[str, ...] = ()  # phrases of this persona's turns and nobody else's: a leak would show
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
        ids = [turn.event_id for turn in self.turns]
        known = set(ids)
        if len(known) != len(ids):
            raise InputError(f"{where}: an event id occurs twice")
        for what, along in (("probe", self.probes), ("test session", self.tests)):
            points = [entry.after for entry in along]
            if points != sorted(points) or any(not 0 <= at <= len(self.sessions) for at in points):
                raise InputError(f"{where}: a {what} is out of order or past the last session")
        played: tuple[Session | TestSession, ...] = (*self.sessions, *self.tests)
        if (twice := repeated(entry.session_id for entry in played)) is not None:
            raise InputError(f"{where}: the session id {twice} occurs twice")
        for entry in played:
            if entry.script and repeated(beat.beat_id for beat in entry.script.beats) is not None:
                raise InputError(f"{where}, {entry.session_id}: a beat id occurs twice")
        for test in self.tests:
            if all(beat.truth is None for beat in test.script.beats):
                raise InputError(f"{where}: no beat of the test session {test.session_id} has a truth")
        if (twice := repeated(probe.probe_id for probe in self.probes)) is not None:
            raise InputError(f"{where}: the probe id {twice} occurs twice")
        for probe in self.probes:
            if isinstance(probe.truth, ChoiceTruth) and not 0 <= probe.truth.right < len(probe.truth.options):
                raise InputError(f"{where}: the truth of {probe.probe_id} is none of its options")
            if isinstance(probe.truth, EvidenceTruth) and not known.issuperset(probe.truth.turns):
                raise InputError(f"{where}: the truth of {probe.probe_id} names an unknown turn")

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns of fixed transcripts, oldest first."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def steps(self) -> int:
        """Sessions, test sessions, and points at which probes are asked."""
        return len(self.sessions) + len(self.tests) + len({probe.after for probe in self.probes})

    def probes_after(self, sessions: int) -> tuple[Probe, ...]:
        return tuple(probe for probe in self.probes if probe.after == sessions)


@dataclass(frozen=True, slots=True)
class TimelineSet:
    name: str  # the kind of timeline, such as "locomo" or "game"
    timelines: tuple[Timeline, ...]  # one for each persona
    data_hash: str  # of the data as canonical JSON, so that equal data in differing files compare equal
    data_name: str | None = None  # file name without its directory; None for generated data
    seed: int | None = None  # None for data read from a file
    notes: tuple[str, ...] = ()  # what a reader of the scores must know about the data
    wordings: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # of a game, by setting: as it says them
    wordings_sha256: str | None = None  # of the file of wordings; None for those that ship with memslot

    def __post_init__(self) -> None:
        if repeated(timeline.persona_id for timeline in self.timelines) is not None:
            raise InputError(f"{self.name}: two timelines share a persona id")


def repeated(names: Iterable[str]) -> str | None:
    """The first of some names that occurs twice; None where none does."""
    return next((name for name, number in Counter(names).items() if number > 1), None)
