"""One memory, several processes of one user: the first owns its store, and later ones attach to it.

A call is a line of JSON and its answer another, over a Unix socket that only its user may enter. When the owner
ends, one of the others becomes the owner.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from memory.contract._loops import on_trio
from memory.contract.events import MemoryEvent
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._attach_owner import Owner, Place
from memory.runtime._remote import RemoteAdapter, remote_adapter
from memory.slot.delivery import Delivery, HostDefaults
from memory.slot.rendering import without_recalled_context
from memory.slot.slot import MemorySlot


class AttachedDelivery(Delivery):
    """The delivery of an attached process: its journal and its resets are the owner's.

    Args:
        slot: of this process, over ``remote``.
        remote: asks the owner.
        settings: of the memory.
        owner: the right to own the memory.
    """

    def __init__(
        self, slot: MemorySlot, remote: RemoteAdapter, settings: MemslotConfig, owner: Owner
    ) -> None:
        made = slot.delivery
        host = HostDefaults(made.scope, made.budget, made.token_counter)
        super().__init__(made._calls, None, None, made.leases, host)
        self._remote = remote
        self.has_journal = settings.journal is not None
        self._owner = owner
        self.store = settings.store()  # for hosts alone: its owner empties it at a reset
        self.resets_of()  # from now on they are counted

    async def keep(self, event: MemoryEvent) -> bool | None:
        """As the owner's."""
        if self._calls.gate.read_only or self._calls.closed:
            return None
        kept = await self._remote.call("keep", without_recalled_context(event))
        return None if kept is None else bool(kept)

    def resets_of(self, scope: MemoryScope | None = None) -> int:
        """Resets by every process: what waits here ends with each of them."""
        return self._owner.resets(scope)


def _attached_slot(settings: MemslotConfig, scope: MemoryScope | None, owner: Owner) -> MemorySlot:
    counter = settings.token_counter()
    native = MemoryAdapterRegistry().create(settings, token_counter=counter)
    remote = remote_adapter(native, owner)
    slot = MemorySlot(
        remote,
        scope=scope,
        budget=settings.memory.budget,
        deadlines=settings.memory.deadlines,
        token_counter=counter,
    )
    owner.backend_name = native.backend_name
    slot.delivery = AttachedDelivery(slot, remote, settings, owner)
    return slot


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
            attached = _attached_slot(settings, scope, owner)
            yield attached
    finally:
        with anyio.CancelScope(shield=True):
            if attached is not None:
                await attached.aclose()
            await owner.aclose()
