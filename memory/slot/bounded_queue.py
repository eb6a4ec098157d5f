"""One bounded queue for whatever writes in the background: turns of a host, a shadow, facts for a node."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")


@dataclass(slots=True, eq=False, repr=False)
class Lease(Generic[KeyT, ItemT]):
    """One item, given to whoever works on it. It keeps its room in the queue until the lease ends."""

    _queue: BoundedQueue[KeyT, ItemT]
    key: KeyT
    item: ItemT
    weight: int
    held: bool = False
    _room: anyio.Event | None = None  # set when leased, or with room; None: room at once

    def end(self) -> None:
        """The work is done, or given up: the item leaves the queue. Idempotent."""
        self._queue._end(self)

    def put_back(self) -> None:
        """The work was not done: the item waits again, first of its lane."""
        with self._queue._changed:
            self.held = False
            self._queue._changed.notify_all()


class BoundedQueue(Generic[KeyT, ItemT]):
    """Items that wait for their turn: in order within the lane of their key, bounded over all lanes.

    At most one item of a lane is leased at a time. Every method may be called from any thread, except that those
    which are ``async`` belong to one event loop, and so does then what makes a lease or ends it.

    Args:
        size: weight of all items that may wait or be leased.
        on_first: called with the key whenever a lane that was empty gets an item; it starts who works on the lane.

    Attributes:
        weight: what the items that have room weigh together; more than ``size`` only by :meth:`insert_first`.
        closed: whether it takes no more items.
    """

    def __init__(self, size: int, on_first: Callable[[KeyT], None] | None = None) -> None:
        self.size = size
        self._on_first = on_first
        self._changed = threading.Condition()
        self._lanes: dict[KeyT, deque[Lease[KeyT, ItemT]]] = {}
        self._roomless: deque[Lease[KeyT, ItemT]] = deque()
        self.weight = 0  # of items with room
        self.closed = False
        self._empty: anyio.Event | None = None

    def __len__(self) -> int:
        """Items that wait or are leased, those that wait for room included."""
        with self._changed:
            return sum(len(lane) for lane in self._lanes.values())

    def offer(self, key: KeyT, item: ItemT, weight: int = 1) -> bool:
        """Put an item last in its lane, if there is room now and the queue is not closed; whether that was done."""
        with self._changed:
            if self.closed or not self._has_room(weight):
                return False
            first = self._enter(Lease(self, key, item, weight))
        self._announce(key, first)
        return True

    async def put(self, key: KeyT, item: ItemT, within_s: float, weight: int = 1) -> bool:
        """Put an item last in its lane; its place in the order is fixed at once, whenever there is room for it.

        Returns when there is room, or when the item is leased. Cancelled before that, it is taken back.

        Args:
            key, item, weight: as for :meth:`offer`.
            within_s: seconds to wait for room.

        Returns:
            False where the queue is closed, or there was no room in time; the item is not in the queue then.
        """
        lease = Lease(self, key, item, weight)
        with self._changed:
            if self.closed:
                return False
            if not self._has_room(weight):
                lease._room = anyio.Event()
                self._roomless.append(lease)
            first = self._enter(lease)
        self._announce(key, first)
        if lease._room is None:
            return True
        try:
            with anyio.move_on_after(within_s):
                await lease._room.wait()
        except BaseException:
            self._take_back(lease)
            raise
        return not self._take_back(lease)

    def insert_first(self, key: KeyT, item: ItemT) -> None:
        """Put an item before all others of its lane that are not leased, whether there is room or not."""
        with self._changed:
            lane = self._lanes.setdefault(key, deque())
            first, at = not lane, 1 if lane and lane[0].held else 0
            lane.insert(at, Lease(self, key, item, 1))
            self.weight += 1
            self._changed.notify_all()
        self._announce(key, first)

    def lease(
        self, key: KeyT, allowed: Callable[[ItemT], bool] = lambda item: True
    ) -> Lease[KeyT, ItemT] | None:
        """The first item of a lane, to be worked on; None where there is none, it is leased, or not ``allowed``."""
        with self._changed:
            lane = self._lanes.get(key)
            if not lane or lane[0].held or not allowed(lane[0].item):
                return None
            lane[0].held = True
            if lane[0]._room is not None:
                lane[0]._room.set()
            return lane[0]

    def wait_lease(self, key: KeyT, timeout_s: float | None = None) -> Lease[KeyT, ItemT] | None:
        """As :meth:`lease`, blocking a thread until there is one; None after ``timeout_s``, or closed and empty."""

        def ready() -> bool:
            lane = self._lanes.get(key)
            return not lane[0].held if lane else self.closed

        with self._changed:
            self._changed.wait_for(ready, timeout_s)
            return self.lease(key)

    def withdraw(self, unwanted: Callable[[KeyT, ItemT], bool] = lambda key, item: True) -> list[ItemT]:
        """Take items that are not leased out of the queue: all, or those that are ``unwanted``."""
        with self._changed:
            waiting = [lease for lane in self._lanes.values() for lease in lane if not lease.held]
            gone = [lease for lease in waiting if unwanted(lease.key, lease.item)]
            for lease in gone:
                self._end(lease)
        return [lease.item for lease in gone]

    async def emptied(self, within_s: float) -> bool:
        """Wait until nothing waits and nothing is leased; whether that came true within so many seconds."""
        with anyio.move_on_after(within_s):
            while self._lanes:
                self._empty = self._empty or anyio.Event()
                await self._empty.wait()
        return not self._lanes

    def close(self) -> None:
        """Take no more items; what is in the queue stays until it is leased or withdrawn. Idempotent."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _has_room(self, weight: int) -> bool:
        return not self._roomless and self.weight + weight <= self.size

    def _enter(self, lease: Lease[KeyT, ItemT]) -> bool:
        lane = self._lanes.setdefault(lease.key, deque())
        lane.append(lease)
        self.weight += lease.weight if lease._room is None else 0
        self._changed.notify_all()
        return len(lane) == 1

    def _announce(self, key: KeyT, first: bool) -> None:
        if first and self._on_first is not None:
            self._on_first(key)

    def _take_back(self, lease: Lease[KeyT, ItemT]) -> bool:
        """Forget an item that has no room yet; False where it has room, or is being worked on."""
        with self._changed:
            waits = not lease.held and lease in self._roomless
            if waits:
                self._end(lease)
        return waits

    def _end(self, lease: Lease[KeyT, ItemT]) -> None:
        with self._changed:
            lane = self._lanes.get(lease.key, deque())
            if lease not in lane:
                return
            lane.remove(lease)
            self._changed.notify_all()
            if not lane:
                del self._lanes[lease.key]
            if lease in self._roomless:
                self._roomless.remove(lease)
            else:
                self.weight -= lease.weight
            while self._roomless and self.weight + self._roomless[0].weight <= self.size:
                heir = self._roomless.popleft()
                self.weight += heir.weight
                assert heir._room is not None
                heir._room.set()
            if not self._lanes and self._empty is not None:
                self._empty.set()
                self._empty = None


class RecentKeys(Generic[KeyT]):
    """The keys of the last things seen, so that nothing is taken twice.

    Args:
        size: how many; the oldest are forgotten.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._keys: OrderedDict[KeyT, None] = OrderedDict()

    def __contains__(self, key: KeyT) -> bool:
        return key in self._keys

    def add(self, key: KeyT) -> bool:
        """Remember a key; False where it was known."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._size:
            self._keys.popitem(last=False)
        return True

    def discard(self, key: KeyT) -> None:
        """Forget a key, if it is known."""
        self._keys.pop(key, None)

    def discard_where(self, unwanted: Callable[[KeyT], bool]) -> None:
        """Forget the keys that are ``unwanted``."""
        for key in [key for key in self._keys if unwanted(key)]:
            del self._keys[key]
