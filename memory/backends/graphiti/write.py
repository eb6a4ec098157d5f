"""Abandoning a write without cancelling it. Imports no SDK.

Graphiti gathers coroutines; cancelled at the wrong moment it leaves some that were never awaited. So a write
that is abandoned (a deadline, say) is not cancelled: its model calls in flight are, and its next query fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Nobody waits for this write any more; it must not go on."""


class NotSaved(Exception):
    """The write failed, for the reason that is its cause, and nothing of it is stored."""


class Write:
    """One write, as its tasks see it.

    Args:
        early_saves: how often it saves what it takes back should it fail, before it saves for good.

    Attributes:
        abandoned: nobody waits for it any more.
        saving: it has begun to save, and goes to its end, abandoned or not: half of it saved would be worse.
    """

    current: ContextVar[Write | None] = ContextVar("memslot_graphiti_write", default=None)

    def __init__(self, early_saves: int = 0) -> None:
        self.abandoned = False
        self.saving = False
        self._early_saves = early_saves
        self._calls: set[asyncio.Future[Any]] = set()

    def abandon(self) -> None:
        self.abandoned = True
        if not self.saving:
            for call in self._calls:
                call.cancel()

    @classmethod
    def check(cls) -> None:
        """Raise :class:`Abandoned` in a write that was."""
        write = cls.current.get()
        if write is not None and write.abandoned and not write.saving:
            raise Abandoned

    @classmethod
    def save(cls) -> None:
        """To be called before something is saved that cannot be undone; raises as :meth:`check`."""
        cls.check()
        cls.saved()

    @classmethod
    def saved(cls) -> None:
        """From here on the write goes to its end."""
        write = cls.current.get()
        if write is None:
            return
        if write._early_saves:
            write._early_saves -= 1
        else:
            write.saving = True

    @classmethod
    async def call(cls, request: Coroutine[Any, Any, T]) -> T:
        """A request that ends with the write it belongs to."""
        write = cls.current.get()
        if write is None:
            return await request
        if write.abandoned and not write.saving:
            request.close()
            raise Abandoned
        call = asyncio.ensure_future(request)
        write._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if write.abandoned:
                raise Abandoned from None
            raise
        finally:
            write._calls.discard(call)
