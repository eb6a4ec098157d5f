"""Resets of scopes, noted before they begin and after they end."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import anyio.to_thread

from memory.contract.adapter import AdapterTraits, MemoryAdapter, native_scope_of
from memory.contract.errors import JournalError
from memory.contract.scope import MemoryScope
from memory.storage.entries import OUTBOX, Lane
from memory.storage.store import Store, scope_key
from memory.storage.tables import Tables

JOURNAL = Tables(
    "journal",
    1,
    """
CREATE TABLE IF NOT EXISTS resets (
    destination TEXT NOT NULL,
    scope TEXT NOT NULL,
    begun_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (destination, scope)
);
""",
)
_MARKED = "kind = 'event' AND persona = ? AND scope = ? AND before_reset IS NOT NULL"
_UNMARK = f"UPDATE outbox SET before_reset = NULL WHERE {_MARKED}"
# Recorded again since, by the id it had.
_AGAIN = (
    "EXISTS (SELECT 1 FROM outbox AS later WHERE later.kind = 'event' AND later.scope = outbox.scope "
    "AND later.key = outbox.key AND later.destination = outbox.destination AND later.state != 'reset' "
    "AND later.seq > outbox.seq)"
)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """Where events go: those of a scope on their way to one destination."""

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
    def lane(self) -> Lane:
        """Its lane in the outbox."""
        return Lane(self.destination, scope_key(self.scope))


class Resets:
    """Resets that have begun, until their end is noted, so that no process shows or delivers what was erased.

    Args:
        store: where they are noted.
        past: whether the events that a reset erased stay on the disk.
    """

    def __init__(self, store: Store, *, past: bool = True) -> None:
        self._store = store.handle(OUTBOX, JOURNAL, error=JournalError)
        self._past = past
        self._begun: set[Lane] = set()

    def is_open(self, key: JournalKey) -> bool:
        """Whether a reset has begun whose end was not noted, by the last look at the store."""
        return key.lane in self._begun

    def count_open(self) -> int:
        """How many resets are open, as :meth:`is_open` says."""
        return len(self._begun)

    async def refresh(self, key: JournalKey) -> bool:
        """As :meth:`is_open`, asked anew."""
        if self._store.begun:
            where = "SELECT 1 FROM resets WHERE destination = ? AND scope = ?"
            found = await self._store.run(lambda db: db.execute(where, key.lane).fetchone(), writes=False)
            (self._begun.discard if found is None else self._begun.add)(key.lane)
        return self.is_open(key)

    async def begin(self, key: JournalKey) -> None:
        """A scope is about to be reset: earlier events are no longer delivered, found or replayed."""
        persona, (destination, scope) = key.scope.persona_id, key.lane

        def mark(db: Any) -> None:
            # By an earlier one; not this one's to give back.
            db.execute(_UNMARK, (persona, scope))
            db.execute(
                "INSERT INTO resets (destination, scope) VALUES (?, ?) ON CONFLICT DO NOTHING", key.lane
            )
            db.execute(
                "UPDATE outbox SET before_reset = state, erased = 1, "
                "state = CASE destination WHEN ? THEN 'reset' ELSE state END "
                "WHERE kind = 'event' AND persona = ? AND scope = ? AND erased = 0",
                (destination, persona, scope),
            )

        await self._store.run(mark)
        self._begun.add(key.lane)

    async def cancel(self, key: JournalKey) -> None:
        """The backend has certainly reset nothing: everything is as before."""
        persona, (destination, scope) = key.scope.persona_id, key.lane

        def mark(db: Any) -> None:
            db.execute(
                "UPDATE outbox SET before_reset = NULL, erased = 0, "
                "state = CASE destination WHEN ? THEN before_reset ELSE state END "
                f"WHERE {_MARKED} AND NOT {_AGAIN}",
                (destination, persona, scope),
            )
            db.execute("DELETE FROM resets WHERE destination = ? AND scope = ?", key.lane)

        await self._store.run(mark)
        self._begun.discard(key.lane)

    async def end(self, key: JournalKey) -> bool:
        """The scope was reset. Whether words of it are kept in the journal."""
        persona, scope = key.scope.persona_id, key.lane.scope

        erased = 0

        def mark(db: Any) -> bool:
            nonlocal erased
            if not self._past:
                gone = f"DELETE FROM outbox WHERE {_MARKED} AND state = 'reset'"
                erased = db.execute(gone, (persona, scope)).rowcount
            db.execute(_UNMARK, (persona, scope))
            db.execute("DELETE FROM resets WHERE destination = ? AND scope = ?", key.lane)
            words = (
                "SELECT 1 FROM outbox WHERE kind = 'event' AND persona = ? AND scope = ? "
                "AND state = 'reset' LIMIT 1"
            )
            return db.execute(words, (persona, scope)).fetchone() is not None

        kept = await self._store.run(mark)
        if erased:
            await anyio.to_thread.run_sync(self._store.fold)
        self._begun.discard(key.lane)
        return kept

    def close(self) -> None:
        """Give the store back. Idempotent."""
        self._store.close()
