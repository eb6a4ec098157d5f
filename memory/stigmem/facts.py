"""Stigmem facts. New facts are checked before they are sent, and stored facts are read tolerantly.

A node checks little. It stores an invalid datetime, turns the boolean ``"no"`` into true, answers 500 to the
number ``"abc"``, lower-cases URIs, turns their spaces into dashes, and reads back a ``ref`` without ``://``
as null. So this module enforces every rule of the value types (stigmem spec section 2).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from memory import InputError, MemslotError
from memory.adapter import BackendProtocolError, IdAlphabet, clean_text
from memory.adapter.fields import (
    AwareDatetime,
    Frozen,
    JsonObject,
    NotBlank,
    check_aware,
    check_text,
    parse_time,
)

BACKEND = "stigmem"

# In bytes of UTF-8. The last two limits are memslot's, because the node states none.
MAX_SUMMARY_BYTES = 4096  # of handoffs and decisions (Spec-19 12.4.2, 12.4.3)
MAX_GOAL_BYTES = 2048  # Spec-19 12.4.4
MAX_URI_BYTES = 2048  # entities, sources, refs and relations
MAX_VALUE_BYTES = 1024 * 1024  # a string or text value, or all of ``derived_from``

ValueType = Literal["string", "text", "number", "boolean", "datetime", "ref", "null"]
FactScope = Literal["local", "team", "company", "public"]
FACT_SCOPES: tuple[FactScope, ...] = get_args(FactScope)

_SCHEME = re.compile(r"\A[a-z][a-z0-9+.-]*://", re.I)
_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_INFORMAL = re.compile(r"\A[a-z][a-z0-9+.-]*:(?!//).", re.I)
_CAPITALS = "holds capitals, which the node lower-cases; escape them with encode_uri_part"
# Capitals are escaped because the node folds case. Dots would be path segments in /v1/cards/{entity}.
_URI_PART = IdAlphabet(safe="-_", escape="~", max_length=128)


def limited(limit: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        size = len(check_text(value).encode())
        if size > limit:
            raise ValueError(f"is {size} bytes of UTF-8; at most {limit} are allowed, so shorten it")
        return value

    return check


def _check_uri(value: str) -> str:
    """Check a URI that the node must keep unchanged."""
    _check_ref(value)
    if value != value.lower():
        raise ValueError(_CAPITALS)
    return value


def _check_ref(value: str) -> str:
    """Check a URI. The node folds only its own, ``stigmem://``."""
    limited(MAX_URI_BYTES)(value)
    scheme = _SCHEME.match(value)
    if scheme is None:
        raise ValueError("is not a URI with '://'; write e.g. stigmem://node.example/agent/planner")
    if scheme.end() == len(value):
        raise ValueError("names nothing after '://'")
    if _UNSAFE.search(value):
        raise ValueError("holds a space or control character; escape it with encode_uri_part")
    if value.lower().startswith("stigmem://") and value != value.lower():
        raise ValueError(_CAPITALS)
    return value


def _check_entity(value: str) -> str:
    if _INFORMAL.match(value) is None:
        return _check_uri(value)
    if value != fold(limited(MAX_URI_BYTES)(value)) or _UNSAFE.search(value):
        raise ValueError("holds capitals, spaces or control characters, which the node folds; fold it first")
    return value


def _check_relation(value: str) -> str:
    if not limited(MAX_URI_BYTES)(value) or _UNSAFE.search(value):
        raise ValueError("must be one word such as memory:role, without spaces")
    return value


Uri = Annotated[str, AfterValidator(_check_uri)]
Entity = Annotated[str, AfterValidator(_check_entity)]
Ref = Annotated[str, AfterValidator(_check_ref)]
Relation = Annotated[str, AfterValidator(_check_relation)]
Summary = Annotated[NotBlank, AfterValidator(limited(MAX_SUMMARY_BYTES))]
Goal = Annotated[NotBlank, AfterValidator(limited(MAX_GOAL_BYTES))]


def checked(check: Callable[[str], str], value: str, where: str) -> str:
    """Return ``check(value)``.

    Raises:
        InputError: the check failed. The message names ``where`` and the fix.
    """
    try:
        return check(value)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def check_uri(value: str, where: str = "uri") -> str:
    """Check an entity or source URI that the node must keep unchanged."""
    return checked(_check_uri, value, where)


