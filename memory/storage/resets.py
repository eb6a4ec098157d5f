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
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (destination, scope)
);
""",
)
_NOTE = """
INSERT INTO resets (destination, scope, last_seq)
SELECT ?, ?, coalesce(max(seq), 0) FROM outbox WHERE kind = 'event' AND persona = ? AND scope = ?
ON CONFLICT (destination, scope) DO UPDATE SET last_seq = excluded.last_seq
"""
_ERASED = (
    "kind = 'event' AND persona = ? AND scope = ? AND erased = 0 "
    "AND seq <= (SELECT last_seq FROM resets WHERE destination = ? AND scope = ?)"
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
    """Resets that have begun and whose end is not noted. With ``past``, the erased events stay on the disk."""

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
        """Note that a reset begins, and the last event that it erases."""
        values = (*key.lane, key.scope.persona_id, key.lane.scope)
        await self._store.run(lambda db: db.execute(_NOTE, values))
        self._begun.add(key.lane)

    async def cancel(self, key: JournalKey) -> None:
        """Undo :meth:`begin`, because the backend has certainly reset nothing."""
        await self._store.run(lambda db: self._drop(db, key.lane))
        self._begun.discard(key.lane)

    async def end(self, key: JournalKey) -> bool:
        """Erase the events before the reset. Returns whether the journal still holds words of the scope."""
        persona, lane = key.scope.persona_id, key.lane

        def erase(db: Any) -> tuple[bool, int]:
            db.execute(
                "UPDATE outbox SET erased = 1, state = CASE destination WHEN ? THEN 'reset' ELSE state END "
                f"WHERE {_ERASED}",
                (lane.destination, persona, lane.scope, *lane),
            )
            self._drop(db, lane)
            words = "FROM outbox WHERE kind = 'event' AND persona = ? AND scope = ? AND state = 'reset'"
            if self._past:
                found = db.execute(f"SELECT 1 {words} LIMIT 1", (persona, lane.scope)).fetchone()
                return found is not None, 0
            return False, db.execute(f"DELETE {words}", (persona, lane.scope)).rowcount

        kept, removed = await self._store.run(erase)
        if removed:
            await anyio.to_thread.run_sync(self._store.fold)
        self._begun.discard(lane)
        return kept

    @staticmethod
    def _drop(db: Any, lane: Lane) -> None:
        db.execute("DELETE FROM resets WHERE destination = ? AND scope = ?", lane)

    def close(self) -> None:
        """Close the handle on the store. Idempotent."""
        self._store.close()
