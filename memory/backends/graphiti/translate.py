"""Translates episodes, triplets, rows, entries and errors to and from Graphiti. Imports no SDK."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from memory import BackendTimeout, BackendUnavailable, InputError, MemoryEvent, MemoryScope
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    ContextEntry,
    ErrorTable,
    IdAlphabet,
    NativeError,
)
from memory.adapter.fields import NotBlank, first_problem
from memory.backends.graphiti.options import Ingest

# Graphiti allows [a-zA-Z0-9_-]. Capitals would collide on case-insensitive file systems, and full-text
# indexes split a name at "-".
GROUP_IDS = IdAlphabet(safe="", escape="_", separator="_x", max_length=120, prefix="ms_")
# Kinds of search results, plural and singular, in the order of the context section.
KINDS = {"edges": "edge", "nodes": "node", "episodes": "episode", "communities": "community"}
_VECTORS = frozenset({"fact_embedding", "name_embedding"})

# An episode takes many calls, so none of these errors proves that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "graphiti_core.llm_client.errors.RateLimitError": NativeError(BackendRateLimited, sent=True),
    "graphiti_core.llm_client.errors.EmptyResponseError": NativeError(BackendProtocolError),
    "graphiti_core.llm_client.errors.RefusalError": NativeError(BackendRejected, sent=True),
    "graphiti_core.errors.GraphitiError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.AuthError": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.Forbidden": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.ClientError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.Neo4jError": NativeError(BackendUnavailable),
    "neo4j.exceptions.DriverError": NativeError(BackendUnavailable),
    "neo4j.exceptions.ConnectionAcquisitionTimeoutError": NativeError(BackendTimeout),
    "redis.exceptions.AuthenticationError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.AuthorizationError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.NoPermissionError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.TimeoutError": NativeError(BackendTimeout),
    "redis.exceptions.InvalidResponse": NativeError(BackendProtocolError),
    "redis.exceptions.ResponseError": NativeError(BackendRejected, sent=True),
    "redis.exceptions.RedisError": NativeError(BackendUnavailable),
}


@lru_cache(maxsize=1024)
def group_of(scope: MemoryScope) -> str:
    return GROUP_IDS.encode(scope.run_id, scope.persona_id, scope.backend_namespace, scope.agent_id)


class Triplet(BaseModel):
    """A fact of ``metadata.triplets``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: NotBlank
    relation: NotBlank
    target: NotBlank
    fact: str | None = None
    valid_at: AwareDatetime | None = None
    invalid_at: AwareDatetime | None = None


_TRIPLETS = TypeAdapter(Annotated[list[Triplet], Field(min_length=1)])


def episode_body(event: MemoryEvent, ingest: Ingest, *, cs_in_body: bool) -> tuple[str, list[str]]:
    """The episode's text and warnings. The text is empty if Graphiti would learn nothing from it."""
    cs = event.cs_fields if cs_in_body else {}
    if ingest == "json":
        said = [message.model_dump(mode="json", exclude_none=True) for message in event.messages]
        data = {"messages": said, **cs, **({"metadata": event.metadata} if event.metadata else {})}
        return json.dumps(data, ensure_ascii=False), []
    spoken = [message for message in event.messages if message.content.strip()]
    warnings = []
    if len(spoken) < len(event.messages):
        warnings.append(
            f"tool calls without text are not part of a {ingest} episode; json episodes keep them"
        )
    if not spoken:
        return "", warnings
    heading = [f"({name}: {value})" for name, value in cs.items()]
    if ingest in ("message", "triplet"):
        lines = [f"{message.name or message.role}: {message.content}" for message in spoken]
    else:
        lines = [message.content for message in spoken]
    return "\n".join((*heading, *lines)), warnings


def description(event: MemoryEvent) -> str:
    """The episode's ``source_description``, which keeps the event's own fields traceable."""
    fields = {
        "event_id": event.event_id,
        "session_id": event.session_id,
        **event.labels,
        "message_fields": event.message_fields or None,
        "metadata": event.metadata or None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(present, ensure_ascii=False)


def event_id_of(source_description: Any) -> str | None:
    """The event id in a ``source_description``, or None if memslot did not write the episode."""
    try:
        found = json.loads(source_description).get("event_id")
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def triplets_of(event: MemoryEvent) -> list[Triplet]:
    try:
        return _TRIPLETS.validate_python(event.metadata.get("triplets"))
    except ValidationError as error:
        needed = "ingest: triplet needs a list of {source, relation, target, fact}"
        raise InputError(f"MemoryEvent.metadata.triplets: {needed}; {first_problem(error)}") from None


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC. A naive datetime comes from Kuzu and is in UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def json_ready(record: Any, score: float | None = None) -> dict[str, Any]:
    row = {name: _plain(value) for name, value in vars(record).items() if name not in _VECTORS}
    if score is not None:
        row["score"] = score
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return in_utc(value).isoformat()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "iso_format"):
        return value.iso_format()  # Neo4j's time types
    return value


def to_entries(
    raw: Mapping[str, list[dict[str, Any]]], events: Mapping[str, str | None], edge_types: Container[str] = ()
) -> Iterable[ContextEntry]:
    """Entries of all kinds; facts come first, without a group. ``events`` maps episodes to event ids."""
    for kind in KINDS:
        text = {"edges": "fact", "episodes": "content"}.get(kind)
        for row in raw[kind]:
            moment = row.get("reference_time") or (row.get("valid_at") if "content" in row else None)
            found: Iterable[str | None] = map(events.get, row.get("episodes", ()))
            if kind == "episodes":
                found = (event_id_of(row["source_description"]),)
            yield ContextEntry(
                text=str(row[text]) if text else _described(row),
                native_id=row["uuid"],
                score=row.get("score"),
                timestamp=datetime.fromisoformat(moment) if moment else None,
                group=None if kind == "edges" else kind,
                labels=tuple(_labels(kind, row, edge_types)),
                event_ids=tuple(dict.fromkeys(filter(None, found))),
                scope_ids={"group_id": row["group_id"]},
            )


def _labels(kind: str, row: Mapping[str, Any], edge_types: Container[str]) -> Iterable[tuple[str, str]]:
    if kind == "edges":
        yield from ((name, row[name]) for name in ("valid_at", "invalid_at") if row.get(name))
        types = [row["name"]] if row["name"] in edge_types else []
    elif kind == "nodes":
        types = [label for label in row["labels"] if label != "Entity"]
    else:
        return
    yield from (("type", name) for name in types)
    for name, value in row["attributes"].items():
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _described(row: Mapping[str, Any]) -> str:
    return f"{row['name']}: {row['summary']}" if row.get("summary") else str(row["name"])
