"""The adapter for ``mem0.Memory``. Calls run on its own threads, and on embedded Qdrant one at a time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import PositiveInt

from memory import (
    BackendHealth,
    InputError,
    MemoryEvent,
    MemoryScope,
    NativeMutationReceipt,
    NativeMutationRequest,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    NativeWorker,
    Operation,
    SequentialBulk,
    SynchronousWrites,
    quantity,
)
from memory.adapter.fields import NotBlank
from memory.backends.mem0.options import OPENAI_PROVIDERS, Mem0Options
from memory.backends.mem0.translate import (
    ERRORS,
    changes_of,
    event_metadata,
    native_filters,
    native_messages,
    observation_prompt,
    scope_ids,
    to_entry,
    user_metadata,
)

if TYPE_CHECKING:
    from memory.backends.mem0.client import NativeMem0
    from memory.backends.mem0.stores import Stage

from memory.adapter.stores import create_directory

T = TypeVar("T")
_LIMITED = Operation({"limit": PositiveInt})
_CHANGES = {"text": NotBlank, "metadata": dict[str, Any] | None, "expiration_date": date | None}
LEXICAL_FLOOR = 0.05  # a text that shares only common words with a question scores below this
# Providers whose client comes from the openai package, so that their calls can be counted.
_COUNTING = OPENAI_PROVIDERS | {"azure_openai_structured", "openai_structured"}
_CREDENTIALS = re.compile(r"(?<=//)[^/@]*@|\b(user|password)\s*=\s*('[^']*'|\S*)")
MUTATIONS = {"update": Operation(_CHANGES, native_id=True), "delete": Operation(native_id=True)}


def set_environment(directory: Path) -> None:
    """Keep mem0 from sending telemetry and writing to the user's home. Call this before mem0 is imported."""
    if "mem0" not in sys.modules:
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ.setdefault("MEM0_DIR", str(directory))
        with suppress(OSError):  # opening the store reports the same failure
            create_directory(directory)  # otherwise mem0's import creates it, readable by every user


