"""Reads a game in MemPABench's layout: the scripts, changes, probe schedule and truth of each user.

::

    <data>/user_a/acc_001.yaml ...      life_context, scenario, context, beats
                  evolv_01.yaml ...     after, context, transcript
                  probe_schedule.yaml   sessions: after, life_context, scenario, context, beats
                  resolved_gt.yaml      work and personal: attribute -> value, or a list of {value, from}

A beat has ``goal``, ``constraint``, ``branch``, ``hint`` and ``attribute``. ``after`` names an accumulation
script or gives the number of scripts before it. ``from`` names the script or change that brings a value.

File names and the parts of a beat follow MemPABench's public pages; other field names are ours. The package
does not contain the data. Scripts have no dates: sessions and changes are a day apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from memory.bench.data.reading import Filled, Part, PartT, data_set
from memory.bench.data.timeline import (
    CONTEXTS,
    Beat,
    BeatKind,
    Cell,
    Preference,
    PreferenceTruth,
    Script,
    Session,
    TestSession,
    Timeline,
    TimelineSet,
    truth_at,
    turns_of,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message
from memory.plugins.blocks import Problems, load_yaml, parse_block

_START = datetime(2026, 1, 5, 9, tzinfo=UTC)


_After = Annotated[int, BeforeValidator(lambda after: str(after).removeprefix("acc_"))]
_Context = Literal["work", "personal"]


class _Beat(Part):
    goal: Filled
    constraint: str = ""
    branch: str = ""
    hint: str = ""
    attribute: str | None = None


class _Script(Part):
    life_context: Filled
    scenario: str | None = None
    context: _Context
    beats: list[_Beat] = Field(min_length=1)


class _Said(Part):
    role: Literal["user", "assistant"]
    content: Filled


class _Change(Part):
    after: _After
    context: _Context
    scenario: str | None = None
    attribute: str | None = None
    transcript: list[_Said] = Field(min_length=1)


class _Test(_Script):
    id: str | None = None
    after: _After


class _Schedule(Part):
    sessions: list[_Test] = Field(min_length=1)


class _Phase(Part):
    value: Filled
    since: str | None = Field(None, validation_alias="from")


_Phases = Annotated[
    list[_Phase], BeforeValidator(lambda value: [{"value": value}] if isinstance(value, str) else value)
]


class _Truth(Part):
    work: dict[str, _Phases]
    personal: dict[str, _Phases]


def load_mempabench(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each user's directory below a path. ``limit_questions`` counts test sessions."""
    root = Path(path).expanduser()
    users = sorted(file.parent for file in root.glob("*/acc_001.yaml"))
    if not users:
        raise ConfigError(
            f"bench.data: {root} holds no user's directory with acc_001.yaml; give MemPABench's data"
        )
    read: dict[str, Any] = {}
    timelines = []
    for directory in users:
        user = _User(directory)
        timeline = user.timeline()
        timelines.append(replace(timeline, tests=timeline.tests[:limit_questions]))
        read[directory.name] = user.read
    note = "MemPABench's layout; times are made up, sessions a day apart"
    return data_set("mempabench", timelines, read, root.name, note)


def _start(place: int) -> datetime:
    """The time of a session by its place in the order."""
    return _START + timedelta(days=place)


