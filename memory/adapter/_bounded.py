"""A server's address, and answers with a bound: a megabyte of gzip may hold a gigabyte, and no client is to unpack
it to find that out. Imports no HTTP client, so that options may use it."""

from __future__ import annotations

import zlib
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
_PIECE = 65_536


def bounded_answers(
    backend: str, max_bytes: int = MAX_ANSWER_BYTES, *, wait: bool = True
) -> Callable[[Any], Any]:
    """For ``event_hooks={"response": [...]}`` of a client of httpx whose ``accept-encoding`` is ``gzip``. A longer
    answer raises :class:`BackendProtocolError` while it is read. ``wait=False`` is for a blocking ``Client``."""

    def bound(response: Any) -> None:
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        stream = _stream_class(type(response.stream))  # type: ignore[arg-type]  # a class is hashable
        response.stream = stream(response.stream, backend, encoding, max_bytes)

    async def bound_async(response: Any) -> None:
        bound(response)

    return bound_async if wait else bound


def http_client(
    url: str, *, backend: str, timeout_s: float, max_answer_bytes: int = MAX_ANSWER_BYTES, **options: Any
) -> httpx.AsyncClient:
    """httpx' client of one server: answers with a bound, no redirect, and no proxy that would see a key.

    Args:
        url: the server's address, which paths are added to.
        backend: for errors.
        timeout_s: for each request, in seconds.
        max_answer_bytes: of one answer, unpacked; a longer one is a :class:`BackendProtocolError`.
        options: further ones of ``httpx.AsyncClient``; not ``event_hooks``.
    """
    import httpx

    secure = url.startswith("https")
    return httpx.AsyncClient(
        base_url=url,
        timeout=timeout_s,
        follow_redirects=False,
        headers={**options.pop("headers", {}), "accept-encoding": "gzip"},
        event_hooks={"response": [bounded_answers(backend, max_answer_bytes)]},
        # Loading the certificates takes 70 ms; plain http has no use for them.
        verify=secure,
        # Through a proxy an http request would show the key to it; https only tunnels.
        trust_env=secure,
        **options,
    )


@cache
def _stream_class(kind: type) -> Any:
    """Of the same library as a stream: an SDK may bring a successor of httpx, which takes its own streams alone."""
    names = {base.__name__: base for base in kind.__mro__}
    if "AsyncByteStream" in names:
        return type("BoundedStream", (_Bounded, names["AsyncByteStream"]), {})
    return type("BoundedStream", (_BoundedSync, names["SyncByteStream"]), {})


class _Unpacking:
    """One answer: what of it is left to unpack, and how much more it may be."""

    def __init__(self, stream: Any, backend: str, encoding: str, max_bytes: int) -> None:
        self._stream = stream
        self._pieces: Any = None
        self._packed = b""
        self._backend = backend
        self._readable = encoding in ("", "identity", "gzip", "x-gzip", "deflate")
        self._unpacking = None if encoding in ("", "identity") else zlib.decompressobj(47)  # gzip or zlib
        self._left = max_bytes
        self._max_bytes = max_bytes

    def _unpacked(self, piece: bytes) -> bytes:
        if not self._readable:
            raise self._unusable("it is packed in a way that was not asked for")
        if self._unpacking is not None:
            try:
                piece = self._unpacking.decompress(piece, _PIECE)
            except zlib.error:
                raise self._unusable("what is packed in it cannot be unpacked") from None
            self._packed = self._unpacking.unconsumed_tail
        self._left -= len(piece)
        if self._left < 0:
            raise self._unusable(f"it is longer than {self._max_bytes} bytes")
        return piece

    def _unusable(self, why: str) -> BackendProtocolError:
        message = f"{self._backend}: the answer cannot be used: {why}"
        return BackendProtocolError(message, backend_name=self._backend)


class _Bounded(_Unpacking):
    """An iterator rather than a generator, because trio warns of abandoned generators."""

    def __aiter__(self) -> Self:
        self._pieces = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        piece = self._packed or await anext(self._pieces)
        try:
            return self._unpacked(piece)
        except BackendProtocolError:
            with suppress(StopAsyncIteration), anyio.CancelScope() as scope:
                scope.cancel()  # ends its generators, which trio wants to see ended
                while True:
                    await anext(self._pieces)
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedSync(_Unpacking):
    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._packed = piece
            while self._packed:
                yield self._unpacked(self._packed)
                if self._unpacking is None:
                    break

    def close(self) -> None:
        self._stream.close()


def server_address(url: str, example: str = "http://127.0.0.1:8765") -> str:
    """``url`` without its trailing slash.

    Args:
        url: what was given.
        example: shown in errors.

    Raises:
        ValueError: not http(s), without a host, or with credentials, a query or a fragment; worded as a part of a
            message that names the field.
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