def check_entity(value: str, where: str = "entity") -> str:
    """Check a URI like :func:`check_uri`. Informal URIs such as ``issue:proj-12`` also pass."""
    return checked(_check_entity, value, where)


def fold(value: str) -> str:
    """Fold an id as the node folds every entity: lower case, with a dash for each run of blanks.

    This is for ids that agents share. Use :func:`encode_uri_part` for ids that must stay distinct.
    """
    return "-".join(value.lower().split())


def encode_uri_part(*values: str | None) -> str:
    """Encode ids as one path segment. Different ids stay different when the node folds case and spaces."""
    if not values or any(value is not None and not value.strip() for value in values):
        raise InputError("uri part: must not be blank; give an id")
    return _URI_PART.encode(*values)


def build_uri(authority: str, kind: str, *ids: str | None) -> str:
    """Build the formal URI of spec 2.5, ``stigmem://{authority}/{kind}/{ids}``, with escaped ids."""
    return check_uri(f"stigmem://{authority.lower()}/{kind}/{encode_uri_part(*ids)}")


def _exact(value: float) -> float:
    try:
        kept = math.isfinite(value) and float(value) == value
    except OverflowError:
        kept = False
    if not kept:
        raise ValueError(
            "must be finite and come back exactly, because nodes keep floats; send it as a string"
        )
    return value


def _datetime(value: datetime | str) -> str:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("is not an ISO 8601 date and time such as 2026-01-31T12:00:00+00:00") from None
    check_aware(moment)
    return value if isinstance(value, str) else value.isoformat()


_CHECKS: Mapping[str, tuple[tuple[type, ...], str, Callable[[Any], Any] | None]] = {
    # value type -> Python's types, their description, a further check
    "string": ((str,), "a str", limited(MAX_VALUE_BYTES)),
    "text": ((str,), "a str", limited(MAX_VALUE_BYTES)),
    "number": ((int, float), "an int or a float", _exact),
    "boolean": ((bool,), "True or False", None),
    "datetime": ((datetime, str), "a datetime or an ISO 8601 string", _datetime),
    "ref": ((str,), "a URI string", _check_ref),
    "null": ((type(None),), "None", None),
}


