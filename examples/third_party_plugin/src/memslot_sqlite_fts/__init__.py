"""An SQLite FTS5 memory for memslot: every message is a row, SQLite does the searching and the ranking.

Copy it to write a backend of your own. What is here is translation only: scopes into ids, events into rows,
requests into a query, rows into entries. Modes, deadlines, budgets, traces and the context section are the
slot's work and appear nowhere.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from memory import (
    BackendError,
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BaseAdapter,
    ContextEntry,
    DataPath,
    IdAlphabet,
    NativeWorker,
    PluginInfo,
    PluginOptions,
    ScopeEncoder,
    hookimpl,
)

T = TypeVar("T")

COLUMNS = (
    "scope", "event_id", "position", "session_id", "turn_id", "agent_id", "said_at", "role", "text",
    "scenario", "context", "attribute", "metadata",
)  # fmt: skip
SCHEMA = f"""
CREATE TABLE message (
    id INTEGER PRIMARY KEY, {", ".join(COLUMNS)}, UNIQUE (scope, event_id, position)
);
CREATE VIRTUAL TABLE word USING fts5(text, tokenize = '{{tokenizer}}');
"""
INSERT = f"INSERT INTO message ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)})"
IDS = "SELECT id FROM message WHERE scope = :scope AND event_id = :event_id ORDER BY position"
SEARCH = """
SELECT message.*, -bm25(word) AS score FROM word JOIN message ON message.id = word.rowid
WHERE word MATCH :words AND message.scope = :scope {filters} ORDER BY bm25(word), message.id LIMIT :most
"""
METADATA_EQUALS = """
AND EXISTS (SELECT 1 FROM json_each(message.metadata)
            WHERE key = :key{n} AND value = :value{n} AND (type IN ('true', 'false')) = :bool{n})
"""
# FTS5 takes a run of Chinese, Japanese or Korean for one word; here each sign is one.
SIGN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+")


class SqliteFtsOptions(PluginOptions):
    """The block ``memory.backends.sqlite_fts``. These docstrings become the comments of ``memslot setup``."""

    path: DataPath | None = None
    """The database file. None: ``sqlite_fts.db`` in ``memory.data_dir``."""
    tokenizer: Literal["porter unicode61", "unicode61"] = "porter unicode61"
    """FTS5's tokenizer; ``porter`` lets English words match whatever their ending."""
    top_k: int = Field(default=20, gt=0)
    """How many messages a search returns where the request sets no ``max_items``."""
    lock_timeout_s: float = Field(default=5.0, ge=0)
    """How long to wait while another process writes, seconds."""


