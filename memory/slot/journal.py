"""The journal: one SQLite file that has every event before it is sent, and what became of it after.

It is a durable outbox (what the backend has not confirmed is delivered later, at least once) and the past of a
memory in a form that can be moved to another backend. Its duplicate windows are those of any outbox: a process that
dies between the native write and the receipt, and a write without an answer, where the backend offers no look-up.

One process owns a journal at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Self

from memory.contract.errors import InputError, JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.files import Durability
from memory.slot.journal_file import COLUMNS, JournalEntry, JournalFile, JournalStatus, entry_of
from memory.slot.sqlite_file import scope_key

_SHARING = threading.Lock()
_SHARED: dict[Path, Journal] = {}
_OPEN = "status IN ('waiting', 'unknown')"
_THIS = "scope = ? AND event_id = ? AND status != 'reset'"  # in the index's words, or it is not used


class Journal:
    """The journal of one file.

    Args:
        path: the file; its directory is made. ``-wal`` and ``-shm`` stand beside it while it is open.
        durability: ``process`` survives the end of the process at any moment (``synchronous=NORMAL``); ``machine``
            survives a power cut as well, for a disk flush a write (``FULL``).
        max_mb: upper bound of the file; when it is reached, what is delivered and oldest goes first, and where
            nothing delivered is left, recording fails. None is unbounded.

    Raises:
        JournalError: another process has it open, it is no journal or one of another version, or it is damaged.
    """

    def __init__(self, path: Path, *, durability: Durability = "process", max_mb: int | None = 1024) -> None:
        self.path = path
        self._users = 1
        self._max_mb = max_mb
        self._file = JournalFile(path, durability)
        self._db = self._file.db
        self._backlog: dict[str, int] = {}
        self._count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether its last user has closed it."""
        return self._file.closed

    @classmethod
    def shared(cls, path: Path, *, durability: Durability = "process", max_mb: int | None = 1024) -> Journal:
        """The journal of a file, one for all slots of this process; each closes it once.

        Raises:
            JournalError: as for the class.
        """
        with _SHARING:
            path = path.resolve()
            journal = _SHARED.get(path)
            if journal is None or journal.closed:
                journal = _SHARED[path] = cls(path, durability=durability, max_mb=max_mb)
            else:
                journal._users += 1
            return journal

    def close(self) -> None:
        """Give the file back, with the last of its users. Waits for the statement under way."""
        with _SHARING:
            self._users -= 1
            if self._users <= 0:
                _SHARED.pop(self.path, None)
                self._file.close()

    # -- the way of an event ------------------------------------------------------------------------------

    def backlog(self, scope: MemoryScope | None = None) -> int:
        """How many events wait for their delivery, of one scope or of all."""
        return sum(self._backlog.values()) if scope is None else self._backlog.get(scope_key(scope), 0)

    def waiting_scopes(self) -> list[MemoryScope]:
        """Scopes with events that wait for their delivery."""
        return [MemoryScope(**json.loads(key)) for key, count in self._backlog.items() if count]

    async def append(self, events: Sequence[MemoryEvent]) -> list[JournalEntry | None]:
        """Make events durable before they are sent: all or none.

        Returns:
            For each event None, or what the journal has of it already: it is not to be sent again if delivered.

        Raises:
            InputError: an event id was used for other messages before.
            JournalError: the disk or ``max_mb`` is full; nothing is kept, and nothing may be sent.
        """
        return await self._file.run(lambda: self._append(events))

    async def record(self, scope: MemoryScope, receipts: Sequence[WriteReceipt]) -> None:
        """Keep what the backend said of events of a scope."""
        rows = [
            (receipt.status, receipt.model_copy(update={"trace": None}).model_dump_json(), receipt.event_id)
            for receipt in receipts
        ]
        await self._file.run(lambda: self._record(scope_key(scope), rows))

    async def failed(self, scope: MemoryScope, event_ids: Sequence[str], error: str, *, final: bool) -> None:
        """A delivery failed and the events are not stored; ``final`` where the backend refused them for good."""
        status = "rejected" if final else "waiting"
        await self._file.run(lambda: self._failed(scope_key(scope), event_ids, error, status))

    async def waiting(self, scope: MemoryScope, limit: int = 100) -> list[JournalEntry]:
        """The events of a scope that wait for their delivery, oldest first."""
        where = f"scope = ? AND {_OPEN} ORDER BY seq LIMIT ?"
        return await self._file.run(lambda: self._read(where, (scope_key(scope), limit)))

    async def find(self, scope: MemoryScope, event_id: str) -> JournalEntry | None:
        """The event of a scope by its id."""
        found = await self._file.run(lambda: self._read(_THIS, (scope_key(scope), event_id)))
        return found[0] if found else None

    async def suspend(self, scope: MemoryScope) -> list[tuple[str, int]]:
        """Before a scope is reset: what waits for it is delivered no more. Returns what :meth:`restore` takes."""
        key = scope_key(scope)

        def mark() -> list[tuple[str, int]]:
            where = f"WHERE scope = ? AND {_OPEN}"
            with self._db:
                waiting = self._db.execute(f"SELECT status, seq FROM events {where}", (key,)).fetchall()
                self._db.execute(f"UPDATE events SET status = 'reset' {where}", (key,))
            self._backlog.pop(key, None)
            return waiting

        return await self._file.run(mark) if self.backlog(scope) else []

    async def restore(self, scope: MemoryScope, withheld: Sequence[tuple[str, int]]) -> None:
        """The scope was not reset: what was withheld waits on."""

        def mark() -> None:
            with self._db:
                self._db.executemany("UPDATE OR IGNORE events SET status = ? WHERE seq = ?", withheld)
            self._count(scope_key(scope))

        if withheld:
            await self._file.run(mark)

    async def reset(self, scope: MemoryScope) -> bool:
        """The scope was reset: nothing of before is delivered or replayed any more. Whether anything is kept."""
        key = scope_key(scope)

        def mark() -> bool:
            with self._db:
                self._db.execute(
                    "UPDATE events SET status = 'reset' WHERE scope = ? AND status != 'reset'", (key,)
                )
                for table in ("replays", "doubts"):
                    self._db.execute(f"DELETE FROM {table} WHERE scope = ?", (key,))
            self._backlog.pop(key, None)
            one = (
                "SELECT 1 FROM events WHERE persona = ? AND scope = ? LIMIT 1"  # there is an index of persons
            )
            return self._db.execute(one, (scope.persona_id, key)).fetchone() is not None

        return await self._file.run(mark)

    # -- the past -----------------------------------------------------------------------------------------

    def scopes(self) -> list[tuple[MemoryScope, int]]:
        """Every scope with an event that was not reset, and how many, in order of first appearance."""
        found = self._file.sync(
            lambda: self._db.execute(
                "SELECT scope, count(*) FROM events WHERE status != 'reset' GROUP BY scope ORDER BY min(seq)"
            ).fetchall()
        )
        return [(MemoryScope(**json.loads(key)), count) for key, count in found]

    def counts(self) -> dict[str, int]:
        """Events by status."""
        return dict(
            self._file.sync(
                lambda: self._db.execute("SELECT status, count(*) FROM events GROUP BY status").fetchall()
            )
        )

    def entries(
        self, scope: MemoryScope | None = None, *, after: int = 0, size: int = 200, reset: bool = False
    ) -> Iterator[JournalEntry]:
        """The past in the order of recording, read ``size`` at a time; what was reset only where asked for."""
        where = "seq > ?" + ("" if reset else " AND status != 'reset'") + (" AND scope = ?" if scope else "")
        more: tuple[Any, ...] = (scope_key(scope),) if scope else ()
        while True:
            position = after
            page = self._file.sync(
                lambda: self._read(f"{where} ORDER BY seq LIMIT ?", (position, *more, size))  # noqa: B023
            )
            yield from page
            if len(page) < size:
                return
            after = page[-1].seq

    def count(self, scope: MemoryScope, *, until: int) -> int:
        """How many events of a scope stand at or before a ``seq``, without what was reset."""
        where = "SELECT count(*) FROM events WHERE scope = ? AND seq <= ? AND status != 'reset'"
        found: int = self._file.sync(lambda: self._db.execute(where, (scope_key(scope), until)).fetchone()[0])
        return found

    def sample(self, scope: MemoryScope, size: int) -> list[JournalEntry]:
        """At most ``size`` events of a scope, spread evenly over its past."""
        seqs = self._file.sync(
            lambda: self._db.execute(
                "SELECT seq FROM events WHERE scope = ? AND status != 'reset' ORDER BY seq",
                (scope_key(scope),),
            ).fetchall()
        )
        chosen = [seq for (seq,) in seqs[:: max(1, -(-len(seqs) // size))]]
        marks = ", ".join("?" * len(chosen))
        return self._file.sync(lambda: self._read(f"seq IN ({marks}) ORDER BY seq", tuple(chosen)))

    def position(self, target: str, scope: MemoryScope) -> int:
        """How far the replay of a scope to ``target`` has come, as a ``seq``; 0 before its first event."""
        row = self._file.sync(
            lambda: self._db.execute(
                "SELECT seq FROM replays WHERE target = ? AND scope = ?", (target, scope_key(scope))
            ).fetchone()
        )
        return row[0] if row else 0

    def begin(self, target: str, scope: MemoryScope) -> bool:
        """Note that the replay of a scope to ``target`` begins; whether one had begun before."""

        def note() -> bool:
            with self._db:
                row = (target, scope_key(scope))
                added = self._db.execute("INSERT OR IGNORE INTO replays VALUES (?, ?, 0)", row).rowcount
            return not added

        return self._file.sync(note)

    def replayed(self, target: str, scope: MemoryScope, seq: int) -> None:
        """The replay to ``target`` has come to ``seq``; an interrupted one goes on behind it."""

        def keep() -> None:
            with self._db:
                self._db.execute(
                    "INSERT OR REPLACE INTO replays VALUES (?, ?, ?)", (target, scope_key(scope), seq)
                )

        self._file.sync(keep)

    def doubts(self, target: str, scope: MemoryScope) -> tuple[str, ...]:
        """Ids of the events that a replay to ``target`` sent without an answer."""
        where = "SELECT event_id FROM doubts WHERE target = ? AND scope = ?"
        rows = self._file.sync(lambda: self._db.execute(where, (target, scope_key(scope))).fetchall())
        return tuple(event_id for (event_id,) in rows)

    def doubt(
        self, target: str, scope: MemoryScope, event_ids: Iterable[str], *, settled: bool = False
    ) -> None:
        """Note that a replay has no answer for events; or, ``settled``, that it is known what became of them."""
        rows = [(target, scope_key(scope), event_id) for event_id in event_ids]
        statement = (
            "DELETE FROM doubts WHERE target = ? AND scope = ? AND event_id = ?"
            if settled
            else "INSERT OR IGNORE INTO doubts VALUES (?, ?, ?)"
        )

        def note() -> None:
            with self._db:
                self._db.executemany(statement, rows)

        if rows:
            self._file.sync(note)

    def add(self, events: Iterable[tuple[MemoryEvent, JournalStatus]]) -> tuple[int, int]:
        """Take over events of an export, keeping their order: (new, known before)."""
        new = known = 0

        def take(page: list[tuple[MemoryEvent, JournalStatus]]) -> None:
            nonlocal new, known
            kept = [entry for entry in self._append(*zip(*page, strict=True)) if entry is not None]
            known, new = known + len(kept), new + len(page) - len(kept)
            self._count()

        source = iter(events)
        while page := list(islice(source, 500)):
            self._file.sync(partial(take, page))
        return new, known

    def forget(self, persona_id: str) -> list[MemoryScope]:
        """Remove a person's events from the disk for good: overwritten, and no free page or log left of them.

        Returns:
            The scopes that were theirs, to be reset where they were delivered.
        """

        def erase() -> list[MemoryScope]:
            found = self._db.execute(
                "SELECT DISTINCT scope FROM events WHERE persona = ?", (persona_id,)
            ).fetchall()
            scopes = [MemoryScope(**json.loads(key)) for (key,) in found]
            with self._db:
                self._db.execute("DELETE FROM events WHERE persona = ?", (persona_id,))
                for table in ("replays", "doubts"):
                    self._db.executemany(f"DELETE FROM {table} WHERE scope = ?", found)
            self._file.rewrite()
            self._count()
            return scopes

        return self._file.sync(erase)

    # -- inside -------------------------------------------------------------------------------------------

    def _append(
        self, events: Sequence[MemoryEvent], statuses: Sequence[JournalStatus] = ()
    ) -> list[JournalEntry | None]:
        self._file.check()
        self._make_room()
        before: list[JournalEntry | None] = []
        new: dict[str, int] = {}
        with self._db:
            for event, status in zip(events, statuses or repeat("waiting"), strict=False):
                key = scope_key(event.scope)
                known = self._read(_THIS, (key, event.event_id))
                if known and known[0].event.messages != event.messages:
                    raise InputError(
                        f"event_id {event.event_id!r} stands in the journal for other messages; give it a fresh one"
                    )
                before.append(known[0] if known else None)
                if known:
                    continue
                self._db.execute(
                    "INSERT INTO events (scope, persona, event_id, event, status) VALUES (?, ?, ?, ?, ?)",
                    (key, event.scope.persona_id, event.event_id, event.model_dump_json(), status),
                )
                new[key] = new.get(key, 0) + 1
        for key, count in new.items():
            self._backlog[key] = self._backlog.get(key, 0) + count
        return before

    def _record(self, key: str, rows: Sequence[tuple[str, str, str]]) -> None:
        with self._db:
            self._db.executemany(
                "UPDATE events SET status = ?, receipt = ?, attempts = attempts + ? "
                "WHERE scope = ? AND event_id = ? AND status != 'reset' "
                f"AND (status = 'rejected' OR {_OPEN})",
                [(status, receipt, status == "unknown", key, event_id) for status, receipt, event_id in rows],
            )
        self._count(key)

    def _failed(self, key: str, event_ids: Sequence[str], error: str, status: str) -> None:
        with self._db:
            self._db.executemany(
                f"UPDATE events SET attempts = attempts + 1, error = ?, status = ? WHERE {_THIS} AND {_OPEN}",
                [(error, status, key, event_id) for event_id in event_ids],
            )
        self._count(key)

    def _count(self, key: str | None = None) -> None:
        if key is None:
            found = self._db.execute(f"SELECT scope, count(*) FROM events WHERE {_OPEN} GROUP BY scope")
            self._backlog = dict(found.fetchall())
            return
        where = f"SELECT count(*) FROM events WHERE scope = ? AND {_OPEN}"
        self._backlog[key] = self._db.execute(where, (key,)).fetchone()[0]

    def _read(self, where: str, values: tuple[Any, ...]) -> list[JournalEntry]:
        return [
            entry_of(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM events WHERE {where}", values)
        ]

    def _make_room(self) -> None:
        if self._max_mb is None or not self._file.reaches(self._max_mb):
            return
        with self._db:
            gone = self._db.execute(
                f"DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE NOT {_OPEN} ORDER BY seq "
                "LIMIT (SELECT max(1, count(*) / 10) FROM events))"
            ).rowcount
        if not gone:
            raise JournalError(
                f"{self.path.name}: max_mb is reached and nothing in it is delivered; bring the backend back, or "
                "raise memory.journal.max_mb"
            )
