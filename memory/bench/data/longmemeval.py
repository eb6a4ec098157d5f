"""Reads LongMemEval: questions, each with its own history and the sessions that hold the answer.

The package does not contain the data (Wu et al. 2024); give the path of one of its JSON files. A file is a
list of questions: ``question_id``, ``question_type``, ``question``, ``question_date``, ``answer``,
``haystack_sessions`` (lists of messages), ``haystack_session_ids``, ``haystack_dates`` and
``answer_session_ids``. A question whose id ends in ``_abs`` has no answer in its sessions; its ``answer``
says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from memory.bench.data.nodes import Node, data_set, moment_of, read_listed
from memory.bench.data.timeline import (
    AbstainTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

_WHAT = "a LongMemEval JSON file"
_ABSTAINS = "_abs"  # suffix of the id of a question without an answer
_FORM = re.compile(
    r"(?P<year>\d{4})/(?P<month>\d{2})/(?P<day>\d{2})\s*(?:\([A-Za-z]+\))?\s*(?:(?P<hour>\d{1,2}):(?P<minute>\d{2}))?\s*\Z"
)
_KNOWN = {"question_id", "question_type", "question", "question_date", "answer", "answer_session_ids",
          "haystack_sessions", "haystack_session_ids", "haystack_dates"}  # fmt: skip
_MESSAGE = {"role", "content", "has_answer"}


def load_longmemeval(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each question: its sessions by date, then the question at ``question_date``.

    Gold turns are those marked ``has_answer``. If none is marked, all turns of the answer sessions are gold.
    A question that cannot be answered has no gold turns.
    """
    source = Path(path).expanduser()
    data = read_listed(source, _WHAT)
    questions = Node(data, source.name, kind=_WHAT).items()[:limit_questions]
    if not questions:
        raise ConfigError(f"{source.name}: holds no question; is this {_WHAT}?")
    timelines: dict[str, Timeline] = {}
    ignored: set[str] = set()
    for question in questions:
        name = question.text("question_id")
        if name in timelines or "*" in name:
            raise question.wrong("question_id", f"{name!r} occurs twice, or is no id")
        ignored |= set(question.typed(dict)) - _KNOWN
        for session in question.get("haystack_sessions").items():
            for entry in session.items():
                ignored |= {f"{field} of message" for field in entry.typed(dict).keys() - _MESSAGE}
        if name.endswith(_ABSTAINS):
            ignored.add("has_answer and answer_session_ids of questions without an answer")
        timelines[name] = _timeline(question, name)
    content = [question.value for question in questions]
    note = "LongMemEval by Wu et al."
    return data_set("longmemeval", timelines.values(), content, source.name, note, ignored)


def _timeline(question: Node, name: str) -> Timeline:
    sessions = question.get("haystack_sessions").items()
    given = question.value.get("haystack_session_ids")
    ids = [f"session {number}" for number in range(1, len(sessions) + 1)]
    if given is not None:  # some copies omit the ids and only mark turns
        ids = [entry.typed(str) for entry in question.get("haystack_session_ids").items()]
    dates = [_moment(entry) for entry in question.get("haystack_dates").items()]
    if not len(sessions) == len(ids) == len(dates):
        raise question.wrong(
            "haystack_sessions", f"has {len(sessions)} sessions, {len(ids)} ids and {len(dates)} dates"
        )
    answers: set[str] = set()
    if given is not None:
        answers = {entry.typed(str) for entry in question.get("answer_session_ids").items()}
    ordered = sorted(range(len(sessions)), key=lambda place: (dates[place], place))
    built, marked, whole = [], [], []
    for number, place in enumerate(ordered, start=1):
        turns = []
        for turn, has_answer in _turns(sessions[place], f"{name}:{number:03}", dates[place]):
            turns.append(turn)
            if has_answer:
                marked.append(turn.event_id)
            if ids[place] in answers:
                whole.append(turn.event_id)
        built.append(Session(f"s{number:03}", tuple(turns)))
    answer = question.get("answer").answers()
    truth: EvidenceTruth | AbstainTruth = AbstainTruth(reason=answer)
    if not name.endswith(_ABSTAINS):
        truth = EvidenceTruth(turns=tuple(marked or whole), unresolved=len(answers - set(ids)), answer=answer)
    probe = Probe(
        probe_id=name,
        after=len(built),
        query=question.text("question"),
        category=question.text("question_type"),
        truth=truth,
        session_id="question",
        asked_at=_moment(question.get("question_date")),
    )
    return Timeline(persona_id=name, sessions=tuple(built), probes=(probe,))


def _turns(session: Node, prefix: str, start: datetime) -> Iterator[tuple[Turn, bool]]:
    for place, message in enumerate(session.items()):
        role = message.chosen("role", "user", "assistant", "system", "tool")
        if (content := message.get("content").spoken()).strip():
            at = start + timedelta(seconds=place)
            said = Message(role=role, content=content)
            turn = Turn(f"{prefix.rsplit(':', 1)[1]}.{place}", f"{prefix}.{place}", at, (said,))
            yield turn, _marked(message)


def _marked(message: Node) -> bool:
    """Whether a turn is marked as holding the answer. Copies of the data write the mark in several ways."""
    mark = message.typed(dict).get("has_answer")
    if mark is None or mark == "":
        return False
    if isinstance(mark, str) and mark.strip().lower() in _YES | _NO:
        return mark.strip().lower() in _YES
    if isinstance(mark, bool | int | float) and mark in (0, 1):
        return bool(mark)
    raise message.wrong("has_answer", "must be true or false")


_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})


def _moment(date: Node) -> datetime:
    return moment_of(date, _FORM, "2023/05/20 (Sat) 02:21")
