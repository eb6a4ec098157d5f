"""MemOS as a memory backend: a cube for each scope on a product server (spec section 5.4).

MemOS answers 200 even if it failed, and later replaces stored memories. So the adapter checks the result of a
write, a delete and a reset, and tests the server at the first setup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import anyio

from memory import (
    AdapterMode,
    BackendError,
    BackendHealth,
    BackendReadiness,
    BackendTimeout,
    BackendUnavailable,
    FeedbackReceipt,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    ModeReceipt,
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
    BackendProtocolError,
    Operation,
    SequentialBulk,
    ShieldedCalls,
    quantity,
)
from memory.adapter.stores import OUTBOX, Outbox
from memory.backends.memos.answers import (
    MEMORY_TYPES,
    by_id,
    changes_of,
    event_ids,
    feedback_ids,
    metadata_of,
    to_entries,
    unextracted,
)
from memory.backends.memos.client import MAX_CONCURRENCY, Canary, Native, unfound_by
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.readiness import KIND, LOST, RAW, Readiness
from memory.backends.memos.translate import OPERATORS, cube_of, dropped_roles

_UNCHANGED = (
    "MemOS changed nothing; it says the same where nothing applies and where the model behind it fails"
)
_REPLACED = "these ids are of the raw memory; MemOS replaces it, under new ids, by what its model makes of it"
_NOTHING = "MemOS kept nothing of this event; it says the same of a model's answer that it cannot read"

# The result of a write: status, native ids, warnings.
Outcome = tuple[Literal["committed", "queued", "unknown"], tuple[str, ...], tuple[str, ...]]


class MemosAdapter(SequentialBulk):
    shielded: ShieldedCalls
    # For a moment neither the raw memory nor its replacement is stored, and a busy server may find nothing.
    max_unclear_looks = 5

    def __init__(self, settings: AdapterSettings[MemosOptions]) -> None:
        options = settings.options
        self.backend_name = settings.name
        self.traits = AdapterTraits(
            consistency="async_derived" if options.async_mode == "async" else "immediate",
            cs_filtering="hard" if options.filters else "soft",
            pet_observability="dated",
            filter_operators=OPERATORS if options.filters else frozenset(),
            store=options.url,
            max_concurrency=MAX_CONCURRENCY,
            bulk_size=1,
            native_memory_types=MEMORY_TYPES,
            native_ingest_modes=("async", "sync/fast", "sync/fine"),
            native_query_modes=(options.search_mode,),
            native_queries={"get_memory": Operation(), "inventory": Operation()},
            native_mutations={"delete": Operation(native_id=True)},
        )
        self.shielded = ShieldedCalls()
        self._options = options
        self._native = Native(options, settings.name)
        self._outbox = Outbox(settings.store.handle(OUTBOX), KIND)
        self._readiness = Readiness(self._native, options, self._outbox)
        self._canary = Canary(self._native, options, self.shielded, settings.where)
        self._checking = anyio.Lock()
        self._checked = False

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The cube is also the user, because the server has no other boundary."""
        return {"cube_id": cube_of(scope)}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Test the server once: it must store, find and filter memories, and list tasks."""
        async with self._checking:
            self._checked = self._checked or await self._canary.check()
        await self._readiness.meet(cube_of(scope))

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch the mode. While read-only, the canary is not stored again either."""
        self._canary.read_only = mode.read_only
        return await super().set_mode(mode)

    async def join_abandoned(self) -> None:
        """Also wait for the scheduler, because it still changes written memories."""
        await super().join_abandoned()
        if self._readiness.may_be_busy and not await self._readiness.idle(self._options.idle_timeout_s):
            waited_s = self._options.idle_timeout_s
            problem = f"the MemOS scheduler still changes memory, {waited_s:g} s on"
            raise BackendTimeout(problem, diagnostics={"idle_timeout_s": waited_s})

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        cube = cube_of(event.scope)
        return await self.shielded.run(cube, lambda: self._add(event, cube))

    async def _add(self, event: MemoryEvent, cube: str) -> WriteReceipt:
        sent_before = await self._readiness.send(cube, event.event_id)  # first: the answer may be lost
        try:
            status, ids, said = await self._added(event, cube, sent_before=sent_before)
        except BackendError as error:
            if not (error.ambiguous or sent_before):
                await self._readiness.settle(cube, [event.event_id])
            raise
        return self.receipt(event, "product/add", ids, status=status, warnings=[*dropped_roles(event), *said])

    async def _added(self, event: MemoryEvent, cube: str, *, sent_before: bool) -> Outcome:
        options, native = self._options, self._native
        memories = await native.rows_of(event.event_id, cube) if sent_before else ()
        if not memories:
            memories = await native.add(event, cube)
        if not memories:  # MemOS may name no memory even if it stored one
            memories = await native.rows_of(event.event_id, cube)
        ids = tuple(memory.native_id for memory in memories)
        queued = options.async_mode == "async"
        if not memories:
            if queued or options.mode == "fast":
                problem = "add: MemOS answered 200 and stored nothing; see the server's log"
                raise BackendProtocolError(problem, sent=queued)
            await self._canary.probe("add")
            return "unknown", (), (_NOTHING,)
        if queued:
            return "queued", ids, (_REPLACED,)
        try:  # MemOS returns ids even if its database or embedder is gone
            found = await native.found(memories[0].text, cube)
        except BackendError as error:
            return (
                "unknown",
                ids,
                (f"MemOS gave ids, and whether they are stored could not be seen: {error}",),
            )
        if ids[0] not in found:
            why = f"it is not among the first {len(found)} found" if found else LOST
            return "unknown", ids, (f"the answer named {ids[0]}, and it is not found: {why}",)
        return "committed", ids, (RAW,) if unextracted(found[ids[0]]) else ()

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The event's native ids. One stored memory is enough, because one request sends the whole event."""
        rows = await self._native.rows_of(event.event_id, cube_of(event.scope))
        return tuple(row.native_id for row in rows) or None

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        cube = cube_of(feedback.scope)
        warnings: list[str] = []

        async def apply() -> tuple[str, ...]:
            known: tuple[str, ...] = ()
            if feedback.native_ids:
                # If one id does not exist, MemOS silently drops the whole feedback.
                stored = await self._native.listing(cube)
                known = tuple(native_id for native_id in feedback.native_ids if native_id in stored)
            if lost := len(feedback.native_ids) - len(known):
                warnings.append(
                    f"{lost} of native_ids are not in this scope, or were replaced, and were left out"
                )
            self._readiness.wrote()
            body = self._native.requests.feedback(feedback.model_copy(update={"native_ids": known}), cube)
            return feedback_ids(await self._native.call("feedback", body))

        changed = await self.shielded.run(cube, apply)
        if not changed:
            warnings.append(_UNCHANGED)
        return FeedbackReceipt(
            feedback_id=feedback.feedback_id,
            status="committed" if changed else "unknown",
            native_ids=changed,
            warnings=tuple(warnings),
            trace=self.trace(feedback.scope, "product/feedback"),
        )

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """Delete a memory, then check it, because MemOS answers ``success`` for any id."""
        native_id, cube = str(request.native_id), cube_of(request.scope)

        async def delete() -> Any:
            # A task of the scheduler could store the memory again.
            await self._readiness.idle(self._options.idle_timeout_s)
            await self._readiness.settle(cube, event_ids(await self._native.own(native_id, cube)))
            return await self._native.remove(native_id, cube)

        raw = await self.shielded.run(cube, delete)
        trace = self.trace(request.scope, "product/delete_memory")
        return NativeMutationReceipt(status="committed", native_ids=(native_id,), raw=raw, trace=trace)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Search the cubes. Raises BackendUnavailable if nothing is found, not even the canary or by ``fast``."""
        cube = cube_of(request.scope)
        data = await self._native.search(request, cube)
        mode, found = self._options.search_mode, bool(to_entries(data))
        if not found and await self._canary.probe("search"):  # the server has recovered
            data = await self._native.search(request, cube)
            found = bool(to_entries(data))
        if mode != "fast" and not found and to_entries(await self._native.search(request, cube, mode="fast")):
            raise BackendUnavailable(f"search: {unfound_by(mode)}", diagnostics={"status": 200}, sent=False)
        entries = to_entries(data, [shared for shared in self._options.readable_cubes if shared != cube])
        made = sum(entry.native_id is None and not entry.prose for entry in entries)
        warnings = (f"{quantity(made, 'texts')} came without the id of a stored memory",) if made else ()
        trace = self.trace(request.scope, "product/search", warnings=warnings)
        return RetrieveResult(request=request, raw=data, entries=entries, trace=trace)

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        cube = cube_of(scope)
        if self.shielded.busy(cube):
            return BackendReadiness(state="pending", detail="a write past its deadline is still under way")
        return await self._readiness.ask(cube)

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """Times come from the server's clock: when a memory was stored or changed, not when it was said."""
        if request.native_id is not None:
            found = [await self._native.own(request.native_id, cube_of(request.scope))]
            raw: Any = {"memory": found[0]}
        else:
            listing = await self._native.listing(cube_of(request.scope))
            found = [item for item in listing.values() if request.includes(*changes_of(item))]
            raw = {"memories": found}
        events = dict.fromkeys(event_id for item in found for event_id in event_ids(item))
        ids = tuple(str(item.get("id")) for item in found)
        trace = self.trace(request.scope, "product/get_memory", native_ids=ids)
        return ProvenanceResult(raw=raw, native_ids=ids, event_ids=tuple(events), trace=trace)

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``get_memory`` lists every memory of the cube; ``inventory`` counts them by type."""
        raw = await self._native.groups(cube_of(request.scope))
        if request.operation == "inventory":
            kinds = (metadata_of(item).get("memory_type") for item in by_id(raw, "get_memory").values())
            raw = dict(Counter(map(str, kinds)))
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, "product/get_memory"))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear the cube. ``verified`` is False if the scheduler is still busy, as it may store memories."""
        cube = cube_of(scope)
        idle = await self._readiness.idle(self._options.idle_timeout_s)
        erased = await self._readiness.noted(cube)
        with self.clearing():
            removed, gone = await self.shielded.run(cube, partial(self._native.clear, cube))
            await self._readiness.begin(cube, erased)
        left = () if idle else ("tasks of the scheduler, which may store memories again",)
        trace = self.trace(scope, "product/delete_memory")
        return ResetReceipt(scope=scope, verified=gone and idle, removed=removed, left=left, trace=trace)

    async def health(self) -> BackendHealth:
        """Search for the canary, because the server always reports that it is healthy. Writes nothing."""
        said = await self._native.call("health", {})
        version = said.get("version") if isinstance(said, dict) else None
        versions = {} if version is None else {"memos": str(version)}
        status, seen, warnings = await self._canary.report()
        details: dict[str, object] = {
            "graph_db": self._options.graph_db,
            "filters": self._canary.filters,
            "ingest": "async" if self._options.async_mode == "async" else f"sync/{self._options.mode}",
            "tasks_under_way": await self._native.busy(),
            "canary": seen,
        }
        return self.health_of(status, versions=versions, details=details, warnings=warnings)

    async def aclose_native(self) -> None:
        self._outbox.close()
        self._outbox.store.close()
        await self._native.aclose()
