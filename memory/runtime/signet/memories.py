"""Single memories of a caller: storing, searching, changing and deleting them.

A change that fails raises :class:`Refused` with Signet's name for the failure.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable
from hashlib import sha256
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from memory.contract import errors
from memory.contract.receipts import WriteReceipt
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.runtime._items import Item, MemoryItems
from memory.runtime.signet.book import Book, Note, fits
from memory.runtime.signet.sessions import Caller, Sessions, scope_of
from memory.runtime.signet.types import (
    ForgetParams,
    ListParams,
    ModifyParams,
    PatchParams,
    RecallParams,
    Refused,
    RememberParams,
    SessionParams,
    text_of,
)
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

log = logging.getLogger("memslot.runtime")

_MAX_LIMIT = 1000


# Signet's name for a failure -> the HTTP status, if the request has a single change.
_CODES = {
    "invalid_request": 400,
    "not_found": 404,
    "version_conflict": 409,
    "pinned_requires_force": 409,
    "read_only": 403,
    "not_supported": 501,
    "unknown": 503,
}


def _failed(item_id: str | None, status: str, why: str = "", **more: Any) -> Refused:
    return Refused(_CODES[status], why or status.replace("_", " "), {"id": item_id, "status": status, **more})


async def _row(change: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Return the outcome of a change as a row of a larger answer."""
    try:
        return await change
    except Refused as refused:
        return {**refused.more, "error": str(refused)}


