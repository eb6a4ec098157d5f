"""Translates events into Honcho's messages, and the SDK's models into entries. Imports no SDK."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memory import InputError, MemoryEvent, MemoryScope, RetrieveRequest
from memory.adapter import ContextEntry, IdAlphabet, ScopeEncoder, clean_text
from memory.adapter.fields import without_nul
from memory.backends.honcho.options import OTHERS_PEER, HonchoOptions

# Honcho's ids: ``[a-zA-Z0-9_-]``, 1 to 512 characters, measured.
IDS = IdAlphabet(safe=string.ascii_uppercase + "-", escape="_", separator="_x", max_length=512)
MAX_CONTENT = 25_000  # characters of one message
METADATA_PREFIX = "metadata."  # keeps an event's own metadata keys apart from memslot's
MAX_QUERY = 2_000
_MAX_KEYS = 100
_MAX_DEPTH = 5
_OWN_KEYS = 6  # memslot's keys for a message: message, role, name, tool_call_id, tool_calls and part
# The server's tokenizers refuse text that contains one of these tokens, with 422 or 500.
_SPECIAL = re.compile(r"(?<=<\|)(?=(?:endoftext|endofprompt|fim_prefix|fim_middle|fim_suffix)\|>)")
_HEADING = re.compile(r"#{1,6} +")
_OBSERVATION = re.compile(r" ?(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]|\*\*)")


class HonchoIds:
    def __init__(self, options: HonchoOptions, owner: str) -> None:
        template = options.workspace_template
        templates = None if template is None else {"id": template}
        self._workspaces = ScopeEncoder(IDS, templates, owner=f"{owner}.workspace_template")
        self._taken = (options.assistant_peer, OTHERS_PEER)

    def native_scope(self, scope: MemoryScope) -> dict[str, str]:
        peer_id = IDS.encode(scope.persona_id)
        if peer_id in self._taken:
            # Still unique to the persona, because no other id has this character escaped.
            peer_id = f"{IDS.escape}{ord(peer_id[0]):02x}{peer_id[1:]}"
        return {"workspace_id": self._workspaces.encode(scope)["id"], "peer_id": peer_id}


@dataclass(frozen=True, slots=True)
class Part:
    """One message for Honcho: a message of an event, or a piece of it."""

    event: MemoryEvent
    role: str  # of the message; determines the peer
    key: tuple[int, int]  # position of the message in the event, and of the piece in the message
    content: str
    metadata: dict[str, Any]


def event_parts(event: MemoryEvent) -> list[Part]:
    """The event's messages in Honcho's form, complete and in order. Raises InputError if Honcho cannot keep it."""
    base: dict[str, Any] = without_nul(
        {
            "event_id": event.event_id,
            "session_id": event.session_id,
            **event.labels,
            **{METADATA_PREFIX + key: value for key, value in event.metadata.items()},
        }
    )
    limit = _MAX_KEYS - _OWN_KEYS
    if len(base) > limit:
        limit -= sum(not key.startswith(METADATA_PREFIX) for key in base)
        raise InputError(f"MemoryEvent.metadata: has too many keys for Honcho; it keeps at most {limit} here")
    if _depth(base) > _MAX_DEPTH:
        raise InputError(
            f"MemoryEvent.metadata: is nested too deeply for Honcho; at most {_MAX_DEPTH} levels are kept"
        )
    parts: list[Part] = []
    for position, message in enumerate(event.messages):
        said = {"role": message.role, "name": message.name, "tool_call_id": message.tool_call_id}
        if message.tool_calls:
            said["tool_calls"] = json.dumps(message.tool_calls, ensure_ascii=False)
        said = without_nul({name: value for name, value in said.items() if value is not None})
        metadata = {**base, "message": position, **said}
        pieces = split_text(message.content, f"MemoryEvent.messages.{position}.content")
        for number, piece in enumerate(pieces):
            part = {"part": f"{number + 1}/{len(pieces)}"} if len(pieces) > 1 else {}
            parts.append(Part(event, message.role, (position, number), piece, {**metadata, **part}))
    return parts


def _depth(value: Any) -> int:
    """Nesting levels as the server counts them: objects in objects, without lists."""
    if not isinstance(value, Mapping):
        return 0
    return 1 + max(map(_depth, value.values()), default=0)


def split_text(text: str, where: str = "content") -> list[str]:
    """Split a text into pieces that Honcho accepts. Joined, they are the text again, without NUL.

    It is cut at :data:`MAX_CONTENT` characters, and within each control token of the server's tokenizers.
    """
    text = without_nul(text)
    if not text.strip():
        return [""]  # for a message with only tool calls; Honcho accepts empty text, but no blanks
    if len(text) <= MAX_CONTENT and "<|" not in text:
        return [text]
    too_blank = (
        f"{where}: holds {MAX_CONTENT // 2} blanks in a row or more, and Honcho takes no part of {MAX_CONTENT} "
        "characters without a word; shorten them"
    )
    pieces: list[str] = []
    for stretch in _SPECIAL.split(text):
        while len(stretch) > MAX_CONTENT:
            cut = MAX_CONTENT
            if not stretch[cut:].strip():  # keep the last word with the blanks after it
                cut = len(stretch.rstrip()) - 1
            if cut < 1:
                raise InputError(too_blank)
            pieces.append(stretch[:cut])
            stretch = stretch[cut:]
        pieces.append(stretch)
    if not all(piece.strip() for piece in pieces):
        raise InputError(too_blank)
    return pieces


def search_text(request: RetrieveRequest, *, with_cs: bool) -> tuple[str, bool]:
    """The search text, and whether it was shortened. ``with_cs`` adds the values of the CS fields."""
    words = (request.query, *(request.cs_filters.values() if with_cs else ()))
    text = _SPECIAL.sub(" ", without_nul("\n".join(words)))
    return text[:MAX_QUERY], len(text) > MAX_QUERY


def native_filters(request: RetrieveRequest) -> dict[str, Any] | None:
    """``RetrieveRequest.where`` in Honcho's dialect: it reads a bare ``*`` as all, but not in ``contains``."""
    clauses: list[dict[str, Any]] = []
    for key, conditions in request.where.items():
        field = key if key in request.cs_filters else METADATA_PREFIX + key
        clauses += [_clause(field, operator, value) for operator, value in conditions.items()]
    return {"AND": clauses} if clauses else None


