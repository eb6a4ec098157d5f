"""An SQLite FTS5 memory for memslot: every message is a row, SQLite does the searching and the ranking.

Copy it to write a backend of your own. What is here is translation only: scopes into ids, events into rows,
requests into a query, rows into entries. Modes, deadlines, budgets, traces and the context section are the
slot's work and appear nowhere.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from memory import (
    AdapterSettings,
    AdapterTraits,
    BackendHealth,
    BaseAdapter,
    ContextEntry,
    IdAlphabet,
    MemoryEvent,
    MemoryScope,
    NativeWorker,
    PluginInfo,
    PluginOptions,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    ScopeEncoder,
    WriteReceipt,
    hookimpl,
)

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY, scope TEXT NOT NULL, event_id TEXT NOT NULL, position INTEGER NOT NULL,
    session_id TEXT NOT NULL, said_at TEXT NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL,
    scenario TEXT, context TEXT, attribute TEXT, metadata TEXT NOT NULL,
    UNIQUE (scope, event_id, position)
);
CREATE VIRTUAL TABLE IF NOT EXISTS word USING fts5(text, tokenize = '{tokenizer}');
"""
INSERT = """
INSERT INTO message
    (scope, event_id, position, session_id, said_at, role, text, scenario, context, attribute, metadata)
VALUES
    (:scope, :event_id, :position, :session_id, :said_at, :role, :text, :scenario, :context, :attribute, :metadata)
"""
IDS = "SELECT id FROM message WHERE scope = :scope AND event_id = :event_id ORDER BY position"
SEARCH = """
SELECT message.*, -bm25(word) AS score FROM word JOIN message ON message.id = word.rowid
WHERE {where} ORDER BY bm25(word), message.id LIMIT :most
"""
METADATA_EQUALS = """
EXISTS (SELECT 1 FROM json_each(message.metadata)
        WHERE key = :key{n} AND value = :value{n} AND (type IN ('true', 'false')) = :bool{n})
"""


class SqliteFtsOptions(PluginOptions):
    """The block ``memory.backends.sqlite_fts``. These docstrings become the comments of ``memslot init``."""

    path: Path | None = None
    """The database file. None: ``sqlite_fts.db`` in ``memory.data_dir``."""
    tokenizer: Literal["porter unicode61", "unicode61", "trigram"] = "porter unicode61"
    """How FTS5 splits text. ``trigram`` finds parts of words, and Chinese from three characters on."""
    top_k: int = Field(default=20, gt=0)
    """How many messages a search returns where the request sets no ``max_items``."""


