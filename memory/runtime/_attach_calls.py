"""Calls of an attached process: lines of JSON, and what they are answered with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from memory.contract import errors
from memory.contract.adapter import CAPABILITIES
from memory.contract.errors import BackendError, BackendProtocolError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import (
    BackendHealth,
    ContextEntry,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
)
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot

MAX_LINE = 64_000_000
"""Bytes of a call, or of its answer."""


class _ReceivedResult(RetrieveResult):
    """Read from the wire, with what the contract leaves unchecked for an adapter's sake."""

    entries: tuple[ContextEntry, ...] = ()
    included: tuple[int, ...] = ()


@dataclass(frozen=True)
class Method:
    arguments: TypeAdapter[Any]
    result: TypeAdapter[Any]
    repeatable: bool = False  # may be sent again to the next owner


def _method(*arguments: Any, result: Any, repeatable: bool = False) -> Method:
    return Method(TypeAdapter(tuple[arguments]), TypeAdapter(result), repeatable)  # type: ignore[valid-type]


def _declared(function: Callable[..., Any]) -> Method:
    """A capability's method, as its protocol declares it."""
    hints = get_type_hints(function)
    result = hints.pop("return")
    return _method(*hints.values(), result=result, repeatable=function.__name__ in _READS)


_READS = frozenset({"readiness", "wait_until_ready", "provenance", "native_query"})
METHODS: Mapping[str, Method] = {
    "setup_scope": _method(MemoryScope, result=None, repeatable=True),
    "health": _method(result=BackendHealth, repeatable=True),
    "keep_event": _method(MemoryEvent, result=bool | None, repeatable=True),
    "record_event": _method(MemoryEvent, result=WriteReceipt),
    "record_accepted": _method(MemoryEvent, int, result=WriteReceipt | None),
    "retrieve": _method(RetrieveRequest, result=_ReceivedResult, repeatable=True),
    "reset_scope": _method(MemoryScope, result=ResetReceipt),
    "find_event": _method(MemoryEvent, result=tuple[str, ...] | None, repeatable=True),
    **{
        name: _declared(function)
        for protocol in CAPABILITIES.values()
        for name, function in vars(protocol).items()
        if not name.startswith("_")
    },
}


async def answered(slot: MemorySlot, call: Any, resets: Callable[[MemoryScope], int]) -> dict[str, Any]:
    """A call, carried out; ``resets`` counts those of a scope as an attached process does."""
    try:
        method = METHODS[call["method"]]
        arguments = method.arguments.validate_python(call["arguments"])
        result = await _carried_out(slot, call["method"], arguments, resets)
        return {"result": to_jsonable_python(result)}
    except MemslotError as error:
        sent, details = getattr(error, "sent", None), dict(getattr(error, "diagnostics", {}))
        return {"error": type(error).__name__, "message": str(error), "sent": sent, "diagnostics": details}
    except Exception as error:
        return {
            "error": "BackendProtocolError",
            "message": f"an attached call failed ({type(error).__name__})",
        }


async def _carried_out(
    slot: MemorySlot, name: str, arguments: tuple[Any, ...], resets: Callable[[MemoryScope], int]
) -> Any:
    if name in ("health", "keep_event"):
        return await getattr(slot, name)(*arguments)
    if name == "record_accepted":
        arguments = (*arguments, resets)
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
