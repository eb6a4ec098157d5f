"""Leases: the right to deliver a lane of the outbox.

Taking a lane increments its fencing counter, so that notes of an earlier holder are refused. A living holder
keeps incrementing a second counter, and a contender measures how long it stands still, so clocks need not
agree. On SQLite, an operating system lock shows at once that a holder is dead.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import anyio

from memory.contract.errors import BackendUnavailable, StoreError
from memory.storage.entries import IN_LANE, Lane
from memory.storage.lock import FileLock
from memory.storage.store import SqliteStore, Store

LEASE_S = 10.0
FENCED = f"EXISTS (SELECT 1 FROM lanes WHERE {IN_LANE} AND fence = ? AND holder = ?)"
NEW_LANE = "INSERT INTO lanes (kind, destination, scope) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_POLL_S = 0.05


@dataclass(slots=True, eq=False)
class Lease:
    """The right to deliver a lane, until it is released or another process finds this one dead."""

    lane: Lane
    fence: int
    renewed_at: float  # by the monotonic clock
    released: bool = False


class Leases:
    """The lanes of one kind of entries that this process holds."""

    def __init__(self, store: Store, kind: str) -> None:
        self.store = store
        self.kind = kind
        self._holder = ""
        self._holder_lock: FileLock | None = None
        self._pid = 0
        self._held: dict[Lane, Lease] = {}
        self._watched: dict[Lane, tuple[int, str, int, float]] = {}
        self._keeper: threading.Thread | None = None
        self._ended = threading.Event()

    @asynccontextmanager
    async def leasing(self, lane: Lane, within_s: float = 0.0) -> AsyncIterator[Lease | None]:
        """Hold a lane during the body. Yields None if another process holds it for ``within_s`` seconds."""
        ends = time.monotonic() + within_s
        # Polling, because the end of another process sends no signal.
        while (lease := await self.store.run(lambda db: self.take(db, lane))) is None:
            if time.monotonic() >= ends:
                break
            await anyio.sleep(_POLL_S)
        try:
            yield lease
        except StoreError:
            if lease is not None:
                self.abandon(lease)
            raise
        finally:
            if lease is not None:
                await self.let_go(lease)

    def take(self, db: Any, lane: Lane) -> Lease | None:
        """Take a lane if it is free or its holder is dead; part of a call of the store."""
        self._be_holder()
        where = f"SELECT fence, holder, beat FROM lanes WHERE {IN_LANE}"
        while (row := db.execute(where, (self.kind, *lane)).fetchone()) is None:
            db.execute(NEW_LANE, (self.kind, *lane))
        fence, holder, beat = row
        if holder not in ("", self._holder) and not self._is_dead(lane, fence, holder, beat):
            return None
        taken = db.execute(
            f"UPDATE lanes SET fence = fence + 1, holder = ?, beat = 0 WHERE {IN_LANE} AND fence = ? AND beat = ? "
            "AND holder = ?",
            (self._holder, self.kind, *lane, fence, beat, holder),
        ).rowcount
        if not taken:
            return None
        self._watched.pop(lane, None)
        lease = self._held[lane] = Lease(lane, fence + 1, time.monotonic())
        self._keep_beating()
        return lease

    async def let_go(self, lease: Lease) -> None:
        """Release the lane to other processes, even if cancelled. Idempotent."""
        if not lease.released:
            with anyio.CancelScope(shield=True), suppress(StoreError):  # without renewals, it expires anyway
                await self.store.run(lambda db: self.give_back(db, lease))

    def abandon(self, lease: Lease) -> None:
        """As :meth:`let_go`, but without a store that has just failed. The lease expires without renewals."""
        if self._held.get(lease.lane) is lease:
            del self._held[lease.lane]
        lease.released = True

    def give_back(self, db: Any, lease: Lease) -> None:
        """As :meth:`let_go`, but as part of a call of the store."""
        self.abandon(lease)
        db.execute(
            f"UPDATE lanes SET holder = '' WHERE {IN_LANE} AND fence = ? AND holder = ?",
            (self.kind, *lease.lane, lease.fence, self._holder),
        )

    async def holds(self, lease: Lease) -> bool:
        """Whether this lease still holds the lane. It may have expired if this process was suspended."""
        fresh = time.monotonic() - lease.renewed_at < LEASE_S / 2  # so nobody can have taken the lane
        return fresh or await self.store.run(lambda db: self._renew(db, lease))

    def _renew(self, db: Any, lease: Lease) -> bool:
        now = time.monotonic()
        renewed = db.execute(
            f"UPDATE lanes SET beat = beat + 1 WHERE {IN_LANE} AND fence = ? AND holder = ?",
            (self.kind, *lease.lane, lease.fence, self._holder),
        ).rowcount
        if renewed:
            lease.renewed_at = now
        elif self._held.get(lease.lane) is lease:
            del self._held[lease.lane]
        return bool(renewed)

    def _be_holder(self) -> None:
        if self._pid == os.getpid():
            return
        # A forked child starts afresh: the leases stay with its parent.
        self._pid, self._holder = os.getpid(), uuid4().hex
        self._held, self._watched, self._keeper, self._ended = {}, {}, None, threading.Event()
        self._holder_lock = self._lock_of(self._holder)
        if self._holder_lock is not None:
            self._holder_lock.acquire()

    def _lock_of(self, holder: str) -> FileLock | None:
        store = self.store
        if not isinstance(store, SqliteStore) or store.path is None:
            return None
        directory = store.path.with_name(f"{store.path.name}-holders")
        directory.mkdir(mode=0o700, exist_ok=True)
        return FileLock(directory / holder, what="a lane of the outbox", instead="wait")

    def _is_dead(self, lane: Lane, fence: int, holder: str, beat: int) -> bool:
        lock = self._lock_of(holder)
        if lock is not None:
            if not lock.path.exists():
                return True
            with suppress(BackendUnavailable):
                lock.acquire()
                lock.release(remove=True)
                return True
        seen = self._watched.get(lane)
        if seen is None or seen[:3] != (fence, holder, beat):
            self._watched[lane] = (fence, holder, beat, time.monotonic())
            return False
        return time.monotonic() - seen[3] >= LEASE_S

    def _keep_beating(self) -> None:
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._beat, name="memslot-outbox", daemon=True)
            self._keeper.start()

    def _beat(self) -> None:
        ended = self._ended
        while not ended.wait(LEASE_S / 4):
            stale = time.monotonic() - LEASE_S / 4
            held = [lease for lease in list(self._held.values()) if lease.renewed_at < stale]
            if held:
                with suppress(StoreError):
                    self.store.call(lambda db: [self._renew(db, lease) for lease in held])  # noqa: B023

    def fence_of(self, lease: Lease) -> tuple[Any, ...]:
        """The values for ``FENCED``."""
        return (self.kind, *lease.lane, lease.fence, self._holder)

    def close(self) -> None:
        """Release every lane. The store stays open. Idempotent."""
        self._ended.set()
        if self._pid != os.getpid():
            return
        if self._keeper is not None and self._keeper.is_alive():
            self._keeper.join(1.0)
        for lease in list(self._held.values()):
            with suppress(StoreError):
                self.store.call(partial(self.give_back, lease=lease))
        if self._holder_lock is not None:
            self._holder_lock.release(remove=True)
        self._pid = 0
