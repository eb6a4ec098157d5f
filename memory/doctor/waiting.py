"""Saying what a long call is for, while it is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from memory.doctor.report import Waiting

__all__ = ["Patience"]

_FIRST_NOTICE_S = 2.0
_NEXT_NOTICE_S = 5.0


@dataclass(frozen=True)
class _Call:
    what: str
    limit_s: float
    since: float


class Patience:
    """Knows which call is under way, and tells of those that take their time.

    Args:
        tell: called after two seconds of a call, and every five seconds from then on.

    Attributes:
        check: the check that is under way.
    """

    def __init__(self, tell: Callable[[Waiting], None] | None) -> None:
        self.check = ""
        self._tell = tell
        self._call: _Call | None = None

    @contextmanager
    def waiting_for(self, what: str, limit_s: float) -> Iterator[None]:
        """Around one call, which ends after ``limit_s`` seconds by itself."""
        self._call = _Call(what, limit_s, anyio.current_time())
        try:
            yield
        finally:
            self._call = None

    async def watch(self) -> None:
        """Tell of long calls until cancelled."""
        told: _Call | None = None
        told_at = 0.0
        while self._tell is not None:
            await anyio.sleep(_FIRST_NOTICE_S / 4)
            call, now = self._call, anyio.current_time()
            if call is None or now - call.since < _FIRST_NOTICE_S:
                continue
            if call is not told or now - told_at >= _NEXT_NOTICE_S:
                told, told_at = call, now
                self._tell(
                    Waiting(
                        check=self.check, what=call.what, elapsed_s=now - call.since, limit_s=call.limit_s
                    )
                )
