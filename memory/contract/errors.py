"""Every error that memslot raises: one tree below :class:`MemslotError`.

No message holds user text or a secret, although native error bodies echo both. ``BackendError.diagnostics``
holds what is safe to log; ``__cause__`` is the native exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast


class MemslotError(Exception):
    """Base of every error raised by memslot."""

    receipts: tuple[Any, ...] = ()
    """Receipts of the events that a failed bulk write has stored nevertheless."""


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
    """A store of memslot cannot be opened, read or written. Names the place and the fix."""

    maybe_done: bool = False
    """Whether the write may be kept nevertheless, because a server took it and did not answer."""


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
        return cast("float | None", self.diagnostics.get("retry_after_s"))


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
