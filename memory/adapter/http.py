"""For adapters that use JSON over HTTP or give an SDK its HTTP client: errors, deadlines, bounded answers."""

from typing import TYPE_CHECKING

from memory.adapter._bounded import http_client, server_address
from memory.contract._late import attach as _attach

if TYPE_CHECKING:
    from memory.adapter._http import JsonHttp, bearer, check_url, expect, none_if_404, route

__all__ = [
    "JsonHttp",
    "bearer",
    "check_url",
    "expect",
    "http_client",
    "none_if_404",
    "route",
    "server_address",
]

# The same names for the running program, so that options load without httpx. A test keeps both equal.
_LATE = {"memory.adapter._http": "JsonHttp bearer check_url expect none_if_404 route"}

__getattr__, __dir__ = _attach(globals(), _LATE)
