"""Translates scopes, messages, metadata, filters, rows and errors to and from mem0. Imports no SDK."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from memory import BackendTimeout, BackendUnavailable, InputError, MemoryEvent, MemoryScope
from memory.adapter import (
    OPENAI_ERRORS,
    BackendProtocolError,
    BackendRejected,
    ContextEntry,
    ErrorTable,
    IdAlphabet,
    NativeError,
)
from memory.adapter.fields import parse_time
from memory.backends.mem0.options import RANGES, StoreProfile

Ids = Mapping[str, str]  # a scope's user_id, run_id and, if the scope sets one, agent_id
Row = dict[str, Any]
_EVENT_FIELDS = frozenset({"event_id", "session_id", "turn_id", "scenario", "context", "attribute", "role"})
_EPOCH = "ts_epoch"
_STORED = "stored_at"
_PART, _PARTS = "event_part", "event_parts"
_IDS = IdAlphabet()  # mem0 refuses whitespace and ``*`` in ids
# Every store takes letters, digits and "_" in keys literally. Qdrant reads "a.b" as a path.
_KEYS = IdAlphabet(safe=string.ascii_uppercase + "_", escape="-")

# An add stores memories one by one, so none of mem0's errors proves that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "mem0.exceptions.MemoryError": NativeError(BackendUnavailable, sent=True),
    "mem0.exceptions.ValidationError": NativeError(BackendRejected, sent=True),
    "mem0.exceptions.ConfigurationError": NativeError(BackendRejected, sent=True),
    "qdrant_client.http.exceptions.UnexpectedResponse": NativeError(sent=True),
    "qdrant_client.http.exceptions.ResponseHandlingException": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.ApiException": NativeError(BackendProtocolError),
    # These refuse an insert, which is atomic in these stores.
    "chromadb.errors.InvalidArgumentError": NativeError(BackendRejected, sent=False),
    "chromadb.errors.InvalidDimensionException": NativeError(BackendRejected, sent=False),
    "psycopg.errors.DataException": NativeError(BackendRejected, sent=False),
    "psycopg.errors.ConnectionTimeout": NativeError(BackendTimeout),
    "psycopg.errors.QueryCanceled": NativeError(BackendTimeout),
    "psycopg.Error": NativeError(BackendUnavailable),
    "psycopg_pool.PoolTimeout": NativeError(BackendUnavailable, sent=False),  # this statement only
    "sqlite3.Error": NativeError(BackendUnavailable),
}


def native_messages(event: MemoryEvent, *, infer: bool) -> tuple[list[dict[str, str]], list[str]]:
    """The messages for ``Memory.add``, and warnings. No messages if mem0 would remember none of them."""
    warnings: list[str] = []
    spoken = [message for message in event.messages if message.content.strip()]
    if len(spoken) < len(event.messages):
        warnings.append("tool calls without text were not sent: mem0 stores text only")
    ignored = {"tool", "developer"} if infer else {"system"}
    lost = sorted({message.role for message in spoken} & ignored)
    if lost:
        how = "infer: true" if infer else "infer: false"
        warnings.append(f"messages of role {', '.join(lost)} are not remembered by mem0 with {how}")
    if all(message.role in ignored for message in spoken):
        return [], warnings
    if any("\0" in message.content for message in spoken):
        warnings.append("NUL characters were removed: not every store can hold them")
    native = []
    for message in spoken:
        name = {"name": message.name} if message.name else {}
        native.append({"role": message.role, "content": message.content.replace("\0", ""), **name})
    return native, warnings


def event_metadata(event: MemoryEvent) -> dict[str, Any]:
    """The metadata of an event's memories. ``created_at`` replaces mem0's own: the event dates them."""
    moment, labels = event.timestamp.isoformat(), event.labels
    labels["agent"] = labels.pop("agent_id")  # mem0's own agent_id is part of a scope
    fields = event.message_fields
    return {
        **user_metadata(event.metadata),
        **({"message_fields": json.dumps(fields, ensure_ascii=False)} if fields else {}),
        **labels,
        "event_id": event.event_id,
        "session_id": event.session_id,
        "timestamp": moment,
        _EPOCH: event.timestamp.timestamp(),
        _STORED: datetime.now(UTC).isoformat(),
        "created_at": moment,
    }


def user_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Custom metadata under keys that collide with no other. Values other than scalars become JSON text."""
    return {
        _metadata_key(key): value
        if isinstance(value, (str, int, float))
        else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
    }


def _metadata_key(name: str) -> str:
    return "meta_" + _KEYS.escape_text(name)


def observation_prompt(event: MemoryEvent, custom_instructions: str | None) -> str:
    """Instructions that date the event. mem0's own observation date is always today (facts, section 1)."""
    date = (
        f"Observation date: {event.timestamp:%Y-%m-%d} ({event.timestamp:%A}, {event.timestamp:%H:%M} UTC). "
        "The new messages were said then, so resolve every relative date against it. The Observation Date and the "
        "Current Date given above are not when they were said; ignore both."
    )
    return f"{date}\n\n{custom_instructions}" if custom_instructions else date


