"""Our own preference game: seeded people whose wishes for their assistant differ by context and change over time.

The shape and the default size are MemPABench's: two contexts x 14 attributes, 94 accumulation sessions that are
played, 5 forced changes with fixed transcripts, 36 test sessions. The text is ours. Generated from ``random()`` of
:class:`random.Random` alone, the one method whose sequence Python promises to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from memory.bench.data.canonical import canonical_hash, json_ready
from memory.bench.data.dice import Dice, opened
from memory.bench.data.language import Attribute, Language, LanguageName, World
from memory.bench.data.languages import load_language
from memory.bench.data.timeline import (
    CONTEXTS,
    Beat,
    BeatKind,
    Preference,
    PreferenceTruth,
    Script,
    Session,
    TestSession,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

CHANGES = 5
"""Forced changes of each persona: announced; said as if it had always been so (a contradiction); announced and
later taken back, which are two; and one that is told in the other context."""
_START = datetime(2026, 1, 5, tzinfo=UTC)
_HOUR = {"work": 9, "personal": 19}

Cell = tuple[str, str]
"""Context and attribute."""


class GameSize(BaseModel):
    """How large a game is; the defaults are MemPABench's."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    users: Annotated[int, Field(ge=1, le=6)] = 4
    """Personas; at most as many as the language has worlds."""
    sessions: Annotated[int, Field(ge=10, le=400)] = 94
    """Accumulation sessions of each persona, its forced changes apart."""
    tests: Annotated[int, Field(ge=1, le=400)] = 36
    """Test sessions of each persona."""
    attributes: Annotated[int, Field(ge=4, le=14)] = 14
    """Attributes of communication; each has a cell in either context."""
    language: LanguageName = "en"
    """What everyone speaks."""


