"""The journal keeps every event before it is sent, and its result afterwards, as entries of the outbox.

It is the past of a memory as well, and a memory may be moved to another backend with it. An event may go out twice
where a process dies between the native write and its note, or gets no answer, and the backend offers no look-up.
Each backend has a delivery of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

from memory.contract.errors import InputError, JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.storage.entries import OUTBOX, Entry, Lane, Verdict, read_entries
from memory.storage.insert import WITHIN_S
from memory.storage.leases import Lease
from memory.storage.outbox import Outbox
from memory.storage.resets import JOURNAL, JournalKey, Resets
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore, Store, scope_key, scope_of

EVENT = "event"
# waiting: not confirmed; unknown: sent without an answer; aside: refused for good, or unreadable; reset: its scope
# was, after it.
JournalStatus = Literal["waiting", "unknown", "committed", "queued", "pending", "aside", "reset"]
DELIVERED = ("committed", "queued", "pending")
_ROOM_EVERY = 16  # writes
_LOST = "the event was not kept, and not sent"
_OPEN = "kind = 'event' AND state IN ('waiting', 'unknown')"
# Once for all destinations: a memory that was moved has one past. An event that one of them erased is in none.
# The sign keeps SQLite from the index by seq, which would go over all earlier events of the scope for each.
_PAST = (
    "kind = 'event' AND erased = 0 AND NOT EXISTS (SELECT 1 FROM outbox AS earlier WHERE earlier.kind = 'event' "
    "AND earlier.scope = outbox.scope AND earlier.key = outbox.key AND earlier.state != 'reset' "
    "AND earlier.erased = 0 AND +earlier.seq < outbox.seq)"
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of the journal.

    Attributes:
        seq: its number in the outbox.
        sent: whether an attempt may have arrived.
        attempts: attempts that failed or got no answer.
        error: class of the last failure.
        receipt: of the backend, without its trace.
        recorded_at: UTC, ISO 8601.
    """

    seq: int
    destination: str
    event: MemoryEvent
    status: JournalStatus
    sent: bool
    attempts: int
    error: str | None
    receipt: WriteReceipt | None
    recorded_at: str

    @classmethod
    def of(cls, entry: Entry) -> JournalEntry:
        """Raises :class:`JournalError` where the entry is not as it was written."""
        try:
            if not entry.readable:
                raise ValueError("changed")
            event = MemoryEvent.model_validate_json(entry.payload)
            receipt = WriteReceipt.model_validate_json(entry.outcome) if entry.outcome else None
        except ValueError:  # `from None`: it would repeat what was said
            raise JournalError(
                f"entry {entry.seq} of the journal is not as it was written; restore the store from a copy, or "
                f"remove it by 'memslot journal forget --number {entry.seq}'"
            ) from None
        return cls(
            seq=entry.seq,
            destination=entry.destination,
            event=event,
            status=cast(JournalStatus, entry.state),
            sent=entry.sent,
            attempts=entry.attempts,
            error=entry.error,
            receipt=receipt,
            recorded_at=entry.recorded_at,
        )

    @property
    def delivered(self) -> bool:
        """Whether the backend has it."""
        return self.status in DELIVERED


@dataclass(frozen=True, slots=True)
class Appended:
    """What :meth:`Journal.append` did.

    Attributes:
        lease: of the lane, or None where another process delivers it.
        sent: whether new events count as sent already; else :meth:`Journal.mark_sent` comes before they are.
        before: for each event what there was of it already, or None.
        seqs: for each event its number.
    """

    lease: Lease | None
    sent: bool
    before: tuple[JournalEntry | None, ...]
    seqs: tuple[int, ...]