def _clause(field: str, operator: str, value: Any) -> dict[str, Any]:
    if operator in ("ne", "nin"):
        return {"NOT": [_clause(field, {"ne": "eq", "nin": "in"}[operator], value)]}
    if operator == "in":
        # Honcho compares as text, in which JSON's booleans are lower case.
        value = [str(item).lower() if isinstance(item, bool) else item for item in value]
    if operator in ("in", "icontains"):
        return {"metadata": {field: {operator: value}}}
    return {"metadata": {"contains": {field: value}}}


def native_json(record: Any) -> Any:
    """The SDK's objects as JSON, field by field, with times in ISO format."""
    return json.loads(json.dumps(record, default=_fields))


def _fields(record: Any) -> Any:
    if isinstance(record, datetime):
        return record.isoformat()
    return dict(record) if hasattr(record, "model_dump") else vars(record)


def message_entry(message: Any) -> ContextEntry:
    metadata: Mapping[str, Any] = message.metadata or {}
    speaker = metadata.get("role")
    labels = [("role", speaker) if isinstance(speaker, str) else ("peer", message.peer_id)]
    labels.extend((name, metadata[name]) for name in ("name", "part") if isinstance(metadata.get(name), str))
    event_id = metadata.get("event_id")
    said_at = message.created_at  # memslot's are never naive; another client's count as UTC
    return ContextEntry(
        text=message.content,
        native_id=message.id,
        timestamp=said_at.replace(tzinfo=UTC) if said_at.tzinfo is None else said_at.astimezone(UTC),
        group="Messages",
        labels=tuple(labels),
        event_ids=(event_id,) if isinstance(event_id, str) else (),
        session_id=metadata.get("session_id"),
        scope_ids={"workspace_id": message.workspace_id},
    )


def prose_entries(representation: str | None, peer_id: str) -> Iterator[ContextEntry]:
    """An entry for each observation of a markdown representation, in its own words and order."""
    heading: str | None = None
    lines: list[str] = []
    for line in (*(representation or "").split("\n"), "## "):
        begins = _HEADING.match(line)
        if (begins or _OBSERVATION.match(line)) and lines:
            yield _prose("\n".join(lines), peer_id, heading)
            lines = []
        if begins:
            heading = line[begins.end() :].strip() or None
        elif line.strip():
            lines.append(line)


def about_entries(text: str | None, card: Sequence[str] | None, peer_id: str) -> list[ContextEntry]:
    lines = [_prose(line, peer_id, "Peer card") for line in card or ()]
    return [*prose_entries(text, peer_id), *lines]


def _prose(text: str, peer_id: str, group: str | None) -> ContextEntry:
    """An entry of prose, in which no line looks like the start of another entry."""
    text = clean_text(text).strip().replace("\n", "\n  ")
    return ContextEntry(
        text=f"· {text[2:]}" if text.startswith("- ") else text, native_id=peer_id, group=group, prose=True
    )
