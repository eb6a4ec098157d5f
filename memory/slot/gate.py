"""Mode gate and write order: who may call the backend now (DESIGN sections 5.1 and 5.5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from memory.contract.adapter import AdapterTraits
from memory.contract.scope import MemoryScope

__all__ = ["Lanes", "ModeGate"]


class ModeGate:
    """Lets writes through, or not. Becoming read-only drains what is in flight, then flips.

    A write that arrives while draining waits for the flip and is then refused like any later one.
    """

    def __init__(self) -> None:
        self.read_only = False
        self.in_flight = 0
        self._draining = False
        self._changed = anyio.Event()
        self._switching = anyio.Lock()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[bool]:
        """Hold the gate for one write; yields False where the slot is read-only."""
        while self._draining:
            await self._changed.wait()
        if self.read_only:
            yield False
            return
        self.in_flight += 1
        try:
            yield True
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._announce()

    @asynccontextmanager
    async def switching(self, read_only: bool) -> AsyncIterator[int]:
        """Drain, run the body, then flip; yields how many writes were waited for.

        Towards read-only the flip happens even if the body fails: the safe side of a half-made switch. Abandoned
        while still draining, nothing has changed.
        """
        async with self._switching:
            waited_for = self.in_flight
            self._draining = True
            flip = False
            try:
                while self.in_flight:
                    await self._changed.wait()
                flip = read_only
                yield waited_for
                flip = True
            finally:
                if flip:
                    self.read_only = read_only
                self._draining = False
                self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Lanes:
    """Per-scope write order and the adapter's concurrency limits."""

    def __init__(self, traits: AdapterTraits) -> None:
        self._everywhere = _limit(traits.max_concurrency)
        self._per_scope = traits.max_scope_concurrency
        self._order: dict[MemoryScope, anyio.Lock] = {}
        self._scope_limits: dict[MemoryScope, anyio.Semaphore] = {}

    def add(self, scope: MemoryScope) -> None:
        if scope in self._order:
            return
        self._order[scope] = anyio.Lock(fast_acquire=True)
        limit = _limit(self._per_scope)
        if limit is not None:
            self._scope_limits[scope] = limit

    def drop(self, scope: MemoryScope) -> None:
        self._order.pop(scope, None)
        self._scope_limits.pop(scope, None)

    @property
    def reads_are_free(self) -> bool:
        """Whether reads never have to wait."""
        return self._everywhere is None and self._per_scope is None

    @asynccontextmanager
    async def enter(self, scope: MemoryScope, *, write: bool) -> AsyncIterator[None]:
        """Wait for this scope's turn. Writes are first come first served; reads pass by unless limited."""
        async with AsyncExitStack() as held:
            if write:
                await held.enter_async_context(self._order[scope])
            for limit in (self._scope_limits.get(scope), self._everywhere):
                if limit is not None:
                    await held.enter_async_context(limit)
            yield


def _limit(size: int | None) -> anyio.Semaphore | None:
    return None if size is None else anyio.Semaphore(size, fast_acquire=True)
