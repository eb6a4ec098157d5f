"""Reads LongMemEval: questions, each with its own history and the sessions that hold the answer.

The package does not contain the data (Wu et al. 2024); give the path of one of its JSON files. A question
whose id ends in ``_abs`` has no answer in its sessions.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from memory.bench.data.reading import Answer, Filled, Part, data_set, moment, parsed_rows, read_rows
from memory.bench.data.timeline import (
    AbstainTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.events import Message

_ABSTAINS = "_abs"  # suffix of the id of a question without an answer
_FORMS = ("%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d")
_Moment = Annotated[datetime, BeforeValidator(lambda text: moment(text, *_FORMS))]


class _Said(Part):
    role: Literal["user", "assistant", "system", "tool"]
    content: str
    has_answer: Annotated[bool, BeforeValidator(lambda mark: mark or False)] = False


class _Question(Part):
    question_id: Filled
    question_type: Filled
    question: Filled
    question_date: _Moment
    answer: Answer | list[Answer] | None = None
    haystack_sessions: list[list[_Said]]
    haystack_dates: list[_Moment]
    # Some copies omit the ids and only mark messages.
    haystack_session_ids: list[str] | None = None
    answer_session_ids: list[str] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        lists = (self.haystack_sessions, self.haystack_dates, self.haystack_session_ids)
        if len({len(each) for each in lists if each is not None}) > 1:
            raise ValueError("has different numbers of sessions, ids and dates")
        return self


def load_longmemeval(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each question: its sessions by date, then the question at ``question_date``.

    Gold turns are those marked ``has_answer``. If none is marked, all turns of the answer sessions are gold.
    A question that cannot be answered has no gold turns.
    """
    source = Path(path).expanduser()
    rows = read_rows(source, "a LongMemEval JSON file")[:limit_questions]
    timelines = [_timeline(question) for question in parsed_rows(_Question, rows, source)]
    return data_set("longmemeval", timelines, rows, source.name, "LongMemEval by Wu et al.")


def _timeline(question: _Question) -> Timeline:
    name, dates = question.question_id, question.haystack_dates
    ids = question.haystack_session_ids or [""] * len(dates)
    answers = set(question.answer_session_ids or ()) if question.haystack_session_ids else set()
    built, marked, whole = [], [], []
    for number, place in enumerate(sorted(range(len(dates)), key=dates.__getitem__), start=1):
        turns = []
        for at, said in enumerate(question.haystack_sessions[place]):
            if not said.content.strip():
                continue
            turn_id = f"{number:03}.{at}"
            turn = Turn(
                turn_id,
                f"{name}:{turn_id}",
                dates[place] + timedelta(seconds=at),
                (Message(role=said.role, content=said.content),),
            )
            turns.append(turn)
            if said.has_answer:
                marked.append(turn.event_id)
            if ids[place] in answers:
                whole.append(turn.event_id)
        built.append(Session(f"s{number:03}", tuple(turns)))
    answer = "; or ".join(question.answer) if isinstance(question.answer, list) else question.answer
    truth: EvidenceTruth | AbstainTruth = AbstainTruth()
    if not name.endswith(_ABSTAINS):
        truth = EvidenceTruth(turns=tuple(marked or whole), unresolved=len(answers - set(ids)), answer=answer)
    probe = Probe(
        probe_id=name,
        after=len(built),
        query=question.question,
        category=question.question_type,
        truth=truth,
        session_id="question",
        asked_at=question.question_date,
    )
    return Timeline(persona_id=name, sessions=tuple(built), probes=(probe,))
