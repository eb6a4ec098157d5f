"""Abandoning a write without cancelling it. Imports no SDK.

Graphiti gathers coroutines; cancelled at the wrong moment it leaves some that were never awaited. So a write
that is abandoned (a deadline, say) is not cancelled: its model calls in flight are, and its next query fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["Abandoned", "NotSaved", "Write"]

T = TypeVar("T")


class Abandoned(Exception):
    """Nobody waits for this write any more; it must not go on."""


class NotSaved(Exception):
    """The write failed, for the reason that is its cause, before anything was stored."""


class Write:
    """One write, as its tasks see it.

    Args:
        early_saves: how often it saves what it takes back should it fail, before it saves for good.
    """

    current: ContextVar[Write | None] = ContextVar("memslot_graphiti_write", default=None)

    def __init__(self, early_saves: int = 0) -> None:
        self.abandoned = False
        self.saving = False
        self._early_saves = early_saves
        self._calls: set[asyncio.Future[Any]] = set()

    def abandon(self) -> None:
        """Let the write end as soon as it can."""
        self.abandoned = True
        for call in self._calls:
            call.cancel()

    @classmethod
    def check(cls) -> None:
        """Raise :class:`Abandoned` in a write that was."""
        turn = cls.current.get()
        if turn is not None and turn.abandoned and not turn.saving:
            raise Abandoned

    @classmethod
    def save(cls) -> None:
        """From here on the write goes to its end, abandoned or not: half of it saved would be worse.

        Raises:
            Abandoned: it was abandoned before.
        """
        cls.check()
        turn = cls.current.get()
        if turn is None:
            return
        turn.saving = turn._early_saves == 0
        turn._early_saves -= 1

    @classmethod
    async def call(cls, request: Coroutine[Any, Any, T]) -> T:
        """A request that ends with the write it belongs to."""
        turn = cls.current.get()
        if turn is None:
            return await request
        if turn.abandoned and not turn.saving:
            request.close()
            raise Abandoned
        call = asyncio.ensure_future(request)
        turn._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if turn.abandoned:
                raise Abandoned from None
            raise
        finally:
            turn._calls.discard(call)
