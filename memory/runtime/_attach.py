"""One memory for several processes of one user: the first owns its store, and later ones attach to it.

Each call is one line of JSON, and so is its answer. They pass over a Unix socket that only this user can
open. When the owner ends, another process becomes the owner.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from memory.contract._loops import on_trio
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._attach_owner import Owner
from memory.runtime._remote import remote_adapter
from memory.slot.slot import MemorySlot


@asynccontextmanager
async def open_shared(
    config: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    scope: MemoryScope | None = None,
    setup: bool = True,
) -> AsyncIterator[MemorySlot]:
    """Open a memory like :func:`memory.open_memory`, or attach to the process of this user that has it open.

    Attaching needs asyncio and Unix sockets. With ``memory.state`` no process attaches: all share that state.

    Args:
        config, scope: as for :func:`memory.open_memory`.
        setup: whether to set the scope up now. False defers it to the first use, so a backend that is down
            does not prevent opening.

    Raises:
        ConfigError, PluginError: the configuration or its plugin cannot be used.
        BackendError: the scope could not be set up, or the owner took too long to open the memory.
    """
    settings = load_config(config)
    scope = scope or settings.memory.scope
    async with AsyncExitStack() as stack:
        # With a shared state, no process needs an owner.
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
    owner = Owner(settings)
    attached: MemorySlot | None = None
    try:
        if owner.socket.take():
            yield await owner.serve(build_slot(settings, scope=scope))
        else:
            attached = _attached_slot(settings, scope, owner)
            yield attached
    finally:
        with anyio.CancelScope(shield=True):
            if attached is not None:
                await attached.aclose()
            await owner.aclose()


def _attached_slot(settings: MemslotConfig, scope: MemoryScope | None, owner: Owner) -> MemorySlot:
    counter = settings.token_counter()
    native = MemoryAdapterRegistry().create(settings, token_counter=counter)
    remote = remote_adapter(native, owner, settings)
    owner.backend_name = native.backend_name
    owner.resets()  # starts the count
    return MemorySlot(
        remote,
        scope=scope,
        budget=settings.memory.budget,
        deadlines=settings.memory.deadlines,
        token_counter=counter,
    )
