"""For adapters that talk JSON over HTTP, or give an SDK its HTTP client: errors, deadlines and bounded answers."""

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

# As above, for the running program: options are read without httpx. A test holds both equal.
_LATE = {"memory.adapter._http": "JsonHttp bearer check_url expect none_if_404 route"}

__getattr__, __dir__ = _attach(globals(), _LATE)
