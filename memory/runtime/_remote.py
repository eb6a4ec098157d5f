"""An adapter for a memory that another process has open. Each call is a line of JSON over a socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
from pydantic_core import to_jsonable_python

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
from memory.plugins.config import MemslotConfig
from memory.plugins.opening import keeps_events
from memory.runtime._attach_owner import MAX_LINE, METHODS, Owner, answered, error_of, send
from memory.runtime._sockets import connected_to
from memory.slot.slot import MemorySlot

_OPENING_S = 30.0
_PAUSE_S = 0.05
_NO_ANSWER = "the process that has it open closed the connection before it answered"
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
        self._idle: list[_Connection] = []
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
        self._close_idle()
        await close_adapter(self._native)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

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
            if isinstance(reached, MemorySlot):
                answer = await answered(reached, call)
            else:
                try:
                    answer = await self._asked(reached, call)
                except OSError as error:
                    self._close_idle()  # the owner's other connections have ended, too
                    if method.repeatable and anyio.current_time() < ends:
                        await anyio.sleep(_PAUSE_S)  # several owners may end in succession
                        continue
                    raise self._unavailable(_NO_ANSWER, sent=True) from error
            if "error" in answer:
                raise error_of(answer, self.backend_name, name)
            return method.result.validate_python(answer["result"])

    async def _reached(self) -> MemorySlot | _Connection:
        """Return the slot if this process has become the owner, else a connection to the owner."""
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
                    connection = connected_to(self._owner.socket.path)
                    return await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
                except BlockingIOError:
                    pass  # the owner is busy
                except OSError:
                    if (slot := await self._owner.succeed()) is not None:
                        return slot
                await anyio.sleep(_PAUSE_S)  # the owner is still opening the memory
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


class SearchingRemoteAdapter(RemoteAdapter):
    """The remote adapter for a backend that can look events up."""

    find_event = _asked("find_event")


def remote_adapter(native: MemoryAdapter, owner: Owner, settings: MemslotConfig) -> RemoteAdapter:
    """Create the remote adapter that can look events up if ``native`` can."""
    kind = SearchingRemoteAdapter if isinstance(native, SupportsEventLookup) else RemoteAdapter
    return kind(native, owner, settings)
