"""Reads MemBench: messages to an agent or of a dialogue, and a multiple-choice question about them.

The package does not contain the data (Tan et al. 2025); give the path of one of its JSON files. A file maps
kinds of cases to cases, optionally by topic. A case has ``message_list``, a list of messages or of sessions
of messages. It also has ``QA`` with ``question``, ``choices`` by letter and ``ground_truth``, or a list of
these as ``question_list``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory.bench.data.nodes import Node, data_set, read_json
from memory.bench.data.timeline import ChoiceTruth, Probe, Session, Timeline, TimelineSet, Turn
from memory.contract.errors import ConfigError
from memory.contract.events import Message

_WHAT = "a MemBench JSON file"
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2})")
_START = datetime(2024, 1, 1, tzinfo=UTC)
_SAID = (("user_message", "user"), ("user", "user"), ("message", "user"),
         ("assistant_message", "assistant"), ("assistant", "assistant"), ("agent", "assistant"))  # fmt: skip


def load_membench(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each case: its sessions in order, then its question.

    ``limit_questions`` applies to the file. A message without a time follows the one before it by a minute.
    """
    source = Path(path).expanduser()
    data = read_json(source, _WHAT)
    timelines = []
    for number, (name, case) in enumerate(_cases(Node(data, source.name, kind=_WHAT), ()), start=1):
        if limit_questions is not None and number > limit_questions:
            break
        timelines.append(_timeline(case, f"{'-'.join(name)}-{number}" if name else f"case-{number}", name))
    if not timelines:
        raise ConfigError(f"{source.name}: holds no case with message_list; is this {_WHAT}?")
    note = "MemBench by Tan et al.; missing times are made up, a minute apart"
    return data_set("membench", timelines, data, source.name, note, set())


def _cases(node: Node, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    if isinstance(node.value, list):
        for item in node.items():
            yield from _cases(item, name)
    elif isinstance(node.value, dict) and "message_list" in node.value:
        yield name, node
    elif isinstance(node.value, dict):
        for key in node.value:
            yield from _cases(node.get(key), (*name, str(key)))


def _timeline(case: Node, persona: str, name: tuple[str, ...]) -> Timeline:
    listed = case.get("message_list").items()
    sessions = listed if listed and isinstance(listed[0].value, list) else [case.get("message_list")]
    built, at = [], _START
    for number, session in enumerate(sessions, start=1):
        turns = []
        for place, entry in enumerate(session.items(), start=1):
            at = _moment(entry, at)
            said = tuple(_messages(entry))
            turns.append(Turn(f"s{number}.{place}", f"{persona}:s{number}.{place}", at, said))
        built.append(Session(f"s{number}", tuple(turns)))
    question = _question(case)
    truth = _choice(question)
    probe = Probe(
        probe_id=f"{persona}:q",
        after=len(built),
        query=question.text("question"),
        category=name[0] if name else "question",
        truth=truth,
        session_id="question",
        asked_at=_moment(question, at),
    )
    return Timeline(persona_id=persona, sessions=tuple(built), probes=(probe,))


def _question(case: Node) -> Node:
    """The case's question; of a list of questions, the first."""
    if "QA" not in case.typed(dict) and case.value.get("question_list"):
        return case.get("question_list").items()[0]
    return case.get("QA")


def _messages(entry: Node) -> Iterator[Message]:
    if isinstance(entry.value, str):
        yield Message(role="user", content=entry.typed(str))
        return
    fields: dict[str, Any] = entry.typed(dict)
    found = [(role, entry.text(name)) for name, role in _SAID if fields.get(name)]
    if not found:
        raise entry.wrong("", "has neither user_message nor message")
    yield from (Message(role=role, content=content) for role, content in found)


def _moment(entry: Node, before: datetime) -> datetime:
    """The time of an entry, never before that of the preceding entry."""
    given = entry.value.get("time") if isinstance(entry.value, dict) else None
    match = _TIME.search(given) if isinstance(given, str) else None
    try:
        found = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC) if match else None
    except ValueError:
        raise entry.wrong("time", "is no moment") from None
    return max(found, before) if found else before + timedelta(minutes=1)


def _choice(question: Node) -> ChoiceTruth:
    choices: dict[str, Any] = question.get("choices").typed(dict)
    letters = sorted(choices)
    right = question.text("ground_truth").strip("() .").upper()
    if right not in letters or len(letters) < 2:
        raise question.wrong("ground_truth", f"is {right!r}; the choices are {', '.join(letters)}")
    options = tuple(question.get("choices").get(letter).answer() for letter in letters)
    return ChoiceTruth(options, letters.index(right))
