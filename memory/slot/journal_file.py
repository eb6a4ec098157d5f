"""A journal's file: its tables, its rows, its past read again; no call of it holds the event loop up for the
disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from memory.contract.adapter import AdapterTraits, MemoryAdapter, native_scope_of
from memory.contract.errors import JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.sqlite_file import JournalDatabase, SqliteFile, SqliteLayout, digest_of, scope_key
from memory.storage.store import Durability

T = TypeVar("T")

# waiting: not confirmed; unknown: sent without an answer; rejected: for good; reset: its scope was, after it.
JournalStatus = Literal["waiting", "unknown", "committed", "queued", "pending", "rejected", "reset"]
COLUMNS = "seq, destination, event, digest, status, sent, attempts, error, receipt, recorded_at"

_CHECKPOINT_AFTER = 1000
JOURNAL = SqliteLayout(
    what="journal",
    application_id=0x6D656D73,
    version=1,
    full="the event was not kept, and not sent",
    error=JournalError,
    tables="""
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    destination TEXT NOT NULL,
    scope TEXT NOT NULL,
    persona TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event TEXT NOT NULL,
    digest TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting',
    before_reset TEXT,
    erased INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 1,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    receipt TEXT,
    recorded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE UNIQUE INDEX one_event ON events (scope, event_id, destination) WHERE status != 'reset';
CREATE INDEX undelivered ON events (destination, scope, seq) WHERE status IN ('waiting', 'unknown');
CREATE INDEX past ON events (scope, seq) WHERE erased = 0;
CREATE INDEX personas ON events (persona);
CREATE TABLE resets (
    destination TEXT NOT NULL,
    scope TEXT NOT NULL,
    begun_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (destination, scope)
);
CREATE TABLE replays (
    target TEXT NOT NULL,
    scope TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (target, scope)
);
CREATE TABLE unanswered (
    target TEXT NOT NULL,
    scope TEXT NOT NULL,
    event_id TEXT NOT NULL,
    PRIMARY KEY (target, scope, event_id)
);
""",
)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """Whose events: those of a scope on their way to one destination."""

    destination: str  # name of a backend, with a hash of its store and of the scope's native ids there
    scope: MemoryScope

    @classmethod
    def of(cls, backend: str, store: str, scope: MemoryScope, native: object) -> JournalKey:
        """The key for a backend; ``store`` is what tells its store from others, such as an address."""
        text = repr((store, sorted(dict(native).items())))  # type: ignore[call-overload]
        return cls(f"{backend}:{blake2b(text.encode(), digest_size=6).hexdigest()}", scope)

    @classmethod
    def of_adapter(cls, adapter: MemoryAdapter, scope: MemoryScope) -> JournalKey:
        """The key for an adapter, or a slot over it; raises ScopeError where it cannot represent the scope."""
        store = AdapterTraits.of(adapter).store
        return cls.of(adapter.backend_name, store, scope, native_scope_of(adapter, scope))

    @property
    def columns(self) -> tuple[str, str]:
        return self.destination, scope_key(self.scope)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of the journal."""

    seq: int
    destination: str
    event: MemoryEvent
    status: JournalStatus
    sent: bool  # it may have been; False only while it was accepted and no delivery has begun
    attempts: int  # that failed or got no answer
    error: str | None  # class of the last failure
    receipt: WriteReceipt | None  # without its trace
    recorded_at: str  # UTC, ISO 8601

    @property
    def delivered(self) -> bool:
        return self.status in ("committed", "queued", "pending")


def entry_of(row: tuple[Any, ...]) -> JournalEntry:
    seq, destination, event, digest, status, sent, attempts, error, receipt, recorded_at = row
    try:
        if digest_of(event) != digest:  # changed on the disk, it is neither delivered nor replayed
            raise ValueError("changed")
        return JournalEntry(
            seq=seq,
            destination=destination,
            event=MemoryEvent.model_validate_json(event),
            status=status,
            sent=bool(sent),
            attempts=attempts,
            error=error,
            receipt=WriteReceipt.model_validate_json(receipt) if receipt else None,
            recorded_at=recorded_at,
        )
    except ValueError:  # `from None`: it would repeat what was said
        raise JournalError(
            f"journal: what stands at seq {seq} is no event of this version; restore the file from a copy"
        ) from None


class JournalFile(SqliteFile):
    def __init__(self, path: Path, durability: Durability) -> None:
        super().__init__(path, JOURNAL, durability)
        self._flushes = durability == "machine"
        self._since_checkpoint = 0

    def flush_each(self) -> None:
        """Survive a power cut from now on, as whoever shares the file asks."""
        self.sync(lambda: self.db.execute("PRAGMA synchronous = FULL"))
        self._flushes = True

    async def run(self, call: Callable[[], T]) -> T:
        """``call`` where it blocks nobody: here if it cannot touch the disk, else on a thread. Shielded: a
        statement that has begun is not left without its end."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        # Without a flush a commit is a few microseconds, a tenth of the way to a thread and back.
        if not self._flushes and self._guard.acquire(blocking=False):
            try:
                result = self._explained(call)
            finally:
                self._guard.release()
        else:
            with anyio.CancelScope(shield=True):
                result = await anyio.to_thread.run_sync(self.sync, call)
        self._since_checkpoint += 1
        if self._since_checkpoint >= _CHECKPOINT_AFTER:
            self._since_checkpoint = 0
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.sync, self._checkpoint)
        return result

    def _checkpoint(self) -> None:
        # Fetched to its end: a statement under way would keep every later commit from ending.
        self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


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
        self.warnings = file.warnings
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
        def run() -> int:
            with self._file.transaction():
                return int(self._db.executemany(statement, rows).rowcount)

        return self._file.sync(run) if rows else 0
