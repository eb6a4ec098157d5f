"""Server addresses, and answers of bounded size and time. Imports no HTTP client, so that options can use it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from memory.contract.errors import BackendProtocolError

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 64_000_000


def bounded_answers(backend: str, *, wait: bool = True) -> Callable[[Any], Any]:
    """A hook for ``event_hooks={"response": [...]}`` of an httpx client with ``accept-encoding: identity``.

    The hook reads the answer, unless it is an event stream. An answer that is compressed, or longer than
    ``MAX_ANSWER_BYTES``, raises :class:`BackendProtocolError`. A body that is still arriving after the
    request's read timeout raises ``ReadTimeout``, because httpx itself only limits pauses.

    Args:
        backend: its name, for errors.
        wait: False for a blocking ``Client``.
    """

    def read(response: Any) -> None:
        if (body := _begun(response, backend)) is not None:
            for piece in response.stream:
                body.add(piece)
            response.stream.close()
            response.stream = body.stream()

    async def read_async(response: Any) -> None:
        if (body := _begun(response, backend)) is not None:
            pieces = aiter(response.stream)
            try:
                async for piece in pieces:
                    body.add(piece)
            except Exception:
                with suppress(StopAsyncIteration), anyio.CancelScope() as scope:
                    scope.cancel()  # ends the stream's generators; trio warns of open ones
                    while True:
                        await anext(pieces)
                raise
            await response.stream.aclose()
            response.stream = body.stream()

    return read_async if wait else read


def http_client(url: str, *, backend: str, timeout_s: float, **options: Any) -> httpx.AsyncClient:
    """An httpx client for one server: bounded answers, no redirects, and no proxy that would see a key.

    Arguments are as for :class:`~memory.adapter.http.JsonHttp`; ``options`` are further ones of
    ``httpx.AsyncClient``, except ``event_hooks``.
    """
    import httpx

    secure = url.startswith("https")
    return httpx.AsyncClient(
        base_url=url,
        timeout=timeout_s,
        follow_redirects=False,
        headers={**options.pop("headers", {}), "accept-encoding": "identity"},
        event_hooks={"response": [bounded_answers(backend)]},
        verify=secure,  # loading the certificates takes 70 ms
        trust_env=secure,  # a proxy would see the key of a plain http request
        **options,
    )


def _begun(response: Any, backend: str) -> _Body | None:
    """The body that is still to be read; None for an event stream."""
    # A megabyte of gzip may expand to a gigabyte.
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise _unusable(backend, "it is packed, which was not asked for")
    if "event-stream" in response.headers.get("content-type", ""):
        return None
    return _Body(response.request, backend)


def _unusable(backend: str, why: str) -> BackendProtocolError:
    return BackendProtocolError(f"{backend}: the answer cannot be used: {why}", backend_name=backend)


class _Body:
    """The pieces of one answer, its limit in bytes, and the time until which they may come."""

    def __init__(self, request: Any, backend: str) -> None:
        # openai may bring a successor of httpx, which accepts only its own streams.
        self._library: Any = sys.modules[type(request).__module__.partition(".")[0]]
        self._request = request
        seconds = request.extensions.get("timeout", {}).get("read")
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._backend = backend
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        self._data += piece
        if len(self._data) > MAX_ANSWER_BYTES:
            raise _unusable(self._backend, f"it is longer than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > self._until:
            raise self._library.ReadTimeout("the answer did not end", request=self._request)

    def stream(self) -> Any:
        return self._library.ByteStream(bytes(self._data))


def server_address(url: str, example: str = "http://127.0.0.1:8765") -> str:
    """``url`` without its trailing slash; ``example`` is shown in errors.

    Raises:
        ValueError: not http(s), without a host, or with credentials, a query or a fragment.
    """
    try:
        parts = urlsplit(url.strip())
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname)
        well_formed = well_formed and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if not well_formed:
        raise ValueError(f"must be an http or https URL with a host, e.g. {example}")
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials; give the key as api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a query or fragment; give the server's address alone")
    return url.strip().rstrip("/")


def is_loopback(host: str) -> bool:
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
