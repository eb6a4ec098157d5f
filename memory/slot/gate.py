"""Decides when a call may reach the backend: by the slot's mode (DESIGN 5.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from memory.contract._quantity import quantity
from memory.contract.errors import BackendTimeout


class InFlight:
    """Counts the calls under way, and waits until there are none."""

    def __init__(self) -> None:
        self.count = 0
        self._ended: anyio.Event | None = None

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if self._ended is not None and not self.count:
            self._ended.set()

    async def ended(self) -> None:
        """Wait until nothing is under way."""
        while self.count:
            if self._ended is None or self._ended.is_set():
                self._ended = anyio.Event()
            await self._ended.wait()


class _Period:
    """The period between two switches of the mode, and the writes that belong to it."""

    def __init__(self, read_only: bool | None = None) -> None:
        self.read_only = read_only  # None until the switch that begins it is done
        self.begun = anyio.Event()
        self.writes = InFlight()


class ModeGate:
    """Lets writes through or refuses them.

    A switch waits for the writes in flight and then flips the mode. A write that arrives meanwhile belongs
    to the period after the switch. It takes its place in the scope's order at once, and waits there.
    """

    def __init__(self) -> None:
        self._period = _Period(read_only=False)
        self._earlier: list[_Period] = []
        self._switching = anyio.Lock(fast_acquire=True)
        self.read_only = False

    @property
    def in_flight(self) -> int:
        """The number of writes that run or wait for their turn."""
        return sum(period.writes.count for period in (*self._earlier, self._period))

    @asynccontextmanager
    async def writing(self, order: anyio.Lock) -> AsyncIterator[bool]:
        """Hold the gate and the scope's turn for one write. Yields False if the slot is read-only."""
        period = self._period
        if period.read_only:
            yield False
            return
        with period.writes:
            async with order:
                if period.read_only is None:
                    await period.begun.wait()
                yield not period.read_only

    @asynccontextmanager
    async def switching(self, read_only: bool, queue_timeout_s: float) -> AsyncIterator[int]:
        """Drain, run the body, then flip the mode. Yields the number of writes that it waited for.

        If the body fails, the slot still becomes read-only but never writable, which is the safe side.
        Raises BackendTimeout if writes take longer than ``queue_timeout_s``; the mode is then unchanged.
        """
        async with self._switching:
            waited_for = self.in_flight
            last, self._period = self._period, _Period()
            self._earlier.append(last)
            try:
                with anyio.move_on_after(queue_timeout_s) as limit:
                    for period in self._earlier:
                        await period.writes.ended()
                if limit.cancelled_caught:
                    left = quantity(sum(period.writes.count for period in self._earlier), "writes")
                    why = f"still under way after {queue_timeout_s:g} s: {left}; the mode is as before"
                    raise BackendTimeout(why, sent=False)
                self.read_only = self.read_only or read_only
                yield waited_for
                self.read_only = read_only
            finally:
                self._earlier = [period for period in self._earlier if period.writes.count]
                self._period.read_only = self.read_only
                self._period.begun.set()