class SqliteFts(BaseAdapter):
    """One connection, on a thread of its own: sqlite3 blocks, and an event loop must not."""

    traits = AdapterTraits(
        pet_observability="dated",
        consistency="immediate",
        cs_filtering="hard",
        filter_operators=frozenset({"eq"}),
        native_query_modes=("bm25",),
        write_retries=1,  # safe: an event that is already there is not written again
    )

    def __init__(self, name: str, options: SqliteFtsOptions, data_dir: Path) -> None:
        self.backend_name = name
        self._options = options
        self.path = options.path or data_dir / f"{name}.db"
        self.worker: NativeWorker = NativeWorker(name=f"memslot-{name}")
        self._scopes = ScopeEncoder(IdAlphabet())
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None

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
            **event.model_dump(include=set(COLUMNS) - {"scope"}),
            "said_at": event.timestamp.isoformat(),
            "metadata": json.dumps(event.metadata, ensure_ascii=False),
        }
        known = connection.execute(IDS, row).fetchall()
        for position, message in enumerate(() if known else event.messages):
            text = message.content or json.dumps(message.tool_calls, ensure_ascii=False)
            added = connection.execute(
                INSERT, {**row, "position": position, "role": message.name or message.role, "text": text}
            )
            words = " ".join(WORD.findall(text))
            connection.execute("INSERT INTO word (rowid, text) VALUES (?, ?)", (added.lastrowid, words))
        warnings = ["this event_id was recorded before; the first version is kept"] if known else []
        ids = [str(found["id"]) for found in connection.execute(IDS, row)]
        return self.receipt(event, "INSERT", ids, warnings=warnings)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """The messages that share words with the query, best bm25 first."""
        query, values = self._translated(request)
        rows: list[dict[str, Any]] = []
        if values["words"]:
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

    def _translated(self, request: RetrieveRequest) -> tuple[str, dict[str, Any]]:
        """The request as SQL and its parameters; nothing of the request becomes part of the SQL text."""
        values: dict[str, Any] = {
            **self.native_scope(request.scope),
            "words": " OR ".join(f'"{word}"' for word in dict.fromkeys(WORD.findall(request.query))),
            "most": request.budget.max_items or self._options.top_k,
        }
        filters = ""
        for n, (key, clauses) in enumerate(request.where.items()):
            value = values[f"value{n}"] = clauses["eq"]
            if key in ("scenario", "context", "attribute"):
                filters += f"AND message.{key} = :value{n} "
            else:
                filters += METADATA_EQUALS.format(n=n)
                values |= {f"key{n}": key, f"bool{n}": isinstance(value, bool)}
        return SEARCH.format(filters=filters), values

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Delete the scope's rows, then count them again. What is deleted is overwritten, in the index as well."""
        native = self.native_scope(scope)

        def delete(connection: sqlite3.Connection) -> tuple[int, int]:
            of_scope = "FROM message WHERE scope = :scope"
            connection.execute(f"DELETE FROM word WHERE rowid IN (SELECT id {of_scope})", native)
            connection.execute("INSERT INTO word (word) VALUES ('optimize')")
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
        details = {"messages": count, "tokenizer": self._options.tokenizer}
        return self.health_of(versions={"sqlite": sqlite3.sqlite_version}, details=details)

    def close_native(self) -> None:
        """Close the file, on the thread that opened it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._file = None

    async def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """``call`` with the connection, on the worker, in one transaction: committed, or undone if it fails."""

        def transaction() -> T:
            self._refuse_damage()
            try:
                if self._connection is None:
                    self._connection = self._open()
                    self._file = self.path.stat()
                with self._connection:
                    return call(self._connection)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorname.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                    raise self._damaged("is damaged, or no database") from error
                raise

        return await self.worker.run(transaction)

    def _refuse_damage(self) -> None:
        """SQLite takes an emptied file for a new one, and goes on writing to one that was removed."""
        there = self.path.stat() if self.path.exists() else None
        if there is not None and not there.st_size:
            raise self._damaged("was emptied")
        if self._file is not None and (there is None or not os.path.samestat(there, self._file)):
            raise self._damaged("was removed or replaced while it was open")

    def _damaged(self, what: str) -> BackendError:
        fix = "restore it, or remove it and start again with an empty memory"
        return BackendError(f"{self.path.name} {what}; {fix}", sent=False)

    def _open(self) -> sqlite3.Connection:
        if not self.path.exists():
            self._make()
        connection = sqlite3.connect(self.path, timeout=self._options.lock_timeout_s)
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("SELECT id FROM message LIMIT 1")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _make(self) -> None:
        """Make the file, which gets its name once it is complete: another process may make it at the same time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as directory:
            fresh = Path(directory, self.path.name)
            with closing(sqlite3.connect(fresh)) as connection:
                connection.executescript(SCHEMA.format(tokenizer=self._options.tokenizer))
            with suppress(FileExistsError):
                os.link(fresh, self.path)


def _entry(row: Mapping[str, Any]) -> ContextEntry:
    return ContextEntry(
        row["text"],
        native_id=str(row["id"]),
        score=row["score"],
        timestamp=datetime.fromisoformat(row["said_at"]),
        labels=(("role", row["role"]),),
        event_ids=(row["event_id"],),
        session_id=row["session_id"],
        scope_ids={"scope": row["scope"]},  # the slot refuses a row of another scope
    )


@hookimpl
def memslot_describe() -> PluginInfo:
    """What ``memslot doctor`` shows. A plugin with an SDK names it in ``sdk_modules`` and ``install``."""
    return PluginInfo(
        name="sqlite_fts",
        kind="architecture",
        pet_observability="dated",
        summary="every message in one SQLite file, found by words (FTS5, bm25)",
        capabilities=frozenset({"bulk_ingest"}),
        options=SqliteFtsOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[SqliteFtsOptions]) -> SqliteFts:
    """Build the adapter. A plugin with an SDK imports it here and nowhere earlier."""
    return SqliteFts(settings.name, settings.options, settings.data_dir)
