"""The conditions' tables in the memory's store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from sys import intern
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
    version TEXT NOT NULL DEFAULT '',
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


@dataclass(frozen=True, slots=True)
class Row:
    """A stored event.

    Attributes:
        said_at: its timestamp, in microseconds since 1970.
        event: JSON text.
    """

    seq: int
    said_at: int
    messages: int
    event: str


@dataclass(frozen=True, slots=True)
class Saved:
    """The summary of a scope, and its progress.

    Attributes:
        version: differs after each change, by any process.
        progress: JSON text of the summariser's progress.
    """

    version: str
    progress: str
    summary: str
    history: list[str]


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
        return await self.store.run(partial(self._add, event=event))

    async def add_if(self, version: str, event: MemoryEvent) -> str | None:
        """Store an event if the scope has this version. Returns the new version, else None."""

        def add(db: Any) -> str | None:
            changed = self._change(db, event.scope, version)
            if changed is not None:
                self._add(db, event)
            return changed

        return await self.store.run(add)

    async def messages_of(self, event: MemoryEvent) -> int | None:
        """The number of messages stored by an event's id, or None if the id is unknown."""
        statement = f"SELECT messages FROM condition_events WHERE {_SCOPE} AND event_id = ?"
        values = (*self._key(event.scope), event.event_id)
        row = await self._first(statement, values)
        return None if row is None else int(row[0])

    async def count(self, scope: MemoryScope | None = None) -> int:
        """The number of stored messages of a scope, or of all scopes."""
        where, values = ("provider = ?", (self._provider,)) if scope is None else (_SCOPE, self._key(scope))
        row = await self._first(f"SELECT sum(messages) FROM condition_scopes WHERE {where}", values)
        return int(row[0] or 0) if row else 0

    async def before(self, scope: MemoryScope, last: Row | None, limit: int) -> list[Row]:
        """Events older than ``last``, newest first.

        Events of the same time are in reverse order of arrival.
        """
        further = "" if last is None else "AND (said_at, seq) < (?, ?)"
        after = () if last is None else (last.said_at, last.seq)
        statement = (
            f"SELECT seq, said_at, messages, event FROM condition_events WHERE {_SCOPE} {further} "
            "ORDER BY said_at DESC, seq DESC LIMIT ?"
        )
        if not self.store.begun:
            return []
        rows = await self.store.run(
            lambda db: db.execute(statement, (*self._key(scope), *after, limit)).fetchall(), writes=False
        )
        return [Row(*row) for row in rows]

    async def version(self, scope: MemoryScope) -> str:
        """The version of a scope; empty if the scope has no rows."""
        row = await self._first(f"SELECT version FROM condition_scopes WHERE {_SCOPE}", self._key(scope))
        return row[0] if row else ""

    async def load(self, scope: MemoryScope) -> tuple[Saved, list[tuple[Row, MemoryEvent | None]]]:
        """Everything in a scope: its summary, and its rows in order of arrival with their events.

        An unreadable row has None instead of an event.
        """
        key = self._key(scope)

        def load(db: Any) -> tuple[Saved, list[Row]]:
            select = f"SELECT version, progress, summary FROM condition_scopes WHERE {_SCOPE}"
            version, progress, summary = db.execute(select, key).fetchone() or ("", "{}", "")
            select = f"SELECT entry FROM condition_history WHERE {_SCOPE} ORDER BY seq"
            history = [row[0] for row in db.execute(select, key).fetchall()]
            select = f"SELECT seq, said_at, messages, event FROM condition_events WHERE {_SCOPE} ORDER BY seq"
            rows = [Row(*row) for row in db.execute(select, key).fetchall()]
            return Saved(version, progress, summary, history), rows

        def read() -> tuple[Saved, list[tuple[Row, MemoryEvent | None]]]:
            saved, rows = self.store.call(load)  # one transaction, so that all is of one version
            # Parse outside the transaction, because a long history takes seconds and a call has only a few.
            return saved, [(row, event_in(row, scope)) for row in rows]

        return await anyio.to_thread.run_sync(read)

    async def save(self, scope: MemoryScope, saved: Saved) -> str | None:
        """Store progress, summary and further history if the scope has ``saved.version``.

        Returns:
            The new version, or None if the scope has another.
        """
        key = self._key(scope)

        def save(db: Any) -> str | None:
            if (version := self._change(db, scope, saved.version)) is not None:
                assign = f"UPDATE condition_scopes SET progress = ?, summary = ? WHERE {_SCOPE}"
                db.execute(assign, (saved.progress, saved.summary, *key))
                for entry in saved.history:
                    insert = "INSERT INTO condition_history (provider, scope, entry) VALUES (?, ?, ?)"
                    db.execute(insert, (*key, entry))
            return version

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

    def _add(self, db: Any, event: MemoryEvent) -> tuple[int, bool]:
        key, messages = self._key(event.scope), len(event.messages)
        # This row comes first: a server then serialises the writers of a scope, so ``seq`` follows arrival.
        db.execute(
            "INSERT INTO condition_scopes (provider, scope, messages) VALUES (?, ?, ?) ON CONFLICT "
            "(provider, scope) DO UPDATE SET messages = condition_scopes.messages + excluded.messages",
            (*key, messages),
        )
        said_at = (event.timestamp - _EPOCH) // _MICROSECOND
        new = db.execute(
            "INSERT INTO condition_events (provider, scope, event_id, said_at, messages, event) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*key, event.event_id, said_at, messages, event.model_dump_json()),
        ).rowcount
        if new:
            return messages, True
        db.execute(f"UPDATE condition_scopes SET messages = messages - ? WHERE {_SCOPE}", (messages, *key))
        select = f"SELECT messages FROM condition_events WHERE {_SCOPE} AND event_id = ?"
        return int(db.execute(select, (*key, event.event_id)).fetchone()[0]), False

    def _change(self, db: Any, scope: MemoryScope, version: str) -> str | None:
        """Give a scope a new version and return it, or None if the scope's version is not ``version``."""
        key, changed = self._key(scope), uuid4().hex
        if not version:
            db.execute(
                "INSERT INTO condition_scopes (provider, scope) VALUES (?, ?) ON CONFLICT DO NOTHING", key
            )
        update = f"UPDATE condition_scopes SET version = ? WHERE {_SCOPE} AND version = ?"
        return changed if db.execute(update, (changed, *key, version)).rowcount else None

    async def _first(self, statement: str, values: Sequence[Any]) -> Any:
        """The first row of an answer, or None. Creates no file."""
        if not self.store.begun:
            return None
        return await self.store.run(lambda db: db.execute(statement, values).fetchone(), writes=False)

    def _key(self, scope: MemoryScope) -> tuple[str, str]:
        return self._provider, scope_key(scope)


def event_in(row: Row, scope: MemoryScope) -> MemoryEvent | None:
    """The event of a row, or None if the row is damaged."""
    try:
        event = MemoryEvent.model_validate_json(row.event)
    except ValidationError:
        return None
    return event if event.scope == scope else None


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


@dataclass(frozen=True, slots=True)
class Known:
    """A compact form of an event, without its scope and texts."""

    event_id: str
    session_id: str
    turn_id: str
    agent_id: str
    timestamp: datetime
    cs_fields: dict[str, str] | None
    metadata: dict[str, Any] | None

    @classmethod
    def of(cls, event: MemoryEvent) -> Known:
        return cls(
            event.event_id,
            intern(str(event.session_id)),
            event.turn_id,
            intern(str(event.agent_id)),
            event.timestamp,
            event.cs_fields or None,
            event.metadata or None,
        )

    def raw(self) -> dict[str, Any]:
        return {
            "event_id": self.event_id,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "agent_id": self.agent_id,
            "timestamp": self.timestamp.isoformat(),
            **(self.cs_fields or {}),
            **({"metadata": self.metadata} if self.metadata else {}),
        }
