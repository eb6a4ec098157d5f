"""Writes in the background: each scope in its own order, none waiting for another's, all of them bounded."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from memory.contract.errors import (
    BackendError,
    BackendRateLimited,
    BackendTimeout,
    BackendUnavailable,
    LifecycleError,
    MemslotError,
)
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.runtime._circuit import Background, Circuit, CircuitOpen
from memory.slot.slot import MemorySlot

log = logging.getLogger("memslot.runtime")

_REMEMBERED = 10_000  # event ids; far more than can still be handed over twice
_FIRST_PAUSE_S = 0.5


@dataclass(slots=True)
class WriteCounts:
    """What became of the events handed over so far.

    Attributes:
        recorded: with a receipt, whatever it says.
        unknown: of these, sent without an answer.
        skipped: of these, not sent because the slot is read-only.
        not_recorded: refused, not taken in time, or still waiting when this was closed.
        last_failure: of a write, in words that hold no user text.
    """

    recorded: int = 0
    unknown: int = 0
    skipped: int = 0
    not_recorded: int = 0
    last_failure: str | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    event: MemoryEvent
    place: anyio.Event | None = None  # set when it has one; None where it had one at once
    sent: bool = False


@dataclass(slots=True)
class _Lane:
    queue: deque[_Waiting] = field(default_factory=deque)
    stop: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class WriteBehind:
    """Events on their way to a slot.

    Args:
        slot: where they go.
        circuit: of writes; while it is open events wait.
        background: runs the writers.
        size: events that may wait over all scopes.
        queue_timeout_s: seconds an event may wait for its place among them.
        on_failure: counts an event that is not recorded; called with why.
    """

    def __init__(
        self,
        slot: MemorySlot,
        circuit: Circuit,
        background: Background,
        size: int,
        queue_timeout_s: float,
        on_failure: Callable[[str], None],
    ) -> None:
        self.counts = WriteCounts()
        self._on_failure = on_failure
        self._slot = slot
        self._circuit = circuit
        self._background = background
        self._size = size
        self._queue_timeout_s = queue_timeout_s
        self._lanes: dict[MemoryScope, _Lane] = {}
        self._without_place: OrderedDict[_Waiting, None] = OrderedDict()
        self._seen: OrderedDict[tuple[MemoryScope, str], None] = OrderedDict()
        self._waiting = 0
        self._changed: anyio.Event | None = None
        self._hurry: anyio.Event | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """Events handed over and not yet answered for."""
        return self._waiting

    async def add(self, event: MemoryEvent) -> bool:
        """Hand an event over. Returns when it has a place, which is at once unless ``size`` events wait.

        Cancelled while it waits for a place, it is taken back.

        Returns:
            False where an event of this id and scope was handed over before.

        Raises:
            LifecycleError: this is closed.
            BackendUnavailable: no place became free in time; the event is not recorded.
        """
        if self._closing:
            raise LifecycleError("this memory is closed; the event was not recorded")
        if (event.scope, event.event_id) in self._seen:
            return False
        entry = self._enqueued(event)
        if entry.place is None:
            return True
        try:
            # A queue that is full because nothing can be sent does not empty by waiting.
            with anyio.move_on_after(self._queue_timeout_s if self._circuit.state == "closed" else 0):
                await entry.place.wait()
        except BaseException:
            self._take_back(entry)
            raise
        if self._take_back(entry):
            self._note_failure(f"{self._size} writes wait already")
            raise BackendUnavailable(
                f"{self._slot.backend_name}: {self._size} writes wait already; the event was not recorded",
                backend_name=self._slot.backend_name,
                operation="record_event",
                sent=False,
            )
        return True

    async def drained(self, within_s: float) -> bool:
        """Wait until nothing waits; whether that came true within so many seconds."""
        with anyio.move_on_after(within_s):
            while self._waiting:
                self._changed = self._changed or anyio.Event()
                await self._changed.wait()
        return not self._waiting

    async def close(self, within_s: float) -> int:
        """Take no more events, and send what waits; how many could not be sent within so many seconds."""
        self._closing = True
        if self._hurry is not None:
            self._hurry.set()
        await self.drained(within_s)
        left = self._waiting
        for lane in list(self._lanes.values()):
            lane.stop.cancel()
        await self.drained(within_s=1.0)
        return left

    # -- inside -----------------------------------------------------------------------------------------

    def _enqueued(self, event: MemoryEvent) -> _Waiting:
        """Its place in the order is fixed now, whenever the queue has room for it."""
        self._seen[(event.scope, event.event_id)] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        entry = _Waiting(event)
        if self._waiting - len(self._without_place) >= self._size:
            entry.place = anyio.Event()
            self._without_place[entry] = None
        self._waiting += 1
        lane = self._lanes.get(event.scope)
        if lane is None:
            lane = self._lanes[event.scope] = _Lane()
            self._background.start(lambda: self._write(event.scope, lane))
        lane.queue.append(entry)
        return entry

    def _take_back(self, entry: _Waiting) -> bool:
        """Forget an event that has no place yet; False where it has one, or is on its way."""
        if entry not in self._without_place or entry.sent:
            return False
        self._lanes[entry.event.scope].queue.remove(entry)
        self._leave(entry, stored=False)
        return True

    async def _write(self, scope: MemoryScope, lane: _Lane) -> None:
        try:
            with lane.stop:
                while lane.queue:
                    entry = lane.queue[0]
                    entry.sent = True
                    stored = await self._deliver(entry.event)
                    lane.queue.popleft()
                    self._leave(entry, stored)
        finally:
            self._lanes.pop(scope, None)
            for entry in lane.queue:
                self._note_failure("it was still waiting when this memory was closed")
                self._leave(entry, stored=False)

    async def _deliver(self, event: MemoryEvent) -> bool:
        """Send an event, and again what certainly was not sent; False where it is not recorded."""
        pause_s = _FIRST_PAUSE_S
        while True:
            last = self._closing
            try:
                with self._circuit.attempt():
                    async with self._slot.leases.lease(event.scope):
                        receipt = await self._slot.record_event(event)
            except CircuitOpen as error:
                if not last:
                    await self._pause(max(self._circuit.left_s, 0.05))
                    continue
                self._note_failure(str(error))
                return False
            except MemslotError as error:
                if last or not _may_go_again(error):
                    self._note_failure(str(error))
                    return False
                self.counts.last_failure = str(error)
                await self._pause(_asked_for(error) or pause_s)
                pause_s = min(pause_s * 2, 30.0)
            except Exception as error:
                self._note_failure(type(error).__name__)
                return False
            else:
                self._count(receipt)
                return True

    async def _pause(self, seconds: float) -> None:
        """Wait, but not while this is closing."""
        if not self._closing:
            self._hurry = self._hurry or anyio.Event()
            with anyio.move_on_after(seconds):
                await self._hurry.wait()

    def _leave(self, entry: _Waiting, stored: bool) -> None:
        self._waiting -= 1
        if not stored:  # it may be handed over again
            self._seen.pop((entry.event.scope, entry.event.event_id), None)
        if self._without_place.pop(entry, self) is self and self._without_place:
            # `entry` had a place, which the one that waits longest takes over.
            heir, _ = self._without_place.popitem(last=False)
            assert heir.place is not None
            heir.place.set()
        elif entry.place is not None:
            entry.place.set()
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _count(self, receipt: WriteReceipt) -> None:
        self.counts.recorded += 1
        self.counts.unknown += receipt.status == "unknown"
        self.counts.skipped += receipt.status == "skipped_read_only"

    def _note_failure(self, why: str) -> None:
        log.warning("%s: an event was not recorded: %s", self._slot.backend_name, why)
        self._on_failure(why)


def _may_go_again(error: MemslotError) -> bool:
    """Whether the event certainly is not stored, and the memory may take it later."""
    later = (BackendUnavailable, BackendTimeout, BackendRateLimited)
    return isinstance(error, later) and not error.ambiguous


def _asked_for(error: MemslotError) -> float | None:
    return error.retry_after_s if isinstance(error, BackendError) else None
