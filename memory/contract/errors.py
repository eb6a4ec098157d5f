"""Every error memslot raises, as one tree.

    MemslotError
    ├── ConfigError               a YAML file, a setting or a command-line value is wrong
    ├── InputError                an event, message or request is malformed (also a ValueError)
    ├── ScopeError                a scope is blank, unknown, not set up, or a filter would escape it
    │   └── IsolationError        a backend answered with a row of another scope; the row is never shown
    ├── ReadOnlyError             a destructive call arrived while the slot is read-only
    ├── LifecycleError            the slot is closed, or is used from another event loop
    ├── StoreError                a file of memslot's own cannot be opened, read or written
    │   └── JournalError          the journal; nothing was sent
    ├── CapabilityNotSupported    the adapter does not offer the capability asked for
    ├── PluginError
    │   ├── PluginNotFound        no plugin of that name
    │   └── PluginLoadError       the plugin, or the SDK it needs, could not be loaded
    └── BackendError              the native system failed; ``__cause__`` is its own exception
        ├── BackendUnavailable    connection refused or lost, HTTP 5xx, closed or locked store
        ├── BackendTimeout        no answer within the deadline
        ├── BackendAuthError      HTTP 401 or 403, missing or wrong credentials
        ├── BackendRateLimited    HTTP 429; ``retry_after_s`` where the backend says it
        ├── BackendRejected       HTTP 400, 404, 409, 422: the request itself was refused
        └── BackendProtocolError  the answer could not be understood

A message never holds user text or a secret: native error bodies echo both. What is safe to log (exception
type, HTTP status, error code, request id) is in ``BackendError.diagnostics``; the rest is in ``__cause__``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Self


class MemslotError(Exception):
    """Base of every error raised by memslot.

    Attributes:
        receipts: for a bulk write, the receipts of the events that are stored although it failed.
    """

    receipts: tuple[Any, ...] = ()


class ConfigError(MemslotError):
    """A configuration file, setting or command-line value is wrong. Names the field and the fix."""


class InputError(MemslotError, ValueError):
    """An event, message or request is malformed. Names the field and the fix, never the value."""


class ScopeError(MemslotError, ValueError):
    """A scope is invalid, unknown or not set up, or a filter would widen it."""


class IsolationError(ScopeError):
    """The backend returned a row that belongs to another scope. Nothing of the answer is shown."""


class ReadOnlyError(MemslotError):
    """A destructive call (``reset_scope``) arrived while the slot is read-only."""


class LifecycleError(MemslotError):
    """The slot is closed, not opened, or used from another event loop than the one that opened it."""


class StoreError(MemslotError):
    """A file of memslot's own cannot be opened, read or written. Names the file and the fix."""


class JournalError(StoreError):
    """The journal cannot be opened or written; where it was a write, nothing was kept and nothing was sent."""


class CapabilityNotSupported(MemslotError):
    """The adapter does not offer the capability or option asked for."""


class PluginError(MemslotError):
    """A plugin could not be found or loaded."""


class PluginNotFound(PluginError):
    """No installed distribution offers a plugin of that name."""


class PluginLoadError(PluginError):
    """A plugin exists but cannot be used: broken code, two owners, or a missing SDK (with its pip line)."""


