"""Single memories of a caller: storing, searching and look-up by id."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
from pydantic.alias_generators import to_camel

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.runtime._items import Item, MemoryItems
from memory.runtime.signet.book import Book, Note, fits
from memory.runtime.signet.reach import Caller, scope_of
from memory.runtime.signet.sessions import Sessions
from memory.runtime.signet.types import ListParams, RecallParams, Refused, RememberParams, SessionParams
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

_MAX_LIMIT = 1000
_LONGEST = {"session_key": MAX_ID_LENGTH - 12, "project": 4096, "agent_id": MAX_ID_LENGTH}


class Memories:
    """The memories of all callers. A text has at most ``longest`` characters."""

    def __init__(
        self, slot: MemorySlot, sessions: Sessions, store: HostStore, longest: int = 200_000
    ) -> None:
        self.slot = slot
        self.sessions = sessions
        self.book = Book(store)
        self._longest = longest
        self._locks: WeakValueDictionary[tuple[MemoryScope, str], anyio.Lock] = WeakValueDictionary()

    def sound(self, params: SessionParams) -> SessionParams:
        for name, longest in _LONGEST.items():
            given = getattr(params, name)
            if given is not None and len(given) > longest:
                raise Refused(400, f"{to_camel(name)} is longer than {longest} characters")
        return params

    def scope_of(self, caller: Caller, params: SessionParams) -> MemoryScope:
        """Return the scope of a call that begins no session: that of its session, else of its project."""
        self.sound(params)
        session = self.sessions.find(caller, params.session_key or "")
        if session is not None:
            return session.scope
        return scope_of(caller, self.sessions.isolate, params.project, params.agent_id)

    def checked(self, text: Any) -> str | None:
        if not isinstance(text, str) or not text.strip():
            return None
        if len(text) > self._longest:
            raise Refused(413, f"the text is longer than {self._longest} characters; shorten it")
        return text.encode("utf-8", "replace").decode()

    def alone(self, scope: MemoryScope, name: str) -> anyio.Lock:
        """Return a lock that serialises changes of one memory, or all stores of a scope."""
        return self._locks.setdefault((scope, name), anyio.Lock())

    def is_read_only(self, caller: Caller) -> bool:
        return caller.read_only or self.slot.read_only

    async def remember(self, caller: Caller, params: RememberParams) -> tuple[Note, WriteReceipt | None]:
        """Store one memory. There is no receipt if its ``idempotencyKey`` was used before."""
        words = self.checked(params.content)
        if words is None:
            raise Refused(400, "content is required")
        scope, key = self.scope_of(caller, params), params.idempotency_key
        session = self.sessions.find(caller, params.session_key or "")
        note = Note(
            id="",
            content=words,
            type=params.type or "fact",
            tags=params.tags,
            importance=params.importance,
            pinned=params.pinned,
            who=params.who,
            project=params.project or (session.project if session else None),
        )
        async with self.alone(scope, "remember"):
            if key and (known := self.book.by_key(scope, key)):
                return known, None
            return note, await self.store(caller, scope, note, key)

    async def store(
        self, caller: Caller, scope: MemoryScope, note: Note, key: str | None = None
    ) -> WriteReceipt:
        if self.is_read_only(caller):
            raise Refused(403, "this memory is read-only; nothing was stored")
        # The digest includes the scope, because two memories of a caller could otherwise share an id.
        name = uuid4().hex if key is None else sha256(f"{scope.label} {key}".encode()).hexdigest()
        labels = {"type": note.type, "tags": note.tags, "who": note.who}
        labels = {name: value for name, value in labels.items() if value}
        self.book.store.check()  # fail before there is a memory whose labels could not be saved
        items = MemoryItems(self.slot, scope)
        receipt = await items.store(note.content, event_id=f"memory-{name}", metadata=labels)
        if receipt.status == "skipped_read_only":
            raise Refused(403, "this memory is read-only; nothing was stored")
        if receipt.status == "unknown":
            raise Refused(503, "the backend did not answer; the memory may or may not be stored")
        note.id = id_of(receipt)
        self.book.put(scope, note, key)
        return receipt

    async def recall(self, caller: Caller, params: RecallParams) -> list[dict[str, Any]]:
        query = self.checked(params.query or params.keyword_query)
        if not query:
            raise Refused(400, "query is required")
        scope, limit = self.scope_of(caller, params), min(params.limit, _MAX_LIMIT)
        found = await self.search(scope, query, limit, params) if limit else []
        projects = {item.session_id: self._project_of(caller, item.session_id) for item, _ in found}
        for item, note in found:
            note.project = note.project or projects[item.session_id]
        return [note.found(item.score) for item, note in found]

    def _project_of(self, caller: Caller, session_id: str | None) -> str | None:
        """Return the project of the session that recorded a memory."""
        key, _, epoch = (session_id or "").rpartition("~")
        names = (session_id or "", key if epoch.isdecimal() else "")
        sessions = (self.sessions.find(caller, name) for name in names if name)
        return next((session.project for session in sessions if session is not None), None)

    async def search(
        self, scope: MemoryScope, query: str, limit: int, asked: RecallParams | None = None
    ) -> list[tuple[Item, Note]]:
        """Search a scope. Returns at most ``limit`` hits that pass the filters of ``asked``."""
        # The filters apply after the search, so there must be enough hits to choose from.
        enough = limit * 5 if asked is not None and asked.filters else limit
        items = await MemoryItems(self.slot, scope).search(query, enough)
        hits = zip(items, self.book.of_items(scope, items), strict=True)
        kept = [(item, note) for item, note in hits if not note.deleted and fits(asked, note, item.score)]
        return kept[:limit]

    async def find(self, scope: MemoryScope, item_id: str | None) -> Note | None:
        """Return a memory's current state. A backend without look-up gives the state last seen here."""
        note = self.book.get(scope, item_id) if item_id else None
        if not item_id or (note is not None and note.deleted):
            return None
        items = MemoryItems(self.slot, scope)
        if "get" not in items.offered:
            return note
        item = await items.get(item_id)
        return None if item is None else self.book.of_items(scope, [item])[0]

    def listed(self, caller: Caller, params: ListParams) -> dict[str, Any]:
        """``GET /api/memories``: the memories that were stored or served here, newest first."""
        notes = self.book.listed(self.scope_of(caller, params))
        notes.sort(key=lambda note: note.created or "", reverse=True)
        wanted = [note for note in notes if params.type in (None, note.type)]
        critical = sum(note.pinned for note in wanted)
        page = wanted[params.offset : params.offset + params.limit]
        return {
            "memories": [note.row() for note in page],
            "stats": {"total": len(wanted), "withEmbeddings": 0, "critical": critical},
        }


def id_of(receipt: WriteReceipt) -> str:
    return receipt.native_ids[0] if receipt.native_ids else receipt.event_id
