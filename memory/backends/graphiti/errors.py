"""What the exceptions of Graphiti, its graph databases and its models mean."""

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

# An episode takes many calls, so that none of these says by itself that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "graphiti_core.llm_client.errors.RateLimitError": NativeError(BackendRateLimited, sent=True),
    "graphiti_core.llm_client.errors.EmptyResponseError": NativeError(BackendProtocolError),
    "graphiti_core.llm_client.errors.RefusalError": NativeError(BackendRejected, sent=True),
    "graphiti_core.errors.GraphitiError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.AuthError": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.Forbidden": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.ClientError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.Neo4jError": NativeError(BackendUnavailable),
    "neo4j.exceptions.DriverError": NativeError(BackendUnavailable),
    "neo4j.exceptions.ConnectionAcquisitionTimeoutError": NativeError(BackendTimeout),
    "redis.exceptions.AuthenticationError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.AuthorizationError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.NoPermissionError": NativeError(BackendAuthError, sent=True),
    "redis.exceptions.ConnectionError": NativeError(BackendUnavailable),
    "redis.exceptions.TimeoutError": NativeError(BackendTimeout),
    "redis.exceptions.InvalidResponse": NativeError(BackendProtocolError),
    "redis.exceptions.ResponseError": NativeError(BackendRejected, sent=True),
    "redis.exceptions.RedisError": NativeError(BackendUnavailable),
}
