"""What the exceptions of mem0, its stores and its models mean."""

from __future__ import annotations

from memory import BackendTimeout, BackendUnavailable
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    ErrorTable,
    NativeError,
)

# An add stores one memory after the other, so that none of these says that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "mem0.exceptions.MemoryError": NativeError(BackendUnavailable, sent=True),
    "mem0.exceptions.AuthenticationError": NativeError(BackendAuthError, sent=True),
    "mem0.exceptions.RateLimitError": NativeError(BackendRateLimited, sent=True),
    "mem0.exceptions.MemoryQuotaExceededError": NativeError(BackendRateLimited, sent=True),
    "mem0.exceptions.ValidationError": NativeError(BackendRejected, sent=True),
    "mem0.exceptions.MemoryNotFoundError": NativeError(BackendRejected, sent=True),
    "mem0.exceptions.ConfigurationError": NativeError(BackendRejected, sent=True),
    "qdrant_client.http.exceptions.UnexpectedResponse": NativeError(sent=True),
    "qdrant_client.http.exceptions.ResponseHandlingException": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.ApiException": NativeError(BackendProtocolError),
    "psycopg.errors.ConnectionTimeout": NativeError(BackendTimeout),
    "psycopg.errors.QueryCanceled": NativeError(BackendTimeout),
    "psycopg.OperationalError": NativeError(BackendUnavailable),
    "psycopg.Error": NativeError(BackendUnavailable),
    "psycopg.InterfaceError": NativeError(BackendUnavailable),
    "psycopg_pool.PoolTimeout": NativeError(BackendTimeout),
    "psycopg_pool.TooManyRequests": NativeError(BackendUnavailable),
    "psycopg_pool.PoolClosed": NativeError(BackendUnavailable),
    "sqlite3.OperationalError": NativeError(BackendUnavailable),
    "sqlite3.Error": NativeError(BackendUnavailable),
    "sqlite3.DatabaseError": NativeError(BackendUnavailable),
}
