"""Deliveries in the background."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from memory.contract._loops import start_task
from memory.contract._surviving import Failures
from memory.contract.scope import MemoryScope
from memory.storage.outbox import STILL_BUSY

log = logging.getLogger("memslot.slot")


class Background:
    """Starts tasks that outlive the end or the cancellation of the task that started them."""

    def __init__(self) -> None:
        self.failures = Failures("background", log)

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start ``work`` in a task. A failure is logged and ends nothing else."""

        async def run() -> None:
            with self.failures.survived("a task"):
                await work()

        start_task(run)


class Deliveries:
    """Delivers the waiting events of the outbox, with one task for each scope.

    Args:
        deliver: delivers a scope's waiting events. Returns why some still wait, or None.
    """

    def __init__(self, deliver: Callable[[MemoryScope], Awaitable[str | None]]) -> None:
        self._deliver = deliver
        self._background = Background()
        self._wanted: set[MemoryScope] = set()
        self._running: dict[MemoryScope, anyio.CancelScope] = {}
        self._ended = anyio.Event()

    def start(self, scope: MemoryScope) -> None:
        """Deliver a scope's waiting events, now or after the delivery under way."""
        self._wanted.add(scope)
        if scope not in self._running:
            self._running[scope] = anyio.CancelScope()
            self._background.start(partial(self._work, scope))

    async def _work(self, scope: MemoryScope) -> None:
        try:
            with self._running[scope], self._background.failures.survived("a delivery"):
                while scope in self._wanted:
                    self._wanted.discard(scope)
                    if await self._deliver(scope) == STILL_BUSY:
                        self._wanted.add(scope)
        finally:
            del self._running[scope]
            if not self._running:
                self._ended.set()
                self._ended = anyio.Event()

    async def ended(self) -> None:
        """Wait until no delivery is under way."""
        while self._running:
            await self._ended.wait()

    async def end(self, within_s: float) -> None:
        """Let deliveries go on for ``within_s`` seconds, then end them. The rest stays in the outbox."""
        with anyio.move_on_after(within_s):
            await self.ended()
        for running in list(self._running.values()):
            running.cancel()
