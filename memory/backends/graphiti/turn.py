"""Giving up a write without cancelling it. Imports no SDK.

Graphiti gathers coroutines; cancelled at the wrong moment it leaves some that were never awaited. So a write
that is given up (a deadline, say) is not cancelled: its model calls in flight are, and its next query fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["GivenUp", "NotSaved", "Turn"]

T = TypeVar("T")


class GivenUp(Exception):
    """Nobody waits for this write any more; it must not go on."""


class NotSaved(Exception):
    """The write failed, for the reason that is its cause, before anything was stored."""


class Turn:
    """One write, as its tasks see it.

    Args:
        early_saves: how often it saves what it takes back should it fail, before it saves for good.
    """

    current: ContextVar[Turn | None] = ContextVar("memslot_graphiti_turn", default=None)

    def __init__(self, early_saves: int = 0) -> None:
        self.given_up = False
        self.saving = False
        self._early_saves = early_saves
        self._calls: set[asyncio.Future[Any]] = set()

    def give_up(self) -> None:
        """Let the write end as soon as it can."""
        self.given_up = True
        for call in self._calls:
            call.cancel()

    @classmethod
    def check(cls) -> None:
        """Raise :class:`GivenUp` in a write that was."""
        turn = cls.current.get()
        if turn is not None and turn.given_up and not turn.saving:
            raise GivenUp

    @classmethod
    def save(cls) -> None:
        """From here on the write goes to its end, given up or not: half of it saved would be worse.

        Raises:
            GivenUp: it was given up before.
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
        if turn.given_up and not turn.saving:
            request.close()
            raise GivenUp
        call = asyncio.ensure_future(request)
        turn._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if turn.given_up:
                raise GivenUp from None
            raise
        finally:
            turn._calls.discard(call)
