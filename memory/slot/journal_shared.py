"""The journal that several processes have open at once, on a server: one of them at a time delivers a scope.
Whoever delivers holds a lease, made longer while its process lives. An event goes out once whoever held the lease
before has recorded what became of the last one, or is dead and cannot be sending any more."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import anyio

from memory.contract.errors import JournalError
from memory.slot.journal import OF_EVENT, Journal
from memory.slot.journal_file import JOURNAL, JournalKey
from memory.slot.sqlite_file import StateServer

_LEASE_S = 10.0
_UNTIL = f"clock_timestamp() + interval '{_LEASE_S:g} s'"
_LEASES = """
CREATE TABLE leases (
    destination TEXT NOT NULL,
    scope TEXT NOT NULL,
    holder TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (destination, scope)
);
"""
_MINE = "destination = ? AND scope = ? AND holder = ?"


class SharedJournal(Journal):
    def __init__(self, server: StateServer) -> None:
        super().__init__(server.open(replace(JOURNAL, tables=JOURNAL.tables + _LEASES)), max_mb=None)
        self._holder = uuid4().hex
        self._held: set[tuple[str, str]] = set()
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    async def lease(self, key: JournalKey) -> bool:
        """What waits for the scope, and whether it is being reset, is known then."""
        columns, row = key.columns, (*key.columns, self._holder)

        def take() -> bool:
            # Nobody waits here for another who is about to take it.
            free = (
                "SELECT destination, scope FROM leases WHERE destination = ? AND scope = ? "
                "AND (until < clock_timestamp() OR holder = ?) FOR UPDATE SKIP LOCKED"
            )
            taken = self._db.execute(
                f"UPDATE leases SET holder = ?, until = {_UNTIL} WHERE (destination, scope) IN ({free})",
                (self._holder, *row),
            ).rowcount
            if not taken:
                new = f"INSERT INTO leases VALUES (?, ?, ?, {_UNTIL}) ON CONFLICT DO NOTHING"
                taken = self._db.execute(new, row).rowcount
            self._see_scope(columns)
            return bool(taken)

        taken = await self._file.run(take)
        if taken:
            self._held.add(columns)
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="memslot-leases", daemon=True)
                self._keeper.start()
        return taken

    async def release(self, key: JournalKey) -> None:
        """What waits for the scope is known anew."""
        columns = key.columns
        self._held.discard(columns)

        def end_lease() -> None:
            self._db.execute(f"UPDATE leases SET until = '-infinity' WHERE {_MINE}", (*columns, self._holder))
            self._see_scope(columns)  # after it: what came meanwhile found it held

        with anyio.CancelScope(shield=True), suppress(JournalError):  # then it ends by itself
            await self._file.run(end_lease)

    async def mark_sent(self, key: JournalKey, event_id: str) -> bool:
        """Not by who lost the lease, as one that was stopped for long has."""
        values = (*key.columns, event_id, *key.columns, self._holder)
        still = f"EXISTS (SELECT 1 FROM leases WHERE {_MINE} AND until > clock_timestamp())"
        mark = f"UPDATE events SET sent = 1 WHERE {OF_EVENT} AND {still}"
        return bool(await self._file.run(lambda: self._db.execute(mark, values).rowcount))

    async def refresh(self) -> None:
        await self._file.run(self._see)

    def forget(self, persona_id: str) -> list[JournalKey]:
        """The server's log and copies are its keeper's matter."""
        found = super().forget(persona_id)
        gone = "DELETE FROM leases WHERE destination = ? AND scope = ?"
        self._file.sync(lambda: self._db.executemany(gone, [key.columns for key in found]))
        return found

    def close(self) -> None:
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()
        if not self.closed:
            with suppress(JournalError):
                given_back = "UPDATE leases SET until = '-infinity' WHERE holder = ?"
                self._file.sync(lambda: self._db.execute(given_back, (self._holder,)))
        super().close()

    def _see_scope(self, columns: tuple[str, str]) -> None:
        self._count(columns)
        begun = "SELECT 1 FROM resets WHERE destination = ? AND scope = ?"
        if self._db.execute(begun, columns).fetchone() is None:
            self._resets.discard(columns)
        else:
            self._resets.add(columns)

    def _keep(self) -> None:
        while not self._ended.wait(_LEASE_S / 3):
            rows = [(*columns, self._holder) for columns in tuple(self._held)]
            longer = f"UPDATE leases SET until = {_UNTIL} WHERE {_MINE}"
            with suppress(JournalError):
                if rows:
                    self._file.sync(lambda: self._db.executemany(longer, rows))  # noqa: B023