class Memories:
    """The memories of all callers."""

    def __init__(self, slot: MemorySlot, sessions: Sessions, store: HostStore) -> None:
        self.slot = slot
        self.sessions = sessions
        self.book = Book(store)
        self._locks: WeakValueDictionary[tuple[MemoryScope, str], anyio.Lock] = WeakValueDictionary()

    def scope_of(self, caller: Caller, params: SessionParams) -> MemoryScope:
        """Return the scope of a call that begins no session: that of its session, else of its project."""
        session = self.sessions.find(caller, params.session_key or "")
        if session is not None:
            return session.scope
        return scope_of(caller, self.sessions.isolate, params.project, params.agent_id)

    def alone(self, scope: MemoryScope, name: str) -> anyio.Lock:
        """Return a lock that serialises changes of one memory, or all stores of a scope."""
        return self._locks.setdefault((scope, name), anyio.Lock())

    def is_read_only(self, caller: Caller) -> bool:
        return caller.read_only or self.slot.read_only

    async def remember(self, caller: Caller, params: RememberParams) -> tuple[Note, WriteReceipt | None]:
        """Store one memory. There is no receipt if its ``idempotencyKey`` was used before."""
        words = text_of(params.content)
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
        query = text_of(params.query or params.keyword_query)
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

    async def modify(self, caller: Caller, params: ModifyParams) -> dict[str, Any]:
        """``POST /api/memory/modify``: each patch has a separate result."""
        scope = self.scope_of(caller, params)
        results = []
        for patch in params.patches:
            named = patch.model_copy(update={"reason": patch.reason or params.reason})
            results.append(await _row(self.patched(caller, scope, patch.id, named)))
        updated = sum(result["status"] == "updated" for result in results)
        return {"total": len(results), "updated": updated, "results": results}

    async def patched(
        self, caller: Caller, scope: MemoryScope, item_id: str | None, patch: PatchParams
    ) -> dict[str, Any]:
        """Apply one patch.

        Raises:
            Refused: the patch was not applied. ``more`` holds Signet's name for the failure.
        """
        if not item_id:
            raise _failed(None, "invalid_request", "Patch id is required")
        if not patch.reason:
            raise _failed(item_id, "invalid_request", "reason is required")
        content = text_of(patch.content)
        names = patch.model_fields_set & {"type", "tags", "importance", "pinned"}
        labels = {
            name: value for name in names if (value := getattr(patch, name)) is not None or name == "tags"
        }
        if content is None and not labels:
            raise _failed(item_id, "invalid_request", "there is nothing to change")
        self._check_writable(caller, item_id)
        async with self.alone(caller.scope, item_id):
            note = await self.find(scope, item_id)
            if note is None:
                raise _failed(item_id, "not_found")
            if patch.if_version not in (None, note.version):
                raise _failed(item_id, "version_conflict", currentVersion=note.version)
            if content is not None:
                await self._natively(scope, note, content)
                note.content = content
            for name, value in labels.items():
                setattr(note, name, value)
            note.version += 1
            self.book.put(scope, note)
            return _changed(note, "updated", contentChanged=content is not None)

    async def forgotten(
        self, caller: Caller, scope: MemoryScope, item_id: str, *, force: bool
    ) -> dict[str, Any]:
        """Delete one memory. Raises the same errors as :meth:`patched`."""
        self._check_writable(caller, item_id)
        async with self.alone(caller.scope, item_id):
            there = await self.find(scope, item_id)
            # If a process was killed here, the backend may have deleted the memory while its words remain.
            note = there or self.book.get(scope, item_id)
            if note is None or note.deleted:
                raise _failed(item_id, "not_found")
            if note.pinned and not force:
                raise _failed(item_id, "pinned_requires_force", currentVersion=note.version)
            if there:
                await self._natively(scope, note, None)
            note.version += 1
            await anyio.to_thread.run_sync(self.sessions.forget_words, scope)
            # This comes last: until the note is marked deleted, the deletion can be repeated.
            await anyio.to_thread.run_sync(self.book.forget, scope, note)
            return _changed(note, "deleted")

    async def forget(self, caller: Caller, params: ForgetParams) -> dict[str, Any]:
        """``POST /api/memory/forget``: a preview unless ``mode`` is ``execute``."""
        execute = params.mode == "execute"
        if execute and not params.reason:
            raise Refused(400, "reason is required for execute mode")
        scope = self.scope_of(caller, params)
        candidates = await self._candidates(caller, scope, params)
        if not execute:
            return {"mode": "preview", "count": len(candidates), "candidates": candidates}
        results = [
            await _row(self.forgotten(caller, scope, str(row["id"]), force=params.force))
            for row in candidates
        ]
        deleted = sum(result["status"] == "deleted" for result in results)
        return {"mode": "execute", "requested": len(results), "deleted": deleted, "results": results}

    async def _candidates(
        self, caller: Caller, scope: MemoryScope, params: ForgetParams
    ) -> list[dict[str, Any]]:
        if params.ids is not None:
            scores: dict[str, Any] = dict.fromkeys(params.ids, 0)
        elif params.query or params.keyword_query:
            scores = {row["id"]: row["score"] for row in await self.recall(caller, params)}
        else:
            raise Refused(400, "ids or query is required")
        rows = []
        for item_id, score in scores.items():
            note = self.book.get(scope, item_id)
            known = {"pinned": note.pinned, "version": note.version} if note else {}
            if note or params.ids is not None:
                rows.append({"id": item_id, "score": score, "pinned": False, "version": None, **known})
        return rows

    def _check_writable(self, caller: Caller, item_id: str) -> None:
        if self.is_read_only(caller):
            raise _failed(item_id, "read_only", "this memory is read-only")

    async def _natively(self, scope: MemoryScope, note: Note, content: str | None) -> None:
        """Change the backend's record, or delete it if ``content`` is None."""
        items = MemoryItems(self.slot, scope)
        try:
            receipt = await (items.delete(note.id) if content is None else items.modify(note.id, content))
        except (errors.ScopeError, errors.BackendRejected):
            if await items.gone(note.id):
                raise _failed(note.id, "not_found") from None
            why = f"{self.slot.backend_name} keeps this memory as it is"
            raise _failed(note.id, "not_supported", why) from None
        except errors.CapabilityNotSupported as error:
            raise _failed(note.id, "not_supported", str(error)) from None
        if receipt.status == "skipped_read_only":
            raise _failed(note.id, "read_only", "this memory is read-only")
        if receipt.status == "unknown":
            raise _failed(note.id, "unknown", "the backend did not answer")


def id_of(receipt: WriteReceipt) -> str:
    return receipt.native_ids[0] if receipt.native_ids else receipt.event_id


def _changed(note: Note, status: str, **more: Any) -> dict[str, Any]:
    versions = {"currentVersion": note.version - 1, "newVersion": note.version}
    return {"id": note.id, "status": status, **versions, **more}


async def only_read(slot: MemorySlot, callers: Iterable[Caller]) -> None:
    """Set up every caller's scope, then make the slot read-only, because it refuses set-ups then."""
    for caller in callers:
        try:
            await slot.setup_scope(caller.scope)
        except errors.BackendError as error:
            log.warning("%s: a scope cannot be read: %s", slot.backend_name, error)
    await slot.set_mode(AdapterMode(read_only=True, reason="started with --read-only"))
