"""Labels of memories in Signet's protocol that no backend keeps: type, tags, importance, pinned, version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from memory.contract.scope import MemoryScope
from memory.runtime._items import Item
from memory.runtime.signet.types import RecallParams
from memory.storage.kept import HostStore, StoredObject


@dataclass(slots=True)
class Note:
    id: str
    content: str  # the text when it was last seen
    type: str = "fact"
    tags: str | None = None
    importance: float = 0.5
    pinned: bool = False
    who: str | None = None
    project: str | None = None
    version: int = 1
    deleted: bool = False
    created_at: datetime | None = field(default_factory=lambda: datetime.now(UTC))

    @property
    def created(self) -> str | None:
        return self.created_at.isoformat().replace("+00:00", "Z") if self.created_at else None

    def kept(self, scope: MemoryScope) -> StoredObject:
        """Return the note as a row of the host store."""
        return StoredObject("note", scope, self.id, _NOTE.dump_python(self, mode="json"))

    def _only(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def short(self) -> dict[str, Any]:
        """Return the note as session-start lists it."""
        return self._only("id", "content", "type", "importance") | {"created_at": self.created}

    def found(self, score: float | None) -> dict[str, Any]:
        """Return the row of a recall. Clients format ``score``, so 0 with ``scored`` false means unknown."""
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
        """Return the note as ``GET /api/memory/:id`` answers it, with flags as 0 and 1."""
        flags = {"pinned": int(self.pinned), "is_deleted": int(self.deleted)}
        return {**self.short(), **self._only("tags", "who", "project", "version"), **flags}


_NOTE: TypeAdapter[Note] = TypeAdapter(Note)


def fits(asked: RecallParams | None, note: Note, score: float | None) -> bool:
    """Whether a memory passes the filters of a recall. A memory without a score passes ``min_score``."""
    if asked is None:
        return True
    made = note.created_at
    return (
        all(getattr(asked, name) in (None, getattr(note, name)) for name in ("type", "who", "pinned"))
        and set(_parts(asked.tags)) <= set(_parts(note.tags))
        and (asked.importance_min is None or note.importance >= asked.importance_min)
        and (asked.min_score is None or score is None or score >= asked.min_score)
        and (asked.since is None or (made is not None and made >= asked.since))
        and (asked.until is None or (made is not None and made <= asked.until))
    )


class Book:
    """Notes by scope and id, and by a client's key. Reads return copies; :meth:`put` saves a note."""

    def __init__(self, store: HostStore) -> None:
        self.store = store

    def get(self, scope: MemoryScope, item_id: str) -> Note | None:
        return _note(self.store.get("note", scope, item_id))

    def deleted(self, scope: MemoryScope, item_ids: Iterable[str | None]) -> set[str]:
        known = self.store.get_many("note", scope, [item_id for item_id in item_ids if item_id])
        return {item_id for item_id, note in known.items() if note["deleted"]}

    def put(self, scope: MemoryScope, note: Note, key: str | None = None) -> None:
        """Save a note. :meth:`by_key` finds it by the client's key."""
        rows = [note.kept(scope)]
        if key:
            rows.append(StoredObject("key", scope, key, {"id": note.id}))
        self.store.put(*rows)

    def by_key(self, scope: MemoryScope, key: str) -> Note | None:
        known = self.store.get("key", scope, key)
        return self.get(scope, str(known["id"])) if known else None

    def of_items(self, scope: MemoryScope, items: Iterable[Item]) -> list[Note]:
        """Return the notes of memories that were just seen, and save the new and changed ones.

        The note of a deleted memory stays deleted and has no content.
        """
        notes, new, seen = [], [], list(items)
        known = self.store.get_many("note", scope, [item.id for item in seen if item.id])
        for number, item in enumerate(seen):
            note = _note(known.get(item.id or ""))
            if note is None or note.content != item.content:
                note = note or Note(item.id or f"unnamed-{number}", "", created_at=item.timestamp)
                note.content = item.content if not note.deleted else ""
                new += [note] if item.id and not note.deleted else []
            notes.append(note)
        self.store.put(*(note.kept(scope) for note in new))
        return notes

    def forget(self, scope: MemoryScope, note: Note) -> None:
        """Erase a note's words, also on disk. Its id stays, to hide a memory that the backend still finds."""
        self.store.drop("note", scope, note.id)
        self.put(scope, Note(note.id, "", version=note.version, deleted=True))

    def listed(self, scope: MemoryScope) -> list[Note]:
        """List the notes of a scope, newest first."""
        notes = (_note(kept) for kept in self.store.all("note", scope))
        return [note for note in notes if note is not None and not note.deleted]


def _parts(tags: str | None) -> list[str]:
    return tags.split(",") if tags else []


def _note(kept: dict[str, Any] | None) -> Note | None:
    return None if kept is None else _NOTE.validate_python(kept)
