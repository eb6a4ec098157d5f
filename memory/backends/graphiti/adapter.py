"""The adapter for ``graphiti_core.Graphiti``. Each scope has its own graph, driver, client and lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from memory import (
    BackendError,
    BackendHealth,
    BackendReadiness,
    ConfigError,
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
    Operation,
    SequentialBulk,
    ShieldedCalls,
    SynchronousWrites,
    normalise_error,
    release,
)
from memory.backends.graphiti.graphs import OpenGraphs
from memory.backends.graphiti.options import INGEST_MODES, GraphitiOptions, build_ontology
from memory.backends.graphiti.stores import make_store
from memory.backends.graphiti.translate import (
    ERRORS,
    KINDS,
    episode_body,
    event_id_of,
    group_of,
    in_utc,
    json_ready,
    to_entries,
    triplets_of,
)

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph, Stored

_BULK_WARNING = "written by add_episode_bulk: facts of this batch that contradict each other all stay valid"
_NOTHING = "there was nothing to send"


class GraphitiAdapter(SynchronousWrites, SequentialBulk):
    def __init__(self, settings: AdapterSettings[GraphitiOptions]) -> None:
        from memory.backends.graphiti.models import Models

        self.backend_name = settings.name
        options = self._options = settings.options
        # Graphiti has no bulk call for triplets.
        self._in_batches = options.bulk == "native" and options.ingest != "triplet"
        directory = (options.path or settings.data_dir / settings.name).expanduser()
        self._store = make_store(options, directory, settings.deadlines)
        listed = ("count", "edges", "nodes", "episodes")
        self.traits = AdapterTraits(
            kind="architecture",
            consistency="immediate",
            cs_filtering="soft",
            pet_observability="dated",
            bulk_size=None if self._in_batches else 1,
            asyncio_only=True,
            errors=ERRORS,
            store=options.location,
            packages=("graphiti-core", *self._store.packages),
            native_memory_types=tuple(KINDS),
            native_ingest_modes=INGEST_MODES,
            native_queries=dict.fromkeys(listed, Operation({"limit": PositiveInt})),
            native_mutations={"delete": Operation(native_id=True)},
            counts_llm_calls=True,
            extracts=options.ingest != "triplet",
            fallback_components=options.fallback_components,
        )
        self._ontology = build_ontology(options, settings.where)
        self._models = Models(options, settings.deadlines, settings.where)
        self.model_probes = self._models.probes
        self._body = partial(episode_body, ingest=options.ingest, cs_in_body=options.cs_in_body)
        self._failed: dict[str, str] = {}  # graphs whose last write failed, and why
        # By graph: events that may be stored only in part.
        self._doubts: defaultdict[str, set[str]] = defaultdict(set)
        self._graphs = OpenGraphs(self._unopened, settings, self._store, self._models)
        self._partitions_store = settings.store
        self.shielded: ShieldedCalls = self._graphs.shielded

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"group_id": group_of(scope)}

    def graph(
        self, scope: MemoryScope, *, writing: bool = False, clearing: bool = False
    ) -> AbstractAsyncContextManager[NativeGraph]:
        return self._graphs.graph(group_of(scope), writing=writing, clearing=clearing)

    def _unopened(self, group_id: str) -> NativeGraph:
        from memory.backends.graphiti.client import NativeGraph

        parts = (self._options, self._models, self._ontology, self.backend_name)
        return NativeGraph(self._store.graph(group_id), group_id, *parts)

    async def setup_scope(self, scope: MemoryScope) -> None:
        try:
            async with self.graph(scope):
                pass
        except OSError as error:
            if error.filename is None:
                raise  # a connection's error, not the path's
            raise ConfigError(
                f"memory.backends.{self.backend_name}.path: cannot be used ({error.strerror}); choose another"
            ) from error

    async def probe_scope(self, scope: MemoryScope) -> None:
        async with self.graph(scope) as graph:
            await graph.driver.probe()

    async def join_abandoned(self) -> None:
        await super().join_abandoned()
        for graph in list(self._graphs.opened.values()):
            await graph.idle()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        triplets = triplets_of(event) if self._options.ingest == "triplet" else None
        body, warnings = self._body(event)
        if not body and triplets is None:
            return self._receipt(event, "none", None, [*warnings, _NOTHING])
        doubts = self._doubts[group_of(event.scope)]
        with self._attempt(event.scope, {event.event_id}):
            async with self.graph(event.scope, writing=True) as graph:
                if event.event_id in doubts and (found := await graph.complete_or_remove(event.event_id)):
                    call, stored = "none", found
                elif triplets is None:
                    call, stored = "Graphiti.add_episode", await graph.add_episode(event, body)
                else:
                    call, stored = "Graphiti.add_triplet", await graph.add_triplets(event, body, triplets)
        return self._receipt(event, call, stored, warnings)

    @contextmanager
    def _attempt(self, scope: MemoryScope, event_ids: Collection[str]) -> Iterator[None]:
        """Note whether the body's write failed, and whether parts of its events may be stored."""
        group = group_of(scope)
        try:
            yield
        except BaseException as error:
            self._failed[group] = self._why(error)
            if not (isinstance(error, BackendError) and error.sent is False):
                self._doubts[group].update(event_ids)
            raise
        self._failed.pop(group, None)
        self._doubts[group].difference_update(event_ids)

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """Ready if the graph answers, its last write did not fail, and no event is stored in part."""
        answer = await super().readiness(scope)
        doubts = self._doubts[group_of(scope)]
        if doubts:
            async with self.graph(scope) as graph:
                await graph.idle()
                for event_id in list(doubts):
                    found, complete = await graph.parts_of(event_id)
                    if complete or not found:
                        doubts.discard(event_id)
        why = self._failed.get(group_of(scope), "its answer was lost")
        if doubts:
            detail = f"the last write failed, and part of it is stored; repeat it: {why}"
            return BackendReadiness(state="unknown", detail=detail)
        if answer.state == "ready" and group_of(scope) in self._failed:
            detail = f"the last write failed; nothing of it is stored: {why}"
            return BackendReadiness(state="failed", detail=detail)
        return answer

    def _why(self, error: BaseException) -> str:
        if not isinstance(error, Exception):
            return "it was cut off before its end"
        name = self.backend_name
        return str(normalise_error(error, backend_name=name, operation="record_event", table=ERRORS))

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        if not self._in_batches:
            return await super().record_events(events)
        made = [(event, *self._body(event)) for event in events]
        sent = [(event, body) for event, body, _ in made if body]
        ids = [event.event_id for event, _ in sent]
        stored: dict[str, Stored] = {}
        doubts = self._doubts[group_of(events[0].scope)]
        with self._attempt(events[0].scope, ids):
            async with self.graph(events[0].scope, writing=True) as graph:
                for event_id in doubts.intersection(ids):
                    stored[event_id] = await graph.complete_or_remove(event_id)
                stored |= await graph.add_batch(pair for pair in sent if not stored.get(pair[0].event_id))
        return [
            self._receipt(
                event,
                "Graphiti.add_episode_bulk",
                stored.get(event.event_id),
                [*warnings, _BULK_WARNING if body else _NOTHING],
            )
            for event, body, warnings in made
        ]

    def _receipt(
        self, event: MemoryEvent, operation: str, stored: Stored | None, warnings: list[str]
    ) -> WriteReceipt:
        if stored is not None and len(stored) == 1:
            warnings = [*warnings, "Graphiti extracted no fact from this event; only its episode is stored"]
        return self.receipt(event, operation, stored or (), warnings=warnings)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The event's native ids. None also if parts are missing, as after a failure without transactions."""
        async with self.graph(event.scope) as graph:
            found, complete = await graph.parts_of(event.event_id)
        if found and not complete:
            self._doubts[group_of(event.scope)].add(event.event_id)
        return found if found and complete else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        reranked = "cross_encoder" in self._options.recipe
        limit = request.budget.search_limit(self._options.top_k, reranked=reranked)
        async with self.graph(request.scope) as graph:
            found = await graph.search(request.query_with_cs, limit)
            events = await graph.events_of(found.edges)
        scores = {kind: getattr(found, f"{single}_reranker_scores") for kind, single in KINDS.items()}
        raw = {
            kind: list(map(json_ready, getattr(found, kind), chain(scores[kind], repeat(None))))
            for kind in KINDS
        }
        return RetrieveResult(
            request=request,
            raw=raw,
            entries=tuple(to_entries(raw, events, self._options.edge_types)),
            trace=self.trace(request.scope, "Graphiti.search_", consistency="committed"),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        async with self.graph(scope, writing=True, clearing=True) as graph:
            removed, verified = await graph.clear()
        self._doubts.pop(group_of(scope), None)
        self._failed.pop(group_of(scope), None)
        trace = self.trace(scope, "clear_data")
        return ResetReceipt(scope=scope, verified=verified, removed=removed, trace=trace)

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        native_id = str(request.native_id)
        async with self.graph(request.scope, writing=True) as graph:
            kind = await graph.remove(native_id)
        call = "Graphiti.remove_episode" if kind == "episode" else "EntityEdge.delete"
        trace = self.trace(request.scope, call, native_ids=(native_id,))
        raw = {"deleted": kind, "uuid": native_id}
        return NativeMutationReceipt(status="committed", native_ids=(native_id,), raw=raw, trace=trace)

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """Without ``native_id``, return the facts that were stored, ended or were invalidated in the range."""
        async with self.graph(request.scope) as graph:
            if request.native_id is None:
                edges = [edge for edge in await graph.all_of("edges") if request.includes(*_changes(edge))]
                episodes = await graph.episodes(sorted({uuid for edge in edges for uuid in edge.episodes}))
            else:
                edges, episodes = await graph.with_sources(request.native_id)
        events = (event_id_of(episode.source_description) for episode in episodes)
        return ProvenanceResult(
            raw={"edges": [*map(json_ready, edges)], "episodes": [*map(json_ready, episodes)]},
            native_ids=tuple(edge.uuid for edge in edges),
            event_ids=tuple(dict.fromkeys(event for event in events if event)),
            trace=self.trace(request.scope, "EpisodicNode.get_by_uuids"),
        )

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        operation = request.operation
        limit: Any = request.arguments.get("limit", 10_000)
        async with self.graph(request.scope) as graph:
            if operation == "count":
                return NativeQueryResult(raw=await graph.counts(), trace=self.trace(request.scope, "MATCH"))
            rows = [json_ready(record) for record in await graph.all_of(operation, limit)]
        raw = {operation: rows, "truncated": len(rows) == limit}
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, "get_by_group_ids"))

    async def health(self) -> BackendHealth:
        """Probe the store and the open graphs. Models are not called, because that would cost money."""
        options = self._options
        ranker = getattr(options.cross_encoder, "model", "lexical")
        await self._store.probe()
        for graph in list(self._graphs.opened.values()):
            await graph.driver.probe()
        return self.health_of(
            details={
                "ingest": options.chosen_modes,
                "driver": self._store.label,
                "open_graphs": len(self._graphs.opened),
                "llm": getattr(options.llm, "model", None),
                "embedder": self._models.embedder.name,
                "cross_encoder": ranker if "cross_encoder" in options.recipe else None,
                "recipe": options.recipe,
            },
            warnings=self._store.warnings,
        )

    async def aclose(self) -> None:
        """Close all parts, even if cancelled. A second call waits for the first."""
        await self.shielded.run("closing", self._close)
        await self.shielded.idle()

    async def _close(self) -> None:
        graphs = list(self._graphs.opened.values())
        self._graphs.opened.clear()
        try:
            await release(*(graph.close for graph in graphs), self._store.aclose, self._models.aclose)
        finally:
            self._partitions_store.close()


def _changes(edge: Any) -> Iterator[datetime]:
    for moment in (edge.created_at, edge.invalid_at, edge.expired_at):
        if moment is not None:
            yield in_utc(moment)
