"""What the exceptions of MemOS mean where it runs in this process; a server's answers our own client reads."""

from __future__ import annotations

from memory import BackendUnavailable
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRejected,
    ErrorTable,
    NativeError,
)

# A request is many calls of models and stores, so that none of these says that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "fastapi.exceptions.HTTPException": NativeError(sent=True),
    "memos.exceptions.MemOSError": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.UnexpectedResponse": NativeError(sent=True),
    "qdrant_client.http.exceptions.ResponseHandlingException": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.ApiException": NativeError(BackendProtocolError),
    "neo4j.exceptions.AuthError": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.ClientError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.Neo4jError": NativeError(BackendUnavailable),
    "neo4j.exceptions.DriverError": NativeError(BackendUnavailable),
}
