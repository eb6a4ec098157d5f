"""Reads MemBench: messages to an agent or of a dialogue, and a multiple-choice question about them.

The package does not contain the data (Tan et al. 2025); give the path of one of its JSON files. A file maps
kinds of cases to cases, optionally by topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, model_validator

from memory.bench.data.reading import Answer, Filled, Part, data_set, parse_json, parsed, read_text
from memory.bench.data.timeline import ChoiceTruth, Probe, Session, Timeline, TimelineSet, Turn
from memory.contract.errors import ConfigError
from memory.contract.events import Message
from memory.plugins.blocks import Problems

_WHAT = "a MemBench JSON file"
_START = datetime(2024, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2})")


def _timed(value: Any) -> Any:
    match = _TIME.search(value) if isinstance(value, str) else None
    return f"{match[1]}T{match[2]}Z" if match else None


_Time = Annotated[datetime | None, BeforeValidator(_timed)]


class _Said(Part):
    """One message, or a message and its reply."""

    user: str = Field("", validation_alias=AliasChoices("user_message", "user", "message"))
    assistant: str = Field("", validation_alias=AliasChoices("assistant_message", "assistant", "agent"))
    time: _Time = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not (self.user or self.assistant):
            raise ValueError("has neither user_message nor message")
        return self


class _Question(Part):
    question: Filled
    choices: dict[str, Answer] = Field(min_length=2)
    ground_truth: Annotated[Filled, AfterValidator(lambda letter: letter.strip("() .").upper())]
    time: _Time = None

    @model_validator(mode="after")
    def _answered(self) -> Self:
        if self.ground_truth not in self.choices:
            raise ValueError(f"ground_truth is none of the choices {', '.join(sorted(self.choices))}")
        return self


_Message = Annotated[
    _Said, BeforeValidator(lambda given: {"message": given} if isinstance(given, str) else given)
]


class _Case(Part):
    message_list: list[_Message] | list[list[_Message]]
    questions: Annotated[
        list[_Question], BeforeValidator(lambda given: given if isinstance(given, list) else [given])
    ] = Field(min_length=1, validation_alias=AliasChoices("QA", "question_list"))


def load_membench(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each case: its sessions in order, then its first question.

    ``limit_questions`` applies to the file. A message without a time follows the one before it by a minute.
    """
    source = Path(path).expanduser()
    data, problem = parse_json(read_text(source, _WHAT), source.name, _WHAT), Problems(source.name)
    timelines = []
    for number, (name, case) in enumerate(islice(_cases(data, ()), limit_questions), start=1):
        persona = f"{'-'.join(name) or 'case'}-{number}"
        timelines.append(_timeline(parsed(_Case, case, persona, problem), persona, name))
    if not timelines:
        raise ConfigError(f"{source.name}: holds no case with message_list; is this {_WHAT}?")
    note = "MemBench by Tan et al.; missing times are made up, a minute apart"
    return data_set("membench", timelines, data, source.name, note)


def _cases(value: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each case, with the keys that lead to it."""
    if isinstance(value, list):
        for item in value:
            yield from _cases(item, name)
    elif isinstance(value, dict) and "message_list" in value:
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _cases(item, (*name, str(key)))


def _timeline(case: _Case, persona: str, name: tuple[str, ...]) -> Timeline:
    listed: list[Any] = case.message_list
    sessions = listed if listed and isinstance(listed[0], list) else [listed]
    built, at = [], _START
    for number, session in enumerate(sessions, start=1):
        turns = []
        for place, said in enumerate(session, start=1):
            at = _after(said.time, at)
            spoken = (("user", said.user), ("assistant", said.assistant))
            messages = tuple(Message(role=role, content=text) for role, text in spoken if text)
            turns.append(Turn(f"s{number}.{place}", f"{persona}:s{number}.{place}", at, messages))
        built.append(Session(f"s{number}", tuple(turns)))
    question = case.questions[0]
    letters = sorted(question.choices)
    options = tuple(question.choices[letter] for letter in letters)
    probe = Probe(
        probe_id=f"{persona}:q",
        after=len(built),
        query=question.question,
        category=name[0] if name else "question",
        truth=ChoiceTruth(options, letters.index(question.ground_truth)),
        session_id="question",
        asked_at=_after(question.time, at),
    )
    return Timeline(persona_id=persona, sessions=tuple(built), probes=(probe,))


def _after(given: datetime | None, before: datetime) -> datetime:
    """A time, never before that of the preceding message."""
    return max(given, before) if given else before + timedelta(minutes=1)
