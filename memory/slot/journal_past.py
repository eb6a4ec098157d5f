"""What a journal has kept, read again: the past of each scope, and how far it was replayed to where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from memory.contract.scope import MemoryScope
from memory.slot.journal_file import COLUMNS, JournalEntry, entry_of
from memory.slot.sqlite_file import JournalDatabase, scope_key

# Once for all destinations: a memory that was moved has one past. What was erased in one of them is in none.
# The sign keeps SQLite from the index by seq, which would go over all earlier events of the scope for each.
_PAST = (
    "erased = 0 AND NOT EXISTS (SELECT 1 FROM events AS earlier WHERE earlier.scope = events.scope "
    "AND earlier.event_id = events.event_id AND earlier.status != 'reset' AND earlier.erased = 0 "
    "AND +earlier.seq < events.seq)"
)


class JournalPast:
    """The reading side of a journal; ``file`` is open, and closed with it."""

    def __init__(self, file: JournalDatabase) -> None:
        self._file = file
        self._db = file.db
        self.place = file.place
        self.on_server = file.on_server  # other processes record and deliver by it as well

    def scopes(self) -> list[tuple[MemoryScope, int]]:
        """Every scope with an event that was not reset, and how many, in order of first appearance."""
        found = self._rows(
            f"SELECT scope, count(*) FROM events WHERE {_PAST} GROUP BY scope ORDER BY min(seq)"
        )
        return [(MemoryScope(**json.loads(key)), count) for key, count in found]

    def counts(self) -> dict[str, int]:
        return dict(self._rows("SELECT status, count(*) FROM events GROUP BY status"))

    def entries(
        self, scope: MemoryScope | None = None, *, after: int = 0, size: int = 200, everything: bool = False
    ) -> Iterator[JournalEntry]:
        """The past in the order of recording behind ``after``, each event once, read ``size`` at a time; with
        ``everything`` also what was reset, and an event of two destinations twice."""
        where = "seq > ?" + ("" if everything else f" AND {_PAST}") + (" AND scope = ?" if scope else "")
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
        """How many events of a scope's past stand at or before a ``seq``."""
        where = f"SELECT count(*) FROM events WHERE scope = ? AND seq <= ? AND {_PAST}"
        [[found]] = self._rows(where, scope_key(scope), until)
        return int(found)

    def sample(self, scope: MemoryScope, size: int) -> list[JournalEntry]:
        """At most ``size`` events of a scope, spread evenly over its past."""
        where = f"SELECT seq FROM events WHERE scope = ? AND {_PAST} ORDER BY seq"
        seqs = self._rows(where, scope_key(scope))
        chosen = [seq for (seq,) in seqs[:: max(1, -(-len(seqs) // size))]]
        marks = ", ".join("?" * len(chosen))
        return self._file.sync(lambda: self._read(f"seq IN ({marks}) ORDER BY seq", tuple(chosen)))

    async def recorded(self, scope: MemoryScope, event_id: str) -> JournalEntry | None:
        """The event of a scope's past by its id, wherever it was delivered."""
        where = "scope = ? AND event_id = ? AND status != 'reset' ORDER BY seq LIMIT 1"
        found = await self._file.run(lambda: self._read(where, (scope_key(scope), event_id)))
        return found[0] if found else None

    def position(self, target: str, scope: MemoryScope) -> int:
        """How far the replay of a scope to ``target`` has come, as a ``seq``; 0 before its first event."""
        where = "SELECT max(seq) FROM replays WHERE target = ? AND scope = ?"
        [[seq]] = self._rows(where, target, scope_key(scope))
        return seq or 0

    def begin(self, target: str, scope: MemoryScope) -> bool:
        """Note that the replay of a scope to ``target`` begins; whether one had begun before."""
        row = (target, scope_key(scope))
        return not self._note("INSERT INTO replays VALUES (?, ?, 0) ON CONFLICT DO NOTHING", [row])

    def replayed(self, target: str, scope: MemoryScope, seq: int) -> None:
        """The replay to ``target`` has come to ``seq``; an interrupted one goes on behind it."""
        there = "ON CONFLICT (target, scope) DO UPDATE SET seq = excluded.seq"
        self._note(f"INSERT INTO replays VALUES (?, ?, ?) {there}", [(target, scope_key(scope), seq)])

    def unanswered(self, target: str, scope: MemoryScope) -> tuple[str, ...]:
        """Ids of the events that a replay to ``target`` sent without an answer."""
        where = "SELECT event_id FROM unanswered WHERE target = ? AND scope = ?"
        return tuple(event_id for (event_id,) in self._rows(where, target, scope_key(scope)))

    def note_unanswered(self, target: str, scope: MemoryScope, event_ids: Iterable[str]) -> None:
        rows = [(target, scope_key(scope), event_id) for event_id in event_ids]
        self._note("INSERT INTO unanswered VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows)

    def note_answered(self, target: str, scope: MemoryScope, event_ids: Iterable[str]) -> None:
        rows = [(target, scope_key(scope), event_id) for event_id in event_ids]
        self._note("DELETE FROM unanswered WHERE target = ? AND scope = ? AND event_id = ?", rows)

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return self._file.sync(lambda: self._db.execute(statement, values).fetchall())

    def _read(self, where: str, values: tuple[Any, ...]) -> list[JournalEntry]:
        return [
            entry_of(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM events WHERE {where}", values)
        ]

    def _note(self, statement: str, rows: list[tuple[Any, ...]]) -> int:
        def note() -> int:
            with self._file.transaction():
                changed: int = self._db.executemany(statement, rows).rowcount
                return changed

        return self._file.sync(note) if rows else 0
