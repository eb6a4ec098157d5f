"""One scope's graph: its driver, its ``Graphiti``, its lock, and the native calls the adapter needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from graphiti_core import Graphiti
from graphiti_core.edges import EntityEdge
from graphiti_core.errors import (
    EdgeNotFoundError,
    GroupsEdgesNotFoundError,
    GroupsNodesNotFoundError,
    NodeNotFoundError,
)
from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode, SagaNode
from graphiti_core.search.search_config import SearchConfig, SearchResults
from graphiti_core.utils.bulk_utils import RawEpisode
from graphiti_core.utils.maintenance.graph_data_operations import clear_data

from memory import MemoryEvent, ScopeError
from memory.backends.graphiti_opening import Clients
from memory.backends.graphiti_options import GraphitiOptions
from memory.backends.graphiti_search import make_filter, make_recipe
from memory.backends.graphiti_stores import ScopeGraph
from memory.backends.graphiti_translate import Triplet, description, event_id_of
from memory.backends.graphiti_turn import Turn
from memory.backends.graphiti_types import Ontology

__all__ = ["NativeGraph", "Stored"]

T = TypeVar("T")
_OWNERS = {"edges": EntityEdge, "nodes": EntityNode, "episodes": EpisodicNode, "sagas": SagaNode}
_REMEMBERED_EPISODES = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    """What an event became: its episode, the facts that name it as a source, and facts it put an end to."""

    episode: str
    facts: tuple[str, ...]
    invalidated: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.episode, *self.facts)


class NativeGraph:
    """A scope's graph.

    Args:
        driver: to its database.
        group_id: the scope's native id; sent with every call, because none searches everything.
        options: the configuration block.
        clients: models, shared by all scopes.
        ontology: the types of entities and facts to tell apart.
    """

    def __init__(
        self,
        driver: ScopeGraph,
        group_id: str,
        options: GraphitiOptions,
        clients: Clients,
        ontology: Ontology,
    ) -> None:
        self.group_id = group_id
        self.driver = driver
        self._options = options
        self._ontology = ontology
        self.graphiti = Graphiti(
            graph_driver=self.driver,
            llm_client=clients.llm,
            embedder=clients.embedder,
            cross_encoder=clients.cross_encoder,
        )
        self._lock = asyncio.Lock()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._events: dict[str, str | None] = {}
        self._recipes: dict[int, SearchConfig] = {}
        self._filter = make_filter(options)
        self.users = 0

    @property
    def busy(self) -> bool:
        """Whether a call is under way, given up or not."""
        return self.users > 0 or bool(self._jobs)

    # -- order and life ---------------------------------------------------------------------------------

    async def alone(self, call: Callable[[], Awaitable[T]]) -> T:
        """A write, after the one before it has ended. Concurrent ones would duplicate entities and invalidate
        nothing. When given up it ends early, and what it was saving is rolled back."""
        turn = Turn()

        async def in_turn() -> T:
            Turn.current.set(turn)
            async with self._lock:
                return await call()

        try:
            return await self._outlasting(in_turn())
        except asyncio.CancelledError:
            turn.give_up()
            raise

    async def _outlasting(self, call: Coroutine[Any, Any, T]) -> T:
        """A call in a task of its own, which ends by itself when nobody waits for it any more."""
        job = asyncio.ensure_future(call)
        self._jobs.add(job)
        job.add_done_callback(self._ended)
        return await asyncio.shield(job)

    def _ended(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # else asyncio complains of what nobody waited for

    async def idle(self) -> None:
        """Wait until writes that were given up, and queries they had sent, have ended."""
        if self._jobs:
            await asyncio.wait(set(self._jobs))
        await self.driver.idle()

    async def close(self) -> None:
        """Free the database's files and its thread."""
        await self.idle()
        await self.driver.close()

    # -- writing ----------------------------------------------------------------------------------------

    async def add_episode(self, event: MemoryEvent, body: str) -> Stored:
        """``add_episode``: extraction, reconciliation, and one save."""
        options = self._options

        async def add() -> Stored:
            added = await self.graphiti.add_episode(
                name=event.event_id,
                episode_body=body,
                source_description=description(event),
                reference_time=event.timestamp,
                source=EpisodeType[options.ingest],
                group_id=self.group_id,
                custom_extraction_instructions=options.custom_instructions,
                saga=self._saga(event),
                **self._ontology.arguments,
            )
            return self._stored(added.episode, added.edges)

        return await self.alone(add)

    def _saga(self, event: MemoryEvent) -> str | None:
        return event.session_id if self._options.saga == "session" else None

    async def add_batch(self, events: Sequence[MemoryEvent], bodies: Sequence[str]) -> list[Stored]:
        """``add_episode_bulk``: one extraction over many episodes; contradictions among them stay.

        A saga takes whole batches, so sessions that become sagas are batches of their own.
        """
        stored: list[Stored] = []
        pairs = zip(events, bodies, strict=True)
        for _, batch in itertools.groupby(pairs, key=lambda pair: self._saga(pair[0])):
            stored.extend(await self._add_batch(list(batch)))
        return stored

    async def _add_batch(self, pairs: Sequence[tuple[MemoryEvent, str]]) -> list[Stored]:
        source = EpisodeType[self._options.ingest]
        batch = [
            RawEpisode(
                name=event.event_id,
                content=body,
                source_description=description(event),
                source=source,
                reference_time=event.timestamp,
            )
            for event, body in pairs
        ]

        async def add() -> list[Stored]:
            added = await self.graphiti.add_episode_bulk(
                batch,
                group_id=self.group_id,
                custom_extraction_instructions=self._options.custom_instructions,
                saga=self._saga(pairs[0][0]),
                strict_edge_types=self._options.strict_edge_types,
                **self._ontology.arguments,
            )
            by_name = {episode.name: episode for episode in added.episodes}
            return [self._stored(by_name[event.event_id], added.edges) for event, _ in pairs]

        return await self.alone(add)

    def _stored(self, episode: Any, edges: Iterable[Any]) -> Stored:
        self._remember(episode.uuid, event_id_of(episode.source_description))
        facts = [edge.uuid for edge in edges if episode.uuid in edge.episodes]
        ended = [edge.uuid for edge in edges if edge.invalid_at is not None and edge.uuid not in facts]
        return Stored(episode.uuid, tuple(dict.fromkeys(facts)), tuple(dict.fromkeys(ended)))

    async def add_triplets(self, event: MemoryEvent, body: str, triplets: Sequence[Triplet]) -> Stored:
        """``add_triplet`` of each, with an episode of the event as their source. Nothing is extracted."""

        async def add() -> Stored:
            episode = EpisodicNode(
                name=event.event_id,
                group_id=self.group_id,
                source=EpisodeType.fact_triple,
                source_description=description(event),
                content=body,
                valid_at=event.timestamp,
                created_at=datetime.now(UTC),
            )
            edges = []
            for triplet in triplets:
                added = await self.graphiti.add_triplet(*self._triple(triplet, episode), episode)
                edges.extend(added.edges)
            stored = self._stored(episode, edges)
            episode.entity_edges = list(stored.facts)
            await episode.save(self.driver)
            return stored

        return await self.alone(add)

    def _triple(self, triplet: Triplet, episode: Any) -> tuple[Any, Any, Any]:
        source, target = (
            EntityNode(name=name, group_id=self.group_id, labels=["Entity"], created_at=episode.created_at)
            for name in (triplet.source, triplet.target)
        )
        edge = EntityEdge(
            group_id=self.group_id,
            source_node_uuid=source.uuid,
            target_node_uuid=target.uuid,
            created_at=episode.created_at,
            name=triplet.relation,
            fact=triplet.fact,
            episodes=[episode.uuid],
            valid_at=triplet.valid_at,
            invalid_at=triplet.invalid_at,
            reference_time=episode.valid_at,
        )
        return source, edge, target

    async def remove(self, native_id: str) -> str:
        """Delete a fact, or an episode with all that only it supports. Says which it was.

        Raises:
            ScopeError: this graph has neither.
        """

        async def delete() -> str:
            edge, episode = await self.find(native_id)
            if edge is not None:
                await edge.delete(self.driver)
                return "edge"
            await self.graphiti.remove_episode(episode.uuid)
            self._events.pop(episode.uuid, None)
            return "episode"

        return await self.alone(delete)

    async def build_communities(self) -> int:
        """``build_communities`` of the group, in place of those it had; how many there are.

        ``add_episode(update_communities=True)`` is of no use: in 0.31 it fails after it has saved.
        """

        async def build() -> int:
            communities, _ = await self.graphiti.build_communities(group_ids=[self.group_id])
            return len(communities)

        return await self.alone(build)

    async def summarize_saga(self, saga: str) -> Any:
        """``summarize_saga``: what its episodes said since the last time is added to its summary.

        Raises:
            ScopeError: this graph has no such saga.
        """

        async def summarize() -> Any:
            if saga not in {one.uuid for one in await self.all_of("sagas")}:
                raise ScopeError("native_id names no saga of this scope")
            return await self.graphiti.summarize_saga(saga)

        return await self.alone(summarize)

    async def clear(self) -> tuple[int, bool]:
        """``clear_data`` of the group and, where nothing is left of it, a blank file in place of the old one.

        Returns how many nodes and facts went, and whether looking again found none.
        """

        async def delete() -> tuple[int, bool]:
            before = sum((await self.counts()).values())
            await clear_data(self.driver, [self.group_id])
            self._events.clear()
            if sum((await self.counts()).values()) == 0:
                await self.driver.renew()
            left = sum((await self.counts()).values())
            return before - left, left == 0

        return await self.alone(delete)

    # -- reading ----------------------------------------------------------------------------------------

    async def search(self, query: str, limit: int) -> SearchResults:
        """``search_`` with a recipe of our own: ``search`` would change the global one, and thus ingestion."""
        return await self._outlasting(
            self.graphiti.search_(
                query,
                config=self._recipe(limit),
                group_ids=[self.group_id],
                search_filter=self._filter,
            )
        )

    def _recipe(self, limit: int) -> SearchConfig:
        """The configured recipe for so many results: a copy, which only this graph's searches see."""
        if limit not in self._recipes:
            self._recipes[limit] = make_recipe(self._options, limit)
        return self._recipes[limit]

    async def events_of(self, edges: Iterable[Any]) -> Mapping[str, str | None]:
        """Event ids by episode uuid; one query for episodes of earlier processes, none for the others."""
        wanted = {episode for edge in edges for episode in edge.episodes}
        unknown = sorted(wanted - self._events.keys())
        if unknown:
            for episode in await EpisodicNode.get_by_uuids(self.driver, unknown):
                self._remember(episode.uuid, event_id_of(episode.source_description))
        return {uuid: self._events.get(uuid) for uuid in wanted}

    def _remember(self, episode: str, event_id: str | None) -> None:
        if len(self._events) >= _REMEMBERED_EPISODES:
            self._events.pop(next(iter(self._events)))
        self._events[episode] = event_id

    async def find(self, native_id: str) -> tuple[Any, Any]:
        """(fact, None) or (None, episode) of that id.

        Raises:
            ScopeError: this graph has neither.
        """
        try:
            return await EntityEdge.get_by_uuid(self.driver, native_id), None
        except EdgeNotFoundError:
            pass
        try:
            return None, await EpisodicNode.get_by_uuid(self.driver, native_id)
        except NodeNotFoundError:
            raise ScopeError("native_id names no fact and no episode of this scope") from None

    async def episodes(self, uuids: Sequence[str]) -> list[Any]:
        """Episodes by uuid; those that are gone are left out."""
        return list(await EpisodicNode.get_by_uuids(self.driver, list(uuids))) if uuids else []

    async def edges(self, uuids: Sequence[str]) -> list[Any]:
        """Facts by uuid; those that are gone are left out."""
        try:
            return list(await EntityEdge.get_by_uuids(self.driver, list(uuids))) if uuids else []
        except EdgeNotFoundError:
            return []

    async def all_of(self, kind: str, limit: int | None = None) -> list[Any]:
        """All facts (``edges``), ``nodes``, ``episodes`` or ``sagas`` of the group."""
        owner = _OWNERS[kind]
        try:
            return list(await owner.get_by_group_ids(self.driver, [self.group_id], limit=limit))
        except (GroupsEdgesNotFoundError, GroupsNodesNotFoundError):
            return []

    async def episodes_of_event(self, event_id: str) -> list[Any]:
        """Episodes written for an event; more than one if it was written more than once."""
        rows, _, _ = await self.driver.execute_query(
            "MATCH (e:Episodic) WHERE e.group_id = $group_id AND e.name = $name RETURN e.uuid AS uuid",
            group_id=self.group_id,
            name=event_id,
        )
        return await self.episodes([row["uuid"] for row in rows])

    async def counts(self) -> dict[str, int]:
        """How many facts, and nodes of each kind, the group has, by the labels they have in this database."""
        found = {}
        for label, pattern in self.driver.counted.items():
            rows, _, _ = await self.driver.execute_query(
                f"MATCH {pattern} WHERE n.group_id = $group_id RETURN count(*) AS found",
                group_id=self.group_id,
            )
            found[label] = rows[0]["found"]
        return found

    async def probe(self) -> None:
        """The cheapest query there is."""
        await self.driver.execute_query("RETURN 1 AS one")
