"""The memories a token reaches, as tools use the memories of one scope: for what is served beside the endpoints."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from memory.contract.errors import BackendError, CapabilityNotSupported, InputError
from memory.contract.receipts import (
    BackendReadiness,
    NativeMutationReceipt,
    ProvenanceResult,
    WriteReceipt,
    WriteStatus,
)
from memory.contract.requests import AdapterMode
from memory.plugins.config import Isolate
from memory.runtime._items import Item, MemoryItems
from memory.runtime.signet.book import Filters, Note
from memory.runtime.signet.changing import Changes
from memory.runtime.signet.memories import Memories
from memory.runtime.signet.sessions import Caller, Sessions
from memory.slot.host_store import HostStore
from memory.slot.slot import MemorySlot

log = logging.getLogger("memslot.runtime")

_WORST_FIRST = ("failed", "unknown", "pending", "ready")


class ReachItems(MemoryItems):
    """Reads all of a caller's reach, and writes outside of projects, as a tool that names no project does."""

    def __init__(self, memories: Memories, changes: Changes, caller: Caller) -> None:
        super().__init__(memories.slot, caller.scope)
        self._memories = memories
        self._changes = changes
        self._caller = caller

    async def search(self, query: str, limit: int = 10, *, session_id: str = "tools") -> list[Item]:
        scopes = self._memories.sessions.reach(self._caller, self.scope)
        return [item for item, _ in await self._memories.search(scopes, query, limit, Filters({}))]

    async def store(self, content: str, **fields: Any) -> WriteReceipt:
        """As :meth:`MemoryItems.store`; the same words are stored once."""
        if not (checked := self._memories.checked(content)):
            raise InputError("content: is blank; nothing was stored")
        note, receipt = await self._memories.store(self._caller, self.scope, Note("", checked))
        known: WriteStatus = "committed" if "get" in self.offered else "queued"
        return receipt or WriteReceipt(event_id=note.id, native_ids=(note.id,), status=known)

    async def get(self, item_id: str) -> Item | None:
        found = await self._memories.find(self._caller, self.scope, item_id)
        return None if found is None else Item(found[1].id, found[1].content)

    async def modify(self, item_id: str, content: str) -> NativeMutationReceipt:
        patch = {"content": content, "reason": "a tool's call"}
        return _receipt(await self._changes.patched(self._caller, self.scope, item_id, patch))

    async def forget(self, item_id: str) -> NativeMutationReceipt:
        """As :meth:`MemoryItems.forget`, wherever it is; a pinned memory is refused."""
        return _receipt(await self._changes.forgotten(self._caller, self.scope, item_id, force=False))

    async def readiness(self) -> BackendReadiness | None:
        """Of the scope that is least ready."""
        scopes = self._memories.sessions.reach(self._caller, self.scope)
        states = [await MemoryItems(self.slot, scope).readiness() for scope in scopes]
        known = [readiness for readiness in states if readiness is not None]
        return min(known, key=lambda readiness: _WORST_FIRST.index(readiness.state), default=None)

    async def provenance(self, item_id: str) -> ProvenanceResult:
        found = await self._memories.find(self._caller, self.scope, item_id)
        scope = self.scope if found is None else found[0]
        return await MemoryItems(self.slot, scope).provenance(item_id)


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
    with HostStore(slot.backend_name, slot.host_file) as store:
        memories = Memories(slot, Sessions(isolate, store), store)
        caller = Caller(slot.scope_or_default(None), read_only=read_only)
        if read_only:
            await only_read(slot, memories.sessions, [caller])
        yield ReachItems(memories, Changes(memories), caller)


async def only_read(slot: MemorySlot, sessions: Sessions, callers: Iterable[Caller]) -> None:
    """Write no more, once every scope that callers have something in is set up: that is refused from then on."""
    for caller in callers:
        for scope in sessions.used(caller):
            try:
                await slot.setup_scope(scope)
            except BackendError as error:
                log.warning("%s: a scope cannot be read: %s", slot.backend_name, error)
    await slot.set_mode(AdapterMode(read_only=True, reason="started with --read-only"))


def _receipt(result: Mapping[str, Any]) -> NativeMutationReceipt:
    """What became of a change; what went wrong with it is raised."""
    status = result["status"]
    if status in ("updated", "deleted"):
        return NativeMutationReceipt(status="committed", native_ids=(str(result["id"]),))
    if status == "unknown":
        return NativeMutationReceipt(status="unknown", native_ids=(str(result["id"]),))
    if status == "not_supported":
        raise CapabilityNotSupported(str(result["error"]))
    words = {
        "not_found": "there is no memory of this id",
        "pinned_requires_force": "the user has pinned this memory; it is not forgotten",
    }
    raise InputError(words.get(status) or str(result.get("error") or status.replace("_", " ")))