class BackendError(MemslotError):
    """The native system failed.

    Attributes:
        backend_name: the adapter that was called.
        operation: the native operation, such as ``Memory.search``.
        diagnostics: JSON-ready and redacted: ``exception``, ``status``, ``code``, ``request_id``,
            ``retry_after_s``, ``causes``, ``module``; a key is absent where the native error does not tell.
        sent: False when the request certainly was not carried out: it never left, or was refused.
    """

    sent: bool = True

    def __init__(
        self,
        message: str,
        *,
        backend_name: str = "",
        operation: str = "",
        diagnostics: Mapping[str, Any] | None = None,
        sent: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.backend_name = backend_name
        self.operation = operation
        self.diagnostics: dict[str, Any] = dict(diagnostics or {})
        if sent is not None:
            self.sent = sent

    @property
    def ambiguous(self) -> bool:
        """True when the request may have been carried out: it was sent, and not definitely refused."""
        return self.sent

    def after(self, earlier: BackendError) -> Self:
        """The error of a further attempt: one ambiguous attempt leaves all of them ambiguous."""
        self.sent = self.sent or earlier.sent
        return self

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer, or None where there was none."""
        return self.diagnostics.get("status")

    @property
    def retry_after_s(self) -> float | None:
        """Seconds the backend asks us to wait, or None where it does not say."""
        value = self.diagnostics.get("retry_after_s")
        return float(value) if value is not None else None


class BackendUnavailable(BackendError):
    """The backend cannot be reached, lost the connection, answered 5xx, or its store is closed or locked."""


class BackendTimeout(BackendError):
    """No answer within the deadline. A write that timed out may or may not be stored."""


class BackendAuthError(BackendError):
    """Credentials are missing, wrong, or not allowed to do this (HTTP 401, 403)."""

    sent = False


class BackendRateLimited(BackendError):
    """Too many requests (HTTP 429). See ``retry_after_s``."""

    sent = False


class BackendRejected(BackendError):
    """The backend understood and refused the request (HTTP 400, 404, 409, 413, 422)."""

    sent = False


class BackendProtocolError(BackendError):
    """The backend answered, but not in a shape its SDK or the adapter understands."""


_SAFE_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


def _chain(error: BaseException, *, contexts: bool = True) -> Iterator[BaseException]:
    """The error and its causes, nearest first; cycles and long chains are cut."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < 8:
        seen.add(id(current))
        yield current
        handled = current.__context__ if contexts and not current.__suppress_context__ else None
        current = current.__cause__ or handled


def _attribute(owner: object, name: str) -> Any:
    """Of an error of somebody else's, or None; theirs may be properties that warn or fail."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def _status(error: BaseException) -> int | None:
    for owner in (error, _attribute(error, "response")):
        for name in ("status_code", "status", "http_status"):
            value = _attribute(owner, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def _safe_code(error: BaseException, name: str) -> str | None:
    value = _attribute(error, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and _SAFE_CODE.match(value) else None


def _retry_after(error: BaseException) -> float | None:
    value = _attribute(error, "retry_after")
    if value is None:
        headers = _attribute(_attribute(error, "response"), "headers")
        value = headers.get("retry-after") if isinstance(headers, Mapping) else None
    try:
        return float(value) if value is not None else None
    except (TypeError, ValueError):
        return None


def _qualified(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _by_status(status: int) -> type[BackendError]:
    if status in (401, 403):
        return BackendAuthError
    if status == 429:
        return BackendRateLimited
    if status in (408, 504):
        return BackendTimeout
    if status >= 500:
        return BackendUnavailable
    return BackendRejected


# SDKs share no base class; their class names are the most stable thing they have in common.
_BY_NAME: tuple[tuple[re.Pattern[str], type[BackendError]], ...] = (
    (re.compile(r"timeout|timed_?out|TooSlow", re.I), BackendTimeout),
    (re.compile(r"auth|permission|forbidden|unauthorized", re.I), BackendAuthError),
    (re.compile(r"rate_?limit|quota|TooManyRequests", re.I), BackendRateLimited),
    (
        re.compile(
            r"connect|connection|network|unavailable|RemoteProtocol|ResponseHandling|Operational"
            r"|^(?:Read|Write|Close)Error$",
            re.I,
        ),
        BackendUnavailable,
    ),
    # pydantic's, which this module does not import: a start that only needs the errors shall not pay for it.
    (re.compile(r"decod|pars(e|ing)|EmptyResponse|protocol|^ValidationError$", re.I), BackendProtocolError),
)


def _is_validation(error: BaseException) -> bool:
    core = sys.modules.get("pydantic_core")  # not imported for one error class: it takes 50 ms
    return core is not None and isinstance(error, core.ValidationError)


def _classify(error: BaseException) -> type[BackendError] | None:
    status = _status(error)
    if status is not None and status >= 400:
        return _by_status(status)
    if isinstance(error, TimeoutError):
        return BackendTimeout
    if isinstance(error, (ConnectionError, BlockingIOError)):
        return BackendUnavailable
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) or _is_validation(error):
        return BackendProtocolError
    name = type(error).__name__
    for pattern, kind in _BY_NAME:
        if pattern.search(name):
            return kind
    return BackendUnavailable if isinstance(error, OSError) else None


_NEVER_SENT = re.compile(r"ConnectionRefused|ConnectError|ConnectTimeout|PoolTimeout|gaierror|BlockingIO")


def _was_sent(error: BaseException) -> bool:
    """Whether the request may have been carried out, by the attempt's own exception alone.

    What it was raised from, or while handling what, may be another attempt's.
    """
    if isinstance(error, ModuleNotFoundError) or _NEVER_SENT.search(type(error).__name__):
        return False
    return (_classify(error) or BackendError).sent


def _telling(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from; what was merely being handled only where none of these tells."""
    links = list(_chain(error, contexts=False))
    return links if any(map(_classify, links)) else list(_chain(error))


def _kind(links: list[BaseException]) -> type[BackendError]:
    """An HTTP status decides, else the innermost error that is recognised: SDKs wrap those of the transport."""
    for link in links:
        if (status := _status(link)) is not None and status >= 400:
            return _by_status(status)
    for link in reversed(links):
        if (kind := _classify(link)) is not None:
            return kind
    # Nothing of transport: SDK code that stumbled over an answer, or something nobody foresaw.
    stumbled = isinstance(links[0], (AttributeError, LookupError, TypeError))
    return BackendProtocolError if stumbled else BackendError


def normalise_error(error: BaseException, *, backend_name: str, operation: str) -> BackendError:
    """Map a native exception to exactly one :class:`BackendError`; the caller raises it ``from error``.

    ``sent`` is False only where ``error`` itself says so. An adapter that knows better sets it.
    The message names the exception type and HTTP status only; native messages may echo user text.
    """
    if isinstance(error, BackendError):
        error.backend_name = error.backend_name or backend_name
        error.operation = error.operation or operation
        return error
    links = _telling(error)
    diagnostics: dict[str, Any] = {"exception": _qualified(error)}
    causes = [_qualified(cause) for cause in _chain(error)][1:]
    if causes:
        diagnostics["causes"] = causes
    for link in links:
        if isinstance(link, ModuleNotFoundError) and link.name:
            diagnostics.setdefault("module", link.name)
        for key, value in (
            ("status", _status(link)),
            ("code", _safe_code(link, "code") or _safe_code(link, "error_code")),
            ("request_id", _safe_code(link, "request_id")),
            ("retry_after_s", _retry_after(link)),
        ):
            if value is not None:
                diagnostics.setdefault(key, value)
    status = f", HTTP {diagnostics['status']}" if "status" in diagnostics else ""
    if "module" in diagnostics:
        status += f": {diagnostics['module']} is not installed"
    return _kind(links)(
        f"{backend_name}: {operation} failed ({diagnostics['exception']}{status})",
        backend_name=backend_name,
        operation=operation,
        diagnostics=diagnostics,
        sent=_was_sent(error),
    )
