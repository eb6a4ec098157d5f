"""Reading, changing and forgetting single memories by Signet's protocol (every failure has a status of its
own), and the memories a token reaches, as tools use those of one scope.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread

from memory.contract import errors, receipts
from memory.contract.adapter import SupportsFeedback
from memory.contract.requests import AdapterMode, MemoryFeedback
from memory.contract.scope import MemoryScope
from memory.plugins.config import Isolate
from memory.runtime._items import Item, MemoryItems
from memory.runtime.signet.book import Filters, Note, importance_of, tags_of
from memory.runtime.signet.memories import Memories
from memory.runtime.signet.sessions import Caller, Sessions
from memory.runtime.signet.types import Refused, text_of
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

_ASK_FIRST = 25  # memories; more are forgotten with the token of a preview only
_READ_ONLY = {"status": "read_only", "error": "this memory is read-only"}


class Changes:
    """Changes of single memories by ``/api/memory/...``, in all scopes of a caller."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self._book = memories.book
        self._slot = memories.slot

    async def modify(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/memory/modify``: every patch has a result of its own."""
        patches = body.get("patches")
        if not isinstance(patches, list) or not patches:
            raise Refused(400, "patches[] is required")
        if len(patches) > 100:
            raise Refused(400, "patches[] holds more than 100; send fewer at a time")
        scope, reason = self.memories.scope_of(caller, body), text_of(body, "reason")
        results = [
            await self.patched(caller, scope, text_of(patch, "id"), patch, reason) for patch in patches
        ]
        updated = sum(result["status"] == "updated" for result in results)
        return {"total": len(results), "updated": updated, "results": results}

    async def patched(
        self, caller: Caller, scope: MemoryScope, item_id: str | None, patch: Any, reason: str | None = None
    ) -> dict[str, Any]:
        """Apply one patch. ``status`` names a failure; nothing is raised."""
        if not item_id or not isinstance(patch, Mapping):
            return {"id": None, "status": "invalid_request", "error": "Patch id is required"}
        if not (text_of(patch, "reason") or reason):
            return {"id": item_id, "status": "invalid_request", "error": "reason is required"}
        try:
            content, labels = self.memories.checked(patch.get("content")), _labels(patch)
        except Refused as refused:
            return {"id": item_id, "status": "invalid_request", "error": str(refused)}
        if content is None and not labels:
            return {"id": item_id, "status": "invalid_request", "error": "there is nothing to change"}
        if self.memories.is_read_only(caller):
            return _READ_ONLY | {"id": item_id}
        async with self.memories.alone(caller.scope, item_id):
            found = await self.memories.find(caller, scope, item_id)
            if found is None:
                return {"id": item_id, "status": "not_found"}
            scope, note = found
            if patch.get("if_version") not in (None, note.version):
                return {"id": item_id, "status": "version_conflict", "currentVersion": note.version}
            if content is not None:
                if failed := await self._natively(scope, note, content):
                    return failed
                note.content = content
                await anyio.to_thread.run_sync(self._book.unlike_its_words, scope, note)
            for name, value in labels.items():
                setattr(note, name, value)
            note.version += 1
            self._book.put(scope, note)
            return _changed(note, "updated", contentChanged=content is not None)

    async def forgotten(
        self, caller: Caller, scope: MemoryScope, item_id: str, *, force: bool
    ) -> dict[str, Any]:
        if self.memories.is_read_only(caller):
            return _READ_ONLY | {"id": item_id}
        async with self.memories.alone(caller.scope, item_id):
            there = await self.memories.find(caller, scope, item_id)
            # A process that was killed here may have left the words of a memory that the backend has deleted.
            noted = there or self.memories.noted(self.memories.sessions.holders(caller, scope), item_id)
            if noted is None or noted[1].deleted:
                return {"id": item_id, "status": "not_found"}
            scope, note = noted
            if note.pinned and not force:
                return {"id": item_id, "status": "pinned_requires_force", "currentVersion": note.version}
            if there and (failed := await self._natively(scope, note, None)):
                return failed
            note.version += 1
            await anyio.to_thread.run_sync(self._book.unlike_its_words, scope, note)
            await anyio.to_thread.run_sync(self.memories.sessions.forget_words, scope)
            # Last: until it is noted as deleted, it may be forgotten again.
            await anyio.to_thread.run_sync(self._book.forget, scope, note)
            return _changed(note, "deleted")

    async def forget(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/memory/forget``: a preview, unless ``mode`` is ``execute``."""
        mode = body.get("mode", "preview")
        if mode not in ("preview", "execute"):
            raise Refused(400, "mode must be preview or execute")
        if mode == "execute" and not text_of(body, "reason"):
            raise Refused(400, "reason is required for execute mode")
        scope = self.memories.scope_of(caller, body)
        candidates = await self._candidates(caller, scope, body)
        token = hashlib.sha256("\n".join(str(row["id"]) for row in candidates).encode()).hexdigest()[:32]
        confirm = len(candidates) > _ASK_FIRST
        if mode == "preview":
            return {
                "mode": "preview",
                "count": len(candidates),
                "requiresConfirm": confirm,
                "confirmToken": token,
                "candidates": candidates,
            }
        if confirm and body.get("confirm_token") != token:
            raise Refused(400, "confirm_token is required: preview first, and send its confirmToken")
        force = body.get("force") is True
        results = [await self.forgotten(caller, scope, str(row["id"]), force=force) for row in candidates]
        deleted = sum(result["status"] == "deleted" for result in results)
        return {"mode": "execute", "requested": len(results), "deleted": deleted, "results": results}

    async def rated(self, caller: Caller, session_key: str, ratings: Mapping[str, float]) -> int:
        feedback = self._slot.capability(SupportsFeedback)
        if feedback is None:
            why = f"{self._slot.backend_name} takes no feedback; nothing was recorded"
            raise errors.CapabilityNotSupported(why)
        if self.memories.is_read_only(caller):
            raise Refused(403, "this memory is read-only; nothing was recorded")
        session = self.memories.sessions.find(caller, session_key)
        taken = 0
        for item_id, rating in ratings.items():
            found = await self.memories.find(caller, session.scope if session else caller.scope, item_id)
            if found is None:
                continue
            verdict = "of use" if rating > 0 else "harmful" if rating < 0 else "not used"
            sent = MemoryFeedback(
                feedback_id=uuid.uuid4().hex,
                scope=found[0],
                session_id=session_key,
                timestamp=datetime.now(UTC),
                content=f"This memory was {verdict} ({rating:g}).",
                native_ids=(item_id,),
            )
            async with self._slot.delivery.leases.lease(found[0]):
                receipt = await feedback.apply_feedback(sent)
            taken += receipt.status not in ("skipped_read_only", "unknown")
        return taken

    async def _candidates(
        self, caller: Caller, scope: MemoryScope, body: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        ids = body.get("ids")
        if isinstance(ids, list):
            if len(ids) > 1000 or not all(isinstance(item_id, str) and item_id for item_id in ids):
                raise Refused(400, "ids must be a list of at most 1000 ids")
            scores = dict.fromkeys(ids, 0)
        elif text_of(body, "query"):
            scores = {row["id"]: row["score"] for row in await self.memories.recall(caller, body)}
        else:
            raise Refused(400, "ids or query is required")
        holders = self.memories.sessions.holders(caller, scope)
        rows = []
        for item_id, score in scores.items():
            row = {"id": item_id, "score": score, "pinned": False, "version": None}
            if noted := self.memories.noted(holders, item_id):
                row |= {"pinned": noted[1].pinned, "version": noted[1].version}
            if noted or isinstance(ids, list):
                rows.append(row)
        return rows

    async def _natively(self, scope: MemoryScope, note: Note, content: str | None) -> dict[str, Any] | None:
        """Change the backend's record, or delete it; the result to answer where that failed."""
        items = MemoryItems(self._slot, scope)
        try:
            receipt = await (items.forget(note.id) if content is None else items.modify(note.id, content))
        except (errors.ScopeError, errors.BackendRejected):
            if await items.gone(note.id):
                return {"id": note.id, "status": "not_found"}
            refused = f"{self._slot.backend_name} keeps this memory as it is"
            return {"id": note.id, "status": "not_supported", "error": refused}
        except errors.CapabilityNotSupported as error:
            return {"id": note.id, "status": "not_supported", "error": str(error)}
        if receipt.status == "skipped_read_only":
            return _READ_ONLY | {"id": note.id}
        if receipt.status == "unknown":
            return {"id": note.id, "status": "unknown", "error": "the backend did not answer"}
        return None


def _changed(note: Note, status: str, **more: Any) -> dict[str, Any]:
    versions = {"currentVersion": note.version - 1, "newVersion": note.version}
    return {"id": note.id, "status": status, **versions, **more}


def _labels(patch: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that a patch changes, by the names of :class:`Note`."""
    pinned, tags = patch.get("pinned"), patch.get("tags")
    labels = {
        "type": text_of(patch, "type"),
        "importance": importance_of(patch.get("importance")),
        "pinned": pinned if isinstance(pinned, bool) else None,
    }
    labels = {name: value for name, value in labels.items() if value is not None}
    return labels | ({"tags": tags_of(tags)} if isinstance(tags, (str, list)) else {})


log = logging.getLogger("memslot.runtime")

_WORST_FIRST = ("failed", "unknown", "pending", "ready")


class ReachItems(MemoryItems):
    """Reads all of a caller's reach, and writes outside of projects, as a tool that names no project does."""

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
        """As :meth:`MemoryItems.search`, over all scopes of the caller's reach. No tool gives filters."""
        if filters:
            raise errors.InputError("filters: a search over several projects takes none")
        scopes = self._memories.sessions.reach(self._caller, self.scope)
        return [item for item, _ in await self._memories.search(scopes, query, limit, Filters({}))]

    async def store(self, content: str, **fields: Any) -> receipts.WriteReceipt:
        """As :meth:`MemoryItems.store`; the same words are stored once."""
        if not (checked := self._memories.checked(content)):
            raise errors.InputError("content: is blank; nothing was stored")
        note, receipt = await self._memories.store(self._caller, self.scope, Note("", checked))
        known: receipts.WriteStatus = "committed" if "get" in self.offered else "queued"
        return receipt or receipts.WriteReceipt(event_id=note.id, native_ids=(note.id,), status=known)

    async def get(self, item_id: str) -> Item | None:
        found = await self._memories.find(self._caller, self.scope, item_id)
        return None if found is None else Item(found[1].id, found[1].content)

    async def modify(self, item_id: str, content: str) -> receipts.NativeMutationReceipt:
        patch = {"content": content, "reason": "a tool's call"}
        return _receipt(await self._changes.patched(self._caller, self.scope, item_id, patch))

    async def forget(self, item_id: str) -> receipts.NativeMutationReceipt:
        """As :meth:`MemoryItems.forget`, wherever it is; a pinned memory is refused."""
        return _receipt(await self._changes.forgotten(self._caller, self.scope, item_id, force=False))

    async def readiness(self) -> receipts.BackendReadiness | None:
        """The readiness of the least ready scope."""
        scopes = self._memories.sessions.reach(self._caller, self.scope)
        known = filter(None, [await MemoryItems(self.slot, scope).readiness() for scope in scopes])
        return min(known, key=lambda readiness: _WORST_FIRST.index(readiness.state), default=None)

    async def provenance(self, item_id: str) -> receipts.ProvenanceResult:
        found = await self._memories.find(self._caller, self.scope, item_id)
        return await MemoryItems(self.slot, found[0] if found else self.scope).provenance(item_id)


@asynccontextmanager
async def open_reach(
    slot: MemorySlot, isolate: Isolate, *, read_only: bool = False
) -> AsyncIterator[MemoryItems]:
    """The memories of the slot's own scope, with those of the projects that ``memslot serve`` divides it into.

    Args:
        slot: open; whoever opened it closes it.
        isolate: what projects share.
        read_only: nothing may be changed, and the slot is read-only from now on.

    Raises:
        ScopeError: the slot has no scope.
        StoreError: what is kept beside the memory cannot be read.
    """
    with HostStore(slot.backend_name, slot.delivery.store) as store:
        memories = Memories(slot, Sessions(isolate, store), store)
        caller = Caller(slot.delivery.scope_or_default(None), read_only=read_only)
        if read_only:
            await only_read(slot, memories.sessions, [caller])
        yield ReachItems(Changes(memories), caller)


async def only_read(slot: MemorySlot, sessions: Sessions, callers: Iterable[Caller]) -> None:
    """Become read-only. First set up every scope that callers use, because a read-only slot refuses that."""
    for caller in callers:
        for scope in sessions.used(caller):
            try:
                await slot.setup_scope(scope)
            except errors.BackendError as error:
                log.warning("%s: a scope cannot be read: %s", slot.backend_name, error)
    await slot.set_mode(AdapterMode(read_only=True, reason="started with --read-only"))


def _receipt(result: Mapping[str, Any]) -> receipts.NativeMutationReceipt:
    """The outcome of a change. Raises its failure."""
    status = result["status"]
    if status in ("updated", "deleted", "unknown"):
        became: receipts.WriteStatus = "unknown" if status == "unknown" else "committed"
        return receipts.NativeMutationReceipt(status=became, native_ids=(str(result["id"]),))
    if status == "not_supported":
        raise errors.CapabilityNotSupported(str(result["error"]))
    words = {
        "not_found": "there is no memory of this id",
        "pinned_requires_force": "the user has pinned this memory; it is not forgotten",
    }
    raise errors.InputError(words.get(status) or str(result.get("error") or status.replace("_", " ")))
