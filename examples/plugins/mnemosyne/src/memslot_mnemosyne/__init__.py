"""Mnemosyne behind memslot's slot: a bank (an SQLite file) for each scope, a row for each message."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from memory import (
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    NativeMutationReceipt,
    NativeMutationRequest,
    NativeQueryRequest,
    NativeQueryResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BackendRejected,
    ContextEntry,
    DataPath,
    IdAlphabet,
    NativeWorker,
    Operation,
    PluginInfo,
    PluginOptions,
    ScopeEncoder,
    SequentialBulk,
    hookimpl,
)
from memory.adapter.sdk import environment_kept, quiet_loggers
from memory.adapter.stores import remove_directory

if TYPE_CHECKING:
    from mnemosyne.core.beam import BeamMemory

T = TypeVar("T")
ROWS = "SELECT id, content, metadata_json FROM working_memory"
OF_EVENT = f"{ROWS} WHERE json_extract(metadata_json, '$.event_id') = ? ORDER BY rowid"


class Options(PluginOptions):
    """The block ``memory.backends.mnemosyne``."""

    directory: DataPath | None = None
    """Where the banks lie. None: ``mnemosyne`` in ``memory.data_dir``."""
    top_k: int = Field(default=20, gt=0)
    """How many memories a recall returns where the request sets no ``max_items``."""


class Mnemosyne(SequentialBulk):
    """Banks, opened when first used and kept open, on one thread: the library keeps connections by thread."""

    traits = AdapterTraits(
        consistency="immediate",
        cs_filtering="none",
        pet_observability="dated",
        bulk_size=1,
        write_retries=1,  # find_event tells whether a write arrived
        native_queries={"list": Operation()},
        native_mutations={
            "update": Operation(required={"text": str}, native_id=True),
            "delete": Operation(native_id=True),
        },
    )

    def __init__(self, name: str, options: Options, data_dir: Path) -> None:
        self.backend_name = name
        self.directory = options.directory or data_dir / name
        self.worker: NativeWorker = NativeWorker(name=f"memslot-{name}")
        self.before_call: Callable[[], None] = lambda: None
        """Called before every native call, on its thread; tests make it fail."""
        self._top_k = options.top_k
        self._ids = ScopeEncoder(IdAlphabet(safe="-", escape="_", max_length=120))
        self._open: dict[str, BeamMemory] = {}

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"bank": self._ids.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Open the bank, so that what is wrong with it shows before the first turn."""
        await self._run(scope, lambda _: None)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """All messages in one batch, which unlike a single ``remember`` keeps the same words said twice."""
        items = [
            {
                "content": message.content or json.dumps(message.tool_calls, ensure_ascii=False),
                "source": message.role,
                "importance": 0.5,
                "metadata": {
                    **event.model_dump(mode="json", exclude={"messages", "scope"}, exclude_none=True),
                    "bank": self._bank(event.scope),
                    "role": message.role,
                },
            }
            for message in event.messages
        ]

        def write(beam: BeamMemory) -> Sequence[str]:
            return _ids_of(beam, event) or beam.remember_batch(items, veracity="stated")

        return self.receipt(event, "remember_batch", await self._run(event.scope, write), status="committed")

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The rows of the event, if there is one for each of its messages."""
        found = await self._run(event.scope, lambda beam: _ids_of(beam, event))
        return found if len(found) == len(event.messages) else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        limit = request.budget.max_items or self._top_k

        def recall(beam: BeamMemory) -> list[dict[str, Any]]:
            found = ((row, beam.get(row["id"]) or {}) for row in beam.recall(request.query, top_k=limit))
            # A recall cuts long texts.
            return [
                {
                    **row,
                    "content": whole.get("content", row["content"]),
                    "metadata": _fields(whole.get("metadata")),
                }
                for row, whole in found
            ]

        rows = json.loads(json.dumps(await self._run(request.scope, recall), default=str))
        return RetrieveResult(
            request=request,
            raw=rows,
            entries=tuple(self._entry(row) for row in rows),
            trace=self.trace(
                request.scope, "recall", native_ids=tuple(row["id"] for row in rows), consistency="committed"
            ),
        )

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``list``: every row of the bank, oldest first."""
        rows = await self._run(
            request.scope, lambda beam: [dict(row) for row in beam.conn.execute(f"{ROWS} ORDER BY rowid")]
        )
        return NativeQueryResult(raw={"rows": rows}, trace=self.trace(request.scope, "SELECT working_memory"))

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """``update`` or ``delete`` one memory of the bank."""
        native_id, text = str(request.native_id), request.arguments.get("text")

        def change(beam: BeamMemory) -> bool:
            if request.operation == "update":
                return bool(beam.update_working(native_id, content=str(text)))
            return bool(beam.forget_working(native_id))

        if not await self._run(request.scope, change):
            raise BackendRejected(f"no memory {native_id} in this scope", sent=False)
        return NativeMutationReceipt(
            status="committed",
            native_ids=(native_id,),
            raw={"changed": 1},
            trace=self.trace(request.scope, request.operation),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Remove the bank: beside its rows it holds graph, facts and annotations made of them."""
        bank = self._bank(scope)

        def remove(beam: BeamMemory) -> int:
            count = int(beam.conn.execute("SELECT count(*) FROM working_memory").fetchone()[0])
            self._open.pop(bank).conn.close()
            remove_directory(self.directory / bank)
            return count

        removed = await self._run(scope, remove)
        left = (self.directory / bank).exists()
        return ResetReceipt(
            scope=scope, verified=not left, removed=removed, trace=self.trace(scope, "remove the bank")
        )

    async def health(self) -> BackendHealth:
        def check() -> None:
            self.before_call()
            self.directory.mkdir(parents=True, exist_ok=True)

        await self.worker.run(check)
        return self.health_of(versions={"mnemosyne-memory": version("mnemosyne-memory")})

    def close_native(self) -> None:
        """Close every bank, on the thread that opened it."""
        while self._open:
            self._open.popitem()[1].conn.close()

    def _bank(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["bank"]

    async def _run(self, scope: MemoryScope, call: Callable[[BeamMemory], T]) -> T:
        """``call`` with the scope's bank, on the worker."""
        bank = self._bank(scope)

        def with_bank() -> T:
            self.before_call()
            if bank not in self._open:
                self._open[bank] = _opened(self.directory / bank)
            return call(self._open[bank])

        return await self.worker.run(with_bank)

    def _entry(self, row: Mapping[str, Any]) -> ContextEntry:
        fields = row["metadata"]
        said_at = fields.get("timestamp")
        return ContextEntry(
            row["content"],
            native_id=row["id"],
            score=row.get("score"),
            timestamp=datetime.fromisoformat(said_at) if said_at else None,
            labels=(("role", fields["role"]),) if "role" in fields else (),
            event_ids=(fields["event_id"],) if "event_id" in fields else (),
            session_id=fields.get("session_id"),
            scope_ids={"bank": fields["bank"]} if "bank" in fields else None,
        )


def _opened(directory: Path) -> BeamMemory:
    directory.mkdir(parents=True, exist_ok=True)
    # The library writes a config.yaml where this points to at its first use; by default into the home directory.
    with environment_kept(MNEMOSYNE_DATA_DIR=str(directory)):
        from mnemosyne.core.beam import BeamMemory

        quiet_loggers("mnemosyne")
        beam = BeamMemory(session_id="memslot", db_path=directory / "mnemosyne.db")
    beam.conn.set_authorizer(_no_recall_counts)
    return beam


def _no_recall_counts(action: int, _table: str | None, column: str | None, *_: str | None) -> int:
    """A recall counts itself, and the count changes later rankings; what is asked must leave no trace."""
    counted = action == sqlite3.SQLITE_UPDATE and column in ("recall_count", "last_recalled")
    return sqlite3.SQLITE_IGNORE if counted else sqlite3.SQLITE_OK


def _ids_of(beam: BeamMemory, event: MemoryEvent) -> tuple[str, ...]:
    return tuple(row["id"] for row in beam.conn.execute(OF_EVENT, (event.event_id,)))


def _fields(text: str | None) -> dict[str, Any]:
    found = json.loads(text or "{}")
    return found if isinstance(found, dict) else {}


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="mnemosyne",
        kind="architecture",
        summary="Mnemosyne, an SQLite memory: a bank for each scope, found by words (no embeddings installed)",
        capabilities=frozenset({"bulk_ingest", "native_mutation", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("mnemosyne",),
        install="pip install memslot-mnemosyne",
        options=Options,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Options]) -> Mnemosyne:
    return Mnemosyne(settings.name, settings.options, settings.data_dir)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memslot_mnemosyne.conformance import Profile

    return Profile
