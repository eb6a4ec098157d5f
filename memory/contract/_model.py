"""Building blocks of the contract's types: the frozen base, checked strings, and text clean-up for stores."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, get_args
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    Strict,
    ValidationError,
)

from memory.contract.errors import InputError, MemslotError

MAX_ID_LENGTH = 512
MAX_DEPTH = 32
"""Levels of lists and objects in any JSON of the contract. Every store can read that many back."""
MAX_EVENT_BYTES = 16_000_000
"""UTF-8 bytes that the texts and JSON of an event may take together."""
_LONGEST_NAME = 40


def first_problem(error: ValidationError) -> str:
    """``field: what is wrong`` for the first problem of a pydantic error, without the value or user text."""
    problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(map(str, takewhile(_is_name, problem["loc"][:6])))
    what = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        what = "is required"
    elif problem["type"] == "extra_forbidden":
        what = "is not a known field"
    return f"{where}: {what}" if where else what


def _is_name(part: int | str) -> bool:
    return isinstance(part, int) or (part.isidentifier() and len(part) <= _LONGEST_NAME)


if TYPE_CHECKING:
    _Meta = type
else:

    class _Meta(type(BaseModel)):
        """Turns pydantic's error into a MemslotError, only at the outermost object, to keep paths whole."""

        def __call__(cls, /, **data):  # positional-only, because a field may be called cls
            try:
                return super().__call__(**data)
            except ValidationError as error:
                # `from None`: pydantic's own text would repeat user text.
                raise cls._error(f"{cls.__name__}.{first_problem(error)}") from None


class Frozen(BaseModel, metaclass=_Meta):
    """Base of the contract's types: immutable, without unknown fields, and with no values in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    _error: ClassVar[type[MemslotError]] = InputError

    def __copy__(self) -> Self:
        """Faster than pydantic's, which calls ``copy.copy`` four times: slot calls make many copies."""
        made, put = type(self).__new__(type(self)), object.__setattr__
        extra, private = self.__pydantic_extra__, self.__pydantic_private__
        put(made, "__dict__", self.__dict__.copy())
        put(made, "__pydantic_fields_set__", self.__pydantic_fields_set__.copy())
        put(made, "__pydantic_extra__", None if extra is None else extra.copy())
        put(made, "__pydantic_private__", None if private is None else private.copy())
        return made


def _check_id(value: object) -> object:
    """An id as text. Databases use numbers and UUIDs as ids; pydantic refuses every other type."""
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("must not be blank; give an id")
    if len(value) > MAX_ID_LENGTH:
        raise ValueError(f"is {len(value)} characters long; at most {MAX_ID_LENGTH} are allowed")
    return check_text(value)


def is_encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_text(value: str) -> str:
    """``value``, if it can be encoded as UTF-8; raises ValueError."""
    if not (value.isascii() or is_encodable(value)):
        raise ValueError("holds half of a surrogate pair; decode the text correctly first")
    return value


def check_number(value: Any) -> Any:
    """``value``, unless it is a boolean, which pydantic reads as 1 or 0; raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def check_aware(value: datetime) -> datetime:
    """``value`` in UTC, if it is timezone-aware; raises ValueError."""
    if value.tzinfo is UTC:
        return value
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError("must be timezone-aware; write e.g. datetime.now(timezone.utc)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC; give a moment within them") from None


def _check_json(value: dict[str, Any]) -> dict[str, Any]:
    if value and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels; flatten it")
    if value and not _is_json(value):
        wrong = next((key for key, item in value.items() if not _is_json(item) and _is_name(key)), "")
        mend = f"; mend {wrong}" if wrong else ""
        raise ValueError(f"must be JSON: strings, finite numbers, booleans, null, lists, objects{mend}")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested deeper than ``levels``. Deeper levels are not visited."""
    below: list[Any] = [value]
    for _ in range(levels + 1):
        containers = [each for each in below if isinstance(each, (dict, list, tuple))]
        if not containers:
            return False
        below = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return True


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        return False
    return True


# Strict, because pydantic would otherwise decode bytes, and b"run" and "run" would name one scope.
Id = Annotated[str, Strict(), BeforeValidator(_check_id)]
Text = Annotated[str, Strict(), AfterValidator(check_text)]
"""A text that can be encoded as UTF-8."""
AwareDatetime = Annotated[datetime, AfterValidator(check_aware)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_check_json)]
"""A JSON object: string keys, and strings, finite numbers, booleans, null, lists and objects as values."""


def words_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The names of a model's fields that hold free text or JSON, and no id, time or choice."""
    return tuple(
        name for name, field in model.model_fields.items() if _holds_words(field.annotation, field.metadata)
    )


def _holds_words(annotation: Any, marks: Iterable[Any] = ()) -> bool:
    if any(getattr(mark, "func", None) in (check_text, _check_json) for mark in marks):
        return True
    if hasattr(annotation, "__metadata__"):
        return _holds_words(annotation.__origin__, annotation.__metadata__)
    return any(_holds_words(argument) for argument in get_args(annotation))


T = TypeVar("T")

# Text that may hold a long run of combining marks. The two halfwidth marks count as letters in \w.
_MARKS = re.compile(r"(?:[^\w\s]|[\uff9e\uff9f]){32,}+")
_MAX_MARKS = 30  # the limit of Unicode's Stream-Safe Text Format (UAX 15); no script needs more than a few


def normalise(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """``unicodedata.normalize``, after cutting each run of combining marks, which would take quadratic time."""
    return unicodedata.normalize(form, text if text.isascii() else _MARKS.sub(_bounded, text))


def _bounded(found: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for char in found.group():
        marks = marks + 1 if unicodedata.category(char)[0] == "M" or char in "\uff9e\uff9f" else 0
        if marks <= _MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def without_nul(value: T) -> T:
    """A JSON value or a text without NUL characters, which PostgreSQL cannot store."""
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = value.replace("\0", "")
    elif isinstance(value, dict):
        cleaned = {without_nul(key): without_nul(item) for key, item in value.items()}
    elif isinstance(value, list):
        cleaned = [without_nul(item) for item in value]
    return cast(T, cleaned)


def parse_time(text: object, *, naive_is_utc: bool = False) -> datetime | None:
    """An ISO 8601 time in UTC. None if the text is no time, or its zone is unknown."""
    try:
        moment = datetime.fromisoformat(cast(str, text))
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC) if naive_is_utc else None
        return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
