"""Every memslot backend as a memory provider of vectorize's agent-memory-benchmark.

    pip install memslot                             # into the environment of the benchmark
    export MEMSLOT_CONFIG=mem0.yaml                 # names the memory, as for any host
    export MEM0_TELEMETRY=False                     # the benchmark imports mem0, whose telemetry locks a store
    python agent_memory_benchmark.py run --dataset locomo --memory memslot

Each ``user_id`` of the benchmark is a person of its own, and each of its documents one event whose id is the
document's, so that its own recall by gold ids works. ``reset`` begins with an empty memory in ``store_dir``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory_bench.memory import REGISTRY
from memory_bench.memory.base import MemoryProvider
from memory_bench.models import Document

from memory import (
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    Message,
    RetrieveRequest,
    SupportsReadiness,
    open_memory_sync,
)

READY_WITHIN_S = 600.0
NOBODY = "everybody"  # documents that belong to no user


class MemslotMemoryProvider(MemoryProvider):
    """Writes documents in order of time, waits until they can be found, and retrieves by the slot's own rules."""

    name = "memslot"
    description = "any memory behind memslot's contract; MEMSLOT_CONFIG names it"
    kind = "local"
    concurrency = 1

    def __init__(self) -> None:
        self._open = ExitStack()
        self._known: set[MemoryScope] = set()

    def prepare(self, store_dir: Path, unit_ids: set[str] | None = None, reset: bool = True) -> None:
        place = Path(store_dir) / "memslot"
        if reset:
            shutil.rmtree(place, ignore_errors=True)
        config = os.environ["MEMSLOT_CONFIG"]
        self._memory = self._open.enter_context(
            open_memory_sync(config, scope=self._scope(None), data_dir=place)
        )

    def cleanup(self) -> None:
        self._open.close()

    def ingest(self, documents: list[Document]) -> None:
        for document in sorted(documents, key=lambda item: item.timestamp or ""):
            event = self._event(document)
            self._set_up(event.scope)
            self._memory.run(lambda slot, event=event: slot.record_event(event))
        for scope in {self._scope(document.user_id) for document in documents}:
            self._wait(scope)

    def retrieve(
        self, query: str, k: int = 10, user_id: str | None = None, query_timestamp: str | None = None
    ) -> tuple[list[Document], dict[str, Any] | None]:
        scope = self._scope(user_id)
        self._set_up(scope)
        request = RetrieveRequest(
            query=query,
            scope=scope,
            session_id="benchmark",
            budget=ContextBudget(max_items=k, max_tokens=None),
        )
        result = self._memory.run(lambda slot: slot.retrieve(request))
        found = [
            Document(
                id=entry.event_ids[0] if entry.event_ids else entry.native_id or f"entry-{number}",
                content=entry.text,
                user_id=user_id,
                timestamp=entry.timestamp.isoformat() if entry.timestamp else None,
            )
            for number, entry in enumerate(result.context_entries)
        ]
        if not found and result.formatted_context:  # a memory that answers in prose has no entries
            found = [Document(id="section", content=result.formatted_context, user_id=user_id)]
        return found, {"section": result.formatted_context, "tokens": result.trace.token_count}

    def _scope(self, user_id: str | None) -> MemoryScope:
        return MemoryScope(run_id="agent-memory-benchmark", persona_id=user_id or NOBODY)

    def _set_up(self, scope: MemoryScope) -> None:
        if scope not in self._known:
            self._memory.run(lambda slot: slot.setup_scope(scope))
            self._known.add(scope)

    def _wait(self, scope: MemoryScope) -> None:
        async def wait(slot: Any) -> None:
            if (waiting := slot.capability(SupportsReadiness)) is not None:
                await waiting.wait_until_ready(scope, READY_WITHIN_S)

        self._memory.run(wait)

    def _event(self, document: Document) -> MemoryEvent:
        said = document.messages or [{"role": "user", "content": document.content}]
        at = datetime.fromisoformat(document.timestamp) if document.timestamp else datetime.now(UTC)
        return MemoryEvent(
            event_id=document.id,
            scope=self._scope(document.user_id),
            session_id=document.context or "documents",
            turn_id=document.id,
            timestamp=at if at.tzinfo else at.replace(tzinfo=UTC),
            messages=tuple(
                Message(role=each["role"], content=each["content"])
                for each in said
                if each["content"].strip()
            ),
        )


REGISTRY["memslot"] = MemslotMemoryProvider

if __name__ == "__main__":
    from memory_bench.cli import app

    app()
