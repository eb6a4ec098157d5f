"""Background writes: a turn goes into the slot's outbox, and from there to the backend."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from random import sample

import anyio

from memory.contract._surviving import Failures
from memory.contract.errors import BackendError, InputError, LifecycleError, StoreError
from memory.contract.events import MemoryEvent
from memory.contract.scope import MemoryScope
from memory.runtime._items import MemoryItems
from memory.slot.background import Background, Deliveries
from memory.slot.slot import MemorySlot

log = logging.getLogger("memslot.runtime")

_LOOK_S, _LOOK_AT = 1.0, 64  # scopes
_CANCELLED_S = 1.0


@dataclass(slots=True)
class WriteCounts:
    """Counts of the events handed over so far. No field holds user text."""

    recorded: int = 0  # went into the outbox
    skipped: int = 0  # not kept, because the slot is read-only
    corrected: int = 0  # their earlier version is forgotten
    not_recorded: int = 0  # could not be kept, or were lost
    left_for_next_start: int = 0  # waited in the outbox on close
    last_failure: str | None = None  # why the last write, delivery or look at the outbox failed


class WriteBehind:
    """Puts events into a slot's outbox and delivers them in the background.

    The outbox keeps the order of each scope and decides when to repeat a failed attempt. Scopes do not wait
    for each other. ``background`` runs the look at the outbox.
    """

    def __init__(self, slot: MemorySlot, background: Background) -> None:
        self.counts = WriteCounts()
        self._slot = slot
        self._background = background
        self._failures = Failures("write-behind", log)
        self._deliveries = Deliveries(self._deliver)
        self._corrected: dict[MemoryScope, list[MemoryEvent]] = {}
        self._looking: anyio.CancelScope | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Events that wait in the outbox."""
        return self._slot.delivery.waiting()

    def resume(self) -> None:
        """Start to look for undelivered events, now and every second, and deliver them. Idempotent."""
        if self._looking is None and not self._closed:
            self._looking = anyio.CancelScope()
            self._background.start(partial(self._look, self._looking))

    async def _look(self, until: anyio.CancelScope) -> None:
        with until:
            while True:
                await self._take_up()
                await anyio.sleep(_LOOK_S)

    async def _take_up(self) -> None:
        """Begin to deliver the waiting events of all processes."""
        delivery = self._slot.delivery
        with self._failures.survived("a look at the outbox") as looked:
            await delivery.journal.refresh()
            left = delivery.waiting_scopes()
            # The choice is random, because other processes may look at the same moment.
            for scope in sample(left, min(len(left), _LOOK_AT)):
                self._deliveries.start(scope)
        if looked.error is not None:
            self.counts.last_failure = self._failures.last

    async def add(self, event: MemoryEvent, *, corrects: MemoryEvent | None = None) -> bool:
        """Put an event into the outbox and begin to deliver it. Arguments and errors: :meth:`TurnMemory.record`.

        Returns False if the event was recorded before or the slot is read-only.
        """
        if self._closed or self._slot.closed:
            raise LifecycleError("this memory is closed; the event was not recorded")
        self.resume()
        try:
            kept = await self._slot.delivery.keep(event)
        except (BackendError, StoreError, InputError) as error:
            log.warning("%s: an event was not recorded: %s", self._slot.backend_name, error)
            raise
        self.counts.skipped += kept is None
        if not kept:
            return False
        self.counts.recorded += 1
        if corrects is not None and self._can_forget(event.scope):
            self._corrected.setdefault(event.scope, []).append(corrects)
        self._deliveries.start(event.scope)
        return True

    async def _deliver(self, scope: MemoryScope) -> str | None:
        """Deliver the waiting events of a scope. Returns why some still wait, or None."""
        delivery = self._slot.delivery
        corrected = self._corrected.pop(scope, [])
        # An earlier version may still wait in the outbox. It is forgotten after its delivery.
        later = [event for event in corrected if not await self._forget(event)]
        with self._failures.survived("a delivery") as delivered:
            await delivery.set_up(scope)
            self.counts.last_failure = await delivery.deliver(scope) or self.counts.last_failure
        if delivered.error is not None:
            self.counts.last_failure = self._failures.last
        for event in later:
            await self._forget(event)
        return None

    def _can_forget(self, scope: MemoryScope) -> bool:
        return self._slot.delivery.can_look_up and "forget" in MemoryItems(self._slot, scope).offered

    async def _forget(self, event: MemoryEvent) -> bool:
        """Delete the memories made from an event. Returns False only if there were none.

        A failure counts as done: the new event names the old one, so no information is lost.
        """
        items = MemoryItems(self._slot, event.scope)
        with self._failures.survived("forgetting an earlier version of a turn"):
            await self._slot.delivery.set_up(event.scope)
            native_ids = await self._slot.delivery.find_event(event) or ()
            await items.forget_all(native_ids)
            self.counts.corrected += bool(native_ids)
            return bool(native_ids)
        return True

    async def drained(self, within_s: float, *, once: bool = False) -> bool:
        """Wait until the outbox is empty or, with ``once``, until each waiting event was tried once.

        Returns whether that happened within ``within_s`` seconds.
        """
        with anyio.move_on_after(within_s):
            while True:
                await self._take_up()
                await self._deliveries.ended()
                if once or not self.waiting:
                    return True
                await anyio.sleep(_LOOK_S)
        return False

    async def close(self, within_s: float) -> None:
        """Accept no further event, and deliver the waiting ones for at most ``within_s`` seconds.

        Events in a lasting outbox are tried once, without waiting for the pause after a failed attempt.
        """
        self._closed = True
        lasting = self._slot.delivery.journal.lasting
        await self.drained(within_s, once=lasting)
        if self._looking is not None:
            self._looking.cancel()
        await self._deliveries.end(0)
        with anyio.move_on_after(_CANCELLED_S):
            await self._deliveries.ended()
        if not (left := self.waiting):
            return
        name = self._slot.backend_name
        if lasting:
            self.counts.left_for_next_start = left
            log.warning("%s: %d events wait for the next start", name, left)
        else:
            self.counts.not_recorded += left
            log.error("%s: %d events are lost, because this memory has no store", name, left)
