"""Labels of memories that Signet's protocol has and no backend keeps: type, tags, importance, pinned, version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from memory.contract.scope import MemoryScope
from memory.runtime._items import Item
from memory.storage.kept import HostStore, StoredObject

_PREFIX = re.compile(r"\A\s*+(?:(?P<critical>critical:)|\[(?P<tags>[^\[\]\n]{1,500})\]:)\s*+", re.I)


@dataclass(slots=True)
class Note:
    id: str
    content: str  # when it was last seen
    type: str = "fact"
    tags: str | None = None
    importance: float = 0.5
    pinned: bool = False
    who: str | None = None
    project: str | None = None
    version: int = 1
    deleted: bool = False
    stored_as: str | None = None  # digest of the words; None once corrected, and where it was merely seen
    created_at: datetime | None = field(default_factory=lambda: datetime.now(UTC))

    @property
    def created(self) -> str | None:
        return self.created_at.isoformat().replace("+00:00", "Z") if self.created_at else None

    def kept(self) -> dict[str, Any]:
        return {**asdict(self), "created_at": self.created_at.isoformat() if self.created_at else None}

    def _only(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def short(self) -> dict[str, Any]:
        """As session-start lists it."""
        return self._only("id", "content", "type", "importance") | {"created_at": self.created}

    def found(self, score: float | None) -> dict[str, Any]:
        """The row of a recall. Clients format ``score``, so a missing score is 0 and ``scored`` is false."""
        return {
            **self.short(),
            **self._only("tags", "pinned", "who", "project"),
            "content_length": len(self.content),
            "truncated": False,
            "score": score if score is not None else 0,
            "scored": score is not None,
            "source": "memslot",
        }

    def row(self) -> dict[str, Any]:
        """As ``GET /api/memory/:id`` answers; flags are 0 and 1 there."""
        flags = {"pinned": int(self.pinned), "is_deleted": int(self.deleted)}
        return {**self.short(), **self._only("tags", "who", "project", "version"), **flags}


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of a recall."""

    asked: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Filters:
        """Those of a request. One that cannot be read is a ValueError: it would let everything pass."""
        asked = {}
        for name, (what, read) in _FILTERS.items():
            if (given := body.get(name)) in (None, "", []):
                continue
            asked[name] = read(given)
            if asked[name] is None:
                raise ValueError(f"{name} must be {what}")
        return cls(asked)

    def fit(self, note: Note, score: float | None) -> bool:
        """Whether a memory passes the filters; without a score, it passes ``min_score``."""
        asked, made = self.asked, note.created_at
        since, until = asked.get("since"), asked.get("until")
        return (
            all(asked.get(name) in (None, getattr(note, name)) for name in ("type", "who", "pinned"))
            and set(_parts(asked.get("tags"))) <= set(_parts(note.tags))
            and note.importance >= asked.get("importance_min", note.importance)
            and (score is None or score >= asked.get("min_score", score))
            and (since is None or (made is not None and made >= since))
            and (until is None or (made is not None and made <= until))
        )


