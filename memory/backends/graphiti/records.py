"""What can be asked of, and done to, single native records of Graphiti: mutation, provenance, queries."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from memory import (
    InputError,
    MemoryScope,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
)
from memory.adapter import BaseAdapter, NativeMutationReceipt, NativeQueryResult, Operation, ProvenanceResult
from memory.backends.graphiti.translate import event_id_of, in_utc, json_ready

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph

_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def queries(*, sagas: bool) -> dict[str, Operation]:
    lists = ("count", "edges", "nodes", "episodes", *(["sagas"] if sagas else []))
    return dict.fromkeys(lists, Operation({"limit": PositiveInt}))


def mutations(*, sagas: bool) -> dict[str, Operation]:
    of_records = ("delete", "remove_episode", *(["summarize_saga"] if sagas else []))
    return {"build_communities": Operation(), **dict.fromkeys(of_records, Operation(native_id=True))}


class GraphitiRecords(BaseAdapter):
    """The capabilities on single records, for an adapter that can open a scope's graph."""

    def graph(self, scope: MemoryScope, *, writing: bool = False) -> AbstractAsyncContextManager[NativeGraph]:
        """The scope's open graph, which stays open meanwhile."""
        raise NotImplementedError

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """``delete`` of a fact, or of an episode (``remove_episode``) with all that only it supports;
        ``build_communities``, which the ``combined`` recipes then find; or ``summarize_saga``.

        Raises:
            ScopeError: the scope has no fact, episode or saga of that id.
        """
        operation, native_id = request.operation, str(request.native_id)
        ids = () if operation == "build_communities" else (native_id,)
        async with self.graph(request.scope, writing=True) as graph:
            raw: dict[str, Any]
            if operation == "build_communities":
                call, raw = f"Graphiti.{operation}", {"communities": await graph.build_communities()}
            elif operation == "summarize_saga":
                call, raw = (
                    f"Graphiti.{operation}",
                    {"saga": json_ready(await graph.summarize_saga(native_id))},
                )
            else:
                kind = await graph.remove(native_id, episode=operation == "remove_episode")
                call = "Graphiti.remove_episode" if kind == "episode" else "EntityEdge.delete"
                raw = {"deleted": kind, "uuid": native_id}
        trace = self.trace(request.scope, call, native_ids=ids)
        return NativeMutationReceipt(status="committed", native_ids=ids, raw=raw, trace=trace)

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """The source episodes of a fact, the facts of an episode, or the facts invalidated in a time range.

        Without ``native_id``: facts whose ``invalid_at`` lies in the range; ``arguments={"by": "expired_at"}``
        goes by when Graphiti learned it.

        Raises:
            ScopeError: the scope has no fact and no episode of that id.
            InputError: an argument is unknown.
        """
        async with self.graph(request.scope) as graph:
            if request.native_id is None:
                edges = await self._invalidated(graph, request)
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

    async def _invalidated(self, graph: NativeGraph, request: ProvenanceRequest) -> list[Any]:
        by = request.arguments.get("by", "invalid_at")
        if request.arguments.keys() - {"by"} or by not in ("invalid_at", "expired_at"):
            raise InputError("ProvenanceRequest.arguments takes by alone: invalid_at or expired_at")

        since, until = request.since or _FIRST, request.until or _LAST
        edges = await graph.all_of("edges")
        return [edge for edge in edges if (at := getattr(edge, by)) and since <= in_utc(at) <= until]

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``count`` what the group holds, or list one kind of it, such as ``edges`` (argument ``limit``)."""
        operation = request.operation
        limit: Any = request.arguments.get("limit", 10_000)
        async with self.graph(request.scope) as graph:
            if operation == "count":
                return NativeQueryResult(raw=await graph.counts(), trace=self.trace(request.scope, "MATCH"))
            rows = [json_ready(record) for record in await graph.all_of(operation, limit)]
        raw = {operation: rows, "truncated": len(rows) == limit}
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, "get_by_group_ids"))
