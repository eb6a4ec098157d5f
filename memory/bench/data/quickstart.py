"""The quickstart game: a small seeded world of people whose wishes for their assistant change.

Each persona has a preference for 14 attributes of communication in two contexts, work and personal. Sessions
state them, later change some (announced, or simply stated anew), repeat some, and mention others that are not
the user's own: hearsay and single exceptions. Probes ask for them along the way. The shape follows MemPABench;
the text is ours. Generated from ``random()`` of :class:`random.Random` alone, the one method whose sequence
Python promises to keep, so a seed means the same data everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memory.bench.data import quickstart_text as text
from memory.bench.data.canonical import canonical_hash, json_ready
from memory.bench.data.dice import Dice, opened
from memory.bench.data.language import World
from memory.bench.data.timeline import (
    CONTEXTS,
    Preference,
    PreferenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

CHANGES = 5
"""Preferences that change, per persona; three of them are announced."""
_ANNOUNCED = 3
_SAME_IN_BOTH = 3
_STEADY_PROBES = 2
_START = datetime(2026, 1, 5, tzinfo=UTC)
_HOUR = {"work": 9, "personal": 19}

Cell = tuple[str, str]
"""Context and attribute."""


def make_quickstart(*, seed: int = 7, users: int = 3, sessions: int = 16) -> TimelineSet:
    """The game for a seed.

    Args:
        seed: any integer; equal arguments give equal data.
        users: personas, at most as many as there are worlds.
        sessions: accumulation sessions of each persona, 8 to 60.

    Raises:
        ConfigError: a size is out of range.
    """
    if not 1 <= users <= len(text.WORLDS):
        raise ConfigError(f"run.users: is {users}; the quickstart has 1 to {len(text.WORLDS)} personas")
    if not 8 <= sessions <= 60:
        raise ConfigError(f"run.sessions: is {sessions}; the quickstart takes 8 to 60 sessions")
    timelines = tuple(
        _Game(world, Dice(f"{seed}/{world.persona_id}"), sessions).timeline() for world in text.WORLDS[:users]
    )
    data = [_without_scripts(asdict(timeline)) for timeline in timelines]
    return TimelineSet(
        name="quickstart",
        timelines=timelines,
        data_hash=canonical_hash(json_ready(data)),
        seed=seed,
        notes=(
            "Synthetic data of memslot's own; markers are exact phrases, so a paraphrase counts as a miss.",
        ),
    )


def _without_scripts(timeline: dict[str, Any]) -> dict[str, Any]:
    """What the quickstart consists of; it plays no session and asks across no contexts; its hash knows neither."""
    del timeline["tests"]
    for probe in timeline["probes"]:
        del probe["cross_context"]
    for session in timeline["sessions"]:
        del session["script"], session["change"]
    return timeline


@dataclass(frozen=True, slots=True)
class _Line:
    """One thing the user says; ``states`` is the cell whose preference it makes known."""

    text: str
    attribute: str | None = None
    states: tuple[Cell, str] | None = None
    decoy: tuple[str, str] | None = None


@dataclass
class _Game:
    """One persona's game: first who wants what and when, then what is said, then what is asked."""

    world: World
    dice: Dice
    length: int
    contexts: list[str] = field(init=False)
    scripts: list[list[_Line]] = field(init=False)

    def __post_init__(self) -> None:
        dice = self.dice
        first = dice.below(2)
        self.contexts = [CONTEXTS[(index + first) % 2] for index in range(self.length)]
        self.scripts = [[] for _ in range(self.length)]
        self.attributes = {attribute.name: attribute for attribute in text.ATTRIBUTES}
        self.values: dict[Cell, str] = {}
        self.spare: dict[str, list[str]] = {}
        self.placed: dict[Cell, int] = {}
        self.preferences: list[Preference] = []
        self.decoys: list[tuple[str, str, int]] = []

    def timeline(self) -> Timeline:
        names = self.dice.shuffled(list(self.attributes))
        self._choose_values(names)
        self._state_all()
        changes = self._change(names[_SAME_IN_BOTH:])
        self._repeat(changes)
        self._distract()
        sessions = tuple(self._session(index) for index in range(self.length))
        return Timeline(
            persona_id=self.world.persona_id,
            sessions=sessions,
            probes=tuple(self._probes(changes)),
            preferences=tuple(self.preferences),
            canaries=tuple(sorted(self.world.names)),
        )

    # -- who wants what, and when -----------------------------------------------------------------------

    def _choose_values(self, names: list[str]) -> None:
        """A value for every cell; the first few attributes have the same one in both contexts."""
        for position, name in enumerate(names):
            values = self.dice.shuffled(self.attributes[name].markers)
            for context in CONTEXTS:
                self.values[context, name] = values[0] if position < _SAME_IN_BOTH else values.pop(0)
            self.spare[name] = values[1:] if position < _SAME_IN_BOTH else values

    def _sessions_of(self, context: str) -> list[int]:
        return [index for index, name in enumerate(self.contexts) if name == context]

    def _state_all(self) -> None:
        """Every cell is stated once in the first two thirds of its context's sessions."""
        for context in CONTEXTS:
            where = self._sessions_of(context)
            where = where[: max(2, len(where) * 2 // 3)]
            for position, name in enumerate(self.dice.shuffled(list(self.attributes))):
                index = where[position % len(where)]
                self.placed[context, name] = index
                form = text.STATED if self.dice.chance(0.7) else text.CORRECTED
                self.scripts[index].append(
                    self._preference(form, (context, name), self.values[context, name])
                )

    def _change(self, names: list[str]) -> dict[Cell, int]:
        """The cells that change, each in a later session of its context, in the middle part of the game."""
        changes: dict[Cell, int] = {}
        for position, name in enumerate(self.dice.shuffled(names)[:CHANGES]):
            context = CONTEXTS[position % 2]
            where = self._sessions_of(context)
            later = [index for index in where[len(where) // 2 : -1] if index > self.placed[context, name]]
            index = self.dice.pick(later) if later else where[-1]
            form = text.ANNOUNCED if position < _ANNOUNCED else text.UNANNOUNCED
            self.scripts[index].append(self._preference(form, (context, name), self.spare[name].pop(0)))
            changes[context, name] = index
        return changes

    def _repeat(self, changes: dict[Cell, int]) -> None:
        """Now and then a preference that never changes is heard again."""
        for index in range(2, self.length, 3):
            context = self.contexts[index]
            known = sorted(
                cell
                for cell, at in self.placed.items()
                if cell[0] == context and at < index and cell not in changes
            )
            if known:
                cell = self.dice.pick(known)
                line = self._preference(text.REPEATED, cell, self.values[cell])
                self.scripts[index].append(_Line(line.text, attribute=cell[1]))

    def _distract(self) -> None:
        """Hearsay and single exceptions, always with a marker that is nobody's preference here."""
        for index in range(1, self.length, 2):
            context = self.contexts[index]
            name = self.dice.pick(sorted(self.attributes))
            marker = self.spare[name][-1]
            form = self.dice.pick(text.HEARSAY if self.dice.chance(0.6) else text.EXCEPTION)
            said = form.format(**self._props(context), marker=marker)
            self.scripts[index].append(_Line(opened(said), decoy=(name, marker)))

    # -- what is said -----------------------------------------------------------------------------------

    def _preference(self, forms: Sequence[str], cell: Cell, marker: str) -> _Line:
        context, name = cell
        said = self.dice.pick(forms).format(
            lead=self.dice.pick(text.LEADS[context]) if self.dice.chance(0.5) else "",
            topic=self.attributes[name].topic,
            marker=marker,
            Marker=opened(marker),
        )
        return _Line(opened(said), attribute=name, states=(cell, marker))

    def _props(self, context: str) -> dict[str, str]:
        world = self.world
        return {
            "matter": self.dice.pick(world.matters[context]),
            "person": self.dice.pick(world.people[context]),
        }

    def _session(self, index: int) -> Session:
        context = self.contexts[index]
        filler = [
            _Line(opened(self.dice.pick(text.FILLER).format(**self._props(context))))
            for _ in range(2 + self.dice.below(2))
        ]
        lines = [filler[0], *self.dice.shuffled(self.scripts[index] + filler[1:])]
        start = _START + timedelta(days=2 * index, hours=_HOUR[context])
        session_id = f"s{index + 1:02}"
        scenario = self.dice.pick(text.SCENARIOS[context])
        turns = []
        for position, line in enumerate(lines):
            at = start + timedelta(minutes=position)
            if line.states:
                (_, name), marker = line.states
                self.preferences.append(Preference(context, name, marker, at, index + 1))
            if line.decoy:
                self.decoys.append((*line.decoy, index + 1))
            turns.append(self._turn(line, f"{session_id}.{position + 1}", at, scenario, context))
        return Session(session_id=session_id, turns=tuple(turns))

    def _turn(self, line: _Line, turn_id: str, at: datetime, scenario: str, context: str) -> Turn:
        reply = self.dice.pick(text.REPLIES)
        return Turn(
            turn_id=turn_id,
            event_id=f"{self.world.persona_id}:{turn_id}",
            timestamp=at,
            messages=(Message(role="user", content=line.text), Message(role="assistant", content=reply)),
            scenario=scenario,
            context=context,
            attribute=line.attribute,
        )

    # -- what is asked ----------------------------------------------------------------------------------

    def _probes(self, changes: dict[Cell, int]) -> Iterator[Probe]:
        """After each session every changed cell and a few others; at the end all of them."""
        for after in range(1, self.length + 1):
            stated = sorted(cell for cell, index in self.placed.items() if index < after)
            tracked = [cell for cell in stated if cell in changes and changes[cell] < after]
            steady = self.dice.shuffled([cell for cell in stated if cell not in tracked])
            for cell in tracked:
                yield self._probe(cell, after, "asked")
            for cell in steady[: None if after == self.length else _STEADY_PROBES]:
                yield self._probe(cell, after, "asked" if self.dice.chance(0.5) else "task")

    def _probe(self, cell: Cell, after: int, category: str) -> Probe:
        context, name = cell
        attribute = self.attributes[name]
        form = text.ASKED if category == "asked" else attribute.task
        return Probe(
            probe_id=f"{self.world.persona_id}:{after:02}:{context}:{name}",
            after=after,
            query=opened(form.format(topic=attribute.topic, **self._props(context))),
            category=category,
            truth=self._truth(cell, after),
            session_id=f"test{after:02}",
            scenario=self.dice.pick(text.SCENARIOS[context]),
            context=context,
            attribute=name,
        )

    def _truth(self, cell: Cell, after: int) -> PreferenceTruth:
        context, name = cell
        history = [known for known in self.preferences if known.attribute == name and known.since <= after]
        own = [known for known in history if known.context == context]
        mine = {known.value for known in own}
        other = dict.fromkeys(known.value for known in history if known.value not in mine)
        decoys = dict.fromkeys(
            marker for attribute, marker, since in self.decoys if attribute == name and since <= after
        )
        return PreferenceTruth(
            current=own[-1].value,
            stale=tuple(known.value for known in own[:-1]),
            other=tuple(other),
            decoys=tuple(decoys),
            change=f"{self.world.persona_id}:{context}:{name}" if len(own) > 1 else None,
            since=own[-1].since,
        )
