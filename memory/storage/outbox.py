"""The outbox: one table, one order and one back-off for everything that memslot sends later.

An entry has a **kind** (``event``, ``turn``, ...) and a **lane** within it: a destination and a scope.
Entries of a lane are delivered in the order of their numbers, whichever process delivers. An entry that is
refused, unreadable, or without an answer five times is set aside and blocks nothing::

    outbox = Outbox(store, "turn")
    await outbox.add(Lane("", ""), key, payload)
    async with outbox.leasing(Lane("", "")) as lease:
        if lease:
            why = await outbox.deliver(lease, send)     # None: nothing waits any more

``send`` gets an :class:`Entry` and returns a :class:`Verdict`. Entries are delivered at least once. If
``entry.sent`` is true, an earlier attempt may have arrived, so ``send`` first looks the entry up if it can.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypedDict, Unpack

from memory.contract.errors import StoreError
from memory.storage.entries import (
    IN_LANE,
    IS_OPEN,
    LONGEST_PAUSE_S,
    NO_ANSWER,
    OPEN,
    UNREADABLE,
    Entry,
    Lane,
    Trouble,
    Verdict,
    read_entries,
    trouble_of,
)
from memory.storage.leases import FENCED, NEW_LANE, Lease, Leases
from memory.storage.store import Store, digest_of

FIRST_PAUSE_S = 0.5
MAX_UNANSWERED = 5
ELSEWHERE = "another process is delivering to it"
STILL_BUSY = "older entries are still being delivered"
_PAGE = 100


class EntryFields(TypedDict, total=False):
    """Columns of a new entry that have a default; see :class:`~memory.storage.entries.Entry`."""

    persona: str
    state: str
    sent: bool
    outcome: str | None


class Outbox:
    """The entries of one kind. With ``keep``, delivered entries stay as a history. The store's owner closes it."""

    def __init__(self, store: Store, kind: str, *, keep: bool = False) -> None:
        self.store = store
        self.kind = kind
        self._keep = keep
        self.leases = Leases(store, kind)
        self.leasing = self.leases.leasing
        self._unasked: dict[Lane, int] = {}  # how often in a row the destination could not be asked

    # Entries.

    async def add(self, lane: Lane, key: str, payload: str, **fields: Unpack[EntryFields]) -> Entry | None:
        """Keep an entry. Returns the existing entry of that key, or None if the entry is new."""
        return await self.store.run(lambda db: self.insert(db, lane, key, payload, **fields))

    def insert(
        self, db: Any, lane: Lane, key: str, payload: str, **fields: Unpack[EntryFields]
    ) -> Entry | None:
        """As :meth:`add`, but as part of a call of the store."""
        where = f"{IN_LANE} AND key = ? AND state != 'reset'"
        if found := read_entries(db, where, (self.kind, *lane, key)):
            return found[0]
        self.put(db, lane, key, payload, **fields)
        return None

    def put(self, db: Any, lane: Lane, key: str, payload: str, **fields: Unpack[EntryFields]) -> int:
        """Keep an entry whose key is new, and return its number; part of a call of the store."""
        if self.store.shared:  # a server numbers rows before others can see them, so writers wait in line
            db.execute(NEW_LANE, (self.kind, *lane))
            db.execute(f"SELECT 1 FROM lanes WHERE {IN_LANE} FOR UPDATE", (self.kind, *lane))
        row = {
            "kind": self.kind,
            **lane._asdict(),
            "key": key,
            "payload": payload,
            "digest": digest_of(payload),
            **fields,
            "sent": int(fields.get("sent", False)),
        }
        marks = ", ".join("?" * len(row))
        statement = f"INSERT INTO outbox ({', '.join(row)}) VALUES ({marks}) RETURNING seq"
        return int(db.execute(statement, tuple(row.values())).fetchone()[0])

    def settle(self, db: Any, lane: Lane, keys: Iterable[str]) -> None:
        """Remove entries that no longer need delivery; part of a call of the store."""
        for key in keys:
            db.execute(f"DELETE FROM outbox WHERE {IN_LANE} AND key = ?", (self.kind, *lane, key))

    read = staticmethod(read_entries)

    async def waiting(self, lane: Lane, *, before: float = math.inf, limit: int = _PAGE) -> list[Entry]:
        """Open entries of a lane with numbers below ``before``, in order."""
        below, more = ("", ()) if math.isinf(before) else (" AND seq < ?", (before,))
        where = f"{IN_LANE} AND {IS_OPEN}{below} ORDER BY seq LIMIT ?"
        values = (self.kind, *lane, *more, limit)
        return await self.store.run(lambda db: read_entries(db, where, values), writes=False)

    async def counts(self) -> dict[Lane, int]:
        """The number of open entries of each lane that has any."""
        return await self.store.run(self.counted, writes=False)

    def counted(self, db: Any) -> dict[Lane, int]:
        """As :meth:`counts`, but as part of a call of the store."""
        rows = db.execute(
            f"SELECT destination, scope, count(*) FROM outbox WHERE kind = ? AND {IS_OPEN} "
            "GROUP BY destination, scope",
            (self.kind,),
        )
        return {Lane(destination, scope): count for destination, scope, count in rows.fetchall()}

    def count(self, db: Any, lane: Lane) -> int:
        """The number of open entries of a lane; part of a call of the store."""
        statement = f"SELECT count(*) FROM outbox WHERE {IN_LANE} AND {IS_OPEN}"
        return int(db.execute(statement, (self.kind, *lane)).fetchone()[0])

    async def trouble(self) -> Trouble:
        """The problems of this kind's entries, for health."""
        return await self.store.run(lambda db: trouble_of(db, self.kind), writes=False)

    # Delivery.

    async def deliver(
        self,
        lease: Lease,
        send: Callable[[Entry], Awaitable[Verdict]],
        *,
        before: float = math.inf,
        ends: float = math.inf,
    ) -> str | None:
        """Send a lane's waiting entries in order.

        Args:
            lease: of the lane.
            send: makes one attempt. Any error except a StoreError counts as a failed attempt.
            before: send only entries with smaller numbers.
            ends: no attempt begins after this time of the monotonic clock.

        Returns:
            Why some entries still wait, or None.

        Raises:
            StoreError: the store cannot be used.
        """
        while page := await self.waiting(lease.lane, before=before):
            for entry in page:
                if time.monotonic() >= ends:
                    return STILL_BUSY
                if why := await self._deliver_one(lease, entry, send):
                    return why
        return None

    async def _deliver_one(
        self, lease: Lease, entry: Entry, send: Callable[[Entry], Awaitable[Verdict]]
    ) -> str | None:
        """Make one attempt. Returns why the entry still waits, or None."""
        if entry.readable:
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
        else:
            verdict = Verdict("aside", error=UNREADABLE)
        [noted] = await self.store.run(lambda db: self.note_all(db, lease, [(entry, verdict)]))
        return (noted.why or "its turn will come") if noted.state in (*OPEN, "held") else None

    async def _may_send(self, lease: Lease, entry: Entry) -> bool:
        """Note that an attempt begins. False if another process holds the lane by now."""
        if entry.sent:
            return await self.leases.holds(lease)
        return await self.store.run(lambda db: self.mark_sent(db, lease, entry.seq))

    def mark_sent(self, db: Any, lease: Lease, seq: int) -> bool:
        """As :meth:`_may_send` for an entry that was not sent; part of a call of the store."""
        mark = f"UPDATE outbox SET sent = 1 WHERE seq = ? AND {IS_OPEN} AND {FENCED}"
        return bool(db.execute(mark, (seq, *self.leases.fence_of(lease))).rowcount)

    def note_all(self, db: Any, lease: Lease, made: Iterable[tuple[Entry, Verdict]]) -> list[Verdict]:
        """Note the verdicts of attempts; part of a call of the store. Returns what is stored, which may differ."""
        return [
            self.note_one(db, lease, entry.seq, verdict, attempts=entry.attempts) for entry, verdict in made
        ]

    def note_one(self, db: Any, lease: Lease, seq: int, verdict: Verdict, *, attempts: int = 0) -> Verdict:
        """As :meth:`note_all`, for one entry; ``attempts`` counts the earlier ones."""
        lane, fence = lease.lane, self.leases.fence_of(lease)
        if verdict.state == "held":
            self._unasked[lane] = self._unasked.get(lane, 0) + 1
            pause = f"UPDATE outbox SET next_try = ? WHERE seq = ? AND {IS_OPEN} AND {FENCED}"
            next_try = time.time() + pause_s(self._unasked[lane])
            db.execute(pause, (next_try, seq, *fence))
            return verdict
        self._unasked.pop(lane, None)
        attempts += verdict.state in (*OPEN, "aside")
        if verdict.state == "unknown" and attempts >= MAX_UNANSWERED:
            verdict = Verdict("aside", verdict.why, NO_ANSWER, verdict.outcome)
        if verdict.state not in (*OPEN, "aside"):
            # No fence: the entry has arrived, even if another process holds the lane by now.
            unsettled = f"seq = ? AND (state = 'aside' OR {IS_OPEN})"
            if self._keep:
                done = f"UPDATE outbox SET state = ?, outcome = ?, next_try = 0 WHERE {unsettled}"
                db.execute(done, (verdict.state, verdict.outcome, seq))
            else:
                db.execute(f"DELETE FROM outbox WHERE {unsettled}", (seq,))
            return verdict
        next_try = time.time() + pause_s(attempts) if verdict.state in OPEN else 0.0
        db.execute(
            "UPDATE outbox SET state = ?, sent = 1, attempts = ?, next_try = ?, error = ?, "
            f"outcome = coalesce(?, outcome) WHERE seq = ? AND {IS_OPEN} AND {FENCED}",
            (verdict.state, attempts, next_try, verdict.error, verdict.outcome, seq, *fence),
        )
        return verdict

    def close(self) -> None:
        """Release every lane. The store stays open. Idempotent."""
        self.leases.close()


def pause_s(attempts: int) -> float:
    """Seconds before the next attempt: 0.5 after the first, then doubled up to 60."""
    return float(min(FIRST_PAUSE_S * 2 ** min(max(attempts, 1) - 1, 20), LONGEST_PAUSE_S))
