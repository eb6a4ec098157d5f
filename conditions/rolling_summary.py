"""The file-memory control: a summary that is rewritten as the conversation continues (spec section 2.2).

It is modelled on the MemoryConsolidator of Nanobot v0.1.4.post5, which today's Nanobot no longer has. It differs on
purpose:

- A session is summarised when it is over (spec section 8), not when the context window fills up.
- Only the memory is retrieved, never messages that are not summarised yet (fairness rule, spec section 2.2).
- ``wait_until_ready`` summarises all pending messages, because a test begins after the end of a session.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field, model_validator

from conditions._control import ControlCondition, pack_document
from conditions._extractive import ExtractiveSummariser
from conditions._llm_summariser import LlmOptions, LlmSummariser
from conditions._notebook import Consolidation, Notebook, Summariser
from conditions._storage import ScopeTables, unreadable
from memory import (
    AdapterMode,
    BackendHealth,
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    ModeReceipt,
    NativeQueryRequest,
    NativeQueryResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    TokenCounter,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    Operation,
    PluginInfo,
    PluginOptions,
    hookimpl,
    quantity,
    section_overhead,
)
from memory.adapter.stores import Durability, Store

# Nanobot v0.1.4.post6 keeps this much of the window free for the answer and for estimation errors.
_RESERVED_TOKENS = 4096 + 1024
_PAUSE_S = 15.0  # after a failed summary


class RollingSummaryOptions(PluginOptions):
    """The block ``memory.conditions.rolling_summary``."""

    max_tokens: Annotated[int, Field(gt=0)] = 8000
    """Upper bound of the long-term memory."""
    update_policy: Literal["after_accumulation_session"] = "after_accumulation_session"
    """When to summarise: as soon as the next session begins."""
    context_window_tokens: Annotated[int, Field(gt=_RESERVED_TOKENS)] = 65536
    """Bounds one call of the model; 5120 tokens of it are kept free."""
    summariser: Literal["extractive", "llm"] = "extractive"
    """``extractive`` keeps sentences by simple rules, offline; ``llm`` asks the model under ``llm``."""
    llm: LlmOptions | None = None
    """The OpenAI-compatible endpoint of ``summariser: llm``."""
    durability: Durability = "process"
    """What an acknowledged event survives: the end of the ``process``, or a power cut of the ``machine`` too."""

    @model_validator(mode="after")
    def _llm_where_needed(self) -> RollingSummaryOptions:
        if self.summariser == "llm" and self.llm is None:
            raise ValueError("summariser llm needs the block llm with base_url and model")
        if self.summariser == "extractive" and self.llm is not None:
            raise ValueError(
                "llm is given but summariser is extractive; set summariser: llm, or drop the block"
            )
        return self

    def effective(self) -> Mapping[str, object]:
        return {} if self.llm is None else {"llm": self.llm.for_memory(self.max_tokens)}

    @property
    def fallback_components(self) -> tuple[str, ...]:
        return ("extractive summariser",) if self.summariser == "extractive" else ()


class RollingSummary(ControlCondition):
    """Keeps one summary per scope. Messages that are not summarised yet are ``pending``."""

    def __init__(
        self,
        name: str,
        options: RollingSummaryOptions,
        summariser: Summariser,
        counter: TokenCounter,
        write_deadline_s: float,
        store: Store,
    ) -> None:
        super().__init__(
            name,
            AdapterTraits(
                kind="control",
                consistency="async_derived",
                pet_observability="versioned",
                fallback_components=options.fallback_components,
                native_queries=dict.fromkeys(("memory", "history", "pending"), Operation()),
                counts_llm_calls=options.summariser == "llm",
                extracts=options.summariser == "llm",
            ),
        )
        self._options = options
        self._summariser = summariser
        self._counter = counter
        # Summarising may take this part of a write's deadline. Then the write returns without a summary.
        self._write_limit_s = write_deadline_s * 0.8
        self._consolidation = Consolidation(
            summariser, options.context_window_tokens - _RESERVED_TOKENS, _PAUSE_S
        )
        self.tables = ScopeTables(store, name, options.durability)
        self._notebooks: dict[MemoryScope, Notebook] = {}

    async def start(self) -> None:
        await self.tables.check()

    async def setup_scope(self, scope: MemoryScope) -> None:
        self._notebooks.setdefault(scope, await self._notebook(scope))

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch.

        Read-only mode ends the sessions, so pending messages are summarised first if time permits.
        """
        if mode.read_only and not self._consolidation.read_only:
            with anyio.move_on_after(self._write_limit_s):
                for notebook in list(self._notebooks.values()):
                    async with notebook.lock:
                        while notebook.pending:
                            if not await self._consolidation.some(notebook, len(notebook.pending)):
                                break
        self._consolidation.read_only = mode.read_only
        return await super().set_mode(mode)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        notebook = self._notebooks.pop(scope, None) or Notebook(scope, self._counter, self.tables)
        async with notebook.lock:
            removed = await notebook.clear()
            empty = await notebook.is_empty()
        trace = self.trace(scope, "memory.clear")
        return ResetReceipt(scope=scope, verified=empty, removed=removed, trace=trace)

    async def health(self) -> BackendHealth:
        await self.tables.check()
        problem = await self._summariser.problem()
        warnings = [f"the summariser does not work: {problem}"] if problem else self._caveat()
        unread = [row for notebook in self._notebooks.values() for row in notebook.unreadable]
        changed = [*unreadable(unread), *self._unsummarised()]
        return self.health_of(
            "unavailable" if problem else "degraded" if changed else "ok",
            details={
                "summariser": self._summariser.label,
                "update_policy": self._options.update_policy,
                "modelled_on": "Nanobot v0.1.4.post5 MemoryConsolidator",
            },
            warnings=(*warnings, *changed),
        )

    def _unsummarised(self) -> list[str]:
        """Warnings about failed summaries of all loaded scopes."""
        progress = [notebook.progress for notebook in self._notebooks.values()]
        archived = sum(each.raw_archived for each in progress)
        failing = [each.last_error for each in progress if each.last_error]
        found = [f"the last summary failed: {failing[0]}"] if failing else []
        if archived:
            found.append(f"{quantity(archived, 'messages')} went into the history unsummarised")
        return found

    def model_probes(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"llm": self._summariser.probe} if isinstance(self._summariser, LlmSummariser) else {}

    async def aclose(self) -> None:
        await self._summariser.aclose()
        self._notebooks.clear()
        self.tables.store.close()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Store the event before anything is summarised, so that a failing summariser loses nothing."""
        if (notebook := self._notebooks.get(event.scope)) is None:
            notebook = self._notebooks[event.scope] = Notebook(event.scope, self._counter, self.tables)
        warnings: list[str] = []
        async with notebook.lock:
            if not await notebook.add(event):
                warnings.append("this event_id was recorded before; the first version is kept")
            before = notebook.progress
            with anyio.move_on_after(self._write_limit_s) as limit:
                await self._consolidation.due(notebook)
        if limit.cancelled_caught:
            notebook.note_slowness(_PAUSE_S)
            warnings.append("summarising took too long for a write; it is tried again with the next one")
        elif notebook.progress.failures or notebook.progress.raw_archived > before.raw_archived:
            warnings.append(f"summarising failed: {notebook.progress.last_error}")
        if archived := notebook.progress.raw_archived - before.raw_archived:
            warnings.append(f"{quantity(archived, 'messages')} went into the history unsummarised")
        rewritten = notebook.progress.consolidations > before.consolidations
        return self.receipt(
            event,
            "memory.consolidate" if rewritten else "session.append",
            [event.event_id],
            status="pending" if event.event_id in notebook.waiting else "committed",
            warnings=warnings,
        )

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Return the long-term memory, never pending messages."""
        notebook = await self._notebook(request.scope)
        progress = notebook.progress
        entries, left_out = pack_document(
            notebook.memory,
            request.budget,
            self._counter,
            overhead=section_overhead(self.backend_name, request.scope.label, self._counter),
            sources={line: [source.event_id for source in known] for line, known in progress.sources.items()},
        )
        named = [event_id for entry in entries for event_id in entry.event_ids]
        warnings = self._caveat()
        if notebook.pending:
            warnings.append(
                f"{quantity(len(notebook.pending), 'messages are', 'message is')} not summarised yet"
            )
        if progress.raw_archived:
            warnings.append(f"{quantity(progress.raw_archived, 'messages')} could not be summarised")
        warnings += unreadable(notebook.unreadable)
        if left_out:
            warnings.append(f"the budget leaves out {left_out} lines of the summary")
        return self.found(
            request,
            "memory.read",
            entries,
            {
                "memory": notebook.memory,
                "lines_left_out": left_out,
                "sources": [notebook.events[known].raw() for known in named if known in notebook.events],
                "summariser": self._summariser.label,
                "update_policy": self._options.update_policy,
                "consolidations": progress.consolidations,
                "history_entries": len(notebook.history),
                "messages_pending": len(notebook.pending),
                "messages_archived_raw": progress.raw_archived,
            },
            consistency="pending" if notebook.pending else "committed",
            left_out_count=left_out,
            representation_version=str(progress.consolidations),
            last_derived_at=progress.last_derived_at,
            warnings=tuple(warnings),
        )

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        notebook = await self._notebook(scope)
        progress, waiting = notebook.progress, len(notebook.pending)
        because = f" ({progress.last_error})" if progress.last_error else ""
        state: Literal["ready", "pending", "failed"] = "pending" if waiting else "ready"
        behind = quantity(waiting, "messages are", "message is")
        detail = f"{behind} not summarised yet{because}" if waiting else ""
        if progress.raw_archived:
            state = "failed"
            archived = (
                f"{quantity(progress.raw_archived, 'messages')} went into the history unsummarised{because}"
            )
            detail = f"{archived}; {waiting} more wait" if waiting else archived
        if waiting and self._consolidation.read_only:
            detail += "; nothing is summarised while read-only"
        return BackendReadiness(
            state=state, detail=detail, pending_count=waiting, last_derived_at=progress.last_derived_at
        )

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        with anyio.move_on_after(timeout_s):
            notebook = self._notebooks.setdefault(scope, await self._notebook(scope))
            async with notebook.lock:
                await notebook.refresh()
                while notebook.pending and not self._consolidation.read_only:
                    await anyio.sleep(notebook.rests_s)
                    await self._consolidation.some(notebook, len(notebook.pending))
        return await self.readiness(scope)

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        notebook = await self._notebook(request.scope)
        kept = {
            "memory": notebook.memory.splitlines(),
            "history": list(notebook.history),
            "pending": [line.render() for line in notebook.pending],
        }
        trace = self.trace(request.scope, request.operation)
        return NativeQueryResult(raw=kept[request.operation], trace=trace)

    async def _notebook(self, scope: MemoryScope) -> Notebook:
        """The refreshed notebook of a scope. It is not kept if the scope was not set up."""
        notebook = self._notebooks.get(scope) or Notebook(scope, self._counter, self.tables)
        await notebook.refresh()
        return notebook

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        return None if await self.tables.messages_of(event) is None else (event.event_id,)

    def _caveat(self) -> list[str]:
        extractive = self._options.summariser == "extractive"
        return [f"summariser: {self._summariser.label}"] if extractive else []


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="rolling_summary",
        kind="control",
        pet_observability="versioned",
        summary="one running summary per persona, extractive or by an LLM",
        capabilities=frozenset({"readiness", "native_query"}),
        consistency="async_derived",
        options=RollingSummaryOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[RollingSummaryOptions]) -> RollingSummary:
    options, counter = settings.options, settings.token_counter
    summariser: Summariser
    if options.llm is not None:
        summariser = LlmSummariser(options.llm, options.max_tokens, counter, settings.name)
    else:
        summariser = ExtractiveSummariser(options.max_tokens, counter)
    write_s = settings.deadlines.get("write_s", math.inf)
    return RollingSummary(settings.name, options, summariser, counter, write_s, settings.store)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import RollingSummary

    return RollingSummary
