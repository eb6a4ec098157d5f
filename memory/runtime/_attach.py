"""One memory, several processes of one user: the first serves its store, later ones attach to it; when it ends,
one of them becomes the owner. A call is a line of JSON and its answer another, over a Unix socket only its user
may enter.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
from pydantic_core import to_jsonable_python

from memory.contract._loops import on_trio
from memory.contract.adapter import AdapterTraits, MemoryAdapter, close_adapter, native_scope_of
from memory.contract.errors import BackendUnavailable, LifecycleError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import ModeReceipt, WriteReceipt
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._attach_owner import MAX_LINE, METHODS, Owner, Place, answered, error_of, send
from memory.runtime._sockets import connected_to
from memory.slot.host_store import HOST_FILE
from memory.slot.rendering import without_recalled_context
from memory.slot.slot import MemorySlot

_OPENING_S = 30.0
_NO_ANSWER = "the process that has it open closed the connection before it answered"
_PAUSE_S = 0.05
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# How often the scope of the event that is being written was reset when it was accepted; None: it is just now.
_accepted: ContextVar[int | None] = ContextVar("accepted", default=None)


class _ResetMeanwhile(MemslotError):
    """A reset of its scope came before an event."""


class _Attached:
    """A memory that another process has open. What needs no store is asked of an adapter that is never opened."""

    def __init__(self, native: MemoryAdapter, owner: Owner) -> None:
        self.backend_name, self.traits = native.backend_name, AdapterTraits.of(native)
        self.native_scope, self.format_context = partial(native_scope_of, native), native.format_context
        self._native = native
        self._owner = owner
        self._idle: list[_Connection] = []
        self._pid = os.getpid()

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Of this process's slot alone; others go on as they are."""
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        if (resets := _accepted.get()) is None:
            return cast(WriteReceipt, await self.call("record_event", event))
        receipt = await self.call("record_accepted", event, resets)
        if receipt is None:
            raise _ResetMeanwhile("its scope was reset since it was accepted")
        return cast(WriteReceipt, receipt)

    async def aclose(self) -> None:
        self._close_idle()
        await close_adapter(self._native)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    async def call(self, name: str, *arguments: Any) -> Any:
        """One call, of the owner there is; a read that lost its owner is asked of the next."""
        if os.getpid() != self._pid:
            raise LifecycleError(
                "this memory was opened before the process was forked; open it in each worker"
            )
        method = METHODS[name]
        call = {"method": name, "arguments": to_jsonable_python(arguments)}
        for attempt in (1, 2):
            reached = await self._reached()
            if isinstance(reached, MemorySlot):
                answer = await answered(reached, call, self._owner.resets)
            else:
                try:
                    answer = await self._asked(reached, call)
                except OSError as error:
                    self._close_idle()  # its other connections have ended with it
                    if method.repeatable and attempt == 1:
                        continue
                    raise self._unavailable(
                        "the process that has it open closed the connection before it answered", sent=True
                    ) from error
            if "error" in answer:
                raise error_of(answer, self.backend_name, name)
            return method.result.validate_python(answer["result"])
        raise AssertionError

    async def _reached(self) -> MemorySlot | _Connection:
        """The store itself, where this process owns it by now; else a connection to its owner."""
        with anyio.move_on_after(_OPENING_S):
            while True:
                if self._owner.slot is not None:
                    return self._owner.slot
                while self._idle:
                    lines, writer = self._idle.pop()
                    if not (lines.at_eof() or writer.is_closing()):
                        return lines, writer
                    writer.close()
                try:
                    path = Path(self._owner.place.note.read_text("utf-8"))
                    return await asyncio.open_unix_connection(sock=connected_to(path), limit=MAX_LINE)
                except BlockingIOError:
                    pass  # its owner is busy
                except (OSError, ValueError):
                    if (slot := await self._owner.succeed()) is not None:
                        return slot
                await anyio.sleep(_PAUSE_S)  # its owner is still opening it
        why = f"the process that has it open took no call for {_OPENING_S:g} s; nothing was sent"
        raise self._unavailable(why, sent=False)

    async def _asked(self, connection: _Connection, call: dict[str, Any]) -> dict[str, Any]:
        lines, writer = connection
        try:
            await send(writer, call)
            line = await lines.readline()
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the connection ended without an answer")
            answer: dict[str, Any] = json.loads(line)
        except BaseException:
            writer.close()
            raise
        self._idle.append(connection)
        return answer

    def _unavailable(self, why: str, *, sent: bool) -> BackendUnavailable:
        return BackendUnavailable(f"{self.backend_name}: {why}", backend_name=self.backend_name, sent=sent)


class AttachedSlot(MemorySlot):
    """The slot of an attached process: its journal is the owner's."""

    _journal = False
    _owner: Owner

    @classmethod
    def of(cls, settings: MemslotConfig, scope: MemoryScope | None, owner: Owner) -> AttachedSlot:
        counter = settings.token_counter()
        native = MemoryAdapterRegistry().create(settings, token_counter=counter)
        slot = cls(
            cast(MemoryAdapter, _attached(native, owner)),
            scope=scope,
            budget=settings.memory.budget,
            deadlines=settings.memory.deadlines,
            token_counter=counter,
        )
        slot.host_file = settings.data_dir / HOST_FILE  # now: its owner empties it at a reset
        slot._journal, slot._owner = settings.journal is not None, owner
        owner.backend_name = native.backend_name
        slot.resets()  # from now on they are counted
        return slot

    @property
    def has_journal(self) -> bool:
        return self._journal

    async def keep_event(self, event: MemoryEvent) -> bool | None:
        if self.read_only or self.closed or not self._journal:
            return None
        kept = await cast(_Attached, self._adapter).call("keep_event", without_recalled_context(event))
        return None if kept is None else bool(kept)

    def resets(self, scope: MemoryScope | None = None) -> int:
        """Of every process: one of another is no less an end of what waits here."""
        return self._owner.resets(scope)

    async def record_accepted(
        self, event: MemoryEvent, resets: int, count: Callable[[MemoryScope], int] | None = None
    ) -> WriteReceipt | None:
        before = _accepted.set(resets)
        try:
            return await super().record_accepted(event, resets, count)
        except _ResetMeanwhile:
            return None
        finally:
            _accepted.reset(before)


def _attached(native: MemoryAdapter, owner: Owner) -> Any:
    """An adapter with the capabilities of ``native``, and no other."""

    def remote(name: str) -> Callable[..., Awaitable[Any]]:
        async def call(self: _Attached, *arguments: Any) -> Any:
            return await self.call(name, *arguments)

        return call

    asked = METHODS.keys() - vars(_Attached).keys()
    members: dict[str, Any] = {name: remote(name) for name in asked if hasattr(native, name)}
    members["withheld_capabilities"] = getattr(native, "withheld_capabilities", frozenset())
    return type("Attached", (_Attached,), members)(native, owner)


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
            attached = AttachedSlot.of(settings, scope, owner)
            yield attached
    finally:
        with anyio.CancelScope(shield=True):
            if attached is not None:
                await attached.aclose()
            await owner.aclose()
