"""Conversations out of files: exports of chat programs, data sets of chats, and memslot's own JSON lines.

``read_conversations(path)`` yields one :class:`Conversation` at a time, so a large export never stands in memory
whole. The file's content decides its kind; ``kind`` names it where the caller knows better:

=============== =====================================================================================
``chatgpt``     ``conversations.json`` of a ChatGPT export, its directory, or the zip file itself
``claude``      ``conversations.json`` of a Claude.ai export, its directory, or the zip file itself
``claude_code`` a session file of Claude Code (JSON lines)
``sharegpt``    ``{"id", "conversations": [{"from", "value"}]}``, as a list or as JSON lines
``openai``      ``{"messages": [{"role", "content"}]}`` as a list or as JSON lines, or one bare list of messages
``langchain``   a list of LangChain messages, ``{"type", "data": {"content"}}``
``mem0``        what mem0's ``get_all`` returns; each memory is a message of the user
``memslot``     one line a message (``session``, ``role``, ``content``, ``time``) and one a question
=============== =====================================================================================

A conversation holds what the user and the assistant said, and what a system message said. ``left_out`` counts all
else: calls of tools, pictures, other branches. ``problems`` takes everything that cannot be read, with its place;
without that list, the first problem is raised.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal, get_args

from memory.contract.errors import ConfigError
from memory.contract.events import Message

Kind = Literal["chatgpt", "claude", "claude_code", "sharegpt", "openai", "langchain", "mem0", "memslot"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_CHUNK = 1 << 16  # characters read at a time; doubled while one item does not fit


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that cannot be read.

    Attributes:
        place: the file's name, with the line or the item, such as ``chats.jsonl, line 3``.
        what: the field and the fix; no text of a message.
    """

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message of a conversation.

    Attributes:
        message: role and text.
        at: when it was said, timezone-aware; None where the file does not say.
        message_id: the id in the file; None where it has none.
    """

    message: Message
    at: datetime | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of a file, its messages in the order they were said.

    Attributes:
        conversation_id: unique within the file; made of the file's name and a number where the file has no id.
        messages: at least one.
        user: whose conversation it is; None where the file does not say.
        place: where it stands in the file.
        left_out: how many parts of each kind are not in ``messages``, such as ``{"tool messages": 2}``.
    """

    conversation_id: str
    messages: tuple[Spoken, ...]
    user: str | None = None
    place: str = ""
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of memslot's own JSON lines, asked after all messages of its user.

    Attributes:
        text: the question.
        answer: the right answer; None where the line has none.
        evidence: ids of messages, ``SESSION:N`` for the Nth message of a session, or a session.
        user: whose memory is asked; None where the line does not say.
        at: when it is asked, timezone-aware; None where the line does not say.
        category: the group of questions it belongs to.
        place: where it stands in the file.
    """

    text: str
    answer: str | None = None
    evidence: tuple[str, ...] = ()
    user: str | None = None
    at: datetime | None = None
    category: str = "question"
    place: str = ""


class Unreadable(Exception):
    """An item cannot be read. The message names the field and the fix."""


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file, and its place."""

    place: str
    value: Any


def read_conversations(
    path: str | Path,
    kind: Kind | None = None,
    *,
    problems: list[Problem] | None = None,
    questions: list[Question] | None = None,
) -> Iterator[Conversation]:
    """The conversations of a file, in its order.

    Kinds whose conversations may be spread over a file (``claude_code``, ``memslot``) are read whole first.

    Args:
        path: a file, a zip file, or a directory that holds ``conversations.json``.
        kind: one of :data:`KINDS`; None finds it from the content.
        problems: takes what cannot be read, and reading goes on; without it the first problem is raised.
        questions: takes the questions of ``memslot`` lines.

    Raises:
        ConfigError: the file does not exist, is no UTF-8 text, or is of no known kind; or a problem without a list.
    """
    from memory.runtime import _transcript_kinds as kinds

    source = Path(path).expanduser()
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}")

    def note(problem: Problem) -> None:
        if problems is None:
            raise ConfigError(str(problem))
        problems.append(problem)

    seen: set[str] = set()
    for name, opened in _opened(source):
        with opened() as stream:
            items = items_of(stream, name, note)
            for found in kinds.conversations(items, kind, Path(name).stem, note, questions):
                if found.conversation_id in seen:
                    note(Problem(found.place, f"the conversation id occurs twice in {source.name}"))
                    continue
                seen.add(found.conversation_id)
                yield found


