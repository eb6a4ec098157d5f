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
from conditions._notebook import Notebook, Summariser
from conditions._storage import ScopeTables, event_in, fields_of, unreadable
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
_MAX_SOURCES = 500  # events of a summary that a payload describes


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
        self.tables = ScopeTables(store, name, options.durability)
        self._notebooks: dict[MemoryScope, Notebook] = {}
        self._read_only = False

    async def start(self) -> None:
        await self.tables.check()

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Read the scope, so that damage shows before the first turn."""
        await self._notebook(scope).read()

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch.

        Read-only mode ends the sessions, so pending messages are summarised first if time permits.
        """
        if mode.read_only and not self._read_only:
            with anyio.move_on_after(self._write_limit_s):
                for notebook in list(self._notebooks.values()):
                    await self._summarise_all(notebook, patient=False)
        self._read_only = mode.read_only
        for notebook in self._notebooks.values():
            notebook.held = mode.read_only
        return await super().set_mode(mode)

    async def _summarise_all(self, notebook: Notebook, *, patient: bool) -> None:
        """Summarise every pending message. A ``patient`` call waits for the pause after a failure."""
        async with notebook.lock:
            while (pages := await notebook.read()).pending and not self._read_only:
                if patient:
                    await anyio.sleep(notebook.rests_s)
                if not await notebook.summarise(pages, len(pages.pending)) and not patient:
                    break

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        notebook = self._notebook(scope)
        async with notebook.lock:
            removed = await self.tables.clear(scope)
            self._notebooks.pop(scope, None)
        left = await self.tables.saved(scope)
        trace = self.trace(scope, "memory.clear")
        return ResetReceipt(scope=scope, verified=not left.version, removed=removed, trace=trace)

    async def health(self) -> BackendHealth:
        await self.tables.check()
        problem = await self._summariser.problem()
        warnings = [f"the summariser does not work: {problem}"] if problem else self._caveat()
        known = list(self._notebooks.values())
        failing = [notebook.last_error for notebook in known if notebook.last_error]
        changed = [f"the last summary failed: {failing[0]}"] if failing else []
        changed += unreadable([row for notebook in known for row in notebook.unreadable])
        if archived := sum(notebook.archived for notebook in known):
            changed.append(f"{quantity(archived, 'messages')} went into the history unsummarised")
        return self.health_of(
            "unavailable" if problem else "degraded" if changed else "ok",
            details={
                "summariser": self._summariser.label,
                "update_policy": self._options.update_policy,
                "modelled_on": "Nanobot v0.1.4.post5 MemoryConsolidator",
            },
            warnings=(*warnings, *changed),
        )

    def model_probes(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"llm": self._summariser.probe} if isinstance(self._summariser, LlmSummariser) else {}

    async def aclose(self) -> None:
        await self._summariser.aclose()
        self.tables.store.close()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Store the event before anything is summarised, so that a failing summariser loses nothing."""
        notebook = self._notebook(event.scope)
        warnings: list[str] = []
        async with notebook.lock:
            _, new = await self.tables.add(event)
            if not new:
                warnings.append("this event_id was recorded before; the first version is kept")
            before = await notebook.read()
            pages = before
            with anyio.move_on_after(self._write_limit_s) as limit:
                pages = await notebook.summarise_earlier()
        if limit.cancelled_caught:
            notebook.note_slowness()
            warnings.append("summarising took too long for a write; it is tried again with the next one")
        elif notebook.last_error:
            warnings.append(f"summarising failed: {notebook.last_error}")
        if archived := pages.progress.raw_archived - before.progress.raw_archived:
            why = pages.progress.last_error
            warnings.append(f"{quantity(archived, 'messages')} went into the history unsummarised ({why})")
        rewritten = pages.progress.consolidations > before.progress.consolidations
        waits = any(line.event_id == event.event_id for line in reversed(pages.pending))
        return self.receipt(
            event,
            "memory.consolidate" if rewritten else "session.append",
            [event.event_id],
            status="pending" if waits else "committed",
            warnings=warnings,
        )

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Return the long-term memory, never pending messages."""
        pages = await self._notebook(request.scope).read()
        progress, waiting = pages.progress, len(pages.pending)
        entries, left_out = pack_document(
            pages.memory,
            request.budget,
            self._counter,
            overhead=section_overhead(self.backend_name, request.scope.label, self._counter),
            sources=progress.sources,
        )
        named = [event_id for entry in entries for event_id in entry.event_ids]
        rows = await self.tables.named(request.scope, named[:_MAX_SOURCES])
        sources = [event for row in rows if (event := event_in(row, request.scope)) is not None]
        warnings = [*self._caveat(), *unreadable(pages.unreadable)]
        if waiting:
            warnings.append(f"{quantity(waiting, 'messages are', 'message is')} not summarised yet")
        if progress.raw_archived:
            warnings.append(f"{quantity(progress.raw_archived, 'messages')} could not be summarised")
        if left_out:
            warnings.append(f"the budget leaves out {left_out} lines of the summary")
        return self.found(
            request,
            "memory.read",
            entries,
            {
                "memory": pages.memory,
                "lines_left_out": left_out,
                "sources": [fields_of(event) for event in sources],
                "summariser": self._summariser.label,
                "update_policy": self._options.update_policy,
                "consolidations": progress.consolidations,
                "messages_pending": waiting,
                "messages_archived_raw": progress.raw_archived,
            },
            consistency="pending" if waiting else "committed",
            left_out_count=left_out,
            representation_version=str(progress.consolidations),
            last_derived_at=progress.last_derived_at,
            warnings=tuple(warnings),
        )

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        notebook = self._notebook(scope)
        pages = await notebook.read()
        archived, waiting = pages.progress.raw_archived, len(pages.pending)
        why = notebook.last_error or pages.progress.last_error
        details = []
        if archived:
            details.append(f"{quantity(archived, 'messages')} went into the history unsummarised")
        if waiting:
            details.append(f"{quantity(waiting, 'messages are', 'message is')} not summarised yet")
            if self._read_only:
                details.append("nothing is summarised while read-only")
        state: Literal["ready", "pending", "failed"] = "pending" if waiting else "ready"
        return BackendReadiness(
            state="failed" if archived else state,
            detail="; ".join(details) + (f" ({why})" if why else ""),
            pending_count=waiting,
            last_derived_at=pages.progress.last_derived_at,
        )

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        with anyio.move_on_after(timeout_s):
            await self._summarise_all(self._notebook(scope), patient=True)
        return await self.readiness(scope)

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        raw: list[str]
        if request.operation == "history":
            raw = await self.tables.history(request.scope)
        else:
            pages = await self._notebook(request.scope).read()
            pending = [line.render() for line in pages.pending]
            raw = pages.memory.splitlines() if request.operation == "memory" else pending
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, request.operation))

    def _notebook(self, scope: MemoryScope) -> Notebook:
        if (notebook := self._notebooks.get(scope)) is None:
            window = self._options.context_window_tokens - _RESERVED_TOKENS
            notebook = Notebook(scope, self.tables, self._summariser, self._counter, window, _PAUSE_S)
            notebook.held = self._read_only
            self._notebooks[scope] = notebook
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
