"""Notes of scopes' resets, made before they begin and after they end."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import anyio.to_thread

from memory.contract.adapter import MemoryAdapter, native_scope_of
from memory.contract.errors import JournalError
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits
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
# The event was recorded again since, under the same id.
_AGAIN = (
    "EXISTS (SELECT 1 FROM outbox AS later WHERE later.kind = 'event' AND later.scope = outbox.scope "
    "AND later.key = outbox.key AND later.destination = outbox.destination AND later.state != 'reset' "
    "AND later.seq > outbox.seq)"
)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """The events' destination and scope."""

    destination: str  # the backend's name, with a hash of its store and of the scope's native ids
    scope: MemoryScope

    @classmethod
    def of(cls, backend: str, store: str, scope: MemoryScope, native: object) -> JournalKey:
        """The key for a backend; ``store`` distinguishes its store from others, such as by an address."""
        text = repr((store, sorted(dict(native).items())))  # type: ignore[call-overload]
        return cls(f"{backend}:{blake2b(text.encode(), digest_size=6).hexdigest()}", scope)

    @classmethod
    def of_adapter(cls, adapter: MemoryAdapter, scope: MemoryScope) -> JournalKey:
        """The key for an adapter or a slot. Raises ScopeError if the adapter cannot represent the scope."""
        store = AdapterTraits.of(adapter).store
        return cls.of(adapter.backend_name, store, scope, native_scope_of(adapter, scope))

    @property
    def lane(self) -> Lane:
        """The lane in the outbox."""
        return Lane(self.destination, scope_key(self.scope))


class Resets:
    """Resets that have begun and whose end is not noted, so that no process shows or delivers erased events.

    Args:
        store: holds the notes.
        past: whether the events that a reset erased stay on the disk.
    """

    def __init__(self, store: Store, *, past: bool = True) -> None:
        self._store = store.handle(OUTBOX, JOURNAL, error=JournalError)
        self._past = past
        self._begun: set[Lane] = set()

    def is_open(self, key: JournalKey) -> bool:
        """Whether a reset has begun without a noted end, as of the last look at the store."""
        return key.lane in self._begun

    def count_open(self) -> int:
        """How many resets are open, as of the last look at the store."""
        return len(self._begun)

    async def refresh(self, key: JournalKey) -> bool:
        """As :meth:`is_open`, after a new look at the store."""
        if self._store.begun:
            where = "SELECT 1 FROM resets WHERE destination = ? AND scope = ?"
            found = await self._store.run(lambda db: db.execute(where, key.lane).fetchone(), writes=False)
            (self._begun.discard if found is None else self._begun.add)(key.lane)
        return self.is_open(key)

    async def begin(self, key: JournalKey) -> None:
        """Note that a reset begins: earlier events are no longer delivered, found or replayed."""
        persona, (destination, scope) = key.scope.persona_id, key.lane

        def mark(db: Any) -> None:
            # Marks of an earlier reset: cancelling this one must not restore those events.
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
        """Undo :meth:`begin`, because the backend has certainly reset nothing."""
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
        """Note that a reset has ended. Returns whether the journal still holds words of the scope."""
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
        """Close the handle on the store. Idempotent."""
        self._store.close()