class Book:
    """Notes by scope and id, and by a client's key. Reads return copies; :meth:`put` keeps a note."""

    def __init__(self, store: HostStore) -> None:
        self.store = store

    def get(self, scope: MemoryScope, item_id: str) -> Note | None:
        return _note(self.store.get("note", scope, item_id))

    def deleted(self, scope: MemoryScope, item_ids: Iterable[str | None]) -> set[str]:
        known = self.store.get_many("note", scope, [item_id for item_id in item_ids if item_id])
        return {item_id for item_id, note in known.items() if note["deleted"]}

    def put(self, scope: MemoryScope, note: Note, key: str | None = None, event_id: str = "") -> None:
        """Keep a note, and find it again by a key of the client's, and by the words it was stored with."""
        rows = [StoredObject("note", scope, note.id, note.kept())]
        if key:
            rows.append(StoredObject("key", scope, key, {"id": note.id}))
        if event_id and note.stored_as:
            stored = {"id": note.id, "event_id": event_id}
            rows.append(StoredObject("stored_as", scope, note.stored_as, stored))
        self.store.put(*rows)

    def by_key(self, scope: MemoryScope, key: str) -> Note | None:
        known = self.store.get("key", scope, key)
        return self.get(scope, str(known["id"])) if known else None

    def by_words(self, scope: MemoryScope, digest: str) -> tuple[Note, str] | None:
        """The memory that was stored with these words and is neither corrected nor forgotten; its event."""
        known = self.store.get("stored_as", scope, digest)
        note = self.get(scope, str(known["id"])) if known else None
        return (note, str(known["event_id"])) if known and note and note.stored_as == digest else None

    def claim(self, scope: MemoryScope, digest: str, event_id: str, *, anyway: bool = False) -> bool:
        """Whether these words are ours to store, and no other server does it just now, unless ``anyway``."""
        known = self.store.get("stored_as", scope, digest)
        if known and not known["id"] and not anyway:
            return False
        claimed = StoredObject("stored_as", scope, digest, {"id": "", "event_id": event_id})
        return self.store.swap(claimed, known)

    def unlike_its_words(self, scope: MemoryScope, note: Note) -> None:
        """Let the note's words make a new memory. A derived note hides its words, so all words of the scope may."""
        if note.stored_as is None:
            self.store.drop("stored_as", scope)
        note.stored_as = None

    def of_items(self, scope: MemoryScope, items: Iterable[Item]) -> list[Note]:
        """The notes of memories that were just seen, new ones where there were none; without what was deleted."""
        notes, new, seen = [], [], list(items)
        known = self.store.get_many("note", scope, [item.id for item in seen if item.id])
        for number, item in enumerate(seen):
            note = _note(known.get(item.id or ""))
            if note is None or note.content != item.content:
                note = note or Note(item.id or f"unnamed-{number}", "", created_at=item.timestamp)
                note.content = item.content if not note.deleted else ""
                new += [note] if item.id and not note.deleted else []
            notes.append(note)
        self.store.put(*(StoredObject("note", scope, note.id, note.kept()) for note in new))
        return notes

    def forget(self, scope: MemoryScope, note: Note) -> None:
        """Erase a note's words, on disk too. Its id stays and hides the memory while a backend still finds it."""
        self.store.drop("note", scope, note.id)
        self.put(scope, Note(note.id, "", version=note.version, deleted=True))

    def listed(self, scope: MemoryScope) -> list[Note]:
        """Newest first."""
        notes = (_note(kept) for kept in self.store.all("note", scope))
        return [note for note in notes if note is not None and not note.deleted]


def tags_of(given: Any) -> str | None:
    """Tags in either shape that clients send, a list or a text, as a single text; None for none."""
    parts = given if isinstance(given, list) else str(given).split(",") if isinstance(given, str) else []
    return ",".join(text for part in parts if (text := str(part).strip().replace(",", " "))) or None


def labelled(content: str) -> tuple[str, bool, str | None]:
    """A text without its prefixes ``critical:`` and ``[a,b]:``; whether it is critical; and its tags."""
    critical, tags = False, None
    while match := _PREFIX.match(content):
        critical, tags = critical or bool(match["critical"]), match["tags"] or tags
        content = content[match.end() :]
    return content, critical, tags_of(tags)


def importance_of(given: Any) -> float | None:
    """A number, brought within 0 and 1; None for anything else."""
    number = number_of(given)
    return None if number is None else float(min(max(number, 0), 1))


def number_of(given: Any) -> int | float | None:
    return given if isinstance(given, (int, float)) and not isinstance(given, bool) else None


def _parts(tags: str | None) -> list[str]:
    return tags.split(",") if tags else []


def _moment(given: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _kind(kind: type) -> Callable[[Any], Any]:
    return lambda given: given if isinstance(given, kind) else None


_FILTERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "type": ("a text", _kind(str)),
    "who": ("a text", _kind(str)),
    "pinned": ("true or false", _kind(bool)),
    "tags": ("a text or a list", tags_of),
    "importance_min": ("a number", number_of),
    "min_score": ("a number", number_of),
    "since": ("a time by ISO 8601", _moment),
    "until": ("a time by ISO 8601", _moment),
}


def _note(kept: dict[str, Any] | None) -> Note | None:
    if kept is None:
        return None
    made = kept["created_at"]
    return Note(**{**kept, "created_at": datetime.fromisoformat(made) if made else None})
