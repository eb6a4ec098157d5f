"""The conditions' tables in the memory's store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio.to_thread
from pydantic import ValidationError

from memory import MemoryEvent, MemoryScope, Message
from memory.adapter import quantity
from memory.adapter.stores import Durability, Store, Tables, scope_key

TABLES = Tables(
    "conditions",
    1,
    """
CREATE TABLE IF NOT EXISTS condition_scopes (
    provider TEXT NOT NULL,
    scope TEXT NOT NULL,
    version TEXT NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    progress TEXT NOT NULL DEFAULT '{}',
    summary TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (provider, scope)
);
CREATE TABLE IF NOT EXISTS condition_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    scope TEXT NOT NULL,
    event_id TEXT NOT NULL,
    said_at INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    event TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS condition_event_ids ON condition_events (provider, scope, event_id);
CREATE INDEX IF NOT EXISTS condition_event_times ON condition_events (provider, scope, said_at, seq);
CREATE INDEX IF NOT EXISTS condition_event_order ON condition_events (provider, scope, seq);
CREATE TABLE IF NOT EXISTS condition_history (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    scope TEXT NOT NULL,
    entry TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS condition_history_order ON condition_history (provider, scope, seq);
""",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SCOPE = "provider = ? AND scope = ?"
_EVENTS = f"SELECT seq, said_at, event FROM condition_events WHERE {_SCOPE}"


@dataclass(frozen=True, slots=True)
class Row:
    """A stored event.

    Attributes:
        said_at: its timestamp, in microseconds since 1970.
        event: JSON text.
    """

    seq: int
    said_at: int
    event: str


@dataclass(frozen=True, slots=True)
class Saved:
    """The summary of a scope, and its progress.

    Attributes:
        version: differs after each change of the summary and after each reset; empty without any event.
        progress: JSON text of the summariser's progress.
    """

    version: str
    progress: str
    summary: str


class ScopeTables:
    """The rows of one condition.

    Args:
        store: the memory's store, on which a separate handle is opened.
        provider: name of the condition.
        durability: what an acknowledged write survives.

    Attributes:
        store: the handle.

    Every method raises StoreError if the store cannot be used.
    """

    def __init__(self, store: Store, provider: str, durability: Durability) -> None:
        self.store = store.handle(TABLES, lost="the event was not kept", durability=durability)
        self._provider = provider

    async def check(self) -> None:
        """Check that the store can be used."""
        await self.store.run(lambda db: db.execute("SELECT 1 FROM condition_scopes LIMIT 1").fetchone())

    async def add(self, event: MemoryEvent) -> tuple[int, bool]:
        """Store an event unless its id is known.

        Returns the number of messages stored under its id, and whether it is new.
        """
        key, messages = self._key(event.scope), len(event.messages)
        said_at = (event.timestamp - _EPOCH) // _MICROSECOND

        def add(db: Any) -> tuple[int, bool]:
            # This row comes first: a server then serialises the writers of a scope, so ``seq`` follows arrival.
            db.execute(
                "INSERT INTO condition_scopes (provider, scope, version, messages) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (provider, scope) "
                "DO UPDATE SET messages = condition_scopes.messages + excluded.messages",
                (*key, uuid4().hex, messages),
            )
            new = db.execute(
                "INSERT INTO condition_events (provider, scope, event_id, said_at, messages, event) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*key, event.event_id, said_at, messages, event.model_dump_json()),
            ).rowcount
            if new:
                return messages, True
            db.execute(
                f"UPDATE condition_scopes SET messages = messages - ? WHERE {_SCOPE}", (messages, *key)
            )
            select = f"SELECT messages FROM condition_events WHERE {_SCOPE} AND event_id = ?"
            return int(db.execute(select, (*key, event.event_id)).fetchone()[0]), False

        return await self.store.run(add)

    async def messages_of(self, event: MemoryEvent) -> int | None:
        """The number of messages stored by an event's id, or None if the id is unknown."""
        statement = f"SELECT messages FROM condition_events WHERE {_SCOPE} AND event_id = ?"
        rows = await self._all(statement, (*self._key(event.scope), event.event_id))
        return int(rows[0][0]) if rows else None

    async def count(self, scope: MemoryScope | None = None) -> int:
        """The number of stored messages of a scope, or of all scopes."""
        where, values = ("provider = ?", (self._provider,)) if scope is None else (_SCOPE, self._key(scope))
        rows = await self._all(f"SELECT sum(messages) FROM condition_scopes WHERE {where}", values)
        return int(rows[0][0] or 0) if rows else 0

    async def before(self, scope: MemoryScope, last: Row | None, limit: int) -> list[Row]:
        """Events older than ``last``, newest first.

        Events of the same time are in reverse order of arrival.
        """
        further = "" if last is None else "AND (said_at, seq) < (?, ?)"
        after = () if last is None else (last.said_at, last.seq)
        statement = f"{_EVENTS} {further} ORDER BY said_at DESC, seq DESC LIMIT ?"
        return [Row(*row) for row in await self._all(statement, (*self._key(scope), *after, limit))]

    async def saved(self, scope: MemoryScope) -> Saved:
        """The summary of a scope."""
        statement = f"SELECT version, progress, summary FROM condition_scopes WHERE {_SCOPE}"
        rows = await self._all(statement, self._key(scope))
        return Saved(*(rows[0] if rows else ("", "{}", "")))

    async def after(self, scope: MemoryScope, seq: int) -> list[Row]:
        """The events that arrived after the row ``seq``, in order of arrival."""
        rows = await self._all(f"{_EVENTS} AND seq > ? ORDER BY seq", (*self._key(scope), seq))
        return [Row(*row) for row in rows]

    async def named(self, scope: MemoryScope, event_ids: Sequence[str]) -> list[Row]:
        """The events with these ids, in order of arrival."""
        among = ", ".join("?" for _ in event_ids)
        statement = f"{_EVENTS} AND event_id IN ({among}) ORDER BY seq"
        rows = await self._all(statement, (*self._key(scope), *event_ids)) if event_ids else []
        return [Row(*row) for row in rows]

    async def history(self, scope: MemoryScope) -> list[str]:
        """The history of a scope, oldest first."""
        statement = f"SELECT entry FROM condition_history WHERE {_SCOPE} ORDER BY seq"
        return [row[0] for row in await self._all(statement, self._key(scope))]

    async def save(self, scope: MemoryScope, saved: Saved, entry: str) -> bool:
        """Store a summary and its history entry if the scope still has ``saved.version``.

        Returns whether it had.
        """
        key = self._key(scope)

        def save(db: Any) -> bool:
            changed = db.execute(
                "UPDATE condition_scopes SET version = ?, progress = ?, summary = ? "
                f"WHERE {_SCOPE} AND version = ?",
                (uuid4().hex, saved.progress, saved.summary, *key, saved.version),
            )
            if not changed.rowcount:
                return False
            db.execute(
                "INSERT INTO condition_history (provider, scope, entry) VALUES (?, ?, ?)", (*key, entry)
            )
            return True

        return await self.store.run(save)

    async def clear(self, scope: MemoryScope) -> int:
        """Delete everything in a scope. Returns the number of its events."""
        key = self._key(scope)

        def clear(db: Any) -> int:
            db.execute(f"DELETE FROM condition_scopes WHERE {_SCOPE}", key)
            db.execute(f"DELETE FROM condition_history WHERE {_SCOPE}", key)
            return int(db.execute(f"DELETE FROM condition_events WHERE {_SCOPE}", key).rowcount)

        if not self.store.begun:
            return 0
        removed = await self.store.run(clear)
        await anyio.to_thread.run_sync(self.store.fold)
        return removed

    async def _all(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """The rows of an answer. Creates no file."""
        if not self.store.begun:
            return []
        return await self.store.run(lambda db: db.execute(statement, values).fetchall(), writes=False)

    def _key(self, scope: MemoryScope) -> tuple[str, str]:
        return self._provider, scope_key(scope)


def event_in(row: Row, scope: MemoryScope) -> MemoryEvent | None:
    """The event of a row, or None if the row is damaged."""
    try:
        event = MemoryEvent.model_validate_json(row.event)
    except ValidationError:
        return None
    return event if event.scope == scope else None


def fields_of(event: MemoryEvent) -> dict[str, Any]:
    """The fields of an event as JSON values, without its scope and messages."""
    return event.model_dump(mode="json", exclude={"messages", "scope"}, exclude_none=True)


def unreadable(rows: Sequence[int]) -> list[str]:
    """A warning for health and traces about rows that cannot be read."""
    if not rows:
        return []
    numbers = ", ".join(str(number) for number in rows[:5]) + (", ..." if len(rows) > 5 else "")
    what = f"unreadable and left out: {quantity(len(rows), 'rows')} of condition_events ({numbers})"
    return [f"{what}; restore the store from a copy, or reset the scope"]


def said(message: Message) -> str:
    """A message's text, followed by its tool calls, if any, as JSON."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    return "\n".join(part for part in (message.content, calls) if part.strip())
