"""Maps an SDK's exception to a :class:`BackendError`, by tables of exact types.

A write counts as refused only if a table lists the exception's own type as a refusal.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from memory.contract._model_reasons import attribute_of, reason_of
from memory.contract.errors import (
    BackendAuthError,
    BackendError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)


@dataclass(frozen=True)
class NativeError:
    """The meaning of an SDK's exception.

    Attributes:
        kind: the error it becomes; None if its HTTP status decides (408, 504: timeout; other 5xx: down).
        sent: whether the request may have been carried out; None if the kind decides. Of the HTTP statuses,
            only 408 and 5xx then leave that open.
    """

    kind: type[BackendError] | None = None
    sent: bool | None = None


ErrorTable = Mapping[str, NativeError]
"""``module.Class``, as the class names itself -> its meaning. Names spare the import of the SDK."""

HTTPX_ERRORS: ErrorTable = MappingProxyType(
    {
        "httpx.HTTPStatusError": NativeError(),
        "httpx.ConnectError": NativeError(BackendUnavailable, sent=False),
        "httpx.ConnectTimeout": NativeError(BackendTimeout, sent=False),
        "httpx.PoolTimeout": NativeError(BackendTimeout, sent=False),
        "httpx.UnsupportedProtocol": NativeError(BackendRejected),
        "httpx.InvalidURL": NativeError(BackendRejected),
        "httpx.TimeoutException": NativeError(BackendTimeout),
        "httpx.DecodingError": NativeError(BackendProtocolError),
        "httpx.TooManyRedirects": NativeError(BackendProtocolError),
        "httpx.TransportError": NativeError(BackendUnavailable),
    }
)
"""For an adapter whose writes are each one request of httpx."""

OPENAI_ERRORS: ErrorTable = MappingProxyType(
    {
        "openai.APITimeoutError": NativeError(BackendTimeout, sent=True),
        "openai.APIConnectionError": NativeError(BackendUnavailable, sent=True),
        "openai.APIResponseValidationError": NativeError(BackendProtocolError, sent=True),
        "openai.LengthFinishReasonError": NativeError(BackendProtocolError, sent=True),
        "openai.ContentFilterFinishReasonError": NativeError(BackendProtocolError, sent=True),
        "openai.APIStatusError": NativeError(sent=True),
        "openai.OpenAIError": NativeError(BackendUnavailable, sent=True),
    }
)
"""Errors of a model that an SDK calls within a write. The SDK may already have stored something by then."""

_OF_PYTHON: Mapping[type[BaseException], NativeError] = {
    ConnectionRefusedError: NativeError(BackendUnavailable, sent=False),
    BlockingIOError: NativeError(BackendUnavailable, sent=False),
    socket.gaierror: NativeError(BackendUnavailable, sent=False),
    ModuleNotFoundError: NativeError(BackendError, sent=False),
    TimeoutError: NativeError(BackendTimeout),
    OSError: NativeError(BackendUnavailable),
    json.JSONDecodeError: NativeError(BackendProtocolError),
    UnicodeDecodeError: NativeError(BackendProtocolError),
}
_STATUSES: Mapping[int, type[BackendError]] = {
    **dict.fromkeys((401, 403), BackendAuthError),
    **dict.fromkeys((408, 504), BackendTimeout),
    429: BackendRateLimited,
}
_DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
_OF_SQLITE = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
_SAFE_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


def normalise_error(
    error: BaseException,
    *,
    backend_name: str,
    operation: str,
    table: ErrorTable = MappingProxyType({}),
) -> BackendError:
    """Map a native exception to exactly one :class:`BackendError`; the caller raises it ``from error``.

    ``sent`` is False only if ``error`` itself says so. The message omits native messages, which may repeat
    user text.

    Args:
        error: what was raised.
        backend_name, operation: for the message.
        table: the meaning of the SDK's exceptions, in addition to those of Python and httpx.
    """
    if isinstance(error, BackendError):
        error.backend_name = error.backend_name or backend_name
        error.operation = error.operation or operation
        if (disk := _disk(error)) is not None:
            error.diagnostics.setdefault("disk", disk)
        return error
    links = list(_chain(error, contexts=False))
    if not any(_classify(link, table) for link in links):  # an exception that was being handled may tell more
        links = list(_chain(error))
    why, facts = reason_of(links)
    diagnostics: dict[str, Any] = {"exception": _shown_name(type(error)), **facts}
    if causes := [_shown_name(type(cause)) for cause in _chain(error)][1:]:
        diagnostics["causes"] = causes
    for link in links:
        if isinstance(link, ModuleNotFoundError) and link.name:
            diagnostics.setdefault("module", link.name)
        for key, value in (
            ("status", _status(link)),
            ("code", _safe_code(link, "code") or _safe_code(link, "error_code")),
            ("request_id", _safe_code(link, "request_id")),
            ("retry_after_s", _retry_after(link)),
            ("disk", _disk(link)),
        ):
            if value is not None:
                diagnostics.setdefault(key, value)
    status = f", HTTP {diagnostics['status']}" if "status" in diagnostics else ""
    if "module" in diagnostics:
        status += f": {diagnostics['module']} is not installed"
    said = f": {why}" if why else ""
    return _kind(links, table)(
        f"{backend_name}: {operation} failed ({diagnostics['exception']}{status}){said}",
        backend_name=backend_name,
        operation=operation,
        diagnostics=diagnostics,
        sent=_was_sent(error, table),
    )


def native_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _meaning(kind: type[BaseException], table: ErrorTable) -> NativeError | None:
    """The meaning of a type, or of its nearest base class in a table."""
    for base in kind.__mro__:
        name = native_name(base)
        if found := table.get(name) or HTTPX_ERRORS.get(name) or _OF_PYTHON.get(base):
            return found
    core = sys.modules.get("pydantic_core")  # importing it for one error class would take 50 ms
    invalid = core is not None and issubclass(kind, core.ValidationError)
    return NativeError(BackendProtocolError) if invalid else None


def _was_sent(error: BaseException, table: ErrorTable) -> bool:
    """Whether the request may have been carried out, by the exception's own type: causes are other attempts."""
    found = table.get(native_name(type(error))) or _OF_PYTHON.get(type(error)) or NativeError(sent=True)
    return (found.kind or _by_status(error) or BackendError).sent if found.sent is None else found.sent


