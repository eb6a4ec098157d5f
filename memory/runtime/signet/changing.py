"""Changes to single memories by Signet's protocol, and the memories of a token for tools.

A change that fails raises :class:`Refused` with Signet's name for the failure.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread

from memory.contract import errors, receipts
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.runtime._items import Item, MemoryItems
from memory.runtime.signet.book import Note
from memory.runtime.signet.memories import Memories
from memory.runtime.signet.reach import Caller
from memory.runtime.signet.sessions import Sessions
from memory.runtime.signet.types import ForgetParams, ModifyParams, PatchParams, Refused
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

log = logging.getLogger("memslot.runtime")

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


class Changes:
    """Changes to single memories by ``/api/memory/...``."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self._book = memories.book
        self._slot = memories.slot

    async def modify(self, caller: Caller, params: ModifyParams) -> dict[str, Any]:
        """``POST /api/memory/modify``: each patch has a separate result."""
        scope = self.memories.scope_of(caller, params)
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
        try:
            content = self.memories.checked(patch.content)
        except Refused as refused:
            raise _failed(item_id, "invalid_request", str(refused)) from None
        names = patch.model_fields_set & {"type", "tags", "importance", "pinned"}
        labels = {
            name: value for name in names if (value := getattr(patch, name)) is not None or name == "tags"
        }
        if content is None and not labels:
            raise _failed(item_id, "invalid_request", "there is nothing to change")
        self._check_writable(caller, item_id)
        async with self.memories.alone(caller.scope, item_id):
            note = await self.memories.find(scope, item_id)
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
            self._book.put(scope, note)
            return _changed(note, "updated", contentChanged=content is not None)

    async def forgotten(
        self, caller: Caller, scope: MemoryScope, item_id: str, *, force: bool
    ) -> dict[str, Any]:
        """Delete one memory. Raises the same errors as :meth:`patched`."""
        self._check_writable(caller, item_id)
        async with self.memories.alone(caller.scope, item_id):
            there = await self.memories.find(scope, item_id)
            # If a process was killed here, the backend may have deleted the memory while its words remain.
            note = there or self._book.get(scope, item_id)
            if note is None or note.deleted:
                raise _failed(item_id, "not_found")
            if note.pinned and not force:
                raise _failed(item_id, "pinned_requires_force", currentVersion=note.version)
            if there:
                await self._natively(scope, note, None)
            note.version += 1
            await anyio.to_thread.run_sync(self.memories.sessions.forget_words, scope)
            # This comes last: until the note is marked deleted, the deletion can be repeated.
            await anyio.to_thread.run_sync(self._book.forget, scope, note)
            return _changed(note, "deleted")

    async def forget(self, caller: Caller, params: ForgetParams) -> dict[str, Any]:
        """``POST /api/memory/forget``: a preview unless ``mode`` is ``execute``."""
        execute = params.mode == "execute"
        if execute and not params.reason:
            raise Refused(400, "reason is required for execute mode")
        scope = self.memories.scope_of(caller, params)
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
            scores = {row["id"]: row["score"] for row in await self.memories.recall(caller, params)}
        else:
            raise Refused(400, "ids or query is required")
        rows = []
        for item_id, score in scores.items():
            note = self._book.get(scope, item_id)
            known = {"pinned": note.pinned, "version": note.version} if note else {}
            if note or params.ids is not None:
                rows.append({"id": item_id, "score": score, "pinned": False, "version": None, **known})
        return rows

    def _check_writable(self, caller: Caller, item_id: str) -> None:
        if self.memories.is_read_only(caller):
            raise _failed(item_id, "read_only", "this memory is read-only")

    async def _natively(self, scope: MemoryScope, note: Note, content: str | None) -> None:
        """Change the backend's record, or delete it if ``content`` is None."""
        items = MemoryItems(self._slot, scope)
        try:
            receipt = await (items.forget(note.id) if content is None else items.modify(note.id, content))
        except (errors.ScopeError, errors.BackendRejected):
            if await items.gone(note.id):
                raise _failed(note.id, "not_found") from None
            why = f"{self._slot.backend_name} keeps this memory as it is"
            raise _failed(note.id, "not_supported", why) from None
        except errors.CapabilityNotSupported as error:
            raise _failed(note.id, "not_supported", str(error)) from None
        if receipt.status == "skipped_read_only":
            raise _failed(note.id, "read_only", "this memory is read-only")
        if receipt.status == "unknown":
            raise _failed(note.id, "unknown", "the backend did not answer")


