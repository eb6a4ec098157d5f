"""Reads data files into pydantic models with errors that name the place, and hashes data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memory.bench.data.timeline import Timeline, TimelineSet
from memory.contract._model import parse_time
from memory.contract.errors import ConfigError
from memory.contract.events import Message
from memory.plugins.blocks import NO_FILE, Problems, parse_block

Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Answer = Annotated[Filled, Field(coerce_numbers_to_str=True)]
"""An answer in words, or a number such as a year."""


class Part(BaseModel):
    """A part of a data file. Fields that a model does not name are ignored."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


PartT = TypeVar("PartT", bound=Part)


def moment(text: Any, *forms: str) -> datetime:
    """A time in one of the ``strptime`` forms or in ISO 8601; without a zone it is UTC.

    Raises:
        ValueError: shows a time in the first form.
    """
    for form in forms:
        with suppress(ValueError, TypeError):
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
    found = parse_time(text, naive_is_utc=True)
    if found is None:
        raise ValueError(f"is not a time like {datetime(2023, 5, 8, 13, 56).strftime(forms[0])!r}")
    return found


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


def read_json_lines(path: Path, what: str) -> list[tuple[int, Any]]:
    """The number and the value of each line that is not blank."""
    # Not splitlines(), because texts may hold other line separators.
    lines = enumerate(read_text(path, what).split("\n"), start=1)
    return [(number, parse_json(line, path.name, what, number)) for number, line in lines if line.strip()]


def read_rows(path: Path, what: str) -> list[Any]:
    """A list from JSON, from JSON lines, or from an object's only field. One object becomes a list of one."""
    text = read_text(path, what)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(line[0] == "{" and line[-1] == "}" for line in lines):
        return [value for _, value in read_json_lines(path, what)]
    data = parse_json(text, path.name, what)
    if isinstance(data, dict):
        inner = [*data.values()]
        data = inner[0] if len(inner) == 1 and isinstance(inner[0], list) else [data]
    if not isinstance(data, list) or not data:
        raise ConfigError(f"{path.name}: holds no list of rows; is this {what}?")
    return data


def parsed(kind: type[PartT], value: Any, where: str, problem: Problems = NO_FILE) -> PartT:
    """A value of a file as a model.

    Args:
        where: the value's place, such as ``[3]`` or ``line 3``, which begins every message.
        problem: builds errors for the file.

    Raises:
        ConfigError: has one line for each wrong field.
    """
    if not isinstance(value, dict):
        raise problem((where,), "must be an object with fields")
    return parse_block(kind, value, where, problem)


def parsed_rows(kind: type[PartT], rows: Iterable[Any], file: Path) -> list[PartT]:
    problem = Problems(file.name)
    return [parsed(kind, row, f"[{number}]", problem) for number, row in enumerate(rows)]


def data_set(name: str, timelines: Iterable[Timeline], content: Any, file: str, *notes: str) -> TimelineSet:
    """The data set of a file with this ``content``."""
    return TimelineSet(name, tuple(timelines), canonical_hash(content), file, notes=notes)


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
