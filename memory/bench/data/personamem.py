"""Reads PersonaMem: long conversations, and questions on which of four replies suits the user.

The package does not contain the data (Jiang et al. 2025). Give the directory of ``questions_<size>.csv`` and
``shared_contexts_<size>.jsonl``, or the questions' file if there are several sizes. Each line of the
contexts' file maps the id of a context to its messages. A question names its context, the number of messages
before it, and the reply that suits.
"""

from __future__ import annotations

import ast
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from memory.bench.data.nodes import Node, data_set, parse_json, read_text
from memory.bench.data.timeline import ChoiceTruth, Probe, Session, Timeline, TimelineSet, Turn
from memory.contract.errors import ConfigError
from memory.contract.events import Message

_WHAT = "PersonaMem's questions_32k.csv, beside shared_contexts_32k.jsonl"
_NEEDED = ("question_id", "question_type", "user_question_or_message", "correct_answer", "all_options",
           "shared_context_id", "end_index_in_shared_context")  # fmt: skip
_START = datetime(2025, 1, 1, tzinfo=UTC)


def load_personamem(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each context with questions. A question follows the messages that it may know.

    A user's message and its reply form one event. A system message opens a session and is an event alone.
    Messages carry no times, so the n-th message is at minute n.
    """
    questions, contexts = _files(Path(path).expanduser())
    asked, ignored = _questions(questions, limit_questions)
    held = dict(_contexts(contexts, set(asked), ignored))
    for context, rows in asked.items():
        if context not in held:
            raise rows[0].wrong(
                "shared_context_id", f"names {context!r}, which {contexts.name} does not hold"
            )
    timelines = [_timeline(context, held[context], rows) for context, rows in asked.items()]
    content = {
        "questions": {key: [row.value for row in rows] for key, rows in asked.items()},
        "contexts": held,
    }
    note = "PersonaMem by Jiang et al.; times are made up, a minute apart"
    return data_set("personamem", timelines, content, questions.name, note, ignored)


def _files(path: Path) -> tuple[Path, Path]:
    if path.is_dir():
        found = sorted(path.glob("questions_*.csv"))
        if len(found) != 1:
            raise ConfigError(
                f"bench.data: {path} holds {len(found)} files questions_*.csv; give the path of one"
            )
        path = found[0]
    size = path.stem.removeprefix("questions_")
    return path, path.with_name(f"shared_contexts_{size}.jsonl")


def _questions(path: Path, limit: int | None) -> tuple[dict[str, list[Node]], set[str]]:
    """Rows by context, and the names of unused columns."""
    reader = csv.DictReader(io.StringIO(read_text(path, _WHAT), newline=""), strict=True)
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{path.name}, line 1: the column {missing[0]} is missing; is this {_WHAT}?")
    asked: dict[str, list[Node]] = {}
    seen: set[str] = set()
    try:
        for row in reader:
            node = Node(dict(row), path.name, f"line {reader.line_num}:", _WHAT)
            if None in row or None in row.values():
                raise node.wrong("", "has more or fewer values than there are columns")
            name = node.text("question_id")
            if name in seen:
                raise node.wrong("question_id", f"{name!r} occurs twice")
            seen.add(name)
            rows = asked.setdefault(node.text("shared_context_id"), [])
            if limit is None or len(rows) < limit:
                rows.append(node)
    except csv.Error as error:
        raise ConfigError(f"{path.name}, line {reader.line_num}: {error}") from None
    if not asked:
        raise ConfigError(f"{path.name}: holds no question; is this {_WHAT}?")
    return asked, {name for name in reader.fieldnames or () if name not in _NEEDED}


def _contexts(
    path: Path, names: Iterable[str], ignored: set[str]
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: Counter[str] = Counter()
    # Not splitlines(), because texts may hold other line separators.
    for number, line in enumerate(read_text(path, _WHAT).split("\n"), start=1):
        if not line.strip():
            continue
        content = Node(parse_json(line, path.name, _WHAT, number), path.name, f"line {number}:", _WHAT)
        for name in content.typed(dict):
            seen[name] += 1
            if seen[name] > 1:
                raise content.wrong("", f"holds the context {name!r} a second time")
            if name in names:
                messages = []
                for entry in content.get(name).items():
                    role = entry.chosen("role", "user", "assistant", "system")
                    messages.append({"role": role, "content": entry.get("content").typed(str)})
                    ignored.update(f"{key} of message" for key in entry.value if key not in messages[-1])
                yield name, messages


def _timeline(context: str, messages: list[dict[str, str]], rows: Sequence[Node]) -> Timeline:
    ends = []
    for row in rows:
        said = row.text("end_index_in_shared_context")
        if not said.isdecimal() or not 0 < int(said) <= len(messages):
            raise row.wrong(
                "end_index_in_shared_context", f"is {said!r}; the context has {len(messages)} messages"
            )
        ends.append(int(said))
    # A session ends before a system message and before a question.
    opened = {place for place, message in enumerate(messages) if message["role"] == "system"}
    bounds = sorted({0, len(messages)} | opened | set(ends))
    sessions = tuple(
        Session(f"s{number:03}", tuple(_turns(context, number, first, messages[first:last])))
        for number, (first, last) in enumerate(pairwise(bounds), start=1)
    )
    order = sorted(range(len(rows)), key=lambda place: ends[place])
    probes = tuple(_probe(rows[place], bounds.index(ends[place]), ends[place]) for place in order)
    return Timeline(persona_id=context, sessions=sessions, probes=probes)


def _turns(context: str, session: int, first: int, messages: Sequence[dict[str, str]]) -> Iterator[Turn]:
    groups: list[list[int]] = []
    for place, message in enumerate(messages):
        if groups and messages[groups[-1][-1]]["role"] == "user" and message["role"] == "assistant":
            groups[-1].append(place)
        else:
            groups.append([place])
    for group in groups:
        said = tuple(
            Message(role=messages[place]["role"], content=messages[place]["content"])
            for place in group
            if messages[place]["content"].strip()
        )
        if said:
            place = first + group[0]
            turn_id = f"s{session:03}.{place}"
            yield Turn(turn_id, f"{context}:{place}", _START + timedelta(minutes=place), said)


def _probe(row: Node, after: int, end: int) -> Probe:
    options, letter = _options(row), row.text("correct_answer").strip("() ").lower()
    right = ord(letter) - ord("a") if len(letter) == 1 else -1
    if not 0 <= right < len(options):
        raise row.wrong(
            "correct_answer", f"is {row.value['correct_answer']!r}; there are {len(options)} answers"
        )
    return Probe(
        probe_id=row.text("question_id"),
        after=after,
        query=row.text("user_question_or_message"),
        category=row.text("question_type"),
        truth=ChoiceTruth(options, right),
        session_id="question",
        asked_at=_START + timedelta(minutes=end),
    )


def _options(row: Node) -> tuple[str, ...]:
    raw = row.text("all_options")
    try:
        found = ast.literal_eval(raw)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) < 2 or not all(isinstance(entry, str) for entry in found):
        raise row.wrong("all_options", "is not a list of texts")
    # Options begin with their letter, as in "(a) Of course."
    return tuple(
        entry[3:].strip() if entry[:3].lower() == f"({chr(ord('a') + place)})" else entry.strip()
        for place, entry in enumerate(found)
    )