class FactValue(Frozen):
    """A typed value to be stored: ``FactValue(type="number", v=50)``.

    Attributes:
        type: one of the seven types.
        v: of exactly that type: a bool is no number, numbers are finite, datetimes carry an offset (a
            ``datetime`` becomes its ISO string), refs hold ``://``, null is None.

    Raises:
        InputError: content that is not of the type, or over ``MAX_VALUE_BYTES``.
    """

    type: ValueType
    v: Any = Field(default=None, validate_default=True)

    @field_validator("v", mode="plain")
    @classmethod
    def _of_its_type(cls, value: Any, info: ValidationInfo) -> Any:
        kind = info.data.get("type")
        if kind is None:
            return value  # the unknown type is reported separately
        types, expected, check = _CHECKS[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
            raise ValueError(f"must be {expected} for type {kind}")
        return check(value) if check else value


def _check_sources(value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > MAX_VALUE_BYTES:
        raise ValueError(f"is {size} bytes of JSON; at most {MAX_VALUE_BYTES} are allowed")
    return value


class NewFact(Frozen):
    """A fact to assert (``POST /v1/facts``). For invalid input, InputError names the field and the fix."""

    entity: Entity
    relation: Relation
    value: FactValue
    source: Entity  # the agent or person who asserts the fact
    scope: FactScope  # no default, because the node has different defaults for writing and reading
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] = 1.0
    valid_until: AwareDatetime | None = None
    # The node returns it verbatim and does not include it in the content id.
    derived_from: Annotated[tuple[JsonObject, ...], AfterValidator(_check_sources)] = ()

    def body(self) -> dict[str, Any]:
        body = {
            **dict(self),
            "value": dict(self.value),
            "valid_until": self.valid_until and self.valid_until.isoformat(),
            "derived_from": list(self.derived_from) or None,
        }
        return {name: value for name, value in body.items() if value is not None}


class _Read(Frozen):
    """Base of a node's answers. Unknown fields are dropped; a missing one is a BackendProtocolError."""

    model_config = ConfigDict(extra="ignore")
    _error: ClassVar[type[MemslotError]] = BackendProtocolError


class StoredValue(_Read):
    """A value as the node returns it, with any type name. ``v`` is null if the node redacted it."""

    type: str
    v: JsonValue = None


class Fact(_Read):
    """A fact as the node returns it. Absent optional fields have their defaults."""

    id: str
    entity: str
    relation: str
    value: StoredValue
    source: str = ""
    timestamp: str | None = None  # when the node stored the fact, by its clock and in its format
    hlc: str | None = None  # "<ms>.<counter>"; compare by ``hlc_order``, never as text
    confidence: float = 1.0  # as asserted
    scope: str | None = None
    valid_until: str | None = None
    derived_from: tuple[JsonValue, ...] = ()
    cid: str | None = None
    contradicted: bool = False
    sanitizer_redacted: bool = False

    @field_validator("derived_from", "contradicted", "sanitizer_redacted", mode="before")
    @classmethod
    def _none_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @property
    def hlc_order(self) -> tuple[int, int]:
        """The hybrid logical clock as (milliseconds, counter); (-1, -1) if it is absent or unreadable."""
        match = re.fullmatch(r"(\d{1,18})\.(\d{1,18})", self.hlc or "", re.ASCII)
        return (int(match[1]), int(match[2])) if match else (-1, -1)

    @property
    def stored_at(self) -> datetime | None:
        """``timestamp`` as a timezone-aware UTC datetime; None if it is absent or unreadable."""
        return parse_time(self.timestamp)


_FENCE = re.compile(r"[`~]{3,}")
_NOTE = re.compile(r"_(?=\(\s*confidence\b)", re.I)
_RISKY = re.compile(r"[`~]{3}|_\(")


def render_context(facts: Iterable[Fact], user_entity: str, *, max_value_chars: int | None = None) -> str:
    """Render facts as markdown (Spec-19 12.5) under ``## Stigmem context — {user_entity}``, if any.

    The most confident facts come first, and among equals the newest by the node's hybrid clock. Namespaces
    are in the order of their first facts. Harmless facts look exactly as in the specification's reference
    implementation. Other facts are escaped to one list item without headings, fences and
    ``<memory-context>``.
    """
    ordered = sorted(facts, key=lambda fact: (fact.confidence, fact.hlc_order), reverse=True)
    if not ordered:
        return ""
    groups: dict[str, list[str]] = {}
    names = cache(lambda name: _one_line(name.replace("`", "%60")))  # many facts share few names
    for fact in ordered:
        # Relation and entity are inside markup, which they must not close.
        relation, entity = names(fact.relation).replace("*", "%2A"), names(fact.entity)
        note = f" _(confidence: {fact.confidence:.2f})_" if fact.confidence < 1.0 else ""
        line = f"- **{relation}** on `{entity}`: {render_value(fact, max_value_chars)}{note}"
        groups.setdefault(fact.relation.partition(":")[0], []).append(line)
    blocks = [f"## Stigmem context — {names(user_entity)}\n"]
    blocks += ["\n".join((f"### {names(namespace)}", *lines, "")) for namespace, lines in groups.items()]
    return "\n".join(blocks).rstrip()


def render_value(fact: Fact, max_chars: int | None = None) -> str:
    """Render a fact's value on one line: ``(null)`` for null, and ``(redacted)`` for a withheld value."""
    value = fact.value.v
    if value is None:
        return "(redacted)" if fact.sanitizer_redacted and fact.value.type != "null" else "(null)"
    text = str(value)
    return _one_line(text if max_chars is None or len(text) <= max_chars else text[:max_chars] + "…")


def _one_line(text: str) -> str:
    """Escape text so that it stays on one line, opens no fence and does not look like a confidence note."""
    text = clean_text(text)
    if "\n" in text or "\t" in text:
        text = " ".join(text.split())
    if _RISKY.search(text):
        text = _FENCE.sub(lambda run: "".join("\\" + char for char in run.group()), text)
        text = _NOTE.sub(r"\_", text)
    return text