class Journal(AbstractContextManager["Journal"]):
    """The events of a store's outbox.

    Args:
        store: where they lie; the journal has a handle of its own, and closes that.
        durability: ``process`` survives the end of the process, ``machine`` a power cut, at a disk flush a write.
        max_mb: most that the file may take. What is delivered and oldest goes first; with nothing delivered left,
            recording fails. A server's size is its owner's matter.
        past: whether events stay once they are delivered, or reset.
        within_s: seconds that a call of the store may take.

    Attributes:
        store: its handle on the store.
        place: where it is, for messages.
        shared: whether other machines use it, too.
        outbox: the entries.
        resets: those that have begun.
    """

    def __init__(
        self,
        store: Store,
        *,
        durability: Durability = "process",
        max_mb: int | None = 1024,
        past: bool = True,
        within_s: float = WITHIN_S,
    ) -> None:
        self.store = store.handle(
            OUTBOX, JOURNAL, error=JournalError, lost=_LOST, durability=durability, within_s=within_s
        )
        self.outbox = Outbox(self.store, EVENT, keep=past)
        self.resets = Resets(self.store, past=past)
        self.place = self.store.place
        self.shared = self.store.shared
        self._max_mb = None if self.shared else max_mb
        self._backlog: dict[Lane, int] = {}
        self._until_room = 0  # writes before the size is measured again

    def __exit__(self, *ended: object) -> None:
        self.close()

    @property
    def begun(self) -> bool:
        """Whether anything may have been recorded. Opens nothing."""
        return self.store.begun

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.store.closed

    @property
    def lasting(self) -> bool:
        """Whether what is recorded outlives this process."""
        return not (isinstance(self.store, SqliteStore) and self.store.path is None)

    def open(self) -> None:
        """Open the store now, and count what waits. Blocks.

        Raises:
            JournalError: the store cannot be used.
        """
        self.store.call(self._count, writes=False)

    def close(self) -> None:
        """Give the store back. Idempotent."""
        self.outbox.close()
        self.resets.close()
        self.store.close()

    # What waits.

    @property
    def has_backlog(self) -> bool:
        """Whether an event waits, by the last look at the store."""
        return bool(self._backlog)

    def backlog(self, key: JournalKey) -> int:
        """How many events of a scope wait, by the last look at the store."""
        return self._backlog.get(key.lane, 0)

    def undelivered(self) -> list[tuple[JournalKey, int]]:
        """Every scope with events that wait, and how many, by the last look at the store."""
        return [
            (JournalKey(lane.destination, scope_of(lane.scope)), count)
            for lane, count in self._backlog.items()
        ]

    async def refresh(self, key: JournalKey | None = None) -> None:
        """See what other processes have recorded and delivered since: of one scope, or of all."""
        if not self.store.begun:
            return
        if key is None:
            await self.store.run(self._count, writes=False)
            return
        await self.store.run(lambda db: self._count(db, key.lane), writes=False)
        await self.resets.refresh(key)

    def _count(self, db: Any, lane: Lane | None = None) -> None:
        if lane is not None:
            self._waits(lane, self.outbox.count(db, lane))
            return
        found = db.execute(
            f"SELECT destination, scope, count(*) FROM outbox WHERE {_OPEN} GROUP BY destination, scope"
        ).fetchall()
        self._backlog = {Lane(destination, scope): count for destination, scope, count in found}

    def _waits(self, lane: Lane, count: int) -> None:
        if count:
            self._backlog[lane] = count
        else:
            self._backlog.pop(lane, None)

    async def append(self, key: JournalKey, events: Sequence[MemoryEvent], *, send: bool = True) -> Appended:
        """Make events of a scope durable, all or none.

        Args:
            key: where they go.
            events: of one scope.
            send: whether the caller sends them now: then the lane is taken, if it is free.

        Raises:
            InputError: an id was used for other messages.
            JournalError: the store or ``max_mb`` is full; nothing may be sent then.
        """
        lane = key.lane

        def keep(db: Any) -> Appended:
            self._make_room(db)
            held = self.outbox.leases.take(db, lane) if send else None
            older = self.outbox.count(db, lane)
            sent = held is not None and not older
            before: list[JournalEntry | None] = []
            seqs: list[int] = []
            for event in events:
                seq, known = self._insert(db, lane, event, sent=sent)
                before.append(known)
                seqs.append(seq)
            self._waits(lane, older + before.count(None))
            return Appended(held, sent, tuple(before), tuple(seqs))

        return await self.store.run(keep)

    def _insert(
        self, db: Any, lane: Lane, event: MemoryEvent, *, sent: bool, status: JournalStatus = "waiting"
    ) -> tuple[int, JournalEntry | None]:
        """Keep one event: its number, and what was kept of it already, or None."""
        where = "kind = 'event' AND scope = ? AND key = ? AND state != 'reset'"
        for entry in read_entries(db, where, (lane.scope, event.event_id)):
            known = JournalEntry.of(entry)
            if known.event.messages != event.messages:
                raise InputError(
                    f"event_id {event.event_id!r} stands in the journal for other messages; give it a fresh one"
                )
            if known.destination == lane.destination:
                return known.seq, known
        persona = event.scope.persona_id
        text = event.model_dump_json()
        seq = self.outbox.put(db, lane, event.event_id, text, persona=persona, state=status, sent=sent)
        return seq, None

    def _make_room(self, db: Any) -> None:
        if self._max_mb is None or self._until_room:
            self._until_room = max(0, self._until_room - 1)
            return
        if _megabytes(db) < self._max_mb:
            self._until_room = _ROOM_EVERY
            return
        gone = db.execute(
            "DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox "
            f"WHERE kind = 'event' AND state IN {DELIVERED} AND before_reset IS NULL ORDER BY seq "
            "LIMIT (SELECT 1 + count(*) / 10 FROM outbox))"
        ).rowcount
        if not gone:
            raise JournalError(
                f"{self.place}: max_mb is reached and nothing in it is delivered; bring the backend back, or "
                "raise memory.journal.max_mb"
            )

    async def mark_sent(self, lease: Lease, seqs: Sequence[int]) -> bool:
        """Events are about to be sent, and may be stored from now on. False where another process may send them."""
        return await self.store.run(lambda db: all(self.outbox.mark_sent(db, lease, seq) for seq in seqs))

    async def note(self, lease: Lease, key: JournalKey, made: Mapping[int, Verdict]) -> None:
        """Note the verdicts on events that were just recorded, by number, and give the lane back."""

        def note(db: Any) -> None:
            for seq, verdict in made.items():
                self.outbox.note_one(db, lease, seq, verdict)
            self.outbox.leases.give_back(db, lease)
            self._count(db, lease.lane)

        await self.store.run(note)

    async def find(self, key: JournalKey, event_id: str) -> JournalEntry | None:
        """The entry of an event on its way to a destination, or None."""
        where = "kind = 'event' AND destination = ? AND scope = ? AND key = ? AND state != 'reset'"
        found = await self.store.run(lambda db: read_entries(db, where, (*key.lane, event_id)), writes=False)
        return JournalEntry.of(found[0]) if found else None

    # The past.

    def scopes(self) -> list[tuple[MemoryScope, int]]:
        """Every scope with an event that was not reset, and how many, in order of first appearance."""
        found = self._rows(
            f"SELECT scope, count(*) FROM outbox WHERE {_PAST} GROUP BY scope ORDER BY min(seq)"
        )
        return [(scope_of(key), count) for key, count in found]

    def counts(self) -> dict[str, int]:
        """How many events there are, by status."""
        return dict(self._rows("SELECT state, count(*) FROM outbox WHERE kind = 'event' GROUP BY state"))

    def entries(
        self, scope: MemoryScope | None = None, *, after: int = 0, size: int = 200, everything: bool = False
    ) -> Iterator[JournalEntry]:
        """The past in the order of recording behind ``after``, each event once, read ``size`` at a time; with
        ``everything`` also what was reset, and an event of two destinations twice. Unreadable ones are left out.
        """
        where = (
            "seq > ? AND " + ("kind = 'event'" if everything else _PAST) + (" AND scope = ?" if scope else "")
        )
        more: tuple[Any, ...] = (scope_key(scope),) if scope else ()
        while True:
            page = self._page(f"{where} ORDER BY seq LIMIT ?", (after, *more, size))
            for entry in page:
                with suppress(JournalError):
                    yield JournalEntry.of(entry)
            if len(page) < size:
                return
            after = page[-1].seq

    def forget(self, persona_id: str) -> list[JournalKey]:
        """Remove a person's entries of every kind from the disk for good, the log too; where to reset them."""

        def erase(db: Any) -> list[tuple[str, str]]:
            found = db.execute(
                "SELECT destination, scope FROM outbox WHERE kind = 'event' AND persona = ? "
                "GROUP BY destination, scope ORDER BY min(seq)",
                (persona_id,),
            ).fetchall()
            db.execute("DELETE FROM outbox WHERE persona = ?", (persona_id,))
            for destination, scope in found:
                db.execute("DELETE FROM lanes WHERE destination = ? AND scope = ?", (destination, scope))
            self._count(db)
            return [(destination, scope) for destination, scope in found]

        found = self.store.call(erase)
        self.store.fold()
        return [JournalKey(destination, scope_of(scope)) for destination, scope in found]

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return list(self.store.call(lambda db: db.execute(statement, values).fetchall(), writes=False))

    def _page(self, where: str, values: tuple[Any, ...]) -> list[Entry]:
        return self.store.call(lambda db: read_entries(db, where, values), writes=False)


def _megabytes(db: Any) -> float:
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return float((pages - free) * size / 2**20)
