"""Reading a game in MemPABench's layout: for each user scripts, changes, a probe schedule and the truth.

::

    <data>/user_a/acc_001.yaml ...      life_context, scenario, context, beats
                  evolv_01.yaml ...     after, context, transcript
                  probe_schedule.yaml   sessions: after, life_context, scenario, context, beats
                  resolved_gt.yaml      work and personal: attribute -> value, or a list of {value, from}

A beat has ``goal``, ``constraint``, ``branch``, ``hint`` and ``attribute``. ``after`` names an accumulation script,
or says how many come before; ``from`` names the script or change that brings a value. The names of the files and
what a beat consists of are MemPABench's, as far as its public pages show; the other names of fields are ours. The
data is not part of this package. Scripts carry no dates: sessions are a day apart, changes an hour after the script
they follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from memory.bench.data.nodes import canonical_hash
from memory.bench.data.timeline import (
    CONTEXTS,
    Beat,
    Preference,
    PreferenceTruth,
    Script,
    Session,
    TestSession,
    Timeline,
    TimelineSet,
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


def load_mempabench(path: str | Path) -> TimelineSet:
    """One timeline for each user's directory below a path.

    Args:
        path: the data's directory.

    Raises:
        ConfigError: a file is missing or malformed; the message names file and line.
    """
    root = Path(path).expanduser()
    users = sorted(entry for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    users = [entry for entry in users if any(_ACCUMULATION.match(file.name) for file in entry.rglob("*"))]
    if not users:
        raise ConfigError(
            f"run.data: {root} holds no user's directory with acc_001.yaml; give MemPABench's data"
        )
    ignored: set[str] = set()
    read: dict[str, Any] = {}
    timelines = []
    for user in users:
        files = _Files(user, ignored)
        timelines.append(_User(user.name, files).timeline())
        read[user.name] = files.read
    unused = [f"not used: {', '.join(sorted(ignored))}"] if ignored else []
    return TimelineSet(
        name="mempabench",
        timelines=tuple(timelines),
        data_hash=canonical_hash(read),
        data_name=root.name,
        notes=("MemPABench's layout; times are made up, sessions a day apart", *unused),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of a YAML file, and the keys that lead to it."""

    value: Any
    file: str
    lines: Lines
    path: tuple[str, ...] = ()
    ignored: set[str] = field(default_factory=set)

    def wrong(self, what: str) -> ConfigError:
        line = self.lines.of(self.path)
        place = f", line {line}" if line is not None else ""
        return ConfigError(f"{self.file}{place}: {'.'.join(self.path) or 'the file'} {what}")

    def fields(self, *known: str) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.wrong("must be a mapping")
        name = self.file.split("/")[-1].split("_")[0]
        self.ignored.update(f"{key} of {name}" for key in self.value if known and key not in known)
        return self.value

    def get(self, name: str) -> Self:
        if name not in self.fields():
            raise replace(self, path=(*self.path, name)).wrong("is missing")
        return replace(self, value=self.value[name], path=(*self.path, name))

    def text(self, name: str, *, empty: bool = False) -> str:
        if empty and self.fields().get(name) is None:
            return ""
        found = self.get(name)
        if not isinstance(found.value, str) or not (found.value.strip() or empty):
            raise found.wrong("must be text")
        return found.value.strip()

    def items(self) -> list[Self]:
        if not isinstance(self.value, Sequence) or isinstance(self.value, str) or not self.value:
            raise self.wrong("must be a list that is not empty")
        return [
            replace(self, value=item, path=(*self.path, str(place))) for place, item in enumerate(self.value)
        ]

    def context(self) -> str:
        context = self.text("context")
        if context not in CONTEXTS:
            raise self.get("context").wrong(f"is {context!r}; it is work or personal")
        return context


class _Files:
    """A user's files by what they are."""

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
        return _Node(content, name, lines, ignored=self._ignored)