def _opened(source: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each file to read: its name for messages, and what opens it as text."""
    try:
        if source.is_dir():
            files = sorted(source.glob("conversations*.json"))
            if not files:
                raise ConfigError(f"{source.name} is a directory without conversations.json; give the file")
            for file in files:
                yield file.name, _text_of(file, file.open, "rb")
        elif zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                names = sorted(name for name in archive.namelist() if Path(name).match("conversations*.json"))
                if not names:
                    raise ConfigError(f"{source.name} is a zip file without conversations.json; unpack it")
                for name in names:
                    yield Path(name).name, _text_of(source, archive.open, name)
        else:
            yield source.name, _text_of(source, source.open, "rb")
    except zipfile.BadZipFile:
        raise ConfigError(f"{source.name} is a damaged zip file; fetch it again") from None


def _text_of(source: Path, opens: Callable[[str], IO[bytes]], how: str) -> Callable[[], Any]:
    @contextmanager
    def opened() -> Iterator[TextIOWrapper]:
        try:
            with opens(how) as raw, TextIOWrapper(raw, encoding="utf-8-sig") as text:
                yield text
        except FileNotFoundError:
            raise ConfigError(f"{source} does not exist; give the path of a file") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{source.name} is not UTF-8 text; save it as UTF-8") from None
        except OSError as error:
            raise ConfigError(f"{source.name} cannot be read ({error.strerror})") from None

    return opened


def items_of(stream: TextIOWrapper, name: str, note: Callable[[Problem], None]) -> Iterator[Item]:
    """The items of a file: elements of a JSON list, JSON lines, or one JSON value."""
    first = stream.readline()
    while first and not first.strip():
        first = stream.readline()
    stream.seek(0)
    if not first:
        raise ConfigError(f"{name} is empty")
    begin = first.lstrip()[0]
    if begin == "[":
        yield from _elements(stream, name, note)
    elif begin != "{":
        raise ConfigError(f"{name} is neither JSON nor JSON lines")
    elif _is_whole(first):
        yield from _lines(stream, name, note)
    else:
        yield from _one_value(stream, name, note)


def _is_whole(line: str) -> bool:
    """Whether a line is a JSON value of its own, or looks like a damaged one."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.rstrip().endswith("}")
    return True


def _refuse_constant(name: str) -> Any:
    raise Unreadable(f"holds {name}, which is no JSON; write null or a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


_UNREADABLE = (ValueError, RecursionError, Unreadable)


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return str(error) if isinstance(error, Unreadable) else "holds a number that is too long"


def _lines(lines: Iterable[str], name: str, note: Callable[[Problem], None]) -> Iterator[Item]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            value = _DECODER.decode(line)
        except _UNREADABLE as error:
            note(Problem(place, _why(error)))
            continue
        yield Item(place, value)


def _one_value(stream: TextIOWrapper, name: str, note: Callable[[Problem], None]) -> Iterator[Item]:
    text = stream.read()
    try:
        value = _DECODER.decode(text)
    except _UNREADABLE as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        note(Problem(f"{name}{line}", _why(error)))
        return
    yield Item(name, value)


def _elements(stream: TextIOWrapper, name: str, note: Callable[[Problem], None]) -> Iterator[Item]:
    """The elements of a list that is read piece by piece; a damaged one ends it, because no next one is sure."""
    reader = _Pieces(stream)
    reader.skip("[")
    number = 0
    while (begin := reader.peek()) != "]":
        number += 1
        line = reader.line
        try:
            if not begin:
                raise Unreadable("ends within the list; the file may be cut off")
            value = reader.value()
        except UnicodeDecodeError:
            raise
        except _UNREADABLE as error:
            line += error.lineno - 1 if isinstance(error, json.JSONDecodeError) else 0
            why = f"{_why(error)}; what follows in the file is not read"
            note(Problem(f"{name}, item {number} (line {line})", why))
            return
        yield Item(f"{name}, item {number} (line {line})", value)
        reader.skip(",")


class _Pieces:
    """Text that is read as far as the next JSON value needs it."""

    def __init__(self, stream: TextIOWrapper) -> None:
        self._stream, self._text, self._at, self._size = stream, "", 0, _CHUNK
        self._ended = False
        self.line = 1

    def _more(self) -> bool:
        if self._ended:
            return False
        read = self._stream.read(self._size)
        self._ended = not read
        self._text, self._at = self._text[self._at :] + read, 0
        return True

    def _pass(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            end = self._at
            while end < len(self._text) and self._text[end].isspace():
                end += 1
            self._pass(end)
            if end < len(self._text):
                return self._text[end]
            if not self._more():
                return ""

    def skip(self, character: str) -> None:
        if self.peek() == character:
            self._at += 1

    def value(self) -> Any:
        """The next value; errors as of JSON, with lines counted from here."""
        self._size = _CHUNK
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
                if end == len(self._text) and self._more():  # a number may go on
                    continue
            except json.JSONDecodeError as error:
                self._size *= 2
                if self._more():
                    continue
                raise json.JSONDecodeError(error.msg, self._text[self._at :], error.pos - self._at) from None
            self._pass(end)
            return found
