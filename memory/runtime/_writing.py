"""Writes in the background: each scope in its own order, none waiting for another's, all of them bounded. Without a
journal, what could not be sent before the end goes into the host store, and the next start delivers it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import sample

import anyio
import anyio.to_thread

from memory.contract import errors
from memory.contract.errors import BackendError, BackendUnavailable, MemslotError, StoreError
from memory.contract.events import MemoryEvent
from memory.contract.scope import MemoryScope
from memory.runtime._circuit import Background, Circuit, CircuitOpen
from memory.runtime._items import MemoryItems
from memory.slot.bounded_queue import BoundedQueue, Lease, RecentKeys
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore, StoredObject, was_begun
from memory.storage.lock import FileLock
from memory.storage.store import SqliteStore, Store

log = logging.getLogger("memslot.runtime")

_FIRST_PAUSE_S = 0.5
_LOOK_S, _LOOK_AT = 1.0, 64  # scopes
_UNSENT = "unsent"


@dataclass(slots=True)
class WriteCounts:
    """What became of the events handed over so far. A failure's words hold no user text."""

    recorded: int = 0  # with a receipt, whatever it says; with a journal, those that are in it
    unknown: int = 0  # of these, sent without an answer
    skipped: int = 0  # of these, not sent because the slot is read-only
    corrected: int = 0  # of these, in place of an event that this memory forgot first
    not_recorded: int = 0  # refused, not taken in time, or lost when this was closed
    left_for_next_start: int = 0
    last_failure: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    event: MemoryEvent | None  # None: whatever of the scope waits in the journal
    resets: int = 0  # of its scope when it was accepted; a later one erases it
    maybe_stored: bool = False  # an earlier process may have sent it
    forget: MemoryEvent | None = None  # instead of anything to write: an event that the next one corrects

    @property
    def key(self) -> tuple[MemoryScope, str, int]:
        assert self.event is not None
        return self.event.scope, self.event.event_id, self.resets


