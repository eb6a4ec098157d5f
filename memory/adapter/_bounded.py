"""Server addresses, and answers of bounded size and time. Imports no HTTP client, so that options can use it.

A megabyte of gzip may expand to a gigabyte, so answers are requested uncompressed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import anyio

from memory.contract.errors import BackendProtocolError

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 64_000_000


def bounded_answers(
    backend: str, max_bytes: int = MAX_ANSWER_BYTES, *, wait: bool = True
) -> Callable[[Any], Any]:
    """A hook for ``event_hooks={"response": [...]}`` of an httpx client with ``accept-encoding: identity``.

    A compressed or longer answer raises :class:`BackendProtocolError`. A body that is still arriving after the
    request's read timeout raises ``ReadTimeout``, except for an event stream; httpx itself only limits pauses.

    Args:
        backend: its name, for errors.
        max_bytes: limit of one answer.
        wait: False for a blocking ``Client``.
    """

    def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise _unusable(backend, "it is packed, which was not asked for")
        stream = _stream_class(type(response.stream))  # type: ignore[arg-type]  # a class is hashable
        response.stream = stream(response, backend, max_bytes)

    async def bound_async(response: Any) -> None:
        bound(response)

    return bound_async if wait else bound


def http_client(
    url: str, *, backend: str, timeout_s: float, max_answer_bytes: int = MAX_ANSWER_BYTES, **options: Any
) -> httpx.AsyncClient:
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
        event_hooks={"response": [bounded_answers(backend, max_answer_bytes)]},
        verify=secure,  # loading the certificates takes 70 ms
        trust_env=secure,  # a proxy would see the key of a plain http request
        **options,
    )


@cache
def _stream_class(kind: type) -> Any:
    """A bounded stream class for a library's streams. A successor of httpx accepts only its own streams."""
    names = {base.__name__: base for base in kind.__mro__}
    if "AsyncByteStream" in names:
        return type("BoundedStream", (_Bounded, names["AsyncByteStream"]), {})
    return type("BoundedStream", (_BoundedSync, names["SyncByteStream"]), {})


def _unusable(backend: str, why: str) -> BackendProtocolError:
    return BackendProtocolError(f"{backend}: the answer cannot be used: {why}", backend_name=backend)


class _Counting:
    """One answer, the number of bytes that may still come, and the time until which they may come."""

    def __init__(self, response: Any, backend: str, max_bytes: int) -> None:
        self._stream = response.stream
        self._request = response.request
        streamed = "event-stream" in response.headers.get("content-type", "")
        seconds = None if streamed else self._request.extensions.get("timeout", {}).get("read")
        self._until = None if seconds is None else time.monotonic() + seconds
        self._pieces: Any = None
        self._backend = backend
        self._left = max_bytes
        self._max_bytes = max_bytes

    def _counted(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise _unusable(self._backend, f"it is longer than {self._max_bytes} bytes")
        if self._until is not None and time.monotonic() > self._until:
            library: Any = sys.modules[type(self._request).__module__.partition(".")[0]]
            raise library.ReadTimeout("the answer did not end", request=self._request)
        return piece


class _Bounded(_Counting):
    """An iterator rather than a generator, because trio warns of abandoned generators."""

    def __aiter__(self) -> Self:
        self._pieces = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces)
        try:
            return self._counted(piece)
        except Exception:
            with suppress(StopAsyncIteration), anyio.CancelScope() as scope:
                scope.cancel()  # ends the stream's generators; trio warns of open ones
                while True:
                    await anext(self._pieces)
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedSync(_Counting):
    def __iter__(self) -> Iterator[bytes]:
        yield from map(self._counted, self._stream)

    def close(self) -> None:
        self._stream.close()


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
