"""Reads a game in MemPABench's layout: the scripts, changes, probe schedule and truth of each user.

::

    <data>/user_a/acc_001.yaml ...      life_context, scenario, context, beats
                  evolv_01.yaml ...     after, context, transcript
                  probe_schedule.yaml   sessions: after, life_context, scenario, context, beats
                  resolved_gt.yaml      work and personal: attribute -> value, or a list of {value, from}

A beat has ``goal``, ``constraint``, ``branch``, ``hint`` and ``attribute``. ``after`` names an accumulation
script or gives the number of scripts before it. ``from`` names the script or change that brings a value.

File names and the parts of a beat follow MemPABench's public pages; other field names are ours. The package
does not contain the data. Scripts have no dates: sessions are a day apart, a change an hour after its script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from memory.bench.data.nodes import Node, data_set
from memory.bench.data.timeline import (
    CONTEXTS,
    Beat,
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
from memory.plugins.blocks import Lines, load_yaml

_START = datetime(2026, 1, 5, 9, tzinfo=UTC)
_ACCUMULATION = re.compile(r"acc_(\d+)\.ya?ml\Z")
_CHANGE = re.compile(r"evolv_(\d+)\.ya?ml\Z")
_TRUTH = re.compile(r"resolved_gt\.ya?ml\Z")
_BEAT = ("goal", "constraint", "branch", "hint", "attribute")
_SCRIPT = ("life_context", "scenario", "context", "beats")


def load_mempabench(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each user's directory below a path. ``limit_questions`` counts test sessions."""
    root = Path(path).expanduser()
    users = sorted(entry for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    users = [entry for entry in users if any(_ACCUMULATION.match(file.name) for file in entry.rglob("*"))]
    if not users:
        raise ConfigError(
            f"bench.data: {root} holds no user's directory with acc_001.yaml; give MemPABench's data"
        )
    ignored: set[str] = set()
    read: dict[str, Any] = {}
    timelines = []
    for user in users:
        files = _Files(user, ignored)
        timeline = _User(user.name, files).timeline()
        timelines.append(replace(timeline, tests=timeline.tests[:limit_questions]))
        read[user.name] = files.read
    note = "MemPABench's layout; times are made up, sessions a day apart"
    return data_set("mempabench", timelines, read, root.name, note, ignored)


@dataclass(frozen=True, slots=True)
class _Node(Node):
    """A value of a YAML file, with the keys that lead to it."""

    lines: Lines = field(default_factory=Lines)
    path: tuple[str, ...] = ()
    ignored: set[str] = field(default_factory=set)

    def inner(self, key: str | int, value: Any) -> Self:
        return replace(self, value=value, path=(*self.path, str(key)))

    def wrong(self, name: str, what: str) -> ConfigError:
        path = (*self.path, name) if name else self.path
        line = self.lines.of(path)
        place = f", line {line}" if line is not None else ""
        return ConfigError(f"{self.file}{place}: {'.'.join(path) or 'the file'} {what}")

    def fields(self, *known: str) -> Mapping[str, Any]:
        found: dict[str, Any] = self.typed(dict)
        name = self.file.split("/")[-1].split("_")[0]
        self.ignored.update(f"{key} of {name}" for key in found if known and key not in known)
        return found

    def optional(self, name: str) -> str:
        return "" if self.fields().get(name) is None else self.get(name).typed(str).strip()

    def filled(self) -> list[Self]:
        if not self.value:
            raise self.wrong("", "must be a list that is not empty")
        return self.items()

    def context(self) -> str:
        return self.chosen("context", *CONTEXTS)


class _Files:
    """A user's files by kind."""

    def __init__(self, user: Path, ignored: set[str]) -> None:
        self._user, self._ignored = user, ignored
        self.read: dict[str, Any] = {}
        self.accumulation: dict[int, Path] = {}
        self.changes: dict[int, Path] = {}
        schedules, truths = [], []
        for file in sorted(user.rglob("*")):
            if match := _ACCUMULATION.match(file.name):
                self._number(self.accumulation, int(match[1]), file)
            elif match := _CHANGE.match(file.name):
                self._number(self.changes, int(match[1]), file)
            elif "schedule" in file.stem and file.suffix in (".yaml", ".yml"):
                schedules.append(file)
            elif _TRUTH.match(file.name):
                truths.append(file)
            elif file.is_file():
                ignored.add(file.name)
        self.schedule = self._only_file(schedules, "a probe schedule, such as probe_schedule.yaml")
        self.truth = self._only_file(truths, "resolved_gt.yaml")

    def _number(self, known: dict[int, Path], number: int, file: Path) -> None:
        if number in known:
            raise ConfigError(f"{self._user.name}: {known[number].name} and {file.name} have one number")
        known[number] = file

    def _only_file(self, found: list[Path], what: str) -> Path:
        if len(found) != 1:
            raise ConfigError(f"{self._user.name}: holds {len(found)} files for {what}; it needs one")
        return found[0]

    def node(self, file: Path) -> _Node:
        content, lines = load_yaml(file)
        name = f"{self._user.name}/{file.name}"
        self.read[file.name] = content
        return _Node(content, name, kind="MemPABench's layout", lines=lines, ignored=self._ignored)


class _User:
    def __init__(self, persona: str, files: _Files) -> None:
        self.persona, self.files = persona, files
        self.starts: dict[str, datetime] = {}  # by script and change, in time order
        self.preferences: list[Preference] = []

    def timeline(self) -> Timeline:
        numbers = sorted(self.files.accumulation)
        if numbers != list(range(1, len(numbers) + 1)):
            gap = next(number for number in range(1, len(numbers) + 2) if number not in numbers)
            raise ConfigError(f"{self.persona}: acc_{gap:03}.yaml is missing")
        changes = []
        for number, file in sorted(self.files.changes.items()):
            node = self.files.node(file)
            node.fields("after", "context", "scenario", "attribute", "transcript")
            changes.append((f"evolv_{number:02}", self._after(node), node))
        for number in range(len(numbers) + 1):
            if number:
                self.starts[f"acc_{number:03}"] = _START + timedelta(days=number - 1)
            for name, after, _ in changes:
                if after == number:
                    later = timedelta(days=number - 1, hours=1, minutes=len(self.starts))
                    self.starts[name] = _START + later
        self.order = [*self.starts]
        self._read_truth()
        fixed = {name: node for name, _, node in changes}
        sessions = tuple(
            self._fixed(name, fixed[name]) if name in fixed else self._scripted(name) for name in self.order
        )
        return Timeline(
            persona_id=self.persona,
            sessions=sessions,
            probes=(),
            preferences=tuple(self.preferences),
            tests=tuple(self._tests()),
        )

    def _after(self, node: _Node) -> int:
        """The number of accumulation scripts that come before."""
        number = node.get("after").value
        if isinstance(number, str) and (match := re.fullmatch(r"(?:acc_)?(\d+)", number)):
            number = int(match[1])
        if not isinstance(number, int) or isinstance(number, bool):
            raise node.wrong("after", "must be the name of a script, such as acc_015, or a number of them")
        if not 0 <= number <= (scripts := len(self.files.accumulation)):
            raise node.wrong("after", f"is {number}; there are {scripts} accumulation scripts")
        return number

    def _scripted(self, name: str) -> Session:
        node = self.files.node(self.files.accumulation[int(name[4:])])
        node.fields(*_SCRIPT)
        script = self._script(node, self.starts[name], self.order.index(name), tested=False)
        return Session(session_id=name, script=script)

    def _script(self, node: _Node, start: datetime, sessions: int, *, tested: bool) -> Script:
        context = node.context()
        return Script(
            life_context=node.text("life_context"),
            scenario=node.optional("scenario") or None,
            context=context,
            start=start,
            beats=tuple(
                self._beat(beat, f"b{number}", context, sessions, tested=tested)
                for number, beat in enumerate(node.get("beats").filled(), start=1)
            ),
        )

    def _beat(self, node: _Node, beat_id: str, context: str, sessions: int, *, tested: bool) -> Beat:
        node.fields(*_BEAT)
        attribute = node.optional("attribute") or None
        truth = None if attribute is None else self._truth((context, attribute), sessions)
        if truth is None and tested and attribute is not None:
            raise node.wrong("attribute", f"has no truth in resolved_gt for {context}.{attribute} by then")
        return Beat(
            beat_id=beat_id,
            kind="task" if truth is not None else "other",
            goal=node.text("goal"),
            constraint=node.optional("constraint"),
            branch=node.optional("branch"),
            hint=node.optional("hint"),
            attribute=attribute,
            truth=truth,
        )

    def _fixed(self, name: str, node: _Node) -> Session:
        context, start = node.context(), self.starts[name]
        attribute = node.optional("attribute") or None
        said: list[tuple[tuple[Message, ...], str | None]] = []
        for message in node.get("transcript").filled():
            message.fields("role", "content")
            role = message.chosen("role", "user", "assistant")
            said.append(((Message(role=role, content=message.text("content")),), attribute))
        scenario = node.optional("scenario") or None
        turns = turns_of(self.persona, name, start, said, scenario, context)
        return Session(session_id=name, turns=turns, change=True)

    def _tests(self) -> Iterator[TestSession]:
        node = self.files.node(self.files.schedule)
        node.fields("sessions")
        found: list[TestSession] = []
        before = [*accumulate(name.startswith("acc_") for name in self.order)]
        for number, entry in enumerate(node.get("sessions").filled(), start=1):
            entry.fields("id", "after", *_SCRIPT)
            after = self._after(entry)
            # Changes that follow the named script also come before the test.
            place = sum(scripts <= after for scripts in before)
            start = (self.starts[self.order[place - 1]] if place else _START) + timedelta(hours=2)
            name = entry.optional("id") or f"test_{number:02}"
            if name in {*self.order, *(test.session_id for test in found)}:
                raise entry.wrong("", f"has the id {name}, which another session has")
            script = self._script(entry, start, place, tested=True)
            if all(beat.truth is None for beat in script.beats):
                raise entry.wrong("beats", "name no attribute, so that nothing is tested")
            found.append(TestSession(place, name, script))
        yield from sorted(found, key=lambda test: test.after)

    def _read_truth(self) -> None:
        node = self.files.node(self.files.truth)
        node.fields(*CONTEXTS)
        for context in CONTEXTS:
            cells = node.get(context)
            for attribute in cells.fields():
                self.preferences += self._phases(cells.get(attribute), (context, attribute))
        self.preferences.sort(key=lambda entry: entry.since)

    def _phases(self, node: _Node, cell: Cell) -> Iterator[Preference]:
        last = -1
        for entry in node.filled() if isinstance(node.value, list) else [node]:
            value, since = entry, 0
            if isinstance(entry.value, Mapping):
                entry.fields("value", "from")
                value = entry.get("value")
                if "from" in entry.value:
                    name = entry.text("from")
                    if name not in self.order:
                        raise entry.wrong("from", f"names {name!r}, which is no script and no change")
                    since = self.order.index(name) + 1
            if not value.typed(str).strip():
                raise value.wrong("", "must be text")
            if since <= last:
                raise entry.wrong("", "does not follow the value before it; put them in order of time")
            last = since
            yield Preference(*cell, value.value.strip(), self.starts[self.order[max(since - 1, 0)]], since)

    def _truth(self, cell: Cell, sessions: int) -> PreferenceTruth | None:
        truth = truth_at(self.persona, self.preferences, cell, sessions)
        return None if truth.current is None else truth