class Mem0Adapter(SynchronousWrites, SequentialBulk):
    """Translates the contract into calls of ``mem0.Memory``, for the backend and for ``simple_rag``."""

    def __init__(self, settings: AdapterSettings[Mem0Options]) -> None:
        options = settings.options
        options.check_keys(settings.where)
        directory = (options.path or settings.data_dir / settings.name).expanduser().absolute()
        set_environment(directory)
        from memory.backends.mem0.embedded import EmbeddedMem0
        from memory.backends.mem0.shared import SharedMem0

        self.backend_name = settings.name
        self.traits = AdapterTraits(
            kind="control" if options.equivalent_control else settings.kind,
            counts_llm_calls=not options.infers or (options.llm and options.llm.provider) in _COUNTING,
            extracts=options.infers,
            equivalent_control=options.equivalent_control,
            differs_from_control=options.differs_from_control,
            fallback_components=options.fallback_components,
            score_floor=LEXICAL_FLOOR if options.embedder == "lexical" else None,
            consistency="immediate",
            cs_filtering="hard",
            pet_observability="dated",
            filter_operators=options.profile.operators,
            max_concurrency=options.threads,
            write_retries=1,
            bulk_size=16,  # not one ``add`` for all: a joint extraction would give other memories
            errors=ERRORS,
            store=_store_of(options),
            packages=("mem0ai", options.profile.package),
            native_ingest_modes=("infer", "verbatim"),
            native_queries={"count": _LIMITED, "list": _LIMITED},
            native_mutations=MUTATIONS,
        )
        self._options = options
        native = EmbeddedMem0 if options.embedded else SharedMem0
        self._native: NativeMem0 = native(settings, directory)
        self.worker: NativeWorker = NativeWorker(options.threads, name=f"memslot-{settings.name}")

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return dict(scope_ids(scope))

    async def _run(self, call: Callable[[], T], gives_up: Callable[[], bool] = lambda: False) -> T:
        def in_turn() -> T:
            with self._native.turn.held():
                return call()

        return await self.worker.run(in_turn, gives_up=gives_up)

    async def start(self) -> None:
        if self._options.embedded:
            await self._run(self._native.probe)

    async def probe_scope(self, scope: MemoryScope) -> None:
        """Open mem0 and, in an embedded store, the scope's partition. A server has no partitions."""
        ids = scope_ids(scope)
        await self._run(lambda: self._native.probe(ids))

    setup_scope = probe_scope

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        from memory.backends.mem0.stores import Stage

        stage = Stage()
        return await self._run(lambda: self._write(event, stage), stage.give_up)

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Write the events one by one. Verbatim texts are first embedded in one batch."""
        texts: list[str] = []
        if not self._options.infers:
            for event in events:
                texts += [message["content"] for message in native_messages(event, infer=False)[0]]
        prepared: AbstractContextManager[object] = nullcontext()
        with suppress(Exception):  # one text that the model refuses must not fail the other events
            prepared = await self._run(lambda: self._native.prepare(texts), lambda: True)
        with prepared:
            return await super().record_events(events)

    def _write(self, event: MemoryEvent, stage: Stage) -> WriteReceipt:
        infer = self._options.infers
        messages, warnings = native_messages(event, infer=infer)
        if not messages:
            warnings.append("mem0 remembers nothing of this event; it was not sent")
            return self.receipt(event, "none", warnings=warnings)
        prompt = observation_prompt(event, self._options.custom_instructions) if infer else None
        ids = scope_ids(event.scope)
        written, extracted = self._native.add(messages, ids, event_metadata(event), prompt, stage)
        if extracted == 0:
            warnings.append("mem0 extracted nothing from this event")
        elif extracted is None and len(written) < len(messages):
            warnings.append(f"mem0 stored {len(written)} of {quantity(len(messages), 'messages')}")
        elif extracted is not None and len(written) < extracted:
            lost = "it drops exact duplicates"
            warnings.append(f"mem0 stored {len(written)} of {extracted} extracted memories; {lost}")
        return self.receipt(event, "Memory.add", written, warnings=warnings)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The event's memories, or None if any are missing. Writing the event again replaces the rest."""
        ids = scope_ids(event.scope)
        return await self._run(lambda: self._native.find_event(ids, event.event_id))

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        ids = scope_ids(request.scope)
        filters = native_filters(request.where, self._options.profile)
        reranked = self._options.rerank and self._options.reranker is not None
        top_k = request.budget.search_limit(self._options.top_k, reranked=reranked)
        raw, unranked = await self._run(lambda: self._native.search(request.query, ids, filters, top_k))
        warnings = ("reranking failed; the order is mem0's own",) if unranked else ()
        trace = self.trace(request.scope, "Memory.search", consistency="committed", warnings=warnings)
        entries = tuple(map(to_entry, raw["results"]))
        return RetrieveResult(request=request, raw=raw, entries=entries, trace=trace)

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        ids, native_id = scope_ids(request.scope), str(request.native_id)
        changes: dict[str, Any] | None = None
        if request.operation == "update":
            changes = dict(request.arguments)
            if not changes:
                takes = ", ".join(_CHANGES)
                raise InputError(f"NativeMutationRequest.arguments: is empty; update takes {takes}")
            if changes.get("metadata") is not None:
                changes["metadata"] = user_metadata(changes["metadata"])
        raw = await self._run(lambda: self._native.change(native_id, ids, changes))
        trace = self.trace(request.scope, f"Memory.{request.operation}", native_ids=(native_id,))
        return NativeMutationReceipt(status="committed", native_ids=(native_id,), raw=raw, trace=trace)

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        ids, operation = scope_ids(request.scope), "Memory.get_all"
        if request.native_id is not None:
            row, history = await self._run(lambda: self._native.history(request.native_id, ids))
            rows, operation = [row] if row else [], "Memory.history"
            raw: Any = {"memory": row, "history": history}
        else:
            found = await self._run(lambda: self._native.rows(ids))
            rows = [row for row in found if request.includes(*changes_of(row))]
            raw = {"results": rows}
        events = ((row.get("metadata") or {}).get("event_id") for row in rows)
        return ProvenanceResult(
            raw=raw,
            native_ids=tuple(row["id"] for row in rows),
            event_ids=tuple(dict.fromkeys(event for event in events if event)),
            trace=self.trace(request.scope, operation),
        )

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        limit: Any = request.arguments.get("limit", 10_000)
        ids = scope_ids(request.scope)
        rows = await self._run(lambda: self._native.rows(ids, limit=limit))
        raw: dict[str, Any] = {"count": len(rows), "truncated": len(rows) == limit}
        if request.operation == "list":
            raw["results"] = rows
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, "Memory.get_all"))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        ids = scope_ids(scope)
        with self.clearing():
            removed, verified, left = await self._run(lambda: self._native.purge(ids))
        trace = self.trace(scope, "vector_store.delete")
        return ResetReceipt(scope=scope, verified=verified, removed=removed, left=left, trace=trace)

    async def health(self) -> BackendHealth:
        details, warnings = await self._run(self._native.describe)
        details["ingest"] = "infer" if self._options.infers else "verbatim"
        failed = self._native.keywords_failed
        return self.health_of("degraded" if failed else "ok", details=details, warnings=tuple(warnings))

    def model_probes(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        options = self._options
        reranks = options.rerank and options.reranker is not None
        used = {"llm": options.infers, "embedder": options.embedder != "lexical", "reranker": reranks}

        def probe(role: str) -> None:
            self._native.probe().probe(role, self._native.where)

        return {role: partial(self._run, partial(probe, role)) for role in used if used[role]}

    def close_native(self) -> None:
        self._native.close()


def _store_of(options: Mem0Options) -> str:
    """The name of a vector store: its provider, collection and location, without credentials."""
    config = options.vector_store.config
    places = ("url", "host", "port", "dbname", "path", "connection_string")
    named = [_CREDENTIALS.sub("", str(config[key])) for key in places if key in config]
    collection = str(config.get("collection_name", options.collection))
    return "|".join([options.vector_store.provider, collection, str(options.path or ""), *named])
