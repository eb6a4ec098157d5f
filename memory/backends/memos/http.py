"""A MemOS product server over HTTP. Imports no MemOS, which would take ten seconds and change logging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.adapter import JsonHttp, bearer
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.transport import MAX_CONCURRENCY, Operation

__all__ = ["ROUTES", "HttpTransport"]

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


class HttpTransport:
    """Requests to one product server; each is sent once, because an add sent twice is stored twice.

    Args:
        options: the block.
        backend_name: for errors.

    Raises:
        InputError: the key cannot stand in a header.
    """

    name = "http"

    def __init__(self, options: MemosOptions, backend_name: str) -> None:
        self._headers = bearer(options.api_key.get_secret_value() if options.api_key else None)
        self._http = JsonHttp(
            options.url,
            backend=backend_name,
            server="MemOS server",
            timeout_s=options.timeout_s,
            connections=MAX_CONCURRENCY,
        )

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """One request; see :class:`~memory.backends.memos.transport.Transport`."""
        method, path = ROUTES[operation]
        sent: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
        return await self._http.request(
            method, path, headers=self._headers, operation=f"{method} {path}", **sent
        )

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.aclose()