def _changed(note: Note, status: str, **more: Any) -> dict[str, Any]:
    versions = {"currentVersion": note.version - 1, "newVersion": note.version}
    return {"id": note.id, "status": status, **versions, **more}


class ReachItems(MemoryItems):
    """The memories of a caller's own scope, with the labels and guards of the routes."""

    def __init__(self, changes: Changes, caller: Caller) -> None:
        self._memories, self._changes, self._caller = changes.memories, changes, caller
        super().__init__(self._memories.slot, caller.scope)

    async def search(
        self,
        query: str,
        limit: int = 10,
        *,
        session_id: str = "tools",
        filters: Mapping[str, object] | None = None,
    ) -> list[Item]:
        """Search like :meth:`MemoryItems.search`, without forgotten memories that the backend still finds."""
        return [item for item, _ in await self._memories.search(self.scope, query, limit)]

    async def store(self, content: str, **fields: Any) -> receipts.WriteReceipt:
        """Store like :meth:`MemoryItems.store`."""
        if not (checked := self._memories.checked(content)):
            raise errors.InputError("content: is blank; nothing was stored")
        return await self._memories.store(self._caller, self.scope, Note("", checked))

    async def get(self, item_id: str) -> Item | None:
        note = await self._memories.find(self.scope, item_id)
        return None if note is None else Item(note.id, note.content)

    async def modify(self, item_id: str, content: str) -> receipts.NativeMutationReceipt:
        patch = PatchParams(content=content, reason="a tool's call")
        return await self._done(self._changes.patched(self._caller, self.scope, item_id, patch))

    async def forget(self, item_id: str) -> receipts.NativeMutationReceipt:
        """Delete a memory. A pinned memory is refused."""
        return await self._done(self._changes.forgotten(self._caller, self.scope, item_id, force=False))

    async def _done(self, change: Awaitable[dict[str, Any]]) -> receipts.NativeMutationReceipt:
        try:
            done = await change
        except Refused as refused:
            item_id, status = refused.more["id"], refused.more["status"]
            if status == "unknown":
                return receipts.NativeMutationReceipt(status="unknown", native_ids=(item_id,))
            if status == "not_supported":
                raise errors.CapabilityNotSupported(str(refused)) from None
            words = {
                "not_found": "there is no memory of this id",
                "pinned_requires_force": "the user has pinned this memory; it is not forgotten",
            }
            raise errors.InputError(words.get(status, str(refused))) from None
        return receipts.NativeMutationReceipt(status="committed", native_ids=(done["id"],))


@asynccontextmanager
async def open_reach(slot: MemorySlot, *, read_only: bool = False) -> AsyncIterator[MemoryItems]:
    """Open the memories of the slot's scope, with the labels that ``memslot serve`` keeps.

    Args:
        slot: an open slot. The code that opened it closes it.
        read_only: whether to forbid changes. The slot then stays read-only.

    Raises:
        ScopeError: the slot has no scope.
        StoreError: the host store cannot be read.
    """
    with HostStore(slot.backend_name, slot.delivery.store) as store:
        memories = Memories(slot, Sessions("shared", store), store)
        caller = Caller(slot.delivery.scope_or_default(None), read_only=read_only)
        if read_only:
            await only_read(slot, [caller])
        yield ReachItems(Changes(memories), caller)


async def only_read(slot: MemorySlot, callers: Iterable[Caller]) -> None:
    """Set up every caller's scope, then make the slot read-only, because it refuses set-ups then."""
    for caller in callers:
        try:
            await slot.setup_scope(caller.scope)
        except errors.BackendError as error:
            log.warning("%s: a scope cannot be read: %s", slot.backend_name, error)
    await slot.set_mode(AdapterMode(read_only=True, reason="started with --read-only"))
