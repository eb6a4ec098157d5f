"""Reads your own conversations with questions about them: memslot's JSON lines, or a chat program's export.

A line is a message or a question. A message has ``session``, ``role`` and ``content``, and optionally
``time``, ``user`` and ``id``. A question has ``question``, and optionally ``answer``, ``evidence``, ``user``,
``time`` and ``category``. See ``docs/your-data.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory.bench.data.reading import data_set
from memory.bench.data.timeline import EvidenceTruth, Probe, Session, Timeline, TimelineSet, Turn
from memory.contract.errors import ConfigError
from memory.runtime._transcript_items import Conversation, Problem, Question
from memory.runtime._transcripts import read_conversations

_START = datetime(2026, 1, 1, tzinfo=UTC)  # of conversations without times
_USER = "user"  # of lines without a user


def load_own(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each user: all conversations by time, then the questions.

    Each message is one event. A message without a time follows the one before it by a minute.

    Raises:
        ConfigError: lists all problems of the file, each with its line.
    """
    found, problems = read_own(path, limit_questions=limit_questions)
    if problems:
        shown = "\n  ".join(map(str, problems))
        raise ConfigError(f"{Path(path).name}: {len(problems)} problems\n  {shown}")
    return found


def read_own(path: str | Path, *, limit_questions: int | None = None) -> tuple[TimelineSet, list[Problem]]:
    """The readable part of a file, and its problems."""
    source = Path(path).expanduser()
    problems: list[Problem] = []
    questions: list[Question] = []
    talks = list(read_conversations(source, problems=problems, questions=questions))
    if not talks and not problems:
        problems.append(Problem(source.name, "holds no conversation"))
    people: dict[str, list[Conversation]] = {}
    for talk in talks:
        people.setdefault(talk.user or _USER, []).append(talk)
    asked: dict[str, list[Question]] = {}
    for question in questions:
        user = question.user or (next(iter(people)) if len(people) == 1 else _USER)
        if user in people:
            asked.setdefault(user, []).append(question)
        elif talks:
            problems.append(Problem(question.place, "user names nobody who has a message in the file"))
    timelines = [
        _timeline(user, own, asked.get(user, [])[:limit_questions], problems) for user, own in people.items()
    ]
    left_out = Counter[str]()
    for talk in talks:
        left_out.update(talk.left_out)
    ignored = sorted(f"{count} {what}" for what, count in left_out.items())
    timed = all(said.at for talk in talks for said in talk.messages)
    note = "Own conversations" + ("" if timed else "; missing times are made up, a minute apart")
    content = {"conversations": talks, "questions": questions}
    notes = [note, f"not used: {', '.join(ignored)}"] if ignored else [note]
    return data_set("own", timelines, content, source.name, *notes), problems


def _timeline(
    user: str, talks: Sequence[Conversation], questions: Sequence[Question], problems: list[Problem]
) -> Timeline:
    names: dict[str, tuple[str, ...]] = {}  # evidence entry -> event ids
    last = _START - timedelta(minutes=1)
    sessions: list[Session] = []
    for talk in talks:
        turns: list[Turn] = []
        at = next((said.at for said in talk.messages if said.at), last + timedelta(minutes=1))
        for place, said in enumerate(talk.messages, start=1):
            at = max(at, said.at) if said.at else at + timedelta(minutes=1) if turns else at
            event_id = f"{user}:{talk.conversation_id}:{place}"
            turns.append(Turn(f"{talk.conversation_id}.{place}", event_id, at, (said.message,)))
            names[f"{talk.conversation_id}:{place}"] = (event_id,)
            if said.message_id is not None:
                names[said.message_id] = (event_id,)
        names.setdefault(talk.conversation_id, tuple(turn.event_id for turn in turns))
        last = max(last, turns[-1].timestamp)
        sessions.append(Session(talk.conversation_id, tuple(turns)))
    sessions.sort(key=lambda session: session.turns[0].timestamp)
    probes = [
        Probe(
            probe_id=f"{user}:q{number}",
            after=len(sessions),
            query=question.text,
            category=question.category,
            truth=EvidenceTruth(_evidence(question, names, problems), answer=question.answer),
            session_id="test",
            asked_at=question.at or last,
        )
        for number, question in enumerate(questions, start=1)
    ]
    return Timeline(persona_id=user, sessions=tuple(sessions), probes=tuple(probes))


def _evidence(
    question: Question, names: dict[str, tuple[str, ...]], problems: list[Problem]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for entry in question.evidence:
        if entry not in names:
            what = "evidence names no message: give an id, SESSION:N for the Nth message of a session, or a session"
            problems.append(Problem(question.place, what))
        found.update(dict.fromkeys(names.get(entry, ())))
    return tuple(found)
