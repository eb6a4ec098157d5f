"""Reads PersonaMem: long conversations, and questions on which of four replies suits the user.

The package does not contain the data (Jiang et al. 2025). Give the path of ``questions_<size>.csv``,
which lies beside ``shared_contexts_<size>.jsonl``. Each line of the contexts' file maps the id of a context to
its messages. A question names its context, the number of messages before it, and the reply that suits.
"""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from memory.bench.data.reading import Filled, Part, data_set, parsed, read_json_lines, read_text
from memory.bench.data.timeline import ChoiceTruth, Probe, Session, Timeline, TimelineSet, Turn
from memory.contract.errors import ConfigError
from memory.contract.events import Message
from memory.plugins.blocks import Problems

_WHAT = "PersonaMem's questions_32k.csv, beside shared_contexts_32k.jsonl"
_START = datetime(2025, 1, 1, tzinfo=UTC)


def _options(text: Any) -> Any:
    """The replies without their letters, as in "(a) Of course."."""
    try:
        found = ast.literal_eval(text)
        return [
            entry[3:].strip() if entry[:3].lower() == f"({chr(ord('a') + place)})" else entry.strip()
            for place, entry in enumerate(found)
        ]
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        raise ValueError("is not a list of texts") from None


class _Question(Part):
    question_id: Filled
    question_type: Filled
    user_question_or_message: Filled
    correct_answer: Filled
    all_options: Annotated[tuple[str, ...], BeforeValidator(_options)] = Field(min_length=2)
    shared_context_id: Filled
    end_index_in_shared_context: int = Field(ge=1)

    @property
    def right(self) -> int:
        """The index of the reply that suits."""
        return "abcdefghijklmnopqrstuvwxyz".find(self.correct_answer.strip("() ").lower())

    @model_validator(mode="after")
    def _answered(self) -> Self:
        if not 0 <= self.right < len(self.all_options):
            raise ValueError(f"correct_answer is none of the {len(self.all_options)} answers")
        return self


class _Said(Part):
    role: Literal["user", "assistant", "system"]
    content: str


class _Context(Part):
    messages: list[_Said]


def load_personamem(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each context with questions. A question follows the messages that it may know.

    A user's message and its reply form one event. A system message opens a session and is an event alone.
    Messages carry no times, so the n-th message is at minute n.
    """
    source = Path(path).expanduser()
    contexts = source.with_name(f"shared_contexts_{source.stem.removeprefix('questions_')}.jsonl")
    rows: dict[str, list[Mapping[str, Any]]] = {}
    asked: dict[str, list[_Question]] = {}
    for row, question in _questions(source):
        own = asked.setdefault(question.shared_context_id, [])
        if limit_questions is None or len(own) < limit_questions:
            own.append(question)
            rows.setdefault(question.shared_context_id, []).append(row)
    held = {name: said for name, said in _contexts(contexts) if name in asked}
    if lost := asked.keys() - held.keys():
        raise ConfigError(f"{source.name}: shared_context_id names {min(lost)!r}, not in {contexts.name}")
    timelines = [_timeline(name, held[name], questions) for name, questions in asked.items()]
    content = {
        "questions": rows,
        "contexts": {name: [said.model_dump() for said in talk] for name, talk in held.items()},
    }
    note = "PersonaMem by Jiang et al.; times are made up, a minute apart"
    return data_set("personamem", timelines, content, source.name, note)


def _questions(path: Path) -> Iterator[tuple[Mapping[str, Any], _Question]]:
    """Each row with its question."""
    reader = csv.DictReader(io.StringIO(read_text(path, _WHAT), newline=""), strict=True)
    problem = Problems(path.name)
    try:
        for row in reader:
            yield row, parsed(_Question, row, f"line {reader.line_num}", problem)
    except csv.Error as error:
        raise problem((f"line {reader.line_num}",), str(error)) from None


def _contexts(path: Path) -> Iterator[tuple[str, list[_Said]]]:
    problem = Problems(path.name)
    for number, line in read_json_lines(path, _WHAT):
        if not isinstance(line, dict):
            raise problem((f"line {number}",), "must be an object with fields")
        for name, messages in line.items():
            yield name, parsed(_Context, {"messages": messages}, f"line {number}.{name}", problem).messages


def _timeline(context: str, said: Sequence[_Said], questions: Sequence[_Question]) -> Timeline:
    ordered = sorted(questions, key=lambda question: question.end_index_in_shared_context)
    ends = [question.end_index_in_shared_context for question in ordered]
    if ends[-1] > len(said):
        what = f"end_index_in_shared_context is {ends[-1]}; {context} has {len(said)} messages"
        raise ConfigError(f"{ordered[-1].question_id}: {what}")
    # A session ends before a system message and before a question.
    openings = {place for place, message in enumerate(said) if message.role == "system"}
    bounds = sorted({0, len(said)} | openings | set(ends))
    sessions = tuple(
        Session(f"s{number:03}", tuple(_turns(context, number, first, said[first:last])))
        for number, (first, last) in enumerate(pairwise(bounds), start=1)
    )
    probes = tuple(
        Probe(
            probe_id=question.question_id,
            after=bounds.index(end),
            query=question.user_question_or_message,
            category=question.question_type,
            truth=ChoiceTruth(question.all_options, question.right),
            session_id="question",
            asked_at=_START + timedelta(minutes=end),
        )
        for question, end in zip(ordered, ends, strict=True)
    )
    return Timeline(persona_id=context, sessions=sessions, probes=probes)


def _turns(context: str, session: int, first: int, messages: Sequence[_Said]) -> Iterator[Turn]:
    """A reply joins the user's message before it."""
    groups: list[tuple[int, list[_Said]]] = []
    for place, message in enumerate(messages, start=first):
        if groups and message.role == "assistant" and groups[-1][1][-1].role == "user":
            groups[-1][1].append(message)
        else:
            groups.append((place, [message]))
    for place, group in groups:
        said = tuple(Message(role=each.role, content=each.content) for each in group if each.content.strip())
        if said:
            at = _START + timedelta(minutes=place)
            yield Turn(f"s{session:03}.{place}", f"{context}:{place}", at, said)
