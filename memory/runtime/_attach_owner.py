"""The process that has a memory open and serves it to other processes of the same user, by lines of JSON."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, get_type_hints

import anyio
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from memory.contract import errors, receipts
from memory.contract._surviving import Failures, ends_the_task
from memory.contract.adapter import CAPABILITIES
from memory.contract.errors import BackendError, BackendProtocolError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig
from memory.plugins.opening import build_slot
from memory.runtime._sockets import SocketOwner, keep_from_children, let_go, socket_in
from memory.slot.background import Background
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

log = logging.getLogger("memslot.runtime")

MAX_LINE = 64_000_000  # bytes of a call or of an answer
_CLOSING_S = 5.0


class _ReceivedResult(receipts.RetrieveResult):
    """A result from the wire. It validates the fields that the contract leaves unchecked for adapters."""

    entries: tuple[receipts.ContextEntry, ...] = ()
    included: tuple[int, ...] = ()


@dataclass(frozen=True)
class Method:
    arguments: TypeAdapter[Any]
    result: TypeAdapter[Any]
    repeatable: bool = False  # whether the call may be sent again to the next owner


def _method(*arguments: Any, result: Any, repeatable: bool = False) -> Method:
    return Method(TypeAdapter(tuple[arguments]), TypeAdapter(result), repeatable)  # type: ignore[valid-type]


def _declared(function: Callable[..., Any]) -> Method:
    """Build a capability's method from its protocol's type hints."""
    hints = get_type_hints(function)
    result = hints.pop("return")
    return _method(*hints.values(), result=result, repeatable=function.__name__ in _READS)


_READS = frozenset({"readiness", "wait_until_ready", "provenance", "native_query"})
METHODS: Mapping[str, Method] = {
    "setup_scope": _method(MemoryScope, result=None, repeatable=True),
    "health": _method(result=receipts.BackendHealth, repeatable=True),
    "keep": _method(MemoryEvent, result=bool | None, repeatable=True),
    "record_event": _method(MemoryEvent, result=receipts.WriteReceipt),
    "retrieve": _method(RetrieveRequest, result=_ReceivedResult, repeatable=True),
    "reset_scope": _method(MemoryScope, result=receipts.ResetReceipt),
    "find_event": _method(MemoryEvent, result=tuple[str, ...] | None, repeatable=True),
    **{
        name: _declared(function)
        for protocol in CAPABILITIES.values()
        for name, function in vars(protocol).items()
        if not name.startswith("_")
    },
}


async def answered(slot: MemorySlot, call: Any) -> dict[str, Any]:
    """Execute a call and return its answer."""
    try:
        name = call["method"]
        arguments = METHODS[name].arguments.validate_python(call["arguments"])
        if name in ("health", "keep"):
            return {"result": to_jsonable_python(await _bound(slot, name)(*arguments))}
        first = arguments[0][0] if isinstance(arguments[0], list) else arguments[0]
        await slot.delivery.set_up(first if isinstance(first, MemoryScope) else first.scope)
        result = None if name == "setup_scope" else await _bound(slot, name)(*arguments)
        return {"result": to_jsonable_python(result)}
    except MemslotError as error:
        return _failure(error)
    except BaseException as error:
        if ends_the_task(error):
            raise
        message = f"an attached call failed ({type(error).__name__})"
        return {"error": "BackendProtocolError", "message": message}


def _failure(error: MemslotError) -> dict[str, Any]:
    sent, details = getattr(error, "sent", None), dict(getattr(error, "diagnostics", {}))
    return {"error": type(error).__name__, "message": str(error), "sent": sent, "diagnostics": details}


def _bound(slot: MemorySlot, name: str) -> Callable[..., Awaitable[Any]]:
    """Return the method of the slot, its delivery or one of its capabilities.

    Raises:
        CapabilityNotSupported: the backend has no such method.
    """
    for holder in (slot, slot.delivery):
        if hasattr(holder, name):
            return cast(Callable[..., Awaitable[Any]], getattr(holder, name))
    for protocol in CAPABILITIES.values():
        if hasattr(protocol, name) and (capability := slot.capability(protocol)) is not None:
            return cast(Callable[..., Awaitable[Any]], getattr(capability, name))
    raise errors.CapabilityNotSupported(f"{slot.backend_name} cannot {name}")


def error_of(answer: Mapping[str, Any], backend: str, operation: str) -> MemslotError:
    kind = getattr(errors, str(answer["error"]), None)
    message = str(answer.get("message", ""))
    if not (isinstance(kind, type) and issubclass(kind, MemslotError)):
        return BackendProtocolError(message, backend_name=backend, operation=operation)
    if issubclass(kind, BackendError):
        given = {"diagnostics": answer.get("diagnostics"), "sent": answer.get("sent")}
        return kind(message, backend_name=backend, operation=operation, **given)
    return kind(message)


async def send(writer: asyncio.StreamWriter, content: Mapping[str, Any]) -> None:
    writer.write(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    await writer.drain()


def socket_of(config: MemslotConfig) -> Path:
    """Return the path of the socket that processes with the same configuration share."""
    journal = [str(config.journal), "journal" in config.memory.model_fields_set]
    store = [config.provider, str(config.data_dir.resolve()), config.options, *journal]
    name = sha256(json.dumps(store, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return socket_in(config.data_dir.resolve() / "attach", f"{name}.sock")


class Owner:
    """The right to own a memory, and the server that runs while this process holds that right."""

    def __init__(self, settings: MemslotConfig) -> None:
        self.socket = SocketOwner(socket_of(settings), what="this memory")
        self.slot: MemorySlot | None = None
        self.backend_name = settings.provider
        self._settings = settings
        self._background = Background()
        self._server: asyncio.Server | None = None
        self._failures = Failures("attach", log)
        self._conversations: set[asyncio.Task[Any]] = set()
        self._electing: anyio.Lock | None = None
        self._store: HostStore | None = None

    def resets(self, scope: MemoryScope | None = None) -> int:
        """Count the resets of a scope, or of all scopes, by any owner since the first process attached."""
        if self._store is None:
            self._store = HostStore(self.backend_name, self._settings.data_dir)
        return self._store.resets(scope)

    async def succeed(self) -> MemorySlot | None:
        """Become the owner if no process is. Returns the slot if this process is the owner, else None."""
        self._electing = self._electing or anyio.Lock()
        async with self._electing:
            if self.slot is None and self.socket.take():
                log.warning("the process that had this memory open has ended; this one has it now")
                await self.serve(build_slot(self._settings))
        return self.slot

    async def serve(self, slot: MemorySlot) -> MemorySlot:
        self.slot, self.backend_name = slot, slot.backend_name
        listener = self.socket.listen()
        self._server = await asyncio.start_unix_server(self._converse, sock=listener, limit=MAX_LINE)
        return slot

    async def _converse(self, lines: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one call of a connection."""
        slot, task = self.slot, asyncio.current_task()
        assert slot is not None
        assert task is not None
        self._conversations.add(task)
        descriptor = writer.get_extra_info("socket").fileno()
        keep_from_children(descriptor)
        try:
            with self._failures.survived("an attached call"), suppress(OSError):
                await self._answer(slot, lines, writer)
        finally:
            let_go(descriptor)
            self._conversations.discard(task)
            writer.close()

    async def _answer(
        self, slot: MemorySlot, lines: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            call = await _call_on(lines)
        except errors.InputError as error:
            await send(writer, _failure(error))
            return
        if call is None:
            return  # the other process has ended
        answer = await answered(slot, call)
        await send(writer, answer)
        if call["method"] == "keep" and answer.get("result"):
            scope = MemoryScope(**call["arguments"][0]["scope"])
            self._background.start(partial(_deliver, slot, scope))

    async def aclose(self) -> None:
        """Take no new call, finish the running ones, and close the memory if this process owns it."""
        if self._server is not None:
            self._server.close()
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=_CLOSING_S)
        try:
            if self.slot is not None:
                await self.slot.aclose()
        finally:
            if self._store is not None:
                self._store.close()
            self.socket.close()


async def _call_on(lines: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read the call of a connection; None if the connection has ended."""
    try:
        line = await lines.readline()
    except ValueError:
        why = f"an attached call is longer than {MAX_LINE} bytes; nothing was done"
        raise errors.InputError(why) from None
    if not line:
        return None
    try:
        call = json.loads(line)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict):
        raise errors.InputError("an attached call cannot be read; nothing was done")
    return call


async def _deliver(slot: MemorySlot, scope: MemoryScope) -> None:
    """Deliver events that an attached process kept. While the backend is down, they wait in the outbox."""
    try:
        await slot.delivery.set_up(scope)
        await slot.delivery.deliver(scope)
    except MemslotError as error:
        log.warning("%s: events wait in the outbox: %s", slot.backend_name, error)
