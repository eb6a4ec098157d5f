"""The journal: a SQLite file, or a server's tables, with each event before it is sent, and what became of it after.
A durable outbox, delivered at least once, and the past of a memory, which may be moved to another backend. An event
may go out twice where a process dies between the native write and the receipt, or gets no answer, and the backend
offers no look-up. One backend's delivery says nothing of another."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from memory.contract.errors import InputError, JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.journal_file import JournalEntry, JournalFile, JournalKey, JournalPast, JournalStatus
from memory.slot.sqlite_file import JournalDatabase, digest_of, scope_key
from memory.storage.store import Durability

_SHARING = threading.Lock()
_SHARED: dict[object, Journal] = {}
_OPEN = "status IN ('waiting', 'unknown')"
_OF = "destination = ? AND scope = ?"
OF_EVENT = f"{_OF} AND event_id = ? AND status != 'reset'"  # in the index's words, or it is not used
# There is an index of persons, and none of what a reset has marked.
_MARKED = "persona = ? AND scope = ? AND before_reset IS NOT NULL"
_UNMARK = f"UPDATE events SET before_reset = NULL WHERE {_MARKED}"
# Recorded again since, by the id it had.
_AGAIN = (
    "EXISTS (SELECT 1 FROM events AS later WHERE later.scope = events.scope AND later.seq > events.seq "
    "AND later.event_id = events.event_id AND later.destination = events.destination AND later.status != 'reset')"
)


class Journal(JournalPast, AbstractContextManager["Journal"]):
    """The journal of one file, which one process owns at a time, or of a database that was opened for it.
    ``process`` survives the end of the process (``synchronous=NORMAL``), ``machine`` a power cut (``FULL``: a disk
    flush a write). At ``max_mb`` what is delivered and oldest goes first; with nothing delivered left, recording
    fails. Raises :class:`JournalError` where it is in use, damaged, of another version, or no journal."""

    def __init__(
        self, place: Path | JournalDatabase, *, durability: Durability = "process", max_mb: int | None = 1024
    ) -> None:
        super().__init__(JournalFile(place, durability) if isinstance(place, Path) else place)
        self._path = place
        self._users = 1
        self._max_mb = max_mb
        self._backlog: dict[tuple[str, str], int] = {}
        self._resets: set[tuple[str, str]] = set()
        self._file.sync(self._see)

    def _see(self) -> None:
        self._count()
        self._resets = set(self._db.execute("SELECT destination, scope FROM resets").fetchall())

    def __exit__(self, *ended: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    @classmethod
    def shared(cls, path: Path, *, durability: Durability = "process", max_mb: int | None = 1024) -> Journal:
        """The journal of a file, one for all slots of this process; each closes it once. Of two ``durability`` the
        stronger counts, of two ``max_mb`` the first."""
        with _SHARING:
            path = path.resolve()
            journal = _SHARED.get(path)
            if journal is None or journal.closed:
                journal = _SHARED[path] = cls(path, durability=durability, max_mb=max_mb)
            else:
                journal._users += 1
                if durability == "machine" and isinstance(journal._file, JournalFile):
                    journal._file.flush_each()
            return journal

    def close(self) -> None:
        """Give the file back, with the last of its users. Waits for the statement under way."""
        with _SHARING:
            self._users -= 1
            if self._users <= 0:
                _SHARED.pop(self._path, None)
                self._file.close()

    async def lease(self, key: JournalKey) -> bool:
        """Become the one that delivers a scope, until :meth:`release`; a file's owner always is."""
        return True

    async def release(self, key: JournalKey) -> None:
        """Let another process deliver a scope."""

    async def refresh(self) -> None:
        """See what others have recorded and delivered since."""

    def backlog(self, key: JournalKey) -> int:
        return self._backlog.get(key.columns, 0)

    def undelivered(self) -> list[tuple[JournalKey, int]]:
        return [
            (JournalKey(destination, MemoryScope(**json.loads(scope))), count)
            for (destination, scope), count in self._backlog.items()
            if count
        ]

    async def append(
        self, key: JournalKey, events: Sequence[MemoryEvent], *, sent: bool = True
    ) -> list[JournalEntry | None]:
        """Make events of a scope durable, all or none; for each what there is of it already, or None.
        ``sent=False``: only accepted, see :meth:`mark_sent`. :class:`InputError` where an id was used for other
        messages, :class:`JournalError` where the disk or ``max_mb`` is full; nothing may be sent then."""
        columns = key.columns

        def keep() -> list[JournalEntry | None]:
            self._file.check()
            self._make_room()
            with self._file.transaction():
                before = [self._insert(columns, event, "waiting", sent) for event in events]
            self._backlog[columns] = self._backlog.get(columns, 0) + before.count(None)
            if sent and self.on_server:
                self._count(columns)  # others may have recorded older ones just now
            return before

        return await self._file.run(keep)

    async def mark_sent(self, key: JournalKey, event_id: str) -> bool:
        """An accepted event is about to be sent: from now on it may be stored; False where another may send it."""
        await self._change(key, f"UPDATE events SET sent = 1 WHERE {OF_EVENT}", [(*key.columns, event_id)])
        return True

    async def record(self, key: JournalKey, receipts: Sequence[WriteReceipt]) -> None:
        rows = [
            (
                receipt.status,
                receipt.model_copy(update={"trace": None}).model_dump_json(),
                int(receipt.status == "unknown"),
                *key.columns,
                receipt.event_id,
            )
            for receipt in receipts
        ]
        await self._change(
            key,
            "UPDATE events SET status = ?, receipt = ?, attempts = attempts + ? "
            f"WHERE {OF_EVENT} AND (status = 'rejected' OR {_OPEN})",
            rows,
        )

    async def failed(self, key: JournalKey, event_ids: Sequence[str], error: str, *, final: bool) -> None:
        """A delivery failed and the events are not stored; ``final`` where the backend refused them for good."""
        await self._change(
            key,
            f"UPDATE events SET attempts = attempts + 1, error = ?, status = ? WHERE {OF_EVENT} AND {_OPEN}",
            [(error, "rejected" if final else "waiting", *key.columns, event_id) for event_id in event_ids],
        )

    async def waiting(self, key: JournalKey, limit: int = 100) -> list[JournalEntry]:
        """The events that wait for their delivery, oldest first."""
        where = f"{_OF} AND {_OPEN} ORDER BY seq LIMIT ?"
        return await self._file.run(lambda: self._read(where, (*key.columns, limit)))

    async def find(self, key: JournalKey, event_id: str) -> JournalEntry | None:
        found = await self._file.run(lambda: self._read(OF_EVENT, (*key.columns, event_id)))
        return found[0] if found else None

    def resetting(self, key: JournalKey) -> bool:
        """Whether a reset has begun of which the end was not noted."""
        return key.columns in self._resets

    async def begin_reset(self, key: JournalKey) -> None:
        """A scope is about to be reset: from now on nothing of before is delivered, found or replayed."""
        persona, columns = key.scope.persona_id, key.columns

        def mark() -> None:
            with self._file.transaction():
                # By an earlier one; not this one's to give back.
                self._db.execute(_UNMARK, (persona, columns[1]))
                begun = "INSERT INTO resets (destination, scope) VALUES (?, ?) ON CONFLICT DO NOTHING"
                self._db.execute(begun, columns)
                self._db.execute(
                    "UPDATE events SET before_reset = status, erased = 1, "
                    "status = CASE destination WHEN ? THEN 'reset' ELSE status END "
                    "WHERE persona = ? AND scope = ? AND erased = 0",
                    (columns[0], persona, columns[1]),
                )
            self._resets.add(columns)
            self._backlog.pop(columns, None)

        await self._file.run(mark)

    async def cancel_reset(self, key: JournalKey) -> None:
        """The backend has certainly reset nothing: everything is as before."""
        persona, columns = key.scope.persona_id, key.columns

        def mark() -> None:
            with self._file.transaction():
                self._db.execute(
                    "UPDATE events SET before_reset = NULL, erased = 0, "
                    "status = CASE destination WHEN ? THEN before_reset ELSE status END "
                    f"WHERE {_MARKED} AND NOT {_AGAIN}",
                    (columns[0], persona, columns[1]),
                )
                self._db.execute(f"DELETE FROM resets WHERE {_OF}", columns)
            self._resets.discard(columns)
            self._count(columns)

        await self._file.run(mark)

    async def end_reset(self, key: JournalKey) -> bool:
        """The scope was reset. Whether words of it are kept here."""
        persona, columns = key.scope.persona_id, key.columns

        def mark() -> bool:
            with self._file.transaction():
                self._db.execute(_UNMARK, (persona, columns[1]))
                for table in ("replays", "unanswered"):
                    self._db.execute(f"DELETE FROM {table} WHERE scope = ?", (columns[1],))
                self._db.execute(f"DELETE FROM resets WHERE {_OF}", columns)
            self._resets.discard(columns)
            words = "SELECT 1 FROM events WHERE persona = ? AND scope = ? AND status = 'reset' LIMIT 1"
            return self._db.execute(words, (persona, columns[1])).fetchone() is not None

        return await self._file.run(mark)

    def add(self, events: Iterable[tuple[MemoryEvent, JournalStatus, str]]) -> tuple[int, int]:
        """Take over events of an export with status and destination, keeping their order: (new, known before)."""
        new = known = 0

        def take(page: list[tuple[MemoryEvent, JournalStatus, str]]) -> int:
            self._file.check()
            self._make_room()
            with self._file.transaction():
                kept = [
                    self._insert((destination, scope_key(event.scope)), event, status, sent=True)
                    for event, status, destination in page
                ]
            self._count()
            return kept.count(None)

        source = iter(events)
        while page := list(islice(source, 500)):
            fresh = self._file.sync(partial(take, page))
            new, known = new + fresh, known + len(page) - fresh
        return new, known

    def forget(self, persona_id: str) -> list[JournalKey]:
        """Remove a person's events from the disk for good, free pages and log too; where they are to be reset."""

        def erase() -> list[JournalKey]:
            found = self._db.execute(
                "SELECT destination, scope FROM events WHERE persona = ? GROUP BY destination, scope "
                "ORDER BY min(seq)",
                (persona_id,),
            ).fetchall()
            with self._file.transaction():
                self._db.execute("DELETE FROM events WHERE persona = ?", (persona_id,))
                scopes = [(scope,) for _, scope in found]
                for table in ("replays", "unanswered"):
                    self._db.executemany(f"DELETE FROM {table} WHERE scope = ?", scopes)
            self._file.rewrite()
            self._count()
            return [JournalKey(place, MemoryScope(**json.loads(scope))) for place, scope in found]

        return self._file.sync(erase)

    def _insert(
        self, columns: tuple[str, str], event: MemoryEvent, status: JournalStatus, sent: bool
    ) -> JournalEntry | None:
        """Keep one event; what is kept of it already, or None."""
        where = "scope = ? AND event_id = ? AND status != 'reset'"
        known = {entry.destination: entry for entry in self._read(where, (columns[1], event.event_id))}
        if any(entry.event.messages != event.messages for entry in known.values()):
            raise InputError(
                f"event_id {event.event_id!r} stands in the journal for other messages; give it a fresh one"
            )
        if columns[0] in known:
            return known[columns[0]]
        text = event.model_dump_json()
        self._db.execute(
            "INSERT INTO events (destination, scope, persona, event_id, event, digest, status, sent) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*columns, event.scope.persona_id, event.event_id, text, digest_of(text), status, int(sent)),
        )
        return None

    async def _change(self, key: JournalKey, statement: str, rows: list[tuple[Any, ...]]) -> None:
        def change() -> None:
            with self._file.transaction():
                self._db.executemany(statement, rows)
            self._count(key.columns)

        if rows:
            await self._file.run(change)

    def _count(self, columns: tuple[str, str] | None = None) -> None:
        if columns is None:
            found = self._db.execute(
                f"SELECT destination, scope, count(*) FROM events WHERE {_OPEN} GROUP BY destination, scope"
            )
            self._backlog = {(place, scope): count for place, scope, count in found.fetchall()}
        else:
            where = f"SELECT count(*) FROM events WHERE {_OF} AND {_OPEN}"
            self._backlog[columns] = self._db.execute(where, columns).fetchone()[0]

    def _make_room(self) -> None:
        if self._max_mb is None or not self._file.reaches(self._max_mb):
            return
        with self._file.transaction():
            gone = self._db.execute(
                "DELETE FROM events WHERE seq IN (SELECT seq FROM events "
                f"WHERE NOT {_OPEN} AND before_reset IS NULL ORDER BY seq "
                "LIMIT (SELECT 1 + count(*) / 10 FROM events))"
            ).rowcount
        if not gone:
            raise JournalError(
                f"{self.place}: max_mb is reached and nothing in it is delivered; bring the backend back, or "
                "raise memory.journal.max_mb"
            )
