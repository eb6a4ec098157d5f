"""One memory, several processes of one user: the first serves its store on a local socket, later ones attach to it.

An embedded store and a journal have one owner. Whoever finds them open elsewhere on this machine calls that process
by the adapter below; when it ends, one of those that are attached becomes the owner. A call is a line of
JSON and its answer another, over a Unix socket in a directory that only its user may enter.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import anyio
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from memory.adapter._lockfile import FileLock
from memory.contract import errors
from memory.contract._loops import on_trio
from memory.contract.adapter import CAPABILITIES, AdapterTraits, MemoryAdapter
from memory.contract.errors import BackendError, BackendProtocolError, BackendUnavailable, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import (
    BackendHealth,
    BackendReadiness,
    ContextEntry,
    FeedbackReceipt,
    ModeReceipt,
    NativeMutationReceipt,
    NativeQueryResult,
    ProvenanceResult,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
)
from memory.contract.requests import (
    AdapterMode,
    MemoryFeedback,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
)
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._circuit import Background
from memory.slot.files import replace_file
from memory.slot.host_store import HOST_FILE
from memory.slot.slot import MemorySlot
from memory.slot.stripping import without_recalled_context

log = logging.getLogger("memslot.runtime")

_MAX_LINE = 64_000_000
_MAX_PATH = 100  # of a Unix socket, in bytes
_OPENING_S = 30.0
_PAUSE_S = 0.05
_CLOSING_S = 5.0
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _ReceivedResult(RetrieveResult):
    """Read from the wire, with what the contract leaves unchecked for an adapter's sake."""

    entries: tuple[ContextEntry, ...] = ()
    included: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Method:
    arguments: TypeAdapter[Any]
    result: TypeAdapter[Any]
    repeatable: bool = False  # may be sent again to the next owner


def _method(*arguments: Any, result: Any, repeatable: bool = False) -> _Method:
    return _Method(TypeAdapter(tuple[arguments]), TypeAdapter(result), repeatable)  # type: ignore[valid-type]


_METHODS: Mapping[str, _Method] = {
    "setup_scope": _method(MemoryScope, result=None, repeatable=True),
    "health": _method(result=BackendHealth, repeatable=True),
    "keep_event": _method(MemoryEvent, result=bool | None, repeatable=True),
    "record_event": _method(MemoryEvent, result=WriteReceipt),
    "record_events": _method(list[MemoryEvent], result=list[WriteReceipt]),
    "retrieve": _method(RetrieveRequest, result=_ReceivedResult, repeatable=True),
    "reset_scope": _method(MemoryScope, result=ResetReceipt),
    "find_event": _method(MemoryEvent, result=tuple[str, ...] | None, repeatable=True),
    "readiness": _method(MemoryScope, result=BackendReadiness, repeatable=True),
    "wait_until_ready": _method(MemoryScope, float, result=BackendReadiness, repeatable=True),
    "provenance": _method(ProvenanceRequest, result=ProvenanceResult, repeatable=True),
    "native_query": _method(NativeQueryRequest, result=NativeQueryResult, repeatable=True),
    "native_mutation": _method(NativeMutationRequest, result=NativeMutationReceipt),
    "apply_feedback": _method(MemoryFeedback, result=FeedbackReceipt),
}
_REQUIRED = frozenset({"setup_scope", "record_event", "retrieve", "reset_scope", "health"})


