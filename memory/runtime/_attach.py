"""One memory, several processes of one user: the first owns its store, and later ones attach to it.

A call is a line of JSON and its answer another, over a Unix socket that only its user may enter. When the owner
ends, one of the others becomes the owner.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from memory.contract._loops import on_trio
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._attach_owner import Owner, Place
from memory.runtime._remote import ResetMeanwhile, remote_adapter
from memory.slot.host_store import HOST_FILE
from memory.slot.rendering import without_recalled_context
from memory.slot.slot import MemorySlot


class AttachedSlot(MemorySlot):
    """The slot of an attached process: its journal is the owner's."""

    def __init__(self, settings: MemslotConfig, scope: MemoryScope | None, owner: Owner) -> None:
        counter = settings.token_counter()
        native = MemoryAdapterRegistry().create(settings, token_counter=counter)
        self._remote = remote_adapter(native, owner)
        self._journal = settings.journal is not None
        self._owner = owner
        super().__init__(
            self._remote,
            scope=scope,
            budget=settings.memory.budget,
            deadlines=settings.memory.deadlines,
            token_counter=counter,
        )
        self.host_file = settings.data_dir / HOST_FILE  # for hosts alone: its owner empties it at a reset
        owner.backend_name = native.backend_name
        self.resets()  # from now on they are counted

    @property
    def has_journal(self) -> bool:
        return self._journal

    async def keep_event(self, event: MemoryEvent) -> bool | None:
        if self.read_only or self.closed or not self._journal:
            return None
        kept = await self._remote.call("keep_event", without_recalled_context(event))
        return None if kept is None else bool(kept)

    def resets(self, scope: MemoryScope | None = None) -> int:
        """Resets by every process: what waits here ends with each of them."""
        return self._owner.resets(scope)

    async def record_accepted(
        self, event: MemoryEvent, resets: int, count: Callable[[MemoryScope], int] | None = None
    ) -> WriteReceipt | None:
        try:
            with self._remote.accepted(event, resets):
                return await super().record_accepted(event, resets, count)
        except ResetMeanwhile:
            return None


@asynccontextmanager
async def open_shared(
    config: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    scope: MemoryScope | None = None,
    setup: bool = True,
) -> AsyncIterator[MemorySlot]:
    """As :func:`memory.open_memory`; where another process of this user has this memory open, attached to it.

    On asyncio, where the system has Unix sockets, and without ``memory.state``; else no more than
    :func:`memory.open_memory`.

    Args:
        config, scope: as for :func:`memory.open_memory`.
        setup: set the scope up now. False leaves it to its first use: this opens although the backend is down.

    Raises:
        ConfigError, PluginError: the configuration or the plugin it selects cannot be used.
        BackendError: the scope could not be set up; or the owner is busy opening for too long.
    """
    settings = load_config(config)
    scope = scope or settings.memory.scope
    async with AsyncExitStack() as stack:
        # A shared state makes every process a server of its own.
        if hasattr(socket, "AF_UNIX") and not on_trio() and settings.memory.state is None:
            slot = await stack.enter_async_context(_shared(settings, scope))
        else:
            slot = build_slot(settings, scope=scope)
            stack.push_async_callback(slot.aclose)
        if setup:
            await slot.__aenter__()
        yield slot


@asynccontextmanager
async def _shared(settings: MemslotConfig, scope: MemoryScope | None) -> AsyncIterator[MemorySlot]:
    owner = Owner(settings, Place.of(settings))
    attached: MemorySlot | None = None
    try:
        if owner.take():
            yield await owner.serve(build_slot(settings, scope=scope))
        else:
            attached = AttachedSlot(settings, scope, owner)
            yield attached
    finally:
        with anyio.CancelScope(shield=True):
            if attached is not None:
                await attached.aclose()
            await owner.aclose()
