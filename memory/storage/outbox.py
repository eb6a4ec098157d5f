"""What waits for its delivery: one table, one order, one back-off, for everything that memslot sends later.

An entry has a **kind** (``event``, ``turn``, ...), and within it a **lane**: a destination and a scope. Entries of
a lane are delivered in the order of their numbers, whichever process delivers. A write of number n first delivers
everything before n and nothing after it.

Whoever delivers holds the lane by a :class:`Lease`. Each taking of a lane increments its fencing counter, and notes
of an earlier holder are refused. A holder shows that it lives by a second counter. No clock decides who holds a
lane: a contender measures with its own monotonic clock how long that counter stands still. On SQLite a lock of the
operating system tells at once that a holder is dead.

An entry that is refused or unreadable is set aside. It blocks nothing, and ``memslot journal list`` names it by its
number. An entry that gets no answer five times is set aside, too, because it may be stored already.

A module that delivers a kind of its own needs three calls::

    outbox = Outbox(store, "turn")
    await outbox.add(Lane("", ""), key, payload)
    async with outbox.leasing(Lane("", "")) as lease:
        if lease:
            why = await outbox.deliver(lease, send)     # None: nothing waits any more

``send`` gets an :class:`Entry` and returns a :class:`Verdict`. Delivery is at least once: ``entry.sent`` says that
an earlier attempt may have arrived, so ``send`` looks it up first where it can.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import anyio

from memory.contract.errors import BackendUnavailable, StoreError
from memory.storage.insert import OUTBOX_TABLES, OUTBOX_VERSION
from memory.storage.lock import FileLock
from memory.storage.store import SqliteStore, Store, Tables, digest_of

OUTBOX = Tables("outbox", OUTBOX_VERSION, OUTBOX_TABLES)
OPEN = ("waiting", "unknown")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
LATE_S = 60.0
MAX_UNANSWERED = 5
LEASE_S = 10.0
NO_ANSWER, UNREADABLE = "NoAnswer", "Unreadable"
ELSEWHERE = "another process is delivering to it"

_POLL_S = 0.05
_PAGE = 100
_IS_OPEN = "state IN ('waiting', 'unknown')"
# A prompt that a hook reported waits for its answer, and not for its destination.
_IS_DUE = "(kind != 'hook' OR attempts > 0)"
_IN_LANE = "kind = ? AND destination = ? AND scope = ?"
_FENCED = f"EXISTS (SELECT 1 FROM lanes WHERE {_IN_LANE} AND fence = ? AND holder = ?)"
COLUMNS = (
    "seq, kind, destination, scope, persona, key, payload, digest, state, sent, attempts, next_try, error, "
    "outcome, recorded_at"
)


class Lane(NamedTuple):
    """Where entries go in one order: a destination, and a scope as :func:`~memory.storage.store.scope_key`."""

    destination: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, as it was read.

    Attributes:
        seq: its number, by which a person names it; increasing within a lane.
        payload: JSON text.
        state: ``waiting``, ``unknown`` (sent without an answer), ``aside``, ``reset``, or what it became.
        sent: whether an earlier attempt may have arrived.
        attempts: failed or unanswered attempts so far.
        next_try: seconds since the epoch; nothing of its lane is sent before.
        error: class of the last failure.
        outcome: JSON text of what the destination answered.
        recorded_at: UTC, ISO 8601.
        readable: whether the payload is as it was written.
    """

    seq: int
    kind: str
    destination: str
    scope: str
    persona: str
    key: str
    payload: str
    state: str
    sent: bool
    attempts: int
    next_try: float
    error: str | None
    outcome: str | None
    recorded_at: str
    readable: bool

    @classmethod
    def of(cls, row: Sequence[Any]) -> Entry:
        """The entry of a row of ``COLUMNS``."""
        seq, kind, destination, scope, persona, key, payload, digest, *progress = row
        state, sent, attempts, next_try, error, outcome, recorded_at = progress
        return cls(
            seq,
            kind,
            destination,
            scope,
            persona,
            key,
            payload,
            state,
            bool(sent),
            attempts,
            next_try,
            error,
            outcome,
            recorded_at,
            readable=digest is None or digest_of(payload) == digest,
        )

    @property
    def lane(self) -> Lane:
        """The lane it belongs to."""
        return Lane(self.destination, self.scope)

    @property
    def due(self) -> bool:
        """Whether it may be sent now. A time further away than the longest pause is a clock that was moved."""
        return not 0 < self.next_try - time.time() <= LONGEST_PAUSE_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an attempt.

    Attributes:
        state: ``waiting`` (failed, and certainly not stored: sent again after a pause), ``unknown`` (no answer),
            ``aside`` (refused for good), ``held`` (not attempted: the destination could not be asked), or what it
            became, such as ``committed``.
        why: for whoever waits behind it.
        error: class of the failure.
        outcome: JSON text to keep.
    """

    state: str
    why: str = ""
    error: str | None = None
    outcome: str | None = None


@dataclass(slots=True, eq=False)
class Lease:
    """The right to deliver a lane, until it is released or another process finds this one dead."""

    lane: Lane
    fence: int
    renewed_at: float  # by the monotonic clock
    released: bool = False

    @property
    def fresh(self) -> bool:
        """Whether nobody can have taken the lane meanwhile."""
        return time.monotonic() - self.renewed_at < LEASE_S / 2


@dataclass(frozen=True, slots=True)
class Trouble:
    """What health says of an outbox.

    Attributes:
        aside: entries that were set aside.
        first_aside: the number of the first of them.
        late: entries that have waited for more than a minute.
    """

    aside: int = 0
    first_aside: int | None = None
    late: int = 0

    def warnings(self) -> list[str]:
        """One sentence each, with what to do."""
        found = []
        if self.aside:
            found.append(
                f"{self.aside} entries of the outbox are set aside, the first is number {self.first_aside}; "
                "see 'memslot journal list', then 'memslot journal retry' or 'forget'"
            )
        if self.late:
            found.append(
                f"{self.late} entries of the outbox have waited for more than {LATE_S:g} s; "
                "bring their destination back"
            )
        return found


class Outbox:
    """The entries of one kind.

    Args:
        store: where they lie; closed by its owner.
        kind: what they are.
        keep: whether delivered entries stay, as the past of what was sent.
    """

    def __init__(self, store: Store, kind: str, *, keep: bool = False) -> None:
        self.store = store
        self.kind = kind
        self._keep = keep
        self._holder = ""
        self._holder_lock: FileLock | None = None
        self._pid = 0
        self._held: dict[Lane, Lease] = {}
        self._watched: dict[Lane, tuple[int, str, int, float]] = {}
        self._unasked: dict[Lane, int] = {}  # how often in a row its destination could not be asked
        self._keeper: threading.Thread | None = None
        self._ended = threading.Event()

    # Entries.

    async def add(
        self, lane: Lane, key: str, payload: str, *, persona: str = "", outcome: str | None = None
    ) -> Entry | None:
        """Keep an entry. Returns what there is under its key already, or None where it is new.

        Raises:
            StoreError: it could not be kept.
        """
        return await self.store.run(
            lambda db: self.insert(db, lane, key, payload, persona=persona, outcome=outcome)
        )

    def insert(
        self,
        db: Any,
        lane: Lane,
        key: str,
        payload: str,
        *,
        persona: str = "",
        state: str = "waiting",
        sent: bool = False,
        outcome: str | None = None,
    ) -> Entry | None:
        """As :meth:`add`, as part of a call of the store."""
        where = f"{_IN_LANE} AND key = ? AND state != 'reset'"
        if found := self.read(db, where, (self.kind, *lane, key)):
            return found[0]
        self.put(db, lane, key, payload, persona=persona, state=state, sent=sent, outcome=outcome)
        return None

    def put(
        self,
        db: Any,
        lane: Lane,
        key: str,
        payload: str,
        *,
        persona: str = "",
        state: str = "waiting",
        sent: bool = False,
        outcome: str | None = None,
    ) -> int:
        """Keep an entry whose key is known to be new; its number. As part of a call of the store."""
        self._order(db, lane)
        row = (self.kind, *lane, persona, key, payload, digest_of(payload), state, int(sent), outcome)
        statement = (
            "INSERT INTO outbox (kind, destination, scope, persona, key, payload, digest, state, sent, outcome) "
            f"VALUES ({', '.join('?' * len(row))}) RETURNING seq"
        )
        return int(db.execute(statement, row).fetchone()[0])

    def _order(self, db: Any, lane: Lane) -> None:
        """A server numbers rows before they can be seen: writers of a lane wait for each other."""
        if self.store.shared:
            db.execute(
                "INSERT INTO lanes (kind, destination, scope) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (self.kind, *lane),
            )
            db.execute(f"SELECT 1 FROM lanes WHERE {_IN_LANE} FOR UPDATE", (self.kind, *lane))

    def settle(self, db: Any, lane: Lane, keys: Iterable[str]) -> None:
        """Remove entries that need no delivery any more, as part of a call of the store."""
        for key in keys:
            db.execute(f"DELETE FROM outbox WHERE {_IN_LANE} AND key = ?", (self.kind, *lane, key))

    @staticmethod
    def read(db: Any, where: str, values: Sequence[Any] = ()) -> list[Entry]:
        """Entries by a condition, as part of a call of the store."""
        found = db.execute(f"SELECT {COLUMNS} FROM outbox WHERE {where}", values).fetchall()
        return [Entry.of(row) for row in found]

    async def waiting(self, lane: Lane, *, before: float = math.inf, limit: int = _PAGE) -> list[Entry]:
        """Open entries of a lane with numbers below ``before``, in order."""
        below, more = ("", ()) if math.isinf(before) else (" AND seq < ?", (before,))
        where = f"{_IN_LANE} AND {_IS_OPEN}{below} ORDER BY seq LIMIT ?"
        values = (self.kind, *lane, *more, limit)
        return await self.store.run(lambda db: self.read(db, where, values), writes=False)

    async def counts(self) -> dict[Lane, int]:
        """How many entries are open, for each lane that has some."""
        statement = (
            f"SELECT destination, scope, count(*) FROM outbox WHERE kind = ? AND {_IS_OPEN} "
            "GROUP BY destination, scope"
        )
        rows = await self.store.run(lambda db: db.execute(statement, (self.kind,)).fetchall(), writes=False)
        return {Lane(destination, scope): count for destination, scope, count in rows}

    def count(self, db: Any, lane: Lane) -> int:
        """How many entries of a lane are open, as part of a call of the store."""
        statement = f"SELECT count(*) FROM outbox WHERE {_IN_LANE} AND {_IS_OPEN}"
        return int(db.execute(statement, (self.kind, *lane)).fetchone()[0])

    async def trouble(self) -> Trouble:
        """What health has to say of this kind."""
        return await self.store.run(lambda db: trouble_of(db, self.kind), writes=False)

    # Leases.

    @asynccontextmanager
    async def leasing(self, lane: Lane, within_s: float = 0.0) -> AsyncIterator[Lease | None]:
        """Hold a lane for the body; None where another process holds it all the time."""
        ends = time.monotonic() + within_s
        # Nobody here is told when another process ends.
        while (lease := await self.store.run(lambda db: self.take(db, lane))) is None:
            if time.monotonic() >= ends:
                break
            await anyio.sleep(_POLL_S)
        try:
            yield lease
        finally:
            if lease is not None:
                with anyio.CancelScope(shield=True), suppress(StoreError):  # or it ends by standing still
                    await self.release(lease)

    def take(self, db: Any, lane: Lane) -> Lease | None:
        """Take a lane that is free, or whose holder is dead, as part of a call of the store."""
        self._be_holder()
        where = f"SELECT fence, holder, beat FROM lanes WHERE {_IN_LANE}"
        row = db.execute(where, (self.kind, *lane)).fetchone()
        if row is None:
            db.execute(
                "INSERT INTO lanes (kind, destination, scope) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (self.kind, *lane),
            )
            row = db.execute(where, (self.kind, *lane)).fetchone()
        fence, holder, beat = row
        if holder not in ("", self._holder) and not self._is_dead(lane, fence, holder, beat):
            return None
        taken = db.execute(
            f"UPDATE lanes SET fence = fence + 1, holder = ?, beat = 0 WHERE {_IN_LANE} AND fence = ? AND beat = ? "
            "AND holder = ?",
            (self._holder, self.kind, *lane, fence, beat, holder),
        ).rowcount
        if not taken:
            return None
        self._watched.pop(lane, None)
        lease = self._held[lane] = Lease(lane, fence + 1, time.monotonic())
        self._keep_beating()
        return lease

    async def release(self, lease: Lease) -> None:
        """Let others deliver the lane."""
        await self.store.run(lambda db: self.give_back(db, lease))

    def _give_all_back(self, db: Any) -> None:
        for lease in list(self._held.values()):
            self.give_back(db, lease)

    def give_back(self, db: Any, lease: Lease) -> None:
        """As :meth:`release`, as part of a call of the store."""
        if self._held.get(lease.lane) is lease:
            del self._held[lease.lane]
        lease.released = True
        db.execute(
            f"UPDATE lanes SET holder = '' WHERE {_IN_LANE} AND fence = ? AND holder = ?",
            (self.kind, *lease.lane, lease.fence, self._holder),
        )

    async def holds(self, lease: Lease) -> bool:
        """Whether the lane is still this lease's, as after this process was stopped for a while."""
        return lease.fresh or await self.store.run(lambda db: self._renew(db, lease))

    def _renew(self, db: Any, lease: Lease) -> bool:
        now = time.monotonic()
        renewed = db.execute(
            f"UPDATE lanes SET beat = beat + 1 WHERE {_IN_LANE} AND fence = ? AND holder = ?",
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
        # A forked child holds nothing of its parent's.
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

    # Delivery.

    async def deliver(
        self,
        lease: Lease,
        send: Callable[[Entry], Awaitable[Verdict]],
        *,
        before: float = math.inf,
        ends: float = math.inf,
    ) -> str | None:
        """Send what waits in a lane, in order.

        Args:
            lease: of the lane.
            send: makes one attempt. Whatever it raises counts as an attempt that failed.
            before: only entries with smaller numbers.
            ends: no attempt begins after it, by the monotonic clock.

        Returns:
            Why some of it still waits, or None.

        Raises:
            StoreError: the store cannot be used.
        """
        while page := await self.waiting(lease.lane, before=before):
            for entry in page:
                if time.monotonic() >= ends:
                    return "older entries are still being delivered"
                if why := await self._deliver_one(lease, entry, send):
                    return why
        return None

    async def _deliver_one(
        self, lease: Lease, entry: Entry, send: Callable[[Entry], Awaitable[Verdict]]
    ) -> str | None:
        """One attempt; why the entry still waits, or None."""
        if not entry.readable:
            await self.note(lease, entry, Verdict("aside", error=UNREADABLE))
            return None
        if not entry.due:
            return "older entries wait for their destination"
        if not await self._may_send(lease, entry):
            return ELSEWHERE
        try:
            verdict = await send(entry)
        except StoreError:
            raise
        except Exception as error:
            verdict = Verdict("waiting", type(error).__name__, type(error).__name__)
        verdict = await self.note(lease, entry, verdict)
        return (verdict.why or "its turn will come") if verdict.state in (*OPEN, "held") else None

    async def _may_send(self, lease: Lease, entry: Entry) -> bool:
        """Note that an attempt begins, unless the lane is another's by now."""
        if entry.sent:
            return await self.holds(lease)
        return await self.store.run(lambda db: self.mark_sent(db, lease, entry.seq))

    def mark_sent(self, db: Any, lease: Lease, seq: int) -> bool:
        """An attempt begins, unless the lane is another's by now. As part of a call of the store."""
        mark = f"UPDATE outbox SET sent = 1 WHERE seq = ? AND {_IS_OPEN} AND {_FENCED}"
        return bool(db.execute(mark, (seq, *self._fence_of(lease))).rowcount)

    async def note(self, lease: Lease, entry: Entry, verdict: Verdict) -> Verdict:
        """Note what became of an attempt, and return what stands there now."""
        return await self.store.run(
            lambda db: self.note_one(db, lease, entry.seq, verdict, attempts=entry.attempts)
        )

    def note_all(self, db: Any, lease: Lease, made: Iterable[tuple[Entry, Verdict]]) -> list[Verdict]:
        """As :meth:`note` for several, as part of a call of the store."""
        return [
            self.note_one(db, lease, entry.seq, verdict, attempts=entry.attempts) for entry, verdict in made
        ]

    def note_one(self, db: Any, lease: Lease, seq: int, verdict: Verdict, *, attempts: int = 0) -> Verdict:
        """As :meth:`note`, as part of a call of the store; ``attempts`` are the earlier ones."""
        lane = lease.lane
        if verdict.state == "held":
            self._unasked[lane] = self._unasked.get(lane, 0) + 1
            pause = f"UPDATE outbox SET next_try = ? WHERE seq = ? AND {_IS_OPEN} AND {_FENCED}"
            next_try = time.time() + pause_s(self._unasked[lane])
            db.execute(pause, (next_try, seq, *self._fence_of(lease)))
            return verdict
        self._unasked.pop(lane, None)
        attempts += verdict.state in (*OPEN, "aside")
        if verdict.state == "unknown" and attempts >= MAX_UNANSWERED:
            verdict = Verdict("aside", verdict.why, NO_ANSWER, verdict.outcome)
        if verdict.state not in (*OPEN, "aside"):
            self._note_done(db, seq, verdict)
            return verdict
        next_try = time.time() + pause_s(attempts) if verdict.state in OPEN else 0.0
        db.execute(
            "UPDATE outbox SET state = ?, sent = 1, attempts = ?, next_try = ?, error = ?, "
            f"outcome = coalesce(?, outcome) WHERE seq = ? AND {_IS_OPEN} AND {_FENCED}",
            (verdict.state, attempts, next_try, verdict.error, verdict.outcome, seq, *self._fence_of(lease)),
        )
        return verdict

    def _note_done(self, db: Any, seq: int, verdict: Verdict) -> None:
        # Not fenced: it arrived, whoever holds the lane by now.
        if self._keep:
            db.execute(
                "UPDATE outbox SET state = ?, outcome = ?, next_try = 0 "
                f"WHERE seq = ? AND (state = 'aside' OR {_IS_OPEN})",
                (verdict.state, verdict.outcome, seq),
            )
        else:
            db.execute(f"DELETE FROM outbox WHERE seq = ? AND (state = 'aside' OR {_IS_OPEN})", (seq,))

    def _fence_of(self, lease: Lease) -> tuple[Any, ...]:
        return (self.kind, *lease.lane, lease.fence, self._holder)

    def close(self) -> None:
        """Give every lane back. The store stays open. Idempotent."""
        self._ended.set()
        if self._pid != os.getpid():
            return
        if self._keeper is not None and self._keeper.is_alive():
            self._keeper.join(1.0)
        if self._held and not self.store.closed:
            with suppress(StoreError):
                self.store.call(self._give_all_back)
        if self._holder_lock is not None:
            self._holder_lock.release(remove=True)
        self._pid = 0


def pause_s(attempts: int) -> float:
    """Seconds before the next attempt: 0.5, doubled with each failure up to 60."""
    return float(min(FIRST_PAUSE_S * 2 ** min(max(attempts, 1) - 1, 20), LONGEST_PAUSE_S))


def trouble_of(db: Any, kind: str | None = None) -> Trouble:
    """What health says of one kind, or of all, as part of a call of the store."""
    whose, values = ("", ()) if kind is None else (" AND kind = ?", (kind,))
    aside, first = db.execute(
        f"SELECT count(*), min(seq) FROM outbox WHERE state = 'aside'{whose}", values
    ).fetchone()
    long_ago = (datetime.now(UTC) - timedelta(seconds=LATE_S)).isoformat(timespec="milliseconds")
    [late] = db.execute(
        f"SELECT count(*) FROM outbox WHERE {_IS_OPEN}{whose} AND recorded_at < ? AND {_IS_DUE}",
        (*values, long_ago.replace("+00:00", "Z")),
    ).fetchone()
    return Trouble(aside, first, late)


def list_entries(store: Store, *, states: Collection[str] = (), size: int = 200) -> Iterator[Entry]:
    """Entries of every kind in the order of their numbers, read ``size`` at a time. Blocks."""
    chosen = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
    after = 0
    while True:
        values = (after, *states, size)
        where = f"seq > ?{chosen} ORDER BY seq LIMIT ?"
        page = store.call(lambda db: Outbox.read(db, where, values), writes=False)  # noqa: B023
        yield from page
        if len(page) < size:
            return
        after = page[-1].seq


def retry_entries(store: Store, numbers: Collection[int] = ()) -> list[int]:
    """Let entries that were set aside wait again: those with these numbers, or all. Their numbers. Blocks."""
    chosen = f" AND seq IN ({', '.join('?' * len(numbers))})" if numbers else ""

    def again(db: Any) -> list[int]:
        found = db.execute(
            f"SELECT seq FROM outbox WHERE state = 'aside'{chosen} ORDER BY seq", tuple(numbers)
        ).fetchall()
        for (seq,) in found:
            db.execute(
                "UPDATE outbox SET state = 'waiting', attempts = 0, next_try = 0 WHERE seq = ?", (seq,)
            )
        return [seq for (seq,) in found]

    return store.call(again)


def forget_entries(store: Store, numbers: Collection[int]) -> list[int]:
    """Remove entries from the disk for good, whatever their state: those that were there. Blocks."""

    def erase(db: Any) -> list[int]:
        return [seq for seq in numbers if db.execute("DELETE FROM outbox WHERE seq = ?", (seq,)).rowcount]

    gone = store.call(erase)
    store.fold()
    return gone
