"""Single records of a scope's graph, and how many there are.

Imports the SDK, so it is imported only after :func:`memory.backends.graphiti.opening.import_sdk`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphiti_core.edges import EntityEdge
from graphiti_core.errors import (
    EdgeNotFoundError,
    GroupsEdgesNotFoundError,
    GroupsNodesNotFoundError,
)
from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode, SagaNode

from memory import ScopeError
from memory.backends.graphiti.stores import ScopeGraph
from memory.backends.graphiti.translate import event_id_of

_OWNERS: dict[str, Any] = {
    "edges": EntityEdge,
    "nodes": EntityNode,
    "episodes": EpisodicNode,
    "sagas": SagaNode,
}
_REMEMBERED_EPISODES = 10_000


class GraphLookups:
    """Reading a scope's graph by ids.

    Args:
        driver: to its database.
        group_id: the scope's native id; sent with every call, because none searches everything.
    """

    def __init__(self, driver: ScopeGraph, group_id: str) -> None:
        self.driver = driver
        self.group_id = group_id
        self._events: dict[str, str | None] = {}

    async def events_of(self, edges: Iterable[EntityEdge]) -> Mapping[str, str | None]:
        """Event ids by episode uuid, at least of these facts; one query for episodes of earlier processes."""
        unknown = {episode for edge in edges for episode in edge.episodes if episode not in self._events}
        for episode in await self.episodes(sorted(unknown)) if unknown else ():
            self.remember(episode.uuid, event_id_of(episode.source_description))
        return self._events

    def remember(self, episode: str, event_id: str | None) -> None:
        """Which event an episode was, so that no search needs to ask."""
        if len(self._events) >= _REMEMBERED_EPISODES:
            self._events.pop(next(iter(self._events)))
        self._events[episode] = event_id

    async def find(self, native_id: str) -> EntityEdge | EpisodicNode:
        """The fact or the episode of that id; ScopeError where this graph has neither."""
        for found in await self.edges([native_id]) or await self.episodes([native_id]):
            return found
        raise ScopeError("native_id names no fact and no episode of this scope")

    async def with_sources(self, native_id: str) -> tuple[list[EntityEdge], list[EpisodicNode]]:
        """A fact and its episodes, or an episode and its facts; raises as :meth:`find`."""
        found = await self.find(native_id)
        if isinstance(found, EntityEdge):
            return [found], await self.episodes(found.episodes)
        return await self.edges(found.entity_edges), [found]

    async def episodes(self, uuids: Sequence[str]) -> list[EpisodicNode]:
        """Episodes by uuid, in that order; those that are gone, or another group's, are left out."""
        return await self._by_uuid(EpisodicNode, uuids)

    async def edges(self, uuids: Sequence[str]) -> list[EntityEdge]:
        """Facts by uuid, as :meth:`episodes`."""
        return await self._by_uuid(EntityEdge, uuids)

    async def _by_uuid(self, owner: Any, uuids: Sequence[str]) -> list[Any]:
        place = {uuid: at for at, uuid in enumerate(uuids)}
        try:
            found = await owner.get_by_uuids(self.driver, list(uuids)) if uuids else []
        except EdgeNotFoundError:
            return []
        ours = (record for record in found if record.group_id == self.group_id)
        return sorted(ours, key=lambda record: place[record.uuid])

    async def all_of(self, kind: str, limit: int | None = None) -> list[Any]:
        """All facts (``edges``), ``nodes``, ``episodes`` or ``sagas`` of the group."""
        owner = _OWNERS[kind]
        try:
            return list(await owner.get_by_group_ids(self.driver, [self.group_id], limit=limit))
        except (GroupsEdgesNotFoundError, GroupsNodesNotFoundError):
            return []

    async def episodes_of_event(self, event_id: str) -> list[EpisodicNode]:
        """Episodes written for an event; more than one if it was written more than once."""
        return await self.episodes(await self.uuids_of_events([event_id]))

    async def parts_of(self, event_id: str) -> tuple[tuple[str, ...], bool]:
        """Ids of an event's episodes and facts, and whether all that an episode names are there. An episode of
        triplets names its facts once all are saved.
        """
        episodes = await self.episodes_of_event(event_id)
        named = list(dict.fromkeys(fact for episode in episodes for fact in episode.entity_edges))
        facts = await self.edges(named)
        begun = any(
            episode.source is EpisodeType.fact_triple and not episode.entity_edges for episode in episodes
        )
        found = (*(episode.uuid for episode in episodes), *(fact.uuid for fact in facts))
        return tuple(dict.fromkeys(found)), len(facts) == len(named) and not begun

    async def uuids_of_events(self, event_ids: Sequence[str]) -> list[str]:
        """Ids of the episodes written for these events."""
        rows, _, _ = await self.driver.execute_query(
            "MATCH (e:Episodic) WHERE e.group_id = $group_id AND e.name IN $names RETURN e.uuid AS uuid",
            group_id=self.group_id,
            names=list(event_ids),
        )
        return [row["uuid"] for row in rows]

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
