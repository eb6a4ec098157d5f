"""A MemOS product server over HTTP. Imports no MemOS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from memory import normalise_error
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.transport import Operation

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
    """Requests to one product server.

    Args:
        options: the block.
        backend_name: for errors.
    """

    name = "http"

    def __init__(self, options: MemosOptions, backend_name: str) -> None:
        self._backend_name = backend_name
        self._http = httpx.AsyncClient(base_url=options.url, timeout=options.timeout_s)

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """One request; see :class:`~memory.backends.memos.transport.Transport`."""
        method, path = ROUTES[operation]
        sent: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
        try:
            response = await self._http.request(method, path, **sent)
            response.raise_for_status()
            return response.json()
        except Exception as error:
            raise normalise_error(error, backend_name=self._backend_name, operation=operation) from error

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.aclose()