@dataclass(frozen=True)
class _Place:
    """Where the processes that share a memory meet; ``note`` holds the path of the socket its owner listens at."""

    lock: Path
    note: Path
    socket: Path

    @classmethod
    def of(cls, config: MemslotConfig) -> _Place:
        """By what is configured: two configurations of one store that differ do not attach to each other.

        Raises:
            OSError: the directory cannot be made.
        """
        store = [config.provider, str(config.data_dir.resolve()), config.options, str(config.journal)]
        what = json.dumps(store, sort_keys=True, default=str)
        name = sha256(what.encode()).hexdigest()[:16]
        directory = config.data_dir.resolve() / "attach"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        socket_file = directory / f"{name}.sock"
        if len(os.fsencode(socket_file)) > _MAX_PATH:
            private = Path(tempfile.gettempdir()) / f"memslot-{os.getuid()}"
            private.mkdir(exist_ok=True, mode=0o700)
            seen = private.lstat()
            if seen.st_uid != os.getuid() or seen.st_mode & 0o077:
                raise PermissionError(13, "belongs to somebody else", str(private))
            socket_file = private / f"{name}.sock"
        return cls(directory / f"{name}.lock", directory / f"{name}.at", socket_file)


@asynccontextmanager
async def open_shared(
    config: str | Path | Mapping[str, Any] | MemslotConfig,
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
        alone = (
            settings.memory.state is not None
        )  # its state is shared, so every process is a server of its own
        if hasattr(socket, "AF_UNIX") and not on_trio() and not alone:
            slot = await stack.enter_async_context(_shared(settings, scope))
        else:
            slot = build_slot(settings, scope=scope)
            stack.push_async_callback(slot.aclose)
        if setup:
            await slot.__aenter__()
        yield slot


@asynccontextmanager
async def _shared(settings: MemslotConfig, scope: MemoryScope | None) -> AsyncIterator[MemorySlot]:
    owner = _Owner(settings, _Place.of(settings))
    attached: MemorySlot | None = None
    try:
        if owner.take():
            yield await owner.serve(build_slot(settings, scope=scope))
        else:
            attached = _AttachedSlot.of(settings, scope, owner)
            yield attached
    finally:
        with anyio.CancelScope(shield=True):
            if attached is not None:
                await attached.aclose()
            await owner.aclose()


# -- the owner ------------------------------------------------------------------------------------------------


class _Owner:
    """The right to own a memory, and what is served while this process has it."""

    def __init__(self, settings: MemslotConfig, place: _Place) -> None:
        self.place = place
        self.slot: MemorySlot | None = None
        self._settings = settings
        self._lock = FileLock(place.lock, what="this memory", instead="attach to it")
        self._background = Background()
        self._server: asyncio.Server | None = None
        self._conversations: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._electing: anyio.Lock | None = None

    def take(self) -> bool:
        """Become the owner, unless somebody else is."""
        try:
            self._lock.acquire()
        except BackendUnavailable:
            return False
        return True

    async def succeed(self) -> MemorySlot | None:
        """The store, if this process owns it by now, or can."""
        self._electing = self._electing or anyio.Lock()
        async with self._electing:
            if self.slot is None and self.take():
                log.warning("the process that had this memory open has ended; this one has it now")
                await self.serve(build_slot(self._settings))
        return self.slot

    async def serve(self, slot: MemorySlot) -> MemorySlot:
        """Let others of this user attach to a slot; closed with this."""
        self.slot = slot
        with suppress(FileNotFoundError):
            self.place.socket.unlink()
        path = str(self.place.socket)
        self._server = await asyncio.start_unix_server(self._converse, path, limit=_MAX_LINE)
        self.place.socket.chmod(0o600)  # in a directory that nobody else may enter
        replace_file(self.place.note, path, "process")
        return slot

    async def _converse(self, lines: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, call by call."""
        slot, task = self.slot, asyncio.current_task()
        assert slot is not None
        assert task is not None
        self._conversations[task] = writer
        try:
            with suppress(OSError, ValueError, RecursionError):
                while line := await lines.readline():
                    call = json.loads(line)
                    answer = await _answer(slot, call)
                    await _send(writer, answer)
                    if call["method"] == "keep_event" and answer.get("result"):
                        scope = MemoryScope(**call["arguments"][0]["scope"])
                        self._background.start(partial(_deliver, slot, scope))
        finally:
            del self._conversations[task]
            writer.close()

    async def aclose(self) -> None:
        """End what is served, close the store, and let somebody else own it."""
        if self._server is not None:
            self._server.close()
            conversations = dict(self._conversations)
            for writer in conversations.values():
                writer.close()  # what is in work is finished, and its answer lost
            if conversations:
                await asyncio.wait(conversations, timeout=_CLOSING_S)
        try:
            if self.slot is not None:
                await self.slot.aclose()
        finally:
            with suppress(FileNotFoundError):
                if self.slot is not None:
                    self.place.socket.unlink()
            self._lock.release()


async def _deliver(slot: MemorySlot, scope: MemoryScope) -> None:
    """Send what an attached process put into the journal; what the backend cannot take now stays there."""
    try:
        async with slot.leases.lease(scope):
            await slot.deliver_waiting(scope)
    except MemslotError as error:
        log.warning("%s: what waits in the journal stays there: %s", slot.backend_name, error)


async def _answer(slot: MemorySlot, call: Any) -> dict[str, Any]:
    try:
        method = _METHODS[call["method"]]
        arguments = method.arguments.validate_python(call["arguments"])
        result = await _carried_out(slot, call["method"], arguments)
        return {"result": to_jsonable_python(result)}
    except MemslotError as error:
        sent, details = getattr(error, "sent", None), dict(getattr(error, "diagnostics", {}))
        return {"error": type(error).__name__, "message": str(error), "sent": sent, "diagnostics": details}
    except Exception as error:
        return {
            "error": "BackendProtocolError",
            "message": f"an attached call failed ({type(error).__name__})",
        }


async def _carried_out(slot: MemorySlot, name: str, arguments: tuple[Any, ...]) -> Any:
    if name in ("health", "keep_event"):
        return await getattr(slot, name)(*arguments)
    first = arguments[0][0] if isinstance(arguments[0], list) else arguments[0]
    async with slot.leases.lease(first if isinstance(first, MemoryScope) else first.scope):
        return None if name == "setup_scope" else await _bound(slot, name)(*arguments)


def _bound(slot: MemorySlot, name: str) -> Callable[..., Awaitable[Any]]:
    """A method of the slot, or of the guarded capability that has it."""
    if hasattr(slot, name):
        return cast(Callable[..., Awaitable[Any]], getattr(slot, name))
    for protocol in CAPABILITIES.values():
        if hasattr(protocol, name) and (capability := slot.capability(protocol)) is not None:
            return cast(Callable[..., Awaitable[Any]], getattr(capability, name))
    raise errors.CapabilityNotSupported(f"{slot.backend_name} cannot {name}")


# -- who is attached ------------------------------------------------------------------------------------------


class _Attached:
    """A memory that another process has open. What needs no store is asked of an adapter that is never opened."""

    def __init__(self, native: MemoryAdapter, owner: _Owner) -> None:
        self.backend_name = native.backend_name
        self._native = native
        self._owner = owner
        self._idle: list[_Connection] = []

    @property
    def traits(self) -> AdapterTraits:
        """As if it were opened here."""
        return self._native.traits

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """As if it were opened here."""
        return self._native.native_scope(scope)

    def format_context(self, result: RetrieveResult) -> str:
        """As if it were opened here."""
        return self._native.format_context(result)

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Of this process's slot alone; others go on as they are."""
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason)

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
        await self._native.aclose()

    async def call(self, name: str, *arguments: Any) -> Any:
        """One call, of the owner there is; a read that lost its owner is asked of the next."""
        method = _METHODS[name]
        call = {"method": name, "arguments": to_jsonable_python(arguments)}
        for attempt in (1, 2):
            slot, connection = await self._reached()
            if slot is not None:
                answer = await _answer(slot, call)
            else:
                assert connection is not None
                try:
                    answer = await self._asked(connection, call)
                except OSError as error:
                    if method.repeatable and attempt == 1:
                        continue
                    raise self._unavailable("the process that has it open ended", sent=True) from error
            if "error" in answer:
                raise _error(answer, self.backend_name, name)
            return method.result.validate_python(answer["result"])
        raise AssertionError

    async def _reached(self) -> tuple[MemorySlot | None, _Connection | None]:
        """The store itself, where this process owns it by now; else a connection to its owner."""
        with anyio.move_on_after(_OPENING_S):
            while True:
                if self._owner.slot is not None:
                    return self._owner.slot, None
                while self._idle:
                    lines, writer = self._idle.pop()
                    if not (lines.at_eof() or writer.is_closing()):
                        return None, (lines, writer)
                    writer.close()
                try:
                    path = self._owner.place.note.read_text("utf-8")
                    return None, await asyncio.open_unix_connection(path, limit=_MAX_LINE)
                except OSError:
                    if (slot := await self._owner.succeed()) is not None:
                        return slot, None
                await anyio.sleep(_PAUSE_S)  # its owner is still opening it
        raise self._unavailable("the process that has it open does not answer", sent=False)

    async def _asked(self, connection: _Connection, call: dict[str, Any]) -> dict[str, Any]:
        lines, writer = connection
        answer: dict[str, Any] | None = None
        try:
            await _send(writer, call)
            line = await lines.readline()
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the connection ended without an answer")
            answer = json.loads(line)
        finally:
            if answer is not None:
                self._idle.append(connection)
            else:
                writer.close()
        return answer

    def _unavailable(self, why: str, *, sent: bool) -> BackendUnavailable:
        return BackendUnavailable(f"{self.backend_name}: {why}", backend_name=self.backend_name, sent=sent)


class _AttachedSlot(MemorySlot):
    """The slot of an attached process: its journal is the owner's."""

    _journal = False

    @classmethod
    def of(cls, settings: MemslotConfig, scope: MemoryScope | None, owner: _Owner) -> _AttachedSlot:
        """As :func:`build_slot`, without opening anything."""
        counter = settings.token_counter()
        native = MemoryAdapterRegistry().create(settings, token_counter=counter)
        slot = cls(
            cast(MemoryAdapter, _attached(native, owner)),
            scope=scope,
            budget=settings.memory.budget,
            deadlines=settings.memory.deadlines,
            token_counter=counter,
            host_file=settings.data_dir / HOST_FILE,
        )
        slot._journal = settings.journal is not None
        return slot

    @property
    def has_journal(self) -> bool:
        """Whether the owner keeps events before they are sent."""
        return self._journal

    async def keep_event(self, event: MemoryEvent) -> bool | None:
        """As :meth:`MemorySlot.keep_event`, in the owner's journal; the owner delivers it."""
        if self.read_only or self.closed or not self._journal:
            return None
        kept = await cast(_Attached, self._adapter).call("keep_event", without_recalled_context(event))
        return None if kept is None else bool(kept)


def _attached(native: MemoryAdapter, owner: _Owner) -> Any:
    """An adapter with the capabilities of ``native``, and no other."""

    def remote(name: str) -> Callable[..., Awaitable[Any]]:
        async def call(self: _Attached, *arguments: Any) -> Any:
            return await self.call(name, *arguments)

        return call

    withheld: dict[str, Any] = {
        "withheld_capabilities": getattr(native, "withheld_capabilities", frozenset())
    }
    methods = {name: remote(name) for name in _METHODS if name in _REQUIRED or hasattr(native, name)}
    return type("Attached", (_Attached,), {**methods, **withheld})(native, owner)


def _error(answer: Mapping[str, Any], backend: str, operation: str) -> MemslotError:
    kind = getattr(errors, str(answer["error"]), None)
    message = str(answer.get("message", ""))
    if not (isinstance(kind, type) and issubclass(kind, MemslotError)):
        return BackendProtocolError(message, backend_name=backend, operation=operation)
    if issubclass(kind, BackendError):
        given = {"diagnostics": answer.get("diagnostics"), "sent": answer.get("sent")}
        return kind(message, backend_name=backend, operation=operation, **given)
    return kind(message)


async def _send(writer: asyncio.StreamWriter, content: Mapping[str, Any]) -> None:
    writer.write(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    await writer.drain()
