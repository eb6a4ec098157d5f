"""A server's connections, bounded in number and in the time they take to ask: half requests cost nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def bounded_protocol(header_s: float, max_per_address: int) -> type[asyncio.Protocol]:
    """uvicorn's protocol for HTTP, for its option ``http``.

    Args:
        header_s: seconds from the opening of a connection, or from the first byte of a further request, until the
            head of the request has arrived; then the connection is closed.
        max_per_address: connections of one address; further ones are closed at once.
    """
    connections: Counter[str] = Counter()

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            peer = transport.get_extra_info("peername")
            self._address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
            self._deadline: asyncio.TimerHandle | None = None
            connections[self._address] += 1
            super().connection_made(transport)
            if connections[self._address] > max_per_address:
                transport.abort()
            else:
                self._begin_deadline()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._end_deadline()
            elif self._deadline is None and (before is None or before.response_complete):
                self._begin_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_deadline()
            connections[self._address] -= 1
            if not connections[self._address]:
                del connections[self._address]
            super().connection_lost(exc)

        def _begin_deadline(self) -> None:
            self._deadline = self.loop.call_later(header_s, self.transport.abort)

        def _end_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded
