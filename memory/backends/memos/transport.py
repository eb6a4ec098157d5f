"""The ways to a MemOS: one call for each operation, JSON in and JSON out.

``http`` asks a product server; ``inprocess`` (:mod:`inprocess`) runs the same handlers here. Bodies come from
:mod:`translate`, answers go to :mod:`answers`; a transport changes neither. Imports no MemOS, which would take ten
seconds and change logging.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from memory import BackendUnavailable
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRejected,
    ErrorTable,
    JsonHttp,
    NativeError,
    bearer,
)
from memory.backends.memos.options import MemosOptions

MAX_CONCURRENCY = 4
"""Calls at a time. More make the server slower and exhaust its database connections: of eight searches at once one
in five came back empty, with a status of 200."""

Operation = Literal[
    "add", "search", "get_memory", "delete_memory", "feedback", "all_status", "task_status", "health"
]
ROUTES: Mapping[Operation, tuple[str, str]] = {
    "add": ("POST", "/product/add"),
    "search": ("POST", "/product/search"),
    "get_memory": ("POST", "/product/get_memory"),
    "delete_memory": ("POST", "/product/delete_memory"),
    "feedback": ("POST", "/product/feedback"),
    "all_status": ("GET", "/product/scheduler/allstatus"),
    "task_status": ("GET", "/product/scheduler/status"),
    "health": ("GET", "/health"),
}
"""What is asked of MemOS. Never ``task_queue_status``: without Redis it starts a Redis, on every interface."""

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
"""Of MemOS in this process; a server's answers our own client reads."""


class Transport(Protocol):
    """A way to one MemOS; ``name`` is that of the option."""

    name: str

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """The whole answer as JSON values, such as ``{"code": 200, "message": ..., "data": ...}``.

        Args:
            body: the request's fields; for ``all_status``, ``task_status`` and ``health`` the query parameters.

        Raises:
            BackendError: no answer, an error status, or no JSON. Failures that MemOS hides in a successful answer
                are not looked for here.
        """
        ...

    async def aclose(self) -> None:
        """Release connections, threads and clients. Idempotent."""
        ...


class HttpTransport:
    """Requests to one product server; each is sent once, because an add sent twice is stored twice.

    Raises:
        InputError: the key cannot stand in a header.
    """

    name = "http"

    def __init__(self, options: MemosOptions, backend_name: str) -> None:
        self._headers = bearer(options.api_key)
        self._http = JsonHttp(
            options.url,
            backend=backend_name,
            server="MemOS server",
            timeout_s=options.timeout_s,
            connections=MAX_CONCURRENCY,
        )
        self.aclose = self._http.aclose

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        method, path = ROUTES[operation]
        sent: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
        return await self._http.request(
            method, path, headers=self._headers, operation=f"{method} {path}", **sent
        )
