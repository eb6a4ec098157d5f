"""The journal keeps every event before it is sent, and its result afterwards, as entries of the outbox.

It is also the history of a memory, from which the memory can be moved to another backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from memory.contract.errors import InputError, JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.storage.entries import OUTBOX, Entry, Lane, Verdict, list_entries, read_entries
from memory.storage.insert import WITHIN_S
from memory.storage.leases import Lease
from memory.storage.outbox import Outbox
from memory.storage.resets import JOURNAL, JournalKey, Resets
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore, Store, scope_key, scope_of

EVENT = "event"
DELIVERED = ("committed", "queued", "pending")
_LOST = "the event was not kept, and not sent"
# A moved memory has one history: an event with several destinations counts once, and not at all if one
# erased it or is about to. The plus sign keeps SQLite from using the index on seq, which would scan all
# earlier events for each one.
_PAST = (
    "kind = 'event' AND erased = 0 AND NOT EXISTS (SELECT 1 FROM outbox AS earlier WHERE earlier.kind = 'event' "
    "AND earlier.scope = outbox.scope AND earlier.key = outbox.key AND earlier.state != 'reset' "
    "AND earlier.erased = 0 AND +earlier.seq < outbox.seq) AND NOT EXISTS (SELECT 1 FROM resets "
    "WHERE resets.scope = outbox.scope AND outbox.seq <= resets.last_seq)"
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of the journal."""

    kept: Entry
    event: MemoryEvent
    receipt: WriteReceipt | None  # the backend's, without its trace

    @classmethod
    def of(cls, entry: Entry) -> JournalEntry:
        """The event in an entry of the outbox. Raises :class:`JournalError` if the entry was changed."""
        try:
            if not entry.readable:
                raise ValueError("changed")
            event = MemoryEvent.model_validate_json(entry.payload)
            receipt = WriteReceipt.model_validate_json(entry.outcome) if entry.outcome else None
        except ValueError:  # `from None`: the original would repeat user text
            raise JournalError(
                f"entry {entry.seq} of the journal is not as it was written; restore the store from a copy, or "
                f"remove it by 'memslot journal forget --number {entry.seq}'"
            ) from None
        return cls(entry, event, receipt)

    @property
    def delivered(self) -> bool:
        """Whether the backend has the event."""
        return self.kept.state in DELIVERED


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of :meth:`Journal.append`; for each event its earlier entry, or None, and its number."""

    lease: Lease | None  # of the lane; None if another process delivers it, or if nothing is to be sent
    sent: bool  # whether new events are already marked as sent
    before: tuple[JournalEntry | None, ...]
    seqs: tuple[int, ...]


class Journal(AbstractContextManager["Journal"]):
    """The events of a store's outbox.

    Args:
        store: holds the events. The journal makes a further handle on it, and closes only that.
        durability: as :data:`~memory.storage.shared_file.Durability`.
        past: whether events stay after their delivery or reset.
        within_s: seconds that a call of the store may take.
    """

    def __init__(
        self,
        store: Store,
        *,
        durability: Durability = "process",
        past: bool = True,
        within_s: float = WITHIN_S,
    ) -> None:
        self.store = store.handle(
            OUTBOX, JOURNAL, error=JournalError, lost=_LOST, durability=durability, within_s=within_s
        )
        self.outbox = Outbox(self.store, EVENT, keep=past)
        self.resets = Resets(self.store, past=past)
        self.place = self.store.place
        self._backlog: dict[Lane, int] = {}

    def __exit__(self, *ended: object) -> None:
        self.close()

    @property
    def lasting(self) -> bool:
        """Whether recorded events outlive this process."""
        return not (isinstance(self.store, SqliteStore) and self.store.path is None)

    def open(self) -> None:
        """Open the store now, and count the waiting events. Blocks. Raises JournalError if that fails."""
        self.store.call(self._count, writes=False)

    def close(self) -> None:
        """Close the handle on the store. Idempotent."""
        self.outbox.close()
        self.resets.close()
        self.store.close()

    # Waiting events.

    def backlog(self, key: JournalKey) -> int:
        """How many events of a scope wait, as of the last look at the store."""
        return self._backlog.get(key.lane, 0)

    def undelivered(self) -> list[tuple[JournalKey, int]]:
        """Every scope with waiting events, and their number, as of the last look at the store."""
        return [
            (JournalKey(lane.destination, scope_of(lane.scope)), count)
            for lane, count in self._backlog.items()
        ]

    async def refresh(self, key: JournalKey | None = None) -> None:
        """Look at the store again, for one scope or for all, because other processes change it, too."""
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
        self._backlog = self.outbox.counted(db)

    def _waits(self, lane: Lane, count: int) -> None:
        if count:
            self._backlog[lane] = count
        else:
            self._backlog.pop(lane, None)

    async def append(self, key: JournalKey, events: Sequence[MemoryEvent], *, send: bool = True) -> Appended:
        """Make events of one scope durable, all or none. With ``send``, take the lane if it is free.

        Raises:
            InputError: an id belongs to other messages.
            JournalError: the store cannot keep them; the caller must not send the events.
        """
        lane = key.lane

        def keep(db: Any) -> Appended:
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
        self, db: Any, lane: Lane, event: MemoryEvent, *, sent: bool
    ) -> tuple[int, JournalEntry | None]:
        """Keep one event. Returns its number, and its earlier entry or None."""
        where = "kind = 'event' AND scope = ? AND key = ? AND state != 'reset'"
        for entry in read_entries(db, where, (lane.scope, event.event_id)):
            known = JournalEntry.of(entry)
            if known.event.messages != event.messages:
                raise InputError(
                    f"event_id {event.event_id!r} stands in the journal for other messages; give it a fresh one"
                )
            if entry.destination == lane.destination:
                return entry.seq, known
        persona = event.scope.persona_id
        text = event.model_dump_json()
        seq = self.outbox.put(db, lane, event.event_id, text, persona=persona, sent=sent)
        return seq, None

    async def mark_sent(self, lease: Lease, seqs: Sequence[int]) -> bool:
        """Mark events as sent before they are: from now on they may be stored. False if the lane was lost."""
        return await self.store.run(lambda db: all(self.outbox.mark_sent(db, lease, seq) for seq in seqs))

    async def note(self, lease: Lease, key: JournalKey, made: Mapping[int, Verdict]) -> None:
        """Note the verdicts on events that were just recorded, by number, and release the lane."""

        def note(db: Any) -> None:
            for seq, verdict in made.items():
                self.outbox.note_one(db, lease, seq, verdict)
            self.outbox.leases.give_back(db, lease)
            self._count(db, lease.lane)

        await self.store.run(note)

    async def find(self, key: JournalKey, event_id: str) -> JournalEntry | None:
        """The entry of an event for a destination, or None."""
        where = "kind = 'event' AND destination = ? AND scope = ? AND key = ? AND state != 'reset'"
        found = await self.store.run(lambda db: read_entries(db, where, (*key.lane, event_id)), writes=False)
        return JournalEntry.of(found[0]) if found else None

    # The history.

    def scopes(self) -> list[tuple[MemoryScope, int]]:
        """Every scope with events that no reset has erased, and their number, by first appearance."""
        found = self._rows(
            f"SELECT scope, count(*) FROM outbox WHERE {_PAST} GROUP BY scope ORDER BY min(seq)"
        )
        return [(scope_of(key), count) for key, count in found]

    def entries(
        self, scope: MemoryScope | None = None, *, everything: bool = False
    ) -> Iterator[JournalEntry]:
        """The history in the order of recording, each event once, without unreadable entries.

        Args:
            scope: of one scope only.
            everything: include erased events, and an event once for each of its destinations.
        """
        where = ("kind = 'event'" if everything else _PAST) + (" AND scope = ?" if scope else "")
        for entry in list_entries(self.store, where, (scope_key(scope),) if scope else ()):
            with suppress(JournalError):
                yield JournalEntry.of(entry)

    def forget(self, persona_id: str) -> list[JournalKey]:
        """Remove a person's entries for good. Returns the keys of events, whose scopes are still to be reset."""

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
