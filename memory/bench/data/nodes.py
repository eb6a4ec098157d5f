"""Values of a data file with their positions, for error messages, and the hash of data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.contract._model import is_encodable, parse_time
from memory.contract.errors import ConfigError
from memory.contract.events import Message

_JSON_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
T = TypeVar("T")


def read_text(path: Path, what: str) -> str:
    """The text of a data file. ``what`` names the expected file in errors, such as ``a LoCoMo JSON file``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"bench.data: {path} does not exist; give the path of {what}") from None
    except OSError as error:
        raise ConfigError(f"bench.data: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"bench.data: {path} is not UTF-8 text; give {what}") from None


def read_json(path: Path, what: str) -> Any:
    return parse_json(read_text(path, what), path.name, what)


def read_listed(path: Path, what: str) -> Any:
    """A list from JSON, from JSON lines, or from an object's only field. One object becomes a list of one."""
    text = read_text(path, what)
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(line.strip()[0] == "{" and line.strip()[-1] == "}" for line in lines):
        return [
            parse_json(line, path.name, what, number)
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    data = parse_json(text, path.name, what)
    if isinstance(data, dict):
        inner = [*data.values()]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], list) else [data]
    return data


def moment_of(date: Node, form: re.Pattern[str], example: str) -> datetime:
    """A time in the data set's own form or in ISO 8601. A time without a zone is UTC."""
    said = date.typed(str).strip()
    match = form.match(said)
    if match is None:
        found = parse_time(said, naive_is_utc=True)
        if found is None:
            raise date.wrong("", f"is not a time like {example!r}")
        return found
    year, month, day, hour, minute = (
        int(match[part] or 0) for part in ("year", "month", "day", "hour", "minute")
    )
    try:
        return datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        raise date.wrong("", f"is not a time like {example!r}") from None


def parse_json(text: str, name: str, what: str, first_line: int = 1) -> Any:
    """JSON that begins at line ``first_line`` of a file. NaN and Infinity are refused."""

    def refused(constant: str) -> Any:
        raise ConfigError(f"bench.data: {name} holds {constant}, which is no JSON; write null or a number")

    try:
        return json.loads(text, parse_constant=refused)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ConfigError(
            f"bench.data: {name} is not JSON: {error.msg} at line {line}, column {error.colno}"
        ) from None
    except RecursionError:
        raise ConfigError(f"bench.data: {name} is nested too deeply to be {what}") from None


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file, with its position."""

    value: Any
    file: str  # its name for messages
    place: str = ""  # path within the file, such as ``.qa[3].question``, or a line
    kind: str = "such a file"  # what the file should be, for messages

    def inner(self, key: str | int, value: Any) -> Self:
        place = f"{self.place}[{key}]" if isinstance(key, int) else f"{self.place}.{key}"
        return replace(self, value=value, place=place)

    def wrong(self, name: str, what: str) -> ConfigError:
        """An error about a field, or about the value itself if ``name`` is empty."""
        place = f"{self.place}.{name}" if name else self.place or "the top level"
        return ConfigError(f"{self.file}: {place} {what}")

    def typed(self, kind: type[T]) -> T:
        # bool is an int in Python, but not in JSON.
        if not isinstance(self.value, kind) or isinstance(self.value, bool):
            raise self.wrong("", f"must be {_JSON_NAMES[kind]}; is this {self.kind}?")
        if isinstance(self.value, str) and not (self.value.isascii() or is_encodable(self.value)):
            raise self.wrong("", "holds half of a surrogate pair; decode the text correctly first")
        return self.value

    def get(self, name: str) -> Self:
        fields = self.typed(dict)
        if name not in fields:
            raise self.wrong(name, f"is missing; is this {self.kind}?")
        return self.inner(name, fields[name])

    def text(self, name: str) -> str:
        """A field that must not be blank."""
        text = self.get(name).typed(str).strip()
        if not text:
            raise self.wrong(name, "is blank")
        return text

    def chosen(self, name: str, *options: str) -> str:
        """A field that must be one of ``options``."""
        found = self.text(name)
        if found not in options:
            raise self.wrong(name, f"is {found!r}; it is {' or '.join(options)}")
        return found

    def answer(self) -> str:
        """The value as an answer: text, or a number such as a year."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
            raise self.wrong("", f"must be text that is not blank, or a number; is this {self.kind}?")
        return str(value)

    def answers(self) -> str | None:
        """The value as one answer or several right ones; None if it is null."""
        if isinstance(self.value, list) and self.value:
            return "; or ".join(item.answer() for item in self.items())
        return None if self.value is None else self.answer()

    def spoken(self) -> str:
        """The value as spoken text: a string, or a list of parts with text."""
        if self.value is None:
            return ""
        if not isinstance(self.value, list):
            return self.typed(str)
        parts = [
            item.value if isinstance(item.value, str) else item.typed(dict).get("text")
            for item in self.items()
        ]
        return "\n".join(part for part in parts if isinstance(part, str))

    def items(self) -> list[Self]:
        return [self.inner(index, item) for index, item in enumerate(self.typed(list))]


def data_set(
    name: str, timelines: Iterable[Timeline], content: Any, file: str, note: str, ignored: Set[str]
) -> TimelineSet:
    """The data set of a file; ``ignored`` names its unused fields."""
    unused = [f"not used: {', '.join(sorted(ignored))}"] if ignored else []
    return TimelineSet(name, tuple(timelines), canonical_hash(content), file, notes=(note, *unused))


def canonical_hash(data: Any) -> str:
    """SHA-256, hex, of ``data`` as JSON with sorted keys and no optional whitespace or escapes.

    Dataclasses are hashed by their fields, messages by role and content.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_fields_of)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fields_of(value: Any) -> Any:
    if isinstance(value, Message):
        return {"role": value.role, "content": value.content}
    if isinstance(value, datetime):
        return value.isoformat()
    return {field.name: getattr(value, field.name) for field in fields(value)}