def _classify(error: BaseException, table: ErrorTable) -> type[BackendError] | None:
    return (_meaning(type(error), table) or NativeError()).kind or _by_status(error)


def _kind(links: list[BaseException], table: ErrorTable) -> type[BackendError]:
    """An HTTP status decides, or else the innermost known error, because SDKs wrap transport errors."""
    by_type = (_classify(link, table) for link in reversed(links))
    for kind in chain(map(_by_status, links), by_type):
        if kind is not None:
            return kind
    # No known error: SDK code failed to read an answer, or something unforeseen happened.
    stumbled = isinstance(links[0], (AttributeError, LookupError, TypeError))
    return BackendProtocolError if stumbled else BackendError


def _by_status(error: BaseException) -> type[BackendError] | None:
    if (status := _status(error) or 0) < 400:
        return None
    return _STATUSES.get(status, BackendUnavailable if status >= 500 else BackendRejected)


def _chain(error: BaseException, *, contexts: bool = True) -> Iterator[BaseException]:
    """The error and its causes, nearest first; cycles and long chains are cut."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < 8:
        seen.add(id(current))
        yield current
        handled = current.__context__ if contexts and not current.__suppress_context__ else None
        current = current.__cause__ or handled


def _status(error: BaseException) -> int | None:
    for owner in (error, attribute_of(error, "response")):
        for name in ("status_code", "status", "http_status"):
            value = attribute_of(owner, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def _safe_code(error: BaseException, name: str) -> str | None:
    value = attribute_of(error, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and _SAFE_CODE.match(value) else None


def _retry_after(error: BaseException) -> float | None:
    headers = attribute_of(attribute_of(error, "response"), "headers")
    value = headers.get("retry-after") if isinstance(headers, Mapping) else None
    try:
        return float(attribute_of(error, "retry_after") or value or "")
    except (TypeError, ValueError):
        return None


def _disk(error: BaseException) -> str | None:
    """The system's or SQLite's name for a disk that is full or read-only; None for other errors."""
    for link in _chain(error):
        if isinstance(link, OSError) and link.errno in _DISK_FAULTS:
            return errno.errorcode[link.errno]
        name = attribute_of(link, "sqlite_errorname")
        if isinstance(name, str) and name.startswith(_OF_SQLITE):
            return name
    return None


def _shown_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else native_name(kind)
