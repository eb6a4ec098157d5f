"""Every error memslot raises, as one tree.

    MemslotError
    ├── ConfigError               a YAML file, a setting or a command-line value is wrong
    ├── InputError                an event, message or request is malformed (also a ValueError)
    ├── ScopeError                a scope is blank, unknown, not set up, or a filter would escape it
    │   └── IsolationError        a backend answered with a row of another scope; the row is never shown
    ├── ReadOnlyError             a destructive call arrived while the slot is read-only
    ├── LifecycleError            the slot is closed, or is used from another event loop
    ├── StoreError                a store of memslot cannot be opened, read or written
    │   └── JournalError          the journal; nothing was sent
    ├── CapabilityNotSupported    the adapter does not offer the capability asked for
    ├── PluginError
    │   ├── PluginNotFound        no plugin of that name
    │   └── PluginLoadError       the plugin, or the SDK it needs, could not be loaded
    └── BackendError              the native system failed; ``__cause__`` is its own exception
        ├── BackendUnavailable    connection refused or lost, HTTP 5xx, closed or locked store
        ├── BackendTimeout        no answer within the deadline
        ├── BackendAuthError      HTTP 401 or 403, missing or wrong credentials
        ├── BackendRateLimited    HTTP 429; ``retry_after_s`` if the backend gives it
        ├── BackendRejected       HTTP 400, 404, 409, 413, 422: the request itself was refused
        └── BackendProtocolError  the answer could not be understood

No message holds user text or a secret, although native error bodies echo both. ``BackendError.diagnostics``
holds what is safe to log (exception type, HTTP status, error code, request id); ``__cause__`` holds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast


class MemslotError(Exception):
    """Base of every error raised by memslot.

    Attributes:
        receipts: the receipts of the events that a failed bulk write has stored nevertheless.
    """

    receipts: tuple[Any, ...] = ()


class ConfigError(MemslotError):
    """A configuration file, setting or command-line value is wrong. Names the field and the fix."""


class InputError(MemslotError, ValueError):
    """An event, message or request is malformed. Names the field and the fix, never the value."""


class ScopeError(MemslotError, ValueError):
    """A scope is invalid, unknown or not set up, or a filter would widen it."""


class IsolationError(ScopeError):
    """The backend returned a row that belongs to another scope. The whole answer is withheld."""


class ReadOnlyError(MemslotError):
    """A destructive call (``reset_scope``) arrived while the slot is read-only."""


class LifecycleError(MemslotError):
    """The slot is closed, not open yet, or used from another event loop."""


class StoreError(MemslotError):
    """A store of memslot cannot be opened, read or written. Names the place and the fix.

    Attributes:
        maybe_done: whether the write may be kept nevertheless, because a server took it and did not answer.
    """

    maybe_done: bool = False


class JournalError(StoreError):
    """The journal cannot be opened or written. A failed write kept nothing and sent nothing."""


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
            ``retry_after_s``, ``causes``, ``module``, ``disk`` (the system's name for a full or read-only
            disk). A key is absent if the native error does not tell.
        sent: False if the request certainly was not carried out: it never left, or was refused.
    """

    sent: bool = True

    def __init__(
        self,
        message: str,
        *,
        backend_name: str = "",
        operation: str = "",
        diagnostics: Mapping[str, object] | None = None,
        sent: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.backend_name = backend_name
        self.operation = operation
        self.diagnostics: dict[str, object] = dict(diagnostics or {})
        if sent is not None:
            self.sent = sent

    @property
    def ambiguous(self) -> bool:
        """True if the request may have been carried out: it was sent, and not definitely refused."""
        return self.sent

    def after(self, earlier: BackendError) -> Self:
        """This error as that of a further attempt. It stays ambiguous if an earlier attempt was."""
        self.sent = self.sent or earlier.sent
        return self

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer, or None if there was none."""
        return cast("int | None", self.diagnostics.get("status"))

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the backend asks to wait, or None if it gives none."""
        value = cast("float | None", self.diagnostics.get("retry_after_s"))
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
