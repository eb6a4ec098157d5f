"""The parts of a transcript, and a reader for the JSON values of a file. See :mod:`._transcripts`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from io import TextIOWrapper
from typing import Any, Literal, get_args

from memory.contract.errors import ConfigError
from memory.contract.events import MemoryEvent, Message

Kind = Literal[
    "chatgpt", "claude", "claude_code", "sharegpt", "openai", "langchain", "mem0", "memslot", "journal"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_CHUNK = 1 << 16  # characters per read; doubled until one item fits


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that cannot be read: its place, and the field and the fix, without user text."""

    place: str  # the file's name with the line or the item, such as ``chats.jsonl, line 3``
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message of a conversation."""

    message: Message
    at: datetime | None = None  # timezone-aware; None if the file has no time
    message_id: str | None = None  # in the file


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of a file. Its messages, at least one, are in the order in which they were said."""

    conversation_id: str  # unique within the file: its own, or the file's name and a number
    messages: tuple[Spoken, ...]
    user: str | None = None  # None if the file names none
    place: str = ""
    left_out: Counter[str] = field(default_factory=Counter)  # kind of part -> how many are not in messages
    events: tuple[MemoryEvent, ...] = ()  # the recorded events, if the file is an export of a journal
    kind: Kind | None = None  # the kind of file that it was read as


@dataclass(frozen=True, slots=True)
class Question:
    """A question of memslot's own JSON lines. It is asked after all messages of its user."""

    text: str
    answer: str | None = None  # None if the line has none
    evidence: tuple[str, ...] = ()  # ids of messages, sessions, or ``SESSION:N`` for the Nth message of one
    user: str | None = None  # whose memory is asked; None if the line names none
    at: datetime | None = None  # when it is asked, timezone-aware
    category: str = "question"
    place: str = ""


class Unreadable(Exception):
    """An item cannot be read. The message names the field and the fix."""


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file and its place."""

    place: str
    value: Any


def items_of(stream: TextIOWrapper, name: str, wrong: Callable[[Problem], None]) -> Iterator[Item]:
    """Yield the items of a file: the elements of a JSON list, JSON lines, or one JSON value.

    Raises:
        ConfigError: the file is empty, or begins with neither ``[`` nor ``{``.
    """
    # The first line of an export may be all of it, so a list is recognised without its line.
    pieces = iter(lambda: stream.read(_CHUNK), "")
    begin = next((piece.lstrip()[0] for piece in pieces if piece.strip()), "")
    stream.seek(0)
    if not begin:
        raise ConfigError(f"{name} is empty")
    if begin not in "[{":
        raise ConfigError(f"{name} is neither JSON nor JSON lines")
    by_line = begin == "{" and _is_whole(next(line for line in stream if line.strip()))
    stream.seek(0)
    yield from (_lines if by_line else _values)(stream, name, wrong)


def _is_whole(line: str) -> bool:
    """Whether a line is a complete JSON value or looks like a damaged one."""
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


def _lines(lines: Iterable[str], name: str, wrong: Callable[[Problem], None]) -> Iterator[Item]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            value = _DECODER.decode(line)
        except _UNREADABLE as error:
            wrong(Problem(place, _why(error)))
            continue
        yield Item(place, value)


def _values(stream: TextIOWrapper, name: str, wrong: Callable[[Problem], None]) -> Iterator[Item]:
    """Yield the elements of a JSON list, or one value of several lines. A damaged value hides the rest."""
    reader = _Pieces(stream)
    end = "]" if reader.skip("[") else ""
    number = 0
    while (begin := reader.peek()) != end:
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
            wrong(Problem(f"{name}, item {number} (line {line})", why))
            return
        yield Item(f"{name}, item {number} (line {line})", value)
        reader.skip(",")


class _Pieces:
    """A reader that reads only as far as the next JSON value requires."""

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
        """Return the next character that is not blank, without consuming it; empty at the end."""
        while True:
            end = self._at
            while end < len(self._text) and self._text[end].isspace():
                end += 1
            self._pass(end)
            if end < len(self._text):
                return self._text[end]
            if not self._more():
                return ""

    def skip(self, character: str) -> bool:
        found = self.peek() == character
        self._at += found
        return found

    def value(self) -> Any:
        """Read the next value.

        Raises:
            json.JSONDecodeError: the value is damaged. Its position counts from the beginning of the value.
        """
        self._size = _CHUNK
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
                if end == len(self._text) and self._more():  # a number may continue in the next chunk
                    continue
            except json.JSONDecodeError as error:
                self._size *= 2
                if self._more():
                    continue
                raise json.JSONDecodeError(error.msg, self._text[self._at :], error.pos - self._at) from None
            self._pass(end)
            return found