class _User:
    """One user's files, and the timeline that they make."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.persona = directory, directory.name
        self.read: dict[str, Any] = {}  # file name -> content
        self.preferences: list[Preference] = []
        self.scripts = self._all_parsed(_Script, "acc_*.yaml")
        for number, name in enumerate(self.scripts, start=1):
            if name != f"acc_{number:03}":
                raise ConfigError(f"{self.persona}: acc_{number:03}.yaml is missing")
        self.changes = self._all_parsed(_Change, "evolv_*.yaml")
        self.order = sorted(  # number of scripts up to a session, and its name
            [
                *enumerate(self.scripts, start=1),
                *((self._known(name, change.after), name) for name, change in self.changes.items()),
            ]
        )
        self.places = {name: place for place, (_, name) in enumerate(self.order)}

    def _all_parsed(self, kind: type[PartT], pattern: str) -> dict[str, PartT]:
        return {file.stem: self._parsed(kind, file) for file in sorted(self.directory.glob(pattern))}

    def _parsed(self, kind: type[PartT], file: Path) -> PartT:
        if not file.exists():
            raise ConfigError(f"{self.persona}: {file.name} is missing")
        content, lines = load_yaml(file)
        self.read[file.name] = content
        return parse_block(kind, content, "", Problems(f"{self.persona}/{file.name}", lines))

    def _wrong(self, name: str, what: str) -> ConfigError:
        return ConfigError(f"{self.persona}/{name}: {what}")

    def _known(self, name: str, after: int) -> int:
        """A number of accumulation scripts, unless there are fewer."""
        if not 0 <= after <= len(self.scripts):
            raise self._wrong(name, f"after is {after}; there are {len(self.scripts)} accumulation scripts")
        return after

    def timeline(self) -> Timeline:
        truth = self._parsed(_Truth, self.directory / "resolved_gt.yaml")
        for context in CONTEXTS:
            for attribute, phases in getattr(truth, context).items():
                self.preferences += self._preferences((context, attribute), phases)
        self.preferences.sort(key=lambda known: known.since)
        sessions = tuple(
            self._changed(name, place) if name in self.changes else self._scripted(name, place)
            for name, place in self.places.items()
        )
        schedule = self._parsed(_Schedule, self.directory / "probe_schedule.yaml")
        return Timeline(
            persona_id=self.persona,
            sessions=sessions,
            probes=(),
            preferences=tuple(self.preferences),
            tests=tuple(sorted(self._tests(schedule), key=lambda test: test.after)),
        )

    def _preferences(self, cell: Cell, phases: list[_Phase]) -> Iterator[Preference]:
        last = -1
        for phase in phases:
            if phase.since is not None and phase.since not in self.places:
                what = f"{'.'.join(cell)}: from names {phase.since!r}, which is no script and no change"
                raise self._wrong("resolved_gt", what)
            since = 0 if phase.since is None else self.places[phase.since] + 1
            if since <= last:
                raise self._wrong("resolved_gt", f"{'.'.join(cell)}: put its values in order of time")
            last = since
            yield Preference(*cell, phase.value, _start(max(since - 1, 0)), since)

    def _scripted(self, name: str, place: int) -> Session:
        return Session(session_id=name, script=self._script(self.scripts[name], _start(place), place))

    def _changed(self, name: str, place: int) -> Session:
        change = self.changes[name]
        said = [
            ((Message(role=each.role, content=each.content),), change.attribute) for each in change.transcript
        ]
        turns = turns_of(self.persona, name, _start(place), said, change.scenario, change.context)
        return Session(session_id=name, turns=turns, change=True)

    def _tests(self, schedule: _Schedule) -> Iterator[TestSession]:
        for number, test in enumerate(schedule.sessions, start=1):
            name = test.id or f"test_{number:02}"
            after = self._known(name, test.after)
            # Changes that follow the named script also come before the test.
            place = sum(scripts <= after for scripts, _ in self.order)
            script = self._script(test, _start(max(place - 1, 0)) + timedelta(hours=2), place)
            for beat in script.beats:
                if beat.attribute and beat.truth is None:
                    cell = f"{test.context}.{beat.attribute}"
                    raise self._wrong(name, f"attribute has no truth in resolved_gt for {cell} by then")
            yield TestSession(place, name, script)

    def _script(self, script: _Script, start: datetime, sessions: int) -> Script:
        return Script(
            life_context=script.life_context,
            scenario=script.scenario,
            context=script.context,
            start=start,
            beats=tuple(
                self._beat(beat, f"b{number}", script.context, sessions)
                for number, beat in enumerate(script.beats, start=1)
            ),
        )

    def _beat(self, beat: _Beat, beat_id: str, context: str, sessions: int) -> Beat:
        truth: PreferenceTruth | None = None
        if beat.attribute:
            found = truth_at(self.persona, self.preferences, (context, beat.attribute), sessions)
            truth = found if found.current is not None else None
        kind: BeatKind = "other" if truth is None else "task"
        return Beat(beat_id=beat_id, kind=kind, truth=truth, **beat.model_dump())