class _User:
    def __init__(self, persona: str, files: _Files) -> None:
        self.persona, self.files = persona, files
        self.order: list[str] = []  # names of scripts and changes, as they follow each other
        self.starts: dict[str, datetime] = {}
        self.phases: dict[tuple[str, str], list[tuple[str, int]]] = {}

    def timeline(self) -> Timeline:
        numbers = sorted(self.files.accumulation)
        if numbers != list(range(1, len(numbers) + 1)):
            gap = next(number for number in range(1, len(numbers) + 2) if number not in numbers)
            raise ConfigError(f"{self.persona}: acc_{gap:03}.yaml is missing")
        changes = [self._change(number, file) for number, file in sorted(self.files.changes.items())]
        for number in range(len(numbers) + 1):
            if number:
                self._place(f"acc_{number:03}", timedelta(days=number - 1))
            for name, after, _ in changes:
                if after == number:
                    self._place(name, timedelta(days=max(number - 1, 0), hours=1, minutes=len(self.order)))
        self._read_truth()
        fixed = {name: node for name, _, node in changes}
        sessions = tuple(
            self._fixed(name, fixed[name]) if name in fixed else self._scripted(name) for name in self.order
        )
        return Timeline(
            persona_id=self.persona,
            sessions=sessions,
            probes=(),
            preferences=tuple(self._preferences()),
            tests=tuple(self._tests()),
        )

    def _place(self, name: str, when: timedelta) -> None:
        self.order.append(name)
        self.starts[name] = _START + when

    def _after(self, node: _Node) -> int:
        """Accumulation scripts that come before."""
        found = node.get("after")
        number = found.value
        if isinstance(number, str) and (match := re.fullmatch(r"(?:acc_)?(\d+)", number)):
            number = int(match[1])
        if not isinstance(number, int) or isinstance(number, bool):
            raise found.wrong("must be the name of a script, such as acc_015, or a number of them")
        if not 0 <= number <= len(self.files.accumulation):
            raise found.wrong(f"is {number}; there are {len(self.files.accumulation)} accumulation scripts")
        return number

    def _change(self, number: int, file: Path) -> tuple[str, int, _Node]:
        node = self.files.node(file)
        node.fields("after", "context", "scenario", "attribute", "transcript")
        return f"evolv_{number:02}", self._after(node), node

    # -- sessions ---------------------------------------------------------------------------------------

    def _scripted(self, name: str) -> Session:
        node = self.files.node(self.files.accumulation[int(name[4:])])
        node.fields(*_SCRIPT)
        sessions = self.order.index(name)
        script = self._script(node, self.starts[name], sessions, tested=False)
        return Session(session_id=name, script=script)

    def _script(self, node: _Node, start: datetime, sessions: int, *, tested: bool) -> Script:
        context = node.context()
        return Script(
            life_context=node.text("life_context"),
            scenario=node.text("scenario", empty=True) or None,
            context=context,
            start=start,
            beats=tuple(
                self._beat(beat, f"b{number}", context, sessions, tested=tested)
                for number, beat in enumerate(node.get("beats").items(), start=1)
            ),
        )

    def _beat(self, node: _Node, beat_id: str, context: str, sessions: int, *, tested: bool) -> Beat:
        node.fields(*_BEAT)
        attribute = node.text("attribute", empty=True) or None
        truth = None
        if attribute is not None:
            truth = self._truth(context, attribute, sessions)
            if truth is None and tested:
                raise node.get("attribute").wrong(
                    f"has no truth in resolved_gt for {context}.{attribute} by then"
                )
        return Beat(
            beat_id=beat_id,
            kind="task" if truth is not None else "other",
            goal=node.text("goal"),
            constraint=node.text("constraint", empty=True),
            branch=node.text("branch", empty=True),
            hint=node.text("hint", empty=True),
            attribute=attribute,
            truth=truth,
        )

    def _fixed(self, name: str, node: _Node) -> Session:
        context, start = node.context(), self.starts[name]
        attribute = node.text("attribute", empty=True) or None
        said: list[tuple[tuple[Message, ...], str | None]] = []
        for message in node.get("transcript").items():
            message.fields("role", "content")
            role = message.text("role")
            if role not in ("user", "assistant"):
                raise message.get("role").wrong(f"is {role!r}; it is user or assistant")
            said.append(((Message(role=role, content=message.text("content")),), attribute))
        scenario = node.text("scenario", empty=True) or None
        turns = turns_of(self.persona, name, start, said, scenario, context)
        return Session(session_id=name, turns=turns, change=True)

    def _tests(self) -> Iterator[TestSession]:
        node = self.files.node(self.files.schedule)
        node.fields("sessions")
        found: list[TestSession] = []
        for number, entry in enumerate(node.get("sessions").items(), start=1):
            entry.fields("id", "after", *_SCRIPT)
            after = self._after(entry)
            # Changes that follow the script an insertion point names come before it.
            place = max(
                (at + 1 for at, name in enumerate(self.order) if self._scripts_before(name) <= after),
                default=0,
            )
            start = (self.starts[self.order[place - 1]] if place else _START) + timedelta(hours=2)
            name = entry.text("id", empty=True) or f"test_{number:02}"
            if name in {*self.order, *(test.session_id for test in found)}:
                raise entry.wrong(f"has the id {name}, which another session has")
            script = self._script(entry, start, place, tested=True)
            if all(beat.truth is None for beat in script.beats):
                raise entry.get("beats").wrong("name no attribute, so that nothing is tested")
            found.append(TestSession(place, name, script))
        yield from sorted(found, key=lambda test: test.after)

    def _scripts_before(self, name: str) -> int:
        """Accumulation scripts up to and with this session."""
        return sum(other.startswith("acc_") for other in self.order[: self.order.index(name) + 1])

    # -- the truth --------------------------------------------------------------------------------------

    def _read_truth(self) -> None:
        node = self.files.node(self.files.truth)
        node.fields(*CONTEXTS)
        for context in CONTEXTS:
            cells = node.get(context)
            for attribute in cells.fields():
                self.phases[context, attribute] = list(self._phases(cells.get(attribute)))

    def _phases(self, node: _Node) -> Iterator[tuple[str, int]]:
        """Values of a cell, and after how many sessions each is known."""
        given = node.items() if isinstance(node.value, list) else [node]
        last = -1
        for entry in given:
            phased = isinstance(entry.value, Mapping)
            if phased:
                entry.fields("value", "from")
            value = entry.get("value") if phased else entry
            if not isinstance(value.value, str) or not value.value.strip():
                raise value.wrong("must be text")
            since = 0
            if phased and "from" in entry.value:
                name = entry.text("from")
                if name not in self.order:
                    raise entry.get("from").wrong(f"names {name!r}, which is no script and no change")
                since = self.order.index(name) + 1
            if since <= last:
                raise entry.wrong("does not follow the value before it; put them in order of time")
            last = since
            yield value.value.strip(), since

    def _preferences(self) -> Iterator[Preference]:
        known = [
            Preference(*cell, value, self.starts[self.order[max(since - 1, 0)]], since)
            for cell, phases in self.phases.items()
            for value, since in phases
        ]
        yield from sorted(known, key=lambda entry: entry.since)

    def _truth(self, context: str, attribute: str, sessions: int) -> PreferenceTruth | None:
        own = [entry for entry in self.phases.get((context, attribute), ()) if entry[1] <= sessions]
        if not own:
            return None
        value, since = own[-1]
        other = [
            entry[0]
            for name in CONTEXTS
            if name != context
            for entry in self.phases.get((name, attribute), ())
            if entry[1] <= sessions
        ]
        mine = {entry[0] for entry in own}
        return PreferenceTruth(
            current=value,
            stale=tuple(dict.fromkeys(entry[0] for entry in own[:-1] if entry[0] != value)),
            other=tuple(dict.fromkeys(entry for entry in other if entry not in mine)),
            change=f"{self.persona}:{context}:{attribute}:{since}" if len(own) > 1 else None,
            since=since,
        )