class SqliteFts(BaseAdapter):
    """One connection, on a thread of its own: sqlite3 blocks, and an event loop must not."""

    traits = AdapterTraits(
        consistency="immediate",
        cs_filtering="hard",
        filter_operators=frozenset({"eq"}),
        write_retries=2,  # safe: an event that is already there is not written again
    )

    def __init__(self, name: str, options: SqliteFtsOptions, data_dir: Path) -> None:
        self.backend_name = name
        self._options = options
        self._path = options.path or data_dir / f"{name}.db"
        self._worker = NativeWorker(name=f"memslot-{name}")
        self._scopes = ScopeEncoder(IdAlphabet())
        self._connection: sqlite3.Connection | None = None

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The scope as one column."""
        return {"scope": self._scopes.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Open the database, so that what is wrong with it shows before the first turn."""
        await self._run(lambda _: None)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """One row for each message."""
        return (await self.record_events([event]))[0]

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """All events in one transaction: all are there or none. This method alone makes ``bulk_ingest``."""

        def write(connection: sqlite3.Connection) -> list[WriteReceipt]:
            return [self._write(connection, event) for event in events]

        return await self._run(write)

    def _write(self, connection: sqlite3.Connection, event: MemoryEvent) -> WriteReceipt:
        row = {
            **self.native_scope(event.scope),
            "event_id": event.event_id,
            "session_id": event.session_id,
            "said_at": event.timestamp.isoformat(),
            "scenario": event.scenario,
            "context": event.context,
            "attribute": event.attribute,
            "metadata": json.dumps(event.metadata, ensure_ascii=False),
        }
        known = connection.execute(IDS, row).fetchall()
        for position, message in enumerate(() if known else event.messages):
            text = message.content or json.dumps(message.tool_calls, ensure_ascii=False)
            added = connection.execute(
                INSERT, {**row, "position": position, "role": message.name or message.role, "text": text}
            )
            connection.execute("INSERT INTO word (rowid, text) VALUES (?, ?)", (added.lastrowid, text))
        return WriteReceipt(
            event_id=event.event_id,
            status="committed",
            native_ids=tuple(str(found["id"]) for found in connection.execute(IDS, row)),
            warnings=("this event_id was recorded before; the first version is kept",) if known else (),
            trace=self.trace(event.scope, "INSERT"),
        )

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """The messages that share words with the query, best bm25 first."""
        where, values = self._where(request)
        rows: list[dict[str, Any]] = []
        if values["words"]:
            query = SEARCH.format(where=" AND ".join(where))
            rows = await self._run(
                lambda connection: [dict(row) for row in connection.execute(query, values)]
            )
        return RetrieveResult(
            request=request,
            raw=rows,
            entries=tuple(_entry(row) for row in rows),
            trace=self.trace(
                request.scope,
                "SELECT ... MATCH",
                native_ids=tuple(str(row["id"]) for row in rows),
                consistency="committed",
            ),
        )

    def _where(self, request: RetrieveRequest) -> tuple[list[str], dict[str, Any]]:
        """The request as conditions and their values; nothing of it becomes part of the SQL text."""
        where = ["word MATCH :words", "message.scope = :scope"]
        values: dict[str, Any] = {
            "words": " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", request.query))),
            **self.native_scope(request.scope),
            "most": request.budget.max_items or self._options.top_k,
        }
        for name in request.cs_filters:
            where.append(f"message.{name} = :{name}")
        values |= request.cs_filters
        for n, (key, condition) in enumerate(request.metadata_filters.items()):
            value = condition["eq"] if isinstance(condition, dict) else condition
            where.append(METADATA_EQUALS.format(n=n))
            values |= {f"key{n}": key, f"value{n}": value, f"bool{n}": isinstance(value, bool)}
        return where, values

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Delete the scope's rows, then count them again."""
        native = self.native_scope(scope)

        def delete(connection: sqlite3.Connection) -> tuple[int, int]:
            of_scope = "FROM message WHERE scope = :scope"
            connection.execute(f"DELETE FROM word WHERE rowid IN (SELECT id {of_scope})", native)
            removed = connection.execute(f"DELETE {of_scope}", native).rowcount
            return removed, connection.execute(f"SELECT count(*) {of_scope}", native).fetchone()[0]

        removed, left = await self._run(delete)
        return ResetReceipt(
            scope=scope, verified=left == 0, removed=removed, trace=self.trace(scope, "DELETE")
        )

    async def health(self) -> BackendHealth:
        """``ok`` if the database answers. If it cannot be opened the slot says ``unavailable`` and why."""
        count = await self._run(
            lambda connection: connection.execute("SELECT count(*) FROM message").fetchone()[0]
        )
        return BackendHealth(
            status="ok",
            backend_name=self.backend_name,
            consistency_model="immediate",
            cs_filtering="hard",
            native_query_modes=("bm25",),
            versions={"sqlite": sqlite3.sqlite_version},
            details={"messages": count, "tokenizer": self._options.tokenizer},
        )

    async def aclose(self) -> None:
        """Close the file on the thread that opened it, then end the thread."""
        if self._connection is not None:
            await self._worker.run(self._close)
        await self._worker.aclose()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """``call`` with the connection, on the worker, in one transaction: committed, or undone if it fails."""

        def transaction() -> T:
            if self._connection is None:
                self._connection = self._open()
            with self._connection:
                return call(self._connection)

        return await self._worker.run(transaction)

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=5.0)
        connection.row_factory = sqlite3.Row
        try:
            connection.executescript(SCHEMA.format(tokenizer=self._options.tokenizer))
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _entry(row: Mapping[str, Any]) -> ContextEntry:
    return ContextEntry(
        f"{row['role']}: {row['text']}",
        native_id=str(row["id"]),
        score=row["score"],
        timestamp=datetime.fromisoformat(row["said_at"]),
        event_ids=(row["event_id"],),
        scope_ids={"scope": row["scope"]},  # the slot refuses a row of another scope
    )


@hookimpl
def memslot_describe() -> PluginInfo:
    """What ``memslot backends`` shows. A plugin with an SDK names it in ``sdk_modules`` and ``install``."""
    return PluginInfo(
        name="sqlite_fts",
        kind="architecture",
        summary="every message in one SQLite file, found by words (FTS5, bm25)",
        capabilities=frozenset({"bulk_ingest"}),
        options=SqliteFtsOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[SqliteFtsOptions]) -> SqliteFts:
    """Build the adapter. A plugin with an SDK imports it here and nowhere earlier."""
    return SqliteFts(settings.name, settings.options, settings.data_dir)