@dataclass(eq=False)
class WriteBehind:
    """Events on their way to a slot; without a journal ``size`` of them may wait, each so long for its place.

    ``host_file`` keeps what could not be sent before the end; ``on_failure`` is told why an event is not recorded.
    """

    slot: MemorySlot
    circuit: Circuit
    background: Background
    size: int
    queue_timeout_s: float
    host_file: Store | None
    on_failure: Callable[[str], None]

    def __post_init__(self) -> None:
        self.counts = WriteCounts()
        self.lost = 0
        self._queue: BoundedQueue[MemoryScope, _Pending] = BoundedQueue(self.size, self._start_lane)
        self.drained = self._queue.emptied
        self._seen: RecentKeys[tuple[MemoryScope, str, int]] = RecentKeys()
        self._lanes: dict[MemoryScope, anyio.CancelScope] = {}
        self._unsent: list[_Pending] = []
        self._closing: anyio.Event | None = None
        self._resumed = False
        self._left = 0  # events of earlier processes that are not delivered yet
        self._look_again_at = 0.0
        self._left_lock: FileLock | None = None
        if isinstance(self.host_file, SqliteStore) and self.host_file.path is not None:
            path = self.host_file.path
            lock = path.with_name(f"{path.name}-{_UNSENT}")
            self._left_lock = FileLock(lock, what="what earlier processes left", instead="wait")

    @property
    def waiting(self) -> int:
        return self.slot.delivery.waiting() or len(self._queue)

    async def resume(self) -> None:
        """Take up what earlier processes left: in the journal once, in the host store once no other delivers it."""
        if self._queue.closed:
            return
        if not self._resumed:
            self._resumed = True
            for scope in self.slot.delivery.waiting_scopes():
                self._queue.offer(scope, _Pending(None), weight=0)
            if self.slot.delivery.has_journal:
                self.background.start(self._watch)
        if time.monotonic() >= self._look_again_at:
            self._look_again_at = math.inf
            await self._take_up_left()

    async def _take_up_left(self) -> None:
        """One process delivers what is left, or each event would go out twice; who dies loses its lock."""
        if self.host_file is None or not was_begun(self.host_file):
            return
        try:
            if self._left_lock is not None:
                self._left_lock.acquire()
        except BackendUnavailable:
            self._look_again_at = time.monotonic() + 5.0
            return
        except OSError as error:
            log.warning("%s: %s", self.slot.backend_name, error)  # a file system without locks
        self._left = 1  # until all of them are in the queue
        while True:
            resets = self.slot.delivery.resets_of()
            left = await anyio.to_thread.run_sync(self._left_by_earlier)
            if resets == self.slot.delivery.resets_of():  # or it may have been erased while it was read
                break
        for event in left:
            pending = _Pending(event, self.slot.delivery.resets_of(event.scope), maybe_stored=True)
            if self._seen.add(pending.key):
                self._left += 1
                self._queue.offer(event.scope, pending, weight=0)
        self._end_left()

    def _end_left(self) -> None:
        self._left -= 1
        if not self._left and self._left_lock is not None:
            self._left_lock.release()

    async def _watch(self) -> None:
        """Take up what other processes have put into a journal on a server, and could not deliver."""
        while not self._queue.closed:
            try:
                if not await self.slot.delivery.refresh():
                    return
                left = [scope for scope in self.slot.delivery.waiting_scopes() if scope not in self._lanes]
                # Some of them, by chance: others look at the same moment.
                for scope in sample(left, min(len(left), _LOOK_AT)):
                    self._queue.offer(scope, _Pending(None), weight=0)
            except MemslotError as error:
                self.counts.last_failure = str(error)
            await self._pause(_LOOK_S)

    async def add(self, event: MemoryEvent, *, corrects: MemoryEvent | None = None) -> bool:
        """Hand an event over: with a journal, once it is durable there; else when there is room for it.

        False where it was handed over before. Cancelled while it waits for room, it is taken back. The memory
        forgets what the event ``corrects`` first, where its backend deletes single memories.
        """
        if self._queue.closed:
            raise errors.LifecycleError("this memory is closed; the event was not recorded")
        try:
            await self.resume()
            pending = _Pending(event, self.slot.delivery.resets_of(event.scope))
        except StoreError as error:
            self.on_failure(str(error))
            raise
        if not self._seen.add(pending.key):
            return False
        if corrects is not None and self._can_forget(event.scope):
            self._queue.offer(event.scope, _Pending(None, forget=corrects), weight=0)
        try:
            kept = await self.slot.delivery.keep(event)
            if kept is not None:
                self.counts.recorded += kept
                self._queue.offer(event.scope, _Pending(None), weight=0)
                return kept
            # A queue that is full because nothing can be sent does not empty by waiting.
            within_s = self.queue_timeout_s if self.circuit.state == "closed" else 0
            taken = await self._queue.put(event.scope, pending, within_s)
        except BaseException as error:
            self._seen.discard(pending.key)
            if isinstance(error, (BackendError, StoreError)):
                self._note_failure(pending, str(error))
            raise
        if not taken:
            self._note_failure(pending, f"{self._queue.size} writes wait already")
            name = self.slot.backend_name
            why = f"{name}: {self._queue.size} writes wait already; the event was not recorded"
            raise BackendUnavailable(why, backend_name=name, operation="record_event", sent=False)
        return True

    async def close(self, within_s: float) -> None:
        """Take no more events, and send what waits, for so many seconds."""
        self._queue.close()
        if self._closing is not None:
            self._closing.set()
        await self.drained(within_s)
        for lane in list(self._lanes.values()):
            lane.cancel()
        await self.drained(within_s=1.0)
        self._unsent += self._queue.withdraw()
        unsent = [
            pending.event
            for pending in self._unsent
            if pending.event is not None
            and pending.resets == self.slot.delivery.resets_of(pending.event.scope)
        ]
        if unsent:
            await anyio.to_thread.run_sync(self._keep_unsent, unsent)
        if self._left_lock is not None:
            self._left_lock.release()

    def _start_lane(self, scope: MemoryScope) -> None:
        if scope not in self._lanes:
            lane = self._lanes[scope] = anyio.CancelScope()
            self.background.start(lambda: self._work(scope, lane))

    async def _work(self, scope: MemoryScope, lane: anyio.CancelScope) -> None:
        lease: Lease[MemoryScope, _Pending] | None = None
        try:
            with lane:
                while lease := self._queue.lease(scope):
                    await self._deliver(scope, lease.item)
                    lease.end()
        finally:
            del self._lanes[scope]
            if lease is not None:  # cancelled over it, by close
                self._unsent.append(lease.item)
                lease.end()

    async def _deliver(self, scope: MemoryScope, pending: _Pending) -> None:
        if pending.forget is not None:
            await self._forget(pending.forget)
            return
        if (event := pending.event) is None:
            await self._deliver_kept(scope)
            return
        try:
            recorded = await self._send(event, pending)
        except Exception as error:
            self._note_failure(pending, type(error).__name__)
            recorded = False
        if pending.maybe_stored and (recorded or not self._queue.closed):
            await anyio.to_thread.run_sync(self._drop_unsent, event)
            self._end_left()

    def _can_forget(self, scope: MemoryScope) -> bool:
        return self.slot.delivery.can_look_up and "forget" in MemoryItems(self.slot, scope).offered

    async def _forget(self, event: MemoryEvent) -> None:
        """Delete what an event is stored as. The event that corrects it names it, so a failure loses nothing."""
        items = MemoryItems(self.slot, event.scope)
        try:
            async with self.slot.delivery.leases.lease(event.scope):
                native_ids = await self.slot.delivery.find_event(event) or ()
            for native_id in native_ids:
                await items.forget(native_id)
            self.counts.corrected += bool(native_ids)
        except Exception as error:
            log.warning(
                "%s: an earlier version of a turn stays: %s", self.slot.backend_name, type(error).__name__
            )

    async def _deliver_kept(self, scope: MemoryScope) -> None:
        """What waits for a scope in the journal; what the backend cannot take now stays there."""
        try:
            while self.slot.delivery.waiting(scope):
                async with self.slot.delivery.leases.lease(scope):
                    if await self.slot.delivery.deliver(scope) is not None:
                        return
        except Exception as error:
            self.counts.last_failure = str(error) if isinstance(error, MemslotError) else type(error).__name__

    async def _send(self, event: MemoryEvent, pending: _Pending) -> bool:
        """Send an event, and again what certainly was not sent; False where it is not recorded."""
        pause_s = _FIRST_PAUSE_S
        while True:
            closing = self._queue.closed
            try:
                with self.circuit.attempt():
                    async with self.slot.delivery.leases.lease(event.scope):
                        look_up = pending.maybe_stored and self.slot.delivery.can_look_up
                        if look_up and await self.slot.delivery.find_event(event) is not None:
                            return True
                        receipt = await self.slot.delivery.record(event, pending.resets)
            except MemslotError as error:
                if not _may_go_again(error):
                    self._note_failure(pending, str(error))
                    return False
                if closing:
                    self._unsent.append(pending)
                    return False
                self.counts.last_failure = str(error)
                if isinstance(error, CircuitOpen):
                    await self._pause(max(self.circuit.left_s, 0.05))
                    continue
                await self._pause(getattr(error, "retry_after_s", None) or pause_s)
                pause_s = min(pause_s * 2, 30.0)
            else:
                if receipt is not None:
                    self.counts.recorded += 1
                    self.counts.unknown += receipt.status == "unknown"
                    self.counts.skipped += receipt.status == "skipped_read_only"
                return True

    async def _pause(self, seconds: float) -> None:
        if not self._queue.closed:
            self._closing = self._closing or anyio.Event()
            with anyio.move_on_after(seconds):
                await self._closing.wait()

    def _note_failure(self, pending: _Pending, why: str) -> None:
        self._seen.discard(pending.key)  # it may be handed over again
        self.on_failure(why)
        log.warning("%s: an event was not recorded: %s", self.slot.backend_name, why)

    def _store(self) -> HostStore:
        return HostStore(self.slot.backend_name, self.host_file)

    def _left_by_earlier(self) -> list[MemoryEvent]:
        try:
            with self._store() as store:
                return [MemoryEvent.model_validate(row) for row in reversed(store.all(_UNSENT))]
        except StoreError as error:
            log.error("%s: what an earlier start left cannot be read: %s", self.slot.backend_name, error)
            return []

    def _keep_unsent(self, unsent: list[MemoryEvent]) -> None:
        why = "there is no file for it"
        if self.host_file is not None:
            try:
                kept = [
                    StoredObject(_UNSENT, event.scope, event.event_id, event.model_dump(mode="json"))
                    for event in unsent
                ]
                with self._store() as store:
                    store.put(*kept)
                self.counts.left_for_next_start = len(kept)
                what = "events could not be sent; the next start delivers them"
                log.warning("%s: %d %s", self.slot.backend_name, len(kept), what)
                return
            except StoreError as error:
                why = str(error)
        self.lost = len(unsent)
        self.counts.not_recorded += self.lost
        log.error("%s: %d events are lost: %s", self.slot.backend_name, self.lost, why)

    def _drop_unsent(self, event: MemoryEvent) -> None:
        try:
            with self._store() as store:
                store.drop(_UNSENT, event.scope, event.event_id)
        except StoreError as error:
            log.error("%s: a delivered event stays in the host store: %s", self.slot.backend_name, error)


def _may_go_again(error: MemslotError) -> bool:
    """Whether the event certainly is not stored, and the memory may take it later."""
    later = (BackendUnavailable, errors.BackendTimeout, errors.BackendRateLimited)
    return isinstance(error, later) and not error.ambiguous
