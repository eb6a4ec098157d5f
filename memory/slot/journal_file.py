"""A journal's file: its tables, its rows, and calls of it that never hold the event loop up for the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from memory.contract.adapter import MemoryAdapter
from memory.contract.errors import JournalError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.files import Durability
from memory.slot.sqlite_file import SqliteFile, SqliteLayout, scope_key

T = TypeVar("T")

# waiting: not confirmed; unknown: sent without an answer; rejected: for good; reset: its scope was, after it.
JournalStatus = Literal["waiting", "unknown", "committed", "queued", "pending", "rejected", "reset"]
COLUMNS = "seq, destination, event, digest, status, sent, attempts, error, receipt, recorded_at"

_CHECKPOINT_AFTER = 1000
_TABLES = """
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
"""

JOURNAL = SqliteLayout(
    what="journal",
    application_id=0x6D656D73,
    version=1,
    tables=_TABLES,
    full="the event was not kept, and not sent",
    error=JournalError,
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
        return cls.of(adapter.backend_name, adapter.traits.store, scope, adapter.native_scope(scope))

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


def digest_of(event: str) -> str:
    """Stands beside an event, so that one changed on the disk is not delivered or replayed."""
    return blake2b(event.encode(), digest_size=16).hexdigest()


def entry_of(row: tuple[Any, ...]) -> JournalEntry:
    seq, destination, event, digest, status, sent, attempts, error, receipt, recorded_at = row
    try:
        if digest_of(event) != digest:
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
