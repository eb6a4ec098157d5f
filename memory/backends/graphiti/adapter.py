"""The contract in calls of ``graphiti_core.Graphiti``.

Every scope has a graph of its own, with one driver, one client and one lock; models, and connections to a server,
are shared. Graphiti runs on asyncio only.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from memory import (
    BackendError,
    BackendHealth,
    ConfigError,
    MemoryEvent,
    MemoryScope,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    RecentKeys,
    ResetReceipt,
    SequentialBulk,
    ShieldedCalls,
    SynchronousWrites,
    awaiting_turn,
    normalise_error,
    release,
)
from memory.backends.graphiti.options import GraphitiModel, GraphitiOptions, build_ontology
from memory.backends.graphiti.records import GraphitiRecords, mutations, queries
from memory.backends.graphiti.stores import NotSaved, make_store
from memory.backends.graphiti.translate import (
    ERRORS,
    KINDS,
    episode_body,
    group_of,
    json_ready,
    to_entries,
    triplets_of,
)

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph, Stored

_BULK_WARNING = "written by add_episode_bulk: facts of this batch that contradict each other all stay valid"
_NOTHING = "there was nothing to send"
_REMEMBERED_EVENTS = 1000  # whose last write had no certain end


class GraphitiAdapter(GraphitiRecords, SynchronousWrites, SequentialBulk):
    """Translates the contract into calls of ``graphiti_core.Graphiti``."""

    def __init__(self, settings: AdapterSettings[GraphitiOptions]) -> None:
        from memory.backends.graphiti.models import Models

        self.backend_name = settings.name
        self._directory: Path = (settings.options.path or settings.data_dir / settings.name).expanduser()
        self._store = make_store(settings.options, self._directory, settings.deadlines)
        self.traits = AdapterTraits(
            kind="architecture",
            consistency="immediate",
            cs_filtering="soft",
            pet_observability="dated",
            bulk_size=None if _in_batches(settings.options) else 1,
            asyncio_only=True,
            errors=ERRORS,
            store=_store_of(settings.options),
            packages=("graphiti-core", *self._store.packages),
            native_memory_types=KINDS,
            native_ingest_modes=_modes(settings.options),
            native_queries=queries(sagas=bool(settings.options.saga)),
            native_mutations=mutations(sagas=bool(settings.options.saga)),
            counts_llm_calls=True,
            fallback_components=settings.options.fallback_components,
        )
        self._options = settings.options
        self._ontology = build_ontology(settings.options, settings.where)
        self._models = Models(settings.options, settings.deadlines)
        self._graphs: dict[str, NativeGraph] = {}
        self._uncertain: RecentKeys[tuple[str, str]] = RecentKeys(_REMEMBERED_EVENTS)
        self._opening = anyio.Lock()
        self._ending = ShieldedCalls()
        self._closing: asyncio.Task[None] | None = None
        places = self._store.keeps_open or sys.maxsize
        self._places = [anyio.Semaphore(places, fast_acquire=True) for _ in range(2)]

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """``group_id``; also the name of the scope's directory."""
        return {"group_id": group_of(scope)}

    def graph(self, scope: MemoryScope, *, writing: bool = False, clearing: bool = False) -> _InUse:
        """The scope's open graph, which stays open meanwhile; cleared where it cannot be opened otherwise.

        Where open graphs hold memory, writes wait for writes of other scopes once so many are under way as may
        stay open, and reads for reads: a write may take as long as its model, and no read is to wait for that.
        """
        return _InUse(
            self._places[writing], lambda: self._graph(group_of(scope), clearing), self.backend_name
        )

    async def _graph(self, group_id: str, clearing: bool) -> NativeGraph:
        if group_id not in self._graphs:
            async with self._opening:
                if group_id not in self._graphs:
                    await self._make_room()
                    self._graphs[group_id] = await self._opened(group_id, clearing)
        graph = self._graphs[group_id] = self._graphs.pop(group_id)  # the last to be closed again
        return graph

    async def _opened(self, group_id: str, clearing: bool) -> NativeGraph:
        from memory.backends.graphiti.client import NativeGraph

        graph = NativeGraph(
            self._store.graph(group_id), group_id, self._options, self._models, self._ontology
        )
        try:
            try:
                await graph.driver.open()
            except Exception:
                if not clearing:
                    raise
                await graph.driver.clear(group_id)
        except BaseException:
            await self._ending.run(None, graph.close)
            raise
        return graph

    async def _make_room(self) -> None:
        """Close graphs that have not been used for longest, where each open one holds memory."""
        largest = self._store.keeps_open
        for group_id, graph in list(self._graphs.items()):
            if largest is None or len(self._graphs) < largest:
                return
            if not graph.busy:
                del self._graphs[group_id]
                await self._ending.run(None, graph.close)

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Open the scope's graph, or make it.

        Raises:
            BackendUnavailable: it is open elsewhere, or its server is not there.
            ConfigError: the directory cannot be created.
        """
        try:
            async with self.graph(scope):
                pass
        except OSError as error:
            if error.filename is None:
                raise  # of a connection
            raise ConfigError(
                f"memory.backends.{self.backend_name}.path: cannot be used ({error.strerror}); choose another"
            ) from error

    async def probe_scope(self, scope: MemoryScope) -> None:
        async with self.graph(scope) as graph:
            await graph.driver.probe()

    async def join_abandoned(self) -> None:
        for graph in list(self._graphs.values()):
            await graph.idle()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """``add_episode`` of the event, or ``add_triplet`` of the facts it carries.

        Raises:
            InputError: ``ingest: triplet`` and the event carries none.
        """
        triplets = triplets_of(event) if self._options.ingest == "triplet" else None
        body, warnings = self._body(event)
        if not body and triplets is None:
            return self._receipt(event, "none", None, [*warnings, _NOTHING])
        key = (group_of(event.scope), event.event_id)
        try:
            async with self.graph(event.scope, writing=True) as graph:
                if key in self._uncertain and (found := await graph.complete_or_remove(event.event_id)):
                    call, stored = "none", found
                elif triplets is None:
                    call, stored = "Graphiti.add_episode", await graph.add_episode(event, body)
                else:
                    call, stored = "Graphiti.add_triplet", await graph.add_triplets(event, body, triplets)
        except BaseException as error:
            if not (isinstance(error, BackendError) and error.sent is False):
                self._uncertain.add(key)
            raise
        self._uncertain.discard(key)
        return self._receipt(event, call, stored, warnings)

    def _body(self, event: MemoryEvent) -> tuple[str, list[str]]:
        return episode_body(event, self._options.ingest, cs_in_body=self._options.cs_in_body)

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """One ``add_episode`` after the other; with ``bulk: native`` one ``add_episode_bulk``.

        Raises:
            MemslotError: an event failed; ``receipts`` are of those written before it, later ones are not sent.
        """
        if _in_batches(self._options):
            return await self._record_batch(events)
        return await super().record_events(events)

    async def _record_batch(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        made = [(event, *self._body(event)) for event in events]
        sent = [(event, body) for event, body, _ in made if body]
        stored: dict[str, Stored] = {}
        if sent:
            async with self.graph(events[0].scope, writing=True) as graph:
                stored = await graph.add_batch(sent)
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
        """Ids of the event's episode and facts; None also where some of them are missing, as a server without
        transactions leaves it. Writing the event again then begins anew.
        """
        async with self.graph(event.scope) as graph:
            found, complete = await graph.parts_of(event.event_id)
        if found and not complete:
            self._uncertain.add((group_of(event.scope), event.event_id))
        return found if found and complete else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """``search_`` within the scope's group. Facts that no longer hold come with their ``invalid_at``."""
        limit = request.budget.search_limit(
            self._options.top_k, reranked="cross_encoder" in self._options.recipe
        )
        async with self.graph(request.scope) as graph:
            found = await graph.search(request.query_with_cs, limit)
            events = await graph.events_of(found.edges)
        scores = (
            found.edge_reranker_scores,
            found.node_reranker_scores,
            found.episode_reranker_scores,
            found.community_reranker_scores,
        )
        raw = {
            kind: list(map(json_ready, getattr(found, kind), chain(scored, repeat(None))))
            for kind, scored in zip(KINDS, scores, strict=True)
        }
        entries = tuple(to_entries(raw, events, self._options.edge_types))
        return RetrieveResult(
            request=request,
            raw=raw,
            entries=entries,
            trace=self.trace(request.scope, "Graphiti.search_", consistency="committed"),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """A blank file in place of the scope's, which need not be one that can be opened; on a server
        ``clear_data`` of its group. Then a count of what is left.
        """
        async with self.graph(scope, writing=True, clearing=True) as graph:
            removed, verified = await graph.clear()
        return ResetReceipt(
            scope=scope, verified=verified, removed=removed, trace=self.trace(scope, "clear_data")
        )

    async def health(self) -> BackendHealth:
        """Probe every open graph. The models are not called: that would cost money."""
        options = self._options
        await self._store.probe()
        problems = self._store.problems()
        for graph in list(self._graphs.values()):
            await graph.driver.probe()
            problems += await graph.driver.warnings()
        return self.health_of(
            "degraded" if problems else "ok",
            details={
                "driver": self._store.label,
                "open_graphs": len(self._graphs),
                "llm": options.llm.model if options.llm else None,
                "embedder": _label(options.embedder),
                "cross_encoder": _label(options.cross_encoder) if "cross_encoder" in options.recipe else None,
                "recipe": options.recipe,
            },
            warnings=(*self._store.warnings, *problems),
        )

    def model_probes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """The extracting model, and the embedder and cross-encoder where they are models."""
        return self._models.probes()

    async def aclose(self) -> None:
        """Close every graph and every HTTP client, whichever of them fails. Idempotent; goes on when cancelled."""
        if self._closing is None:
            graphs, self._graphs = list(self._graphs.values()), {}
            steps = (*(graph.close for graph in graphs), self._ending.idle)
            self._closing = asyncio.ensure_future(release(*steps, self._store.aclose, self._models.aclose))
        await asyncio.shield(self._closing)


class _InUse:
    """Around the use of a graph: a class, as a generator of this kind costs a search more than its rows."""

    def __init__(
        self, place: anyio.Semaphore, opened: Callable[[], Awaitable[NativeGraph]], backend_name: str
    ) -> None:
        self._place = place
        self._opened = opened
        self._name = backend_name

    async def __aenter__(self) -> NativeGraph:
        if self._place.value:
            self._place.acquire_nowait()
        else:
            with awaiting_turn(last=False):
                await self._place.acquire()
        try:
            self._graph = await self._opened()
        except BaseException:
            self._place.release()
            raise
        self._graph.users += 1
        return self._graph

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._graph.users -= 1
        self._place.release()
        if isinstance(error, NotSaved):
            cause = error.__cause__ or error
            failure = normalise_error(cause, backend_name=self._name, operation="the write", table=ERRORS)
            failure.sent = False  # also where a model's answer was lost: nothing is stored
            raise failure from cause


def _store_of(options: GraphitiOptions) -> str:
    """What tells one graph database from another: its driver and where it stands, and no key."""
    server = getattr(options, options.driver, None)
    named = [str(getattr(server, key)) for key in ("uri", "host", "port", "database") if hasattr(server, key)]
    return "|".join([options.driver, str(options.path or ""), *named])


def _in_batches(options: GraphitiOptions) -> bool:
    """Whether a preload is ``add_episode_bulk``; of triplets there is none."""
    return options.bulk == "native" and options.ingest != "triplet"


def _modes(options: GraphitiOptions) -> tuple[str, ...]:
    chosen = {
        "bulk": options.bulk == "native",
        "custom_entity_types": options.entity_types,
        "custom_edge_types": options.edge_types,
        "saga": options.saga,
    }
    return (options.ingest, *(name for name, used in chosen.items() if used))


def _label(model: str | GraphitiModel) -> str:
    return model if isinstance(model, str) else model.model
