"""One scope's graph: its driver, its ``Graphiti``, and the native calls the adapter needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar

from graphiti_core import Graphiti
from graphiti_core.edges import Edge, EntityEdge
from graphiti_core.errors import EdgeNotFoundError, GroupsEdgesNotFoundError, GroupsNodesNotFoundError
from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode, Node
from graphiti_core.search import search_config_recipes as recipes
from graphiti_core.search.search_config import SearchConfig, SearchResults
from graphiti_core.search.search_filters import ComparisonOperator, DateFilter, SearchFilters
from graphiti_core.utils.bulk_utils import RawEpisode

from memory import BackendError, MemoryEvent, MemslotError, ScopeError
from memory.adapter import ShieldedCalls, awaiting_turn, normalise_error
from memory.backends.graphiti.models import Models
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.stores import ScopeGraph, Write
from memory.backends.graphiti.translate import ERRORS, Triplet, description, event_id_of

_OWNERS: Any = {"edges": EntityEdge, "nodes": EntityNode, "episodes": EpisodicNode}
_REMEMBERED_EPISODES = 10_000
T = TypeVar("T")
_RECIPES = {
    "hybrid": recipes.EDGE_HYBRID_SEARCH_RRF,
    "mmr": recipes.EDGE_HYBRID_SEARCH_MMR,
    "cross_encoder": recipes.EDGE_HYBRID_SEARCH_CROSS_ENCODER,
    "combined": recipes.COMBINED_HYBRID_SEARCH_RRF,
    "combined_mmr": recipes.COMBINED_HYBRID_SEARCH_MMR,
    "combined_cross_encoder": recipes.COMBINED_HYBRID_SEARCH_CROSS_ENCODER,
}
Stored = tuple[str, ...]  # native ids of an event: its episode, then the facts that have it as a source


class NativeGraph:
    def __init__(
        self,
        driver: ScopeGraph,
        group_id: str,
        options: GraphitiOptions,
        models: Models,
        ontology: Mapping[str, Any],
        backend_name: str,
    ) -> None:
        self._backend_name = backend_name
        self.driver = driver
        self.group_id = group_id
        self._options = options
        self._models = models
        self._ontology = ontology
        self.graphiti = Graphiti(
            graph_driver=driver,
            llm_client=models.llm,
            embedder=models.embedder,
            cross_encoder=models.cross_encoder,
        )
        self._calls = ShieldedCalls()
        self._recipe = cache(partial(make_recipe, options))
        self._filter = make_filter(options)
        self._events: dict[str, str | None] = {}  # by episode uuid, so that searches need no query for them
        self.users = 0

    async def events_of(self, edges: Iterable[EntityEdge]) -> Mapping[str, str | None]:
        """Event ids by episode uuid, at least for these facts. One query fetches unknown episodes."""
        unknown = {episode for edge in edges for episode in edge.episodes if episode not in self._events}
        if len(self._events) >= _REMEMBERED_EPISODES:
            self._events.clear()
        for episode in await self.episodes(sorted(unknown)) if unknown else ():
            self._events[episode.uuid] = event_id_of(episode.source_description)
        return self._events

    async def find(self, native_id: str) -> EntityEdge | EpisodicNode:
        for found in await self.edges([native_id]) or await self.episodes([native_id]):
            return found
        raise ScopeError("native_id names no fact and no episode of this scope")

    async def with_sources(self, native_id: str) -> tuple[list[EntityEdge], list[EpisodicNode]]:
        found = await self.find(native_id)
        if isinstance(found, EntityEdge):
            return [found], await self.episodes(found.episodes)
        return await self.edges(found.entity_edges), [found]

    async def episodes(self, uuids: Sequence[str]) -> list[EpisodicNode]:
        return await self._by_uuid(EpisodicNode, uuids)

    async def edges(self, uuids: Sequence[str]) -> list[EntityEdge]:
        return await self._by_uuid(EntityEdge, uuids)

    async def _by_uuid(self, owner: Any, uuids: Sequence[str]) -> list[Any]:
        """Records in the order of ``uuids``, without deleted records and those of other groups."""
        place = {uuid: at for at, uuid in enumerate(uuids)}
        try:
            found = await owner.get_by_uuids(self.driver, list(uuids)) if uuids else []
        except EdgeNotFoundError:
            return []
        ours = (record for record in found if record.group_id == self.group_id)
        return sorted(ours, key=lambda record: place[record.uuid])

    async def all_of(self, kind: str, limit: int | None = None) -> list[Any]:
        try:
            return list(await _OWNERS[kind].get_by_group_ids(self.driver, [self.group_id], limit=limit))
        except (GroupsEdgesNotFoundError, GroupsNodesNotFoundError):
            return []

    async def episodes_of_event(self, event_id: str) -> list[EpisodicNode]:
        return await self.episodes(await self.uuids_of_events([event_id]))

    async def parts_of(self, event_id: str) -> tuple[tuple[str, ...], bool]:
        """Ids of an event's episodes and facts, and whether all are saved. An episode names its facts last."""
        episodes = await self.episodes_of_event(event_id)
        named = list(dict.fromkeys(fact for episode in episodes for fact in episode.entity_edges))
        facts = await self.edges(named)
        batches = self._options.bulk == "native"
        nameless = (episode for episode in episodes if not episode.entity_edges)
        begun = any(batches or episode.source is EpisodeType.fact_triple for episode in nameless)
        found = (*(episode.uuid for episode in episodes), *(fact.uuid for fact in facts))
        return tuple(dict.fromkeys(found)), len(facts) == len(named) and not begun

    async def uuids_of_events(self, names: list[str]) -> list[str]:
        query = "MATCH (e:Episodic) WHERE e.group_id = $group_id AND e.name IN $names RETURN e.uuid AS uuid"
        rows, _, _ = await self.driver.execute_query(query, group_id=self.group_id, names=names)
        return [row["uuid"] for row in rows]

    async def vector_length(self) -> int | None:
        """The length of the graph's vectors, None without any. Each belongs to an entity or to a fact of two."""
        where = "n.group_id = $group_id AND n.name_embedding IS NOT NULL"
        query = f"MATCH (n:Entity) WHERE {where} RETURN n.name_embedding AS vector LIMIT 1"
        rows, _, _ = await self.driver.execute_query(query, group_id=self.group_id)
        return len(rows[0]["vector"]) if rows else None

    async def counts(self) -> dict[str, int]:
        found = {}
        for label, pattern in self.driver.counted.items():
            query = f"MATCH {pattern} WHERE n.group_id = $group_id RETURN count(*) AS found"
            rows, _, _ = await self.driver.execute_query(query, group_id=self.group_id)
            found[label] = rows[0]["found"]
        return found

    @property
    def busy(self) -> bool:
        return self.users > 0 or self._calls.busy()

    async def alone(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run writes one by one, because concurrent writes would duplicate entities and invalidate no facts."""
        write = Write()

        async def in_turn() -> T:
            write.begin()
            with awaiting_turn(last=False):  # nothing is sent before the first save
                await self.driver.writing.acquire()
            try:
                return await call()
            finally:
                self.driver.writing.release()

        try:
            with awaiting_turn(last=False):  # marks a cancelled write before its waiting task does
                return await self._calls.run(None, in_turn)
        except asyncio.CancelledError:
            write.abandon()
            raise
        except MemslotError as error:
            if isinstance(error, BackendError):
                error.sent = write.saving
            raise
        except Exception as error:
            if write.saving:
                raise
            name = self._backend_name
            failure = normalise_error(error, backend_name=name, operation="the write", table=ERRORS)
            failure.sent = False  # nothing is stored, even if a model's answer was lost
            raise failure from error

    async def idle(self) -> None:
        await self._calls.idle()
        await self.driver.idle()

    async def close(self) -> None:
        await self.idle()
        await self.driver.close()

    async def add_episode(self, event: MemoryEvent, body: str) -> Stored:
        async def add() -> Stored:
            added = await self.graphiti.add_episode(
                name=event.event_id,
                episode_body=body,
                source_description=description(event),
                reference_time=event.timestamp,
                source=EpisodeType[self._options.ingest],
                **self._extraction_arguments(),
            )
            return _stored(added.episode, added.edges)

        return await self.alone(add)

    def _extraction_arguments(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "custom_extraction_instructions": self._options.custom_instructions,
            **{name: copy(given) for name, given in self._ontology.items()},  # Graphiti may change them
        }

    async def add_batch(self, pairs: Iterable[tuple[MemoryEvent, str]]) -> dict[str, Stored]:
        batch = [
            RawEpisode(
                name=event.event_id,
                content=body,
                source_description=description(event),
                source=EpisodeType[self._options.ingest],
                reference_time=event.timestamp,
            )
            for event, body in pairs
        ]

        async def add() -> dict[str, Stored]:
            added = await self.graphiti.add_episode_bulk(batch, **self._extraction_arguments())
            return {episode.name: _stored(episode, added.edges) for episode in added.episodes}

        return await self.alone(add) if batch else {}

    async def add_triplets(self, event: MemoryEvent, body: str, triplets: Sequence[Triplet]) -> Stored:
        """Call ``add_triplet`` for each, with an episode of the event as the source. Nothing is extracted."""

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
            made = [self._triple(triplet, episode) for triplet in triplets]
            await self._embed(made)  # before anything is saved, because an embedder may fail
            # Saved first, so that a look-up finds an event that a kill or a failure left incomplete.
            await episode.save(self.driver)
            edges: list[Any] = []
            for triple in made:
                added = await self.graphiti.add_triplet(*triple, episode)
                edges.extend(added.edges)
            stored = _stored(episode, edges)
            episode.entity_edges = list(stored[1:])
            await episode.save(self.driver)
            return stored

        return await self.alone(add)

    async def complete_or_remove(self, event_id: str) -> Stored:
        """Return the ids of a completely stored event. Otherwise remove its parts and return no ids."""

        async def look() -> Stored:
            found, complete = await self.parts_of(event_id)
            if complete:
                return found
            for episode in await self.episodes_of_event(event_id):
                facts = [edge.uuid for edge in await self.all_of("edges") if edge.episodes == [episode.uuid]]
                made = [
                    node.uuid for node in await self.all_of("nodes") if node.created_at == episode.created_at
                ]
                if facts:
                    await Edge.delete_by_uuids(self.driver, facts)
                await Node.delete_by_uuids(self.driver, [*made, episode.uuid])
            return ()

        return await self.alone(look)

    async def _embed(self, triples: Sequence[tuple[Any, Any, Any]]) -> None:
        texts = [
            text.replace("\n", " ")
            for source, edge, target in triples
            for text in (source.name, edge.fact, target.name)
        ]
        vectors = iter(await self._models.embedder.create_batch(texts))
        for source, edge, target in triples:
            source.name_embedding, edge.fact_embedding, target.name_embedding = itertools.islice(vectors, 3)

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
            fact=triplet.fact or f"{triplet.source} {triplet.relation} {triplet.target}",
            episodes=[episode.uuid],
            valid_at=triplet.valid_at or episode.valid_at,
            invalid_at=triplet.invalid_at,
            reference_time=episode.valid_at,
        )
        return source, edge, target

    async def remove(self, native_id: str) -> str:
        """Delete a fact, or an episode with everything that only it supports. Returns the deleted kind."""

        async def delete() -> str:
            found = await self.find(native_id)
            if isinstance(found, EntityEdge):
                await found.delete(self.driver)
                return "edge"
            await self.graphiti.remove_episode(native_id)
            return "episode"

        return await self.alone(delete)

    async def clear(self) -> tuple[int | None, bool]:
        """Delete the graph. Returns the number of deleted nodes and facts, if known, and whether none is left."""

        async def delete() -> tuple[int | None, bool]:
            before = None
            with suppress(Exception):
                before = sum((await self.counts()).values())
            await self.driver.clear(self.group_id)
            left = sum((await self.counts()).values())
            return None if before is None else before - left, left == 0

        return await self.alone(delete)

    async def search(self, query: str, limit: int) -> SearchResults:
        """Search with a copy of the recipe: ``Graphiti.search`` changes that of ingestion. Runs on if abandoned."""

        async def find() -> SearchResults:
            return await self.graphiti.search_(
                query,
                config=self._recipe(limit),
                group_ids=[self.group_id],
                search_filter=self._filter,
                query_vector=await self._models.embedder.embed_query(query),
            )

        return await self._calls.run(None, find)


def _stored(episode: EpisodicNode, edges: Iterable[EntityEdge]) -> Stored:
    return episode.uuid, *dict.fromkeys(edge.uuid for edge in edges if episode.uuid in edge.episodes)


def make_recipe(options: GraphitiOptions, limit: int) -> SearchConfig:
    recipe = _RECIPES[options.recipe].model_copy(deep=True)
    recipe.limit = limit
    recipe.reranker_min_score = options.least_rerank
    for part in (recipe.edge_config, recipe.node_config, recipe.community_config):
        if part is not None:
            part.sim_min_score = options.least_similarity
    return recipe


def make_filter(options: GraphitiOptions) -> SearchFilters:
    if not options.only_valid:
        return SearchFilters()
    return SearchFilters(invalid_at=[[DateFilter(comparison_operator=ComparisonOperator.is_null)]])
