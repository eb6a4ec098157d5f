"""What the exceptions of Honcho's SDK mean. Its requests go over our own connection, whose errors are ours."""

from __future__ import annotations

from memory import BackendTimeout, BackendUnavailable
from memory.adapter import (
    BackendAuthError,
    BackendRateLimited,
    BackendRejected,
    ErrorTable,
    NativeError,
)

ERRORS: ErrorTable = {
    "honcho.http.exceptions.AuthenticationError": NativeError(BackendAuthError),
    "honcho.http.exceptions.PermissionDeniedError": NativeError(BackendAuthError),
    "honcho.http.exceptions.RateLimitError": NativeError(BackendRateLimited),
    "honcho.http.exceptions.BadRequestError": NativeError(BackendRejected),
    "honcho.http.exceptions.NotFoundError": NativeError(BackendRejected),
    "honcho.http.exceptions.ConflictError": NativeError(BackendRejected),
    "honcho.http.exceptions.UnprocessableEntityError": NativeError(BackendRejected),
    "honcho.http.exceptions.ServerError": NativeError(BackendUnavailable),
    "honcho.http.exceptions.APIError": NativeError(sent=True),
    "honcho.http.exceptions.TimeoutError": NativeError(BackendTimeout),
    "honcho.http.exceptions.ConnectionError": NativeError(BackendUnavailable),
    "honcho.http.exceptions.HonchoError": NativeError(BackendUnavailable),
}
