"""One memory for several processes of one user: the first owns its store, and later ones attach to it.

Each call is one line of JSON, and so is its answer. They pass over a Unix socket that only this user can
open. When the owner ends, another process becomes the owner.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from pydantic_core import to_jsonable_python

from memory.contract._loops import on_trio
from memory.contract.adapter import (
    CAPABILITIES,
    MemoryAdapter,
    SupportsEventLookup,
    capabilities_of,
    close_adapter,
    native_scope_of,
)
from memory.contract.errors import BackendUnavailable, LifecycleError
from memory.contract.receipts import ModeReceipt, RetrieveResult
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot, keeps_events
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._attach_owner import MAX_LINE, METHODS, Owner, answered, error_of, send
from memory.runtime._sockets import connected_to
from memory.slot.slot import MemorySlot

_OPENING_S = 30.0
_PAUSE_S = 0.05
_NO_ANSWER = "the process that has it open closed the connection before it answered"


def _asked(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a method that the owner executes."""

    async def ask(adapter: RemoteAdapter, *arguments: Any) -> Any:
        return await adapter.call(name, *arguments)

    return ask


class RemoteAdapter:
    """Forwards calls to the process that owns a memory. Calls that need no store use a local adapter.

    Every forwarded call raises the errors of the owner's slot. It raises BackendUnavailable if no owner
    answers, and LifecycleError in a forked child of the process that opened this adapter.

    Args:
        native: the adapter that the configuration selects.
        owner: the right to own the memory. This process may acquire it when the current owner ends.
        settings: the memory's configuration.

    Attributes:
        keeps_events: whether the owner has a journal.
        host_store: the store for hosts' data that a reset removes. The owner removes it.
    """

    def __init__(self, native: MemoryAdapter, owner: Owner, settings: MemslotConfig) -> None:
        self.keeps_events = keeps_events(settings, native)
        self.host_store = settings.store()
        self.backend_name = native.backend_name
        self.traits = AdapterTraits.of(native)
        self.withheld_capabilities = frozenset(CAPABILITIES) - capabilities_of(native)
        self._native = native
        self._owner = owner
        self._pid = os.getpid()

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return native_scope_of(self._native, scope)

    def format_context(self, result: RetrieveResult) -> str:
        return self._native.format_context(result)

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Acknowledge the mode. It applies to this process's slot, so the owner is not asked."""
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason)

    def resets_of(self, scope: MemoryScope | None = None) -> int:
        """Count the resets by every process, because each of them drops the events that wait here."""
        return self._owner.resets(scope)

    setup_scope = _asked("setup_scope")
    health = _asked("health")
    keep = _asked("keep")
    record_event = _asked("record_event")
    record_events = _asked("record_events")
    retrieve = _asked("retrieve")
    reset_scope = _asked("reset_scope")
    apply_feedback = _asked("apply_feedback")
    readiness = _asked("readiness")
    wait_until_ready = _asked("wait_until_ready")
    native_mutation = _asked("native_mutation")
    provenance = _asked("provenance")
    native_query = _asked("native_query")

    async def aclose(self) -> None:
        await close_adapter(self._native)

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call the owner. If the owner ends, a repeatable call goes to the next one."""
        if os.getpid() != self._pid:
            why = (
                "this memory was opened before the process was forked; open it in each worker, after the fork"
            )
            raise LifecycleError(why)
        method = METHODS[name]
        call = {"method": name, "arguments": to_jsonable_python(arguments)}
        ends = anyio.current_time() + _OPENING_S
        while True:
            reached = await self._reached()
            try:
                if isinstance(reached, MemorySlot):
                    answer = await answered(reached, call)
                else:
                    answer = await _exchanged(*reached, call)
                break
            except OSError as error:
                if not method.repeatable or anyio.current_time() >= ends:
                    raise self._unavailable(_NO_ANSWER, sent=True) from error
                await anyio.sleep(_PAUSE_S)  # several owners may end in succession
        if "error" in answer:
            raise error_of(answer, self.backend_name, name)
        return method.result.validate_python(answer["result"])

    async def _reached(self) -> MemorySlot | tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the slot if this process has become the owner, else a connection to the owner."""
        with anyio.move_on_after(_OPENING_S):
            while self._owner.slot is None:
                try:
                    connection = connected_to(self._owner.socket.path)
                    return await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
                except BlockingIOError:
                    pass  # the owner is busy
                except OSError:
                    if await self._owner.succeed() is not None:
                        break
                await anyio.sleep(_PAUSE_S)  # the owner is still opening the memory
        if self._owner.slot is not None:
            return self._owner.slot
        why = f"the process that has it open took no call for {_OPENING_S:g} s; nothing was sent"
        raise self._unavailable(why, sent=False)

    def _unavailable(self, why: str, *, sent: bool) -> BackendUnavailable:
        return BackendUnavailable(f"{self.backend_name}: {why}", backend_name=self.backend_name, sent=sent)


async def _exchanged(
    lines: asyncio.StreamReader, writer: asyncio.StreamWriter, call: dict[str, Any]
) -> dict[str, Any]:
    """Send a call over a new connection, and return its answer."""
    try:
        await send(writer, call)
        line = await lines.readline()
    finally:
        writer.close()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the connection ended without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer


class SearchingRemoteAdapter(RemoteAdapter):
    """The remote adapter for a backend that can look events up."""

    find_event = _asked("find_event")


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
    kind = SearchingRemoteAdapter if isinstance(native, SupportsEventLookup) else RemoteAdapter
    remote = kind(native, owner, settings)
    owner.backend_name = native.backend_name
    owner.resets()  # starts the count
    return MemorySlot(
        remote,
        scope=scope,
        budget=settings.memory.budget,
        deadlines=settings.memory.deadlines,
        token_counter=counter,
    )