def native_filters(fields: Mapping[str, Mapping[str, Any]], profile: StoreProfile) -> dict[str, Any]:
    """Translate filters into mem0's terms. InputError names another way for what the store cannot compare."""
    native: dict[str, Any] = {}
    for name, clauses in fields.items():
        where = f"filters.{name}"
        if name == "timestamp":
            native[_EPOCH] = _epoch_clauses(where, clauses)
            continue
        if profile.one_clause and len(clauses) > 1 and not clauses.keys() <= RANGES:
            raise InputError(f"{where}: this store takes one operator per key, or a range; drop the others")
        key = name if name in _EVENT_FIELDS else _metadata_key(name)
        native[key] = {op: _value(f"{where}.{op}", op, value, profile) for op, value in clauses.items()}
    return native


def _epoch_clauses(where: str, clauses: Mapping[str, Any]) -> dict[str, float]:
    """A condition on the event's time, in epoch seconds, because not every store compares ISO text."""
    found: dict[str, float] = {}
    for operator, value in clauses.items():
        if operator not in RANGES | {"eq"}:
            raise InputError(f"{where}: {operator} makes no sense of a time; use gt, gte, lt, lte or eq")
        moment = parse_time(value)
        if moment is None:
            raise InputError(f"{where}: give an ISO 8601 time with its zone, e.g. 2024-05-01T00:00:00+00:00")
        for bound in ("gte", "lte") if operator == "eq" else (operator,):
            found[bound] = moment.timestamp()
    return found


def _value(where: str, operator: str, value: Any, profile: StoreProfile) -> Any:
    if operator in RANGES:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number and not (profile.iso_ranges and parse_time(value, naive_is_utc=True)):
            kinds = "numbers or ISO 8601 dates" if profile.iso_ranges else "numbers"
            raise InputError(f"{where}: this store compares {kinds} only; filter by timestamp for time")
        return value
    if operator in ("contains", "icontains"):
        if not isinstance(value, str):
            raise InputError(f"{where}: give the text to look for")
        return value
    items = value if isinstance(value, list) else [value]
    if not profile.float_equality and any(isinstance(item, float) for item in items):
        raise InputError(f"{where}: this store does not compare floats for equality; use gte and lte")
    types = {type(item) for item in items}
    if profile.typed_lists and operator != "eq" and (bool in types or len(types) > 1):
        raise InputError(f"{where}: give {operator} strings only, or integers only")
    if profile.bool_text:
        items = [str(item).lower() if isinstance(item, bool) else item for item in items]
    return items if isinstance(value, list) else items[0]


def number_parts(payloads: Sequence[dict[str, Any]]) -> None:
    """Number the rows of an event, and store the total in each row. A single row gets no number."""
    if len(payloads) > 1:
        for part, payload in enumerate(payloads):
            payload.setdefault(_PART, part)
            payload.setdefault(_PARTS, len(payloads))


def parts_of(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[int, str], int]:
    marks = [(row["id"], row.get("metadata") or {}) for row in rows]
    present = {metadata.get(_PART, 0): native_id for native_id, metadata in marks}
    return present, max((metadata.get(_PARTS, 1) for _, metadata in marks), default=0)


def changes_of(row: Mapping[str, Any]) -> Iterator[datetime]:
    stored = parse_time((row.get("metadata") or {}).get(_STORED))
    changed = row.get("updated_at")
    if changed == row.get("created_at"):  # unchanged since it was stored
        changed = None
    for moment in (stored, parse_time(changed)):
        if moment is not None:
            yield moment


def to_entry(row: Mapping[str, Any]) -> ContextEntry:
    metadata = row.get("metadata") or {}
    speaker = row.get("actor_id") or row.get("role") or row.get("attributed_to")
    event_id = metadata.get("event_id")
    return ContextEntry(
        text=row["memory"],
        native_id=row["id"],
        score=row.get("score"),
        timestamp=parse_time(row.get("created_at"), naive_is_utc=True),
        labels=(("by", str(speaker)),) if speaker else (),
        event_ids=(event_id,) if event_id else (),
        session_id=metadata.get("session_id"),
        scope_ids=row_ids(row),
    )


@lru_cache(maxsize=1024)
def scope_ids(scope: MemoryScope) -> Ids:
    """mem0's ids of a scope. run_id has the agent, too: a search without agent_id matches rows that have one."""
    run = (scope.run_id, scope.backend_namespace, scope.agent_id)
    ids = {"user_id": _IDS.encode(scope.persona_id), "run_id": _IDS.encode(*run)}
    return ids if scope.agent_id is None else {**ids, "agent_id": _IDS.encode(scope.agent_id)}


def row_ids(row: Mapping[str, Any]) -> dict[str, str]:
    """The scope ids in a native row. A missing user_id or run_id becomes "", which matches no scope."""
    ids = {name: str(row.get(name) or "") for name in ("user_id", "run_id")}
    return ids if row.get("agent_id") is None else {**ids, "agent_id": str(row["agent_id"])}
