"""What a run goes through: sessions that build a memory up, and probes that ask it.

A session is a fixed transcript, or a script that is played with an assistant. What a memory is worth is asked by
probes (what is retrieved) or by test sessions (how an assistant that uses it behaves). The same for every data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from pydantic import JsonValue

from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.scope import MemoryScope

CONTEXTS = ("work", "personal")
"""The contexts of a preference game."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One event of a session, not yet bound to a scope.

    Attributes:
        turn_id: position within the conversation.
        event_id: unique within the whole timeline set; scores refer to it.
        timestamp: timezone-aware.
        messages: one or more, in order.
        scenario, context, attribute: CS fields, or None.
        metadata: JSON-ready, handed to the backend as it is.
    """

    turn_id: str
    event_id: str
    timestamp: datetime
    messages: tuple[Message, ...]
    scenario: str | None = None
    context: str | None = None
    attribute: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything said in this turn."""
        return "\n".join(message.content for message in self.messages)

    def event(self, scope: MemoryScope, session_id: str) -> MemoryEvent:
        """This turn as the event that is written."""
        return MemoryEvent(
            event_id=self.event_id,
            scope=scope,
            session_id=session_id,
            turn_id=self.turn_id,
            timestamp=self.timestamp,
            messages=self.messages,
            scenario=self.scenario,
            context=self.context,
            attribute=self.attribute,
            metadata=dict(self.metadata),
        )


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
    """One thing the user wants of a session.

    Attributes:
        beat_id: unique within the session.
        kind: what it is for.
        goal: what the user wants, and opens with.
        constraint: what has to hold for it to be done; for judges that read.
        branch: what the user says where the behaviour does not suit. Empty: nothing.
        hint: what the user says after that, if it still does not; names what is wanted. Empty: nothing.
        attribute: which attribute of communication matters to it, or None.
        truth: the preference in force when it is played; None where nothing is judged.
    """

    beat_id: str
    kind: BeatKind
    goal: str
    constraint: str = ""
    branch: str = ""
    hint: str = ""
    attribute: str | None = None
    truth: PreferenceTruth | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A session that is played: who the user is just now, and the beats.

    Attributes:
        life_context: the user's situation in a sentence or more; for simulators that write.
        scenario, context: CS fields of every turn.
        start: timestamp of the first turn; the next ones are a minute apart.
        beats: in order.
    """

    life_context: str
    scenario: str | None
    context: str | None
    start: datetime
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """What belongs together, in time order: a fixed transcript (``turns``), or a ``script`` to be played."""

    session_id: str
    turns: tuple[Turn, ...] = ()
    script: Script | None = None
    change: bool = False
    """Whether it brings a forced change of a preference."""

    @property
    def start(self) -> datetime | None:
        """When it begins; None for one without turns."""
        if self.script is not None:
            return self.script.start
        return self.turns[0].timestamp if self.turns else None


@dataclass(frozen=True, slots=True)
class TestSession:
    """A session that is played while nothing is written, and judged.

    Attributes:
        after: how many sessions have been ingested when it begins: its insertion point.
        session_id: unique within the timeline.
        script: what is played; its beats have truths.
    """

    __test__: ClassVar[bool] = False

    after: int
    session_id: str
    script: Script


@dataclass(frozen=True, slots=True)
class Preference:
    """A value that a persona's cell (context x attribute) takes from some moment on.

    Attributes:
        value: the setting, as the phrase by which it is told.
        stated_at: timestamp of the turn that states it.
        since: sessions of the timeline that had passed, that turn's included.
    """

    context: str
    attribute: str
    value: str
    stated_at: datetime
    since: int


@dataclass(frozen=True, slots=True)
class EvidenceTruth:
    """Which turns hold the answer.

    Attributes:
        turns: event ids of the gold turns that exist in the conversation, without repetition.
        unresolved: gold ids that name no turn.
        answer: the reference answer, for judges that read; evidence recall does not use it.
    """

    turns: tuple[str, ...]
    unresolved: int = 0
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class AbstainTruth:
    """A question that the conversation does not answer: the right reply says so.

    Attributes:
        trap: the wrong answer that the question suggests, or None where the data names none.
        reason: what the data says of why there is no answer, or None.
    """

    trap: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PreferenceTruth:
    """Which phrases tell a cell's preference apart at the time of the probe; compared ignoring case.

    Attributes:
        current: the marker of the value in force; None where the user has no preference here.
        stale: markers this cell had before.
        other: markers the other context has or had for this attribute; never one of the above.
        decoys: markers that were mentioned, but as someone else's habit or a single exception.
        change: names the change that brought the current value, or None if it is the first one.
        since: as in :class:`Preference`, of the current value.
    """

    current: str | None
    stale: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    change: str | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceTruth:
    """A question with given answers.

    Attributes:
        options: the answers, in the order shown.
        right: index of the right one.
    """

    options: tuple[str, ...]
    right: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A question put to the memory at one point of the timeline, with its ground truth.

    Attributes:
        probe_id: unique within the whole timeline set.
        after: how many sessions have been ingested when it is asked.
        query: what is asked, in the user's words.
        category: for tables, such as ``temporal`` or ``task``.
        truth: what a right retrieval holds; its type says how it is scored.
        session_id: the session that asks.
        scenario, context, attribute: where the question belongs. The runner's settings say which of them are
            passed to the provider.
        cross_context: ask across contexts on purpose (spec section 5.2): the provider filters by none of them.
        asked_at: timezone-aware; what is "now" for the assistant. None: nobody says.
    """

    probe_id: str
    after: int
    query: str
    category: str
    truth: EvidenceTruth | PreferenceTruth | ChoiceTruth | AbstainTruth
    session_id: str
    scenario: str | None = None
    context: str | None = None
    attribute: str | None = None
    cross_context: bool = False
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One persona's sessions, oldest first, and the probes along them, in the order they are asked.

    Attributes:
        preferences: the persona's true preferences in the order they become known; empty where there are none.
        canaries: phrases that occur in this persona's turns and in nobody else's, so that a leak would show.
        tests: the test sessions along it, in the order they are played.

    Raises:
        InputError: sessions or turns are out of order, an id repeats, or a probe or a test session points outside.
    """

    persona_id: str
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]
    preferences: tuple[Preference, ...] = ()
    canaries: tuple[str, ...] = ()
    tests: tuple[TestSession, ...] = ()

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
        positions = [probe.after for probe in self.probes]
        if positions != sorted(positions) or any(not 0 <= at <= len(self.sessions) for at in positions):
            raise InputError(f"{where}: a probe is out of order or past the last session")
        self._check_tests(where)
        asked: set[str] = set()
        for probe in self.probes:
            if probe.probe_id in asked:
                raise InputError(f"{where}: the probe id {probe.probe_id} occurs twice")
            asked.add(probe.probe_id)
            if isinstance(probe.truth, ChoiceTruth) and not 0 <= probe.truth.right < len(probe.truth.options):
                raise InputError(f"{where}: the truth of {probe.probe_id} is none of its options")
            if isinstance(probe.truth, EvidenceTruth) and not known.issuperset(probe.truth.turns):
                raise InputError(f"{where}: the truth of {probe.probe_id} names an unknown turn")

    def _check_tests(self, where: str) -> None:
        points = [test.after for test in self.tests]
        if points != sorted(points) or any(not 0 <= at <= len(self.sessions) for at in points):
            raise InputError(f"{where}: a test session is out of order or past the last session")
        played: tuple[Session | TestSession, ...] = (*self.sessions, *self.tests)
        names = [entry.session_id for entry in played]
        if len(set(names)) != len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise InputError(f"{where}: the session id {twice} occurs twice")
        for entry in played:
            beats = [beat.beat_id for beat in entry.script.beats] if entry.script else []
            if len(set(beats)) != len(beats):
                raise InputError(f"{where}, {entry.session_id}: a beat id occurs twice")
        for test in self.tests:
            if all(beat.truth is None for beat in test.script.beats):
                raise InputError(f"{where}: no beat of the test session {test.session_id} has a truth")

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns of fixed transcripts, oldest first."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def steps(self) -> int:
        """Sessions, test sessions, and points at which probes are asked."""
        return len(self.sessions) + len(self.tests) + len({probe.after for probe in self.probes})

    def probes_after(self, sessions: int) -> tuple[Probe, ...]:
        """The probes asked once ``sessions`` sessions have been ingested."""
        return tuple(probe for probe in self.probes if probe.after == sessions)

    def tests_after(self, sessions: int) -> tuple[TestSession, ...]:
        """The test sessions played once ``sessions`` sessions have been ingested."""
        return tuple(test for test in self.tests if test.after == sessions)


@dataclass(frozen=True, slots=True)
class TimelineSet:
    """Everything one run goes through.

    Attributes:
        name: the kind of timeline, such as ``locomo`` or ``game``.
        timelines: one for each persona.
        data_hash: SHA-256 of the data as canonical JSON, so that equal data in differing files compare equal.
        data_name: file name of the data, without its directory; None for generated data.
        seed: what generated it; None for data read from a file.
        notes: what a reader of the scores must know about the data.
    """

    name: str
    timelines: tuple[Timeline, ...]
    data_hash: str
    data_name: str | None = None
    seed: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        personas = [timeline.persona_id for timeline in self.timelines]
        if len(set(personas)) != len(personas):
            raise InputError(f"{self.name}: two timelines share a persona id")