def make_game(size: GameSize | None = None, *, seed: int = 7) -> TimelineSet:
    """The game for a size and a seed: equal arguments give equal data, on any machine.

    Raises:
        ConfigError: the language has fewer worlds than users are asked for.
    """
    size = size or GameSize()
    language = load_language(size.language)
    if size.users > len(language.worlds):
        raise ConfigError(
            f"timeline.users: is {size.users}; in {language.name} there are {len(language.worlds)}"
        )
    timelines = tuple(
        _Life(language, world, Dice(f"game/{seed}/{world.persona_id}"), size).timeline()
        for world in language.worlds[: size.users]
    )
    return TimelineSet(
        name="game",
        timelines=timelines,
        data_hash=canonical_hash(json_ready([asdict(timeline) for timeline in timelines])),
        seed=seed,
        notes=("Synthetic data of memslot's own; a setting is told by an exact phrase.",),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """A preference, after how many sessions it is known, and the change that brought it."""

    cell: Cell
    value: str
    since: int
    change: str | None


@dataclass
class _Life:
    """One persona: first who wants what and when, then what is said, then what is tested."""

    language: Language
    world: World
    dice: Dice
    size: GameSize
    contexts: list[str] = field(init=False)
    beats: list[list[Beat]] = field(init=False)
    values: dict[Cell, str] = field(default_factory=dict)
    spare: dict[str, list[str]] = field(default_factory=dict)
    history: list[_Known] = field(default_factory=list)
    decoys: list[tuple[str, str, int]] = field(default_factory=list)
    changed: dict[int, tuple[Cell, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.length = self.size.sessions + CHANGES
        first = self.dice.below(2)
        self.contexts = [CONTEXTS[(index + first) % 2] for index in range(self.length)]
        self.beats = [[] for _ in range(self.length)]
        self.attributes = self.dice.shuffled(self.language.attributes)[: self.size.attributes]

    def timeline(self) -> Timeline:
        self._choose_values()
        self._place_changes()
        self._state_all()
        sessions = tuple(self._session(index) for index in range(self.length))
        return Timeline(
            persona_id=self.world.persona_id,
            sessions=sessions,
            probes=(),
            preferences=tuple(
                Preference(*known.cell, known.value, self._starts(known.since - 1), known.since)
                for known in self.history
            ),
            canaries=tuple(sorted(self.world.names)),
            tests=tuple(self._tests()),
        )

    # -- who wants what -----------------------------------------------------------------------------------

    def _choose_values(self) -> None:
        """Some attributes are the same in both contexts, some matter in one of them alone; the others differ."""
        count = len(self.attributes)
        same, one_sided = count // 5, max(1, count // 7)
        for position, attribute in enumerate(self.attributes):
            markers = self.dice.shuffled(attribute.markers)
            wanted = dict.fromkeys(CONTEXTS, markers[0])
            if position >= same:
                wanted["personal"] = markers[1]
            if same <= position < same + one_sided:
                del wanted[CONTEXTS[position % 2]]
            self.spare[attribute.name] = [marker for marker in markers if marker not in wanted.values()]
            self.values.update({(context, attribute.name): value for context, value in wanted.items()})

    def _place_changes(self) -> None:
        """Which session is a forced change, and of what. The last is a return to the value before."""
        steady = sorted(cell for cell in self.values if self._differs(cell))
        cells = self.dice.shuffled(steady)[: CHANGES - 1]
        begin = self.length // 2
        room = self.length - 2 - begin
        places = [begin + room * number // (CHANGES - 1) for number in range(CHANGES)]
        forms = self.language.forms
        ways = (forms.announced, forms.plain, forms.announced, forms.announced, forms.reverted)
        for number, (index, way) in enumerate(zip(places, ways, strict=True)):
            cell = cells[2 if number == CHANGES - 1 else number]
            value = self.values[cell] if number == CHANGES - 1 else self.spare[cell[1]][0]
            elsewhere = number == CHANGES - 2  # told in the other context
            self.contexts[index] = _other(cell[0]) if elsewhere else cell[0]
            self.changed[index] = (cell, value, self.dice.pick(way))

    def _differs(self, cell: Cell) -> bool:
        values = [self.values.get((context, cell[1])) for context in CONTEXTS]
        return None not in values and values[0] != values[1]

    def _state_all(self) -> None:
        """Every cell becomes known in the first part, most of them in their own context."""
        cells = self.dice.shuffled(sorted(self.values))
        played = [index for index in range(self.length // 2) if index not in self.changed]
        for number, cell in enumerate(cells):
            index = played[number * len(played) // len(cells)]
            there = self.contexts[index] == cell[0]
            if not there and self.dice.chance(0.7):
                index = next((at for at in played if at > index and self.contexts[at] == cell[0]), index)
                there = self.contexts[index] == cell[0]
            said = self._told(self.language.forms.stated, cell, self.values[cell], lead=not there)
            kind: BeatKind = "statement" if there else "elsewhere"
            self.beats[index].append(Beat("", kind, said, attribute=cell[1]))
            self.history.append(_Known(cell, self.values[cell], index + 1, None))
        for index, (cell, value, _) in sorted(self.changed.items()):
            change = f"{self.world.persona_id}:{cell[0]}:{cell[1]}:{index + 1}"
            self.history.append(_Known(cell, value, index + 1, change))
        self.history.sort(key=lambda known: known.since)

    # -- what is said -------------------------------------------------------------------------------------

    def _told(self, forms: Sequence[str] | str, cell: Cell, marker: str, *, lead: bool | None = None) -> str:
        context, name = cell
        form = forms if isinstance(forms, str) else self.dice.pick(forms)
        named = self.dice.chance(0.5) if lead is None else lead
        return opened(
            form.format(
                lead=self.dice.pick(self.language.forms.leads[context]) if named else "",
                topic=self.language.by_name[name].topic,
                marker=marker,
                Marker=opened(marker),
            )
        )

    def _props(self, context: str) -> dict[str, str]:
        return {
            "matter": self.dice.pick(self.world.matters[context]),
            "person": self.dice.pick(self.world.people[context]),
        }

    def _talk(self, context: str) -> str:
        return opened(self.dice.pick(self.language.forms.filler).format(**self._props(context)))

    def _starts(self, index: int) -> datetime:
        return _START + timedelta(days=index, hours=_HOUR[self.contexts[index]])

    def _session(self, index: int) -> Session:
        context = self.contexts[index]
        if index in self.changed:
            return self._forced(index, context)
        beats = self.beats[index]
        if self.dice.chance(0.4):
            beats.insert(0, Beat("", "distraction", self._talk(context)))
        if cell := self._some_known(context, index):
            beats.append(self._task(cell, index, practise=True))
        if self.dice.chance(0.3):
            beats.append(self._decoy(context, index))
        if not beats:
            beats.append(Beat("", "distraction", self._talk(context)))
        script = self._script(context, self._starts(index), beats)
        return Session(session_id=f"acc_{index + 1:03}", script=script)

    def _script(self, context: str, start: datetime, beats: Sequence[Beat]) -> Script:
        forms = self.language.forms
        return Script(
            life_context=self.dice.pick(forms.life[context]),
            scenario=self.dice.pick(forms.scenarios[context]),
            context=context,
            start=start,
            beats=tuple(replace(beat, beat_id=f"b{number}") for number, beat in enumerate(beats, start=1)),
        )

    def _some_known(self, context: str, sessions: int) -> Cell | None:
        cells = {entry.cell for entry in self.history if entry.since <= sessions and entry.cell[0] == context}
        return self.dice.pick(sorted(cells)) if cells else None

    def _decoy(self, context: str, index: int) -> Beat:
        """Hearsay or a single case, always with a setting that is nobody's preference here."""
        name = self.dice.pick(self.attributes).name
        marker, forms = self.spare[name][-1], self.language.forms
        kind: BeatKind = "hearsay" if self.dice.chance(0.6) else "exception"
        form = self.dice.pick(forms.hearsay if kind == "hearsay" else forms.exception)
        self.decoys.append((name, marker, index + 1))
        return Beat("", kind, opened(form.format(**self._props(context), marker=marker)), attribute=name)

    def _forced(self, index: int, context: str) -> Session:
        """A forced change: what both say is fixed, so that every memory hears the same words."""
        cell, value, form = self.changed[index]
        forms, start = self.language.forms, self._starts(index)
        session_id = f"evolv_{sorted(self.changed).index(index) + 1:02}"
        scenario = self.dice.pick(forms.scenarios[context])
        talk = self._talk(context)
        told = self._told(form, cell, value, lead=True if context != cell[0] else None)
        turns = []
        for number, (said, attribute) in enumerate(((talk, None), (told, cell[1])), start=1):
            turn_id = f"{session_id}.{number}"
            reply = Message(role="assistant", content=self.dice.pick(forms.replies))
            turns.append(
                Turn(
                    turn_id=turn_id,
                    event_id=f"{self.world.persona_id}:{turn_id}",
                    timestamp=start + timedelta(minutes=number - 1),
                    messages=(Message(role="user", content=said), reply),
                    scenario=scenario,
                    context=context,
                    attribute=attribute,
                )
            )
        return Session(session_id=session_id, turns=tuple(turns), change=True)

    # -- what is tested -----------------------------------------------------------------------------------

    def _request(self, attribute: Attribute, context: str, *, named: bool) -> str:
        request = opened(attribute.task.format(**self._props(context)))
        form = self.dice.pick(self.language.forms.named) if named else "{request}"
        return form.format(request=request, topic=attribute.topic)

    def _task(self, cell: Cell, sessions: int, *, practise: bool, named: bool | None = None) -> Beat:
        """A request. In practice the user says at once what would suit, in a test only after a complaint."""
        context, name = cell
        named = self.dice.chance(0.5) if named is None else named
        truth, forms = self._truth(cell, sessions), self.language.forms
        wanted = truth.current or ""
        return Beat(
            "",
            "named" if named else "task",
            self._request(self.language.by_name[name], context, named=named),
            constraint=wanted,
            branch="" if practise else self.dice.pick(forms.complaint),
            hint=self._told(forms.corrected, cell, wanted, lead=None if practise else False),
            attribute=name,
            truth=truth,
        )

    def _neutral(self, context: str, sessions: int) -> Beat:
        """A request without a place for the user's own ways: none was ever told here, or it is someone else's."""
        forms = self.language.forms
        empty = [entry for entry in self.attributes if (context, entry.name) not in self.values]
        told = {entry.cell[1] for entry in self.history if entry.since <= sessions}
        ripe = [entry for entry in empty if entry.name in told]
        if ripe and self.dice.chance(0.6):
            attribute = self.dice.pick(ripe)
            said = self._request(attribute, context, named=self.dice.chance(0.5))
        else:
            attribute = self.dice.pick(
                [entry for entry in self.attributes if entry.name in told] or self.attributes
            )
            request = self._request(attribute, context, named=False)
            said = self.dice.pick(forms.for_others).format(request=request, **self._props(context))
        truth = replace(
            self._truth((context, attribute.name), sessions),
            current=None,
            stale=(),
            other=_each(entry.value for entry in self._known(attribute.name, sessions)),
            change=None,
        )
        return Beat(
            "",
            "neutral",
            said,
            constraint=forms.neutral_reply,
            branch=self.dice.pick(forms.not_mine),
            attribute=attribute.name,
            truth=truth,
        )

    def _known(self, name: str, sessions: int) -> list[_Known]:
        return [entry for entry in self.history if entry.cell[1] == name and entry.since <= sessions]

    def _truth(self, cell: Cell, sessions: int) -> PreferenceTruth:
        context, name = cell
        known = self._known(name, sessions)
        own = [entry for entry in known if entry.cell[0] == context]
        current = own[-1] if own else None
        mine = {entry.value for entry in own}
        return PreferenceTruth(
            current=current.value if current else None,
            stale=_each(entry.value for entry in own[:-1] if current and entry.value != current.value),
            other=_each(entry.value for entry in known if entry.value not in mine),
            decoys=_each(marker for about, marker, at in self.decoys if about == name and at <= sessions),
            change=current.change if current else None,
            since=current.since if current else 0,
        )

    def _points(self) -> list[int]:
        """Insertion points: spread over the timeline, the last after its end."""
        first, count = max(2, self.length // 8), self.size.tests
        return [
            first + (self.length - first) * number // max(1, count - 1) for number in range(count - 1)
        ] + [self.length]

    def _tests(self) -> list[TestSession]:
        tests, told = [], 0
        for number, after in enumerate(self._points(), start=1):
            changes = [entry for entry in self.history if entry.change and told < entry.since <= after]
            told = after
            # What has just changed is tested first; else the contexts take turns.
            context = changes[-1].cell[0] if changes else CONTEXTS[number % 2]
            cells = self._tested(context, after)
            if not cells:
                context = _other(context)
                cells = self._tested(context, after)
            beats = [self._task(cell, after, practise=False) for cell in cells]
            beats.append(self._neutral(context, after))
            # The first request once more, in other words: does it contradict itself?
            beats.append(self._task(cells[0], after, practise=False, named=beats[0].kind != "named"))
            start = self._starts(after - 1) + timedelta(hours=2)
            tests.append(TestSession(after, f"test_{number:02}", self._script(context, start, beats)))
        return tests

    def _tested(self, context: str, after: int) -> list[Cell]:
        """Up to three cells that are known: those that changed before the others."""
        known = [entry for entry in self.history if entry.since <= after and entry.cell[0] == context]
        changed = self.dice.shuffled(sorted({entry.cell for entry in known if entry.change}))
        steady = self.dice.shuffled(sorted({entry.cell for entry in known} - set(changed)))
        return [*changed[:2], *steady][:3]


def _other(context: str) -> str:
    return next(entry for entry in CONTEXTS if entry != context)


def _each(values: Iterable[str]) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(values))
