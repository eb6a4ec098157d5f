"""Answers with a bound: a megabyte of gzip may hold a gigabyte, and no client is to unpack it to find that out."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, Self

import anyio

from memory.contract.errors import BackendProtocolError

MAX_ANSWER_BYTES = 64_000_000
_PIECE = 65_536


def bounded_answers(backend: str, max_bytes: int = MAX_ANSWER_BYTES) -> Callable[[Any], Awaitable[None]]:
    """For ``event_hooks={"response": [...]}`` of httpx' ``AsyncClient``, whose ``accept-encoding`` is ``gzip``.

    Args:
        backend: for the error.
        max_bytes: of one answer, unpacked. A longer one raises :class:`BackendProtocolError` while it is read.
    """

    async def bound(response: Any) -> None:
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        stream = _stream_class(type(response.stream))  # type: ignore[arg-type]  # a class is hashable
        response.stream = stream(response.stream, backend, encoding, max_bytes)

    return bound


@cache
def _stream_class(kind: type) -> Any:
    """Of the same library as a stream: an SDK may bring a successor of httpx, which takes its own streams alone."""
    base = next(cls for cls in kind.__mro__ if cls.__name__ == "AsyncByteStream")
    return type("BoundedStream", (_Bounded, base), {})


class _Bounded:
    """An iterator, and no generator: one that is abandoned half-way is what trio warns of."""

    def __init__(self, stream: Any, backend: str, encoding: str, max_bytes: int) -> None:
        self._stream = stream
        self._pieces: Any = None
        self._packed = b""
        self._backend = backend
        self._encoding = encoding
        self._unpacking = None if encoding in ("", "identity") else zlib.decompressobj(47)  # gzip or zlib
        self._left = max_bytes
        self._max_bytes = max_bytes

    def __aiter__(self) -> Self:
        self._pieces = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        if self._unpacking is not None and self._encoding not in ("gzip", "x-gzip", "deflate"):
            await self._give_up("it is packed in a way that was not asked for")
        piece = self._packed or await anext(self._pieces)
        if self._unpacking is not None:
            try:
                piece = self._unpacking.decompress(piece, _PIECE)
            except zlib.error:
                await self._give_up("what is packed in it cannot be unpacked")
            self._packed = self._unpacking.unconsumed_tail
        self._left -= len(piece)
        if self._left < 0:
            await self._give_up(f"it is longer than {self._max_bytes} bytes")
        return piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _give_up(self, why: str) -> NoReturn:
        with suppress(StopAsyncIteration), anyio.CancelScope() as scope:
            scope.cancel()  # ends its generators, which trio wants to see ended
            while True:
                await anext(self._pieces)
        message = f"{self._backend}: the answer cannot be used: {why}"
        raise BackendProtocolError(message, backend_name=self._backend)
