"""How fast a model's server may be asked: by every cell that is played in this process, each endpoint by itself."""

from __future__ import annotations

import threading
import time
from functools import cache

import anyio


class Pace:
    """Spreads calls evenly, so that no minute has more requests or tokens than the server grants.

    Args:
        requests, tokens: a minute; None is no limit. Tokens are known once a call is answered, and delay the next.
    """

    def __init__(self, requests: float | None = None, tokens: float | None = None) -> None:
        self._request_s = 60 / requests if requests else 0.0
        self._token_s = 60 / tokens if tokens else 0.0
        self._lock = threading.Lock()  # a dask worker may play cells in several threads
        self._next_request = self._next_token = 0.0

    @property
    def limits_tokens(self) -> bool:
        """Whether tokens are limited."""
        return self._token_s > 0

    async def wait(self) -> None:
        """Until the next call may be made."""
        with self._lock:
            now = time.monotonic()
            due = max(now, self._next_request, self._next_token)
            self._next_request = due + self._request_s
        if due > now:
            await anyio.sleep(due - now)

    def spent(self, tokens: int) -> None:
        """Note what a call took."""
        with self._lock:
            self._next_token = max(time.monotonic(), self._next_token) + tokens * self._token_s

    def hold(self, seconds: float) -> None:
        """Make no call for so long, because the server asked for it."""
        with self._lock:
            self._next_request = max(self._next_request, time.monotonic() + seconds)


@cache
def pace_of(endpoint: str, requests: float | None, tokens: float | None) -> Pace:
    """The one of an endpoint; the same for every cell of this process."""
    return Pace(requests, tokens)
