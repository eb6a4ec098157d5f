"""The open graphs of one adapter. Each is checked against the memory's table of partitions when it is opened."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from memory import ConfigError
from memory.adapter import AdapterSettings, ShieldedCalls, awaiting_turn
from memory.adapter.stores import Partition
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.stores import Store

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph
    from memory.backends.graphiti.models import Models


class OpenGraphs:
    """Opens each graph at its first use. If their number is limited, the least recently used one makes room.

    Reads and writes have separate limits, because a write waits for its model. ``opened`` has the open graphs by
    id, the least recently used first. ``shielded`` closes graphs, even if the caller is cancelled.
    """

    def __init__(
        self,
        make: Callable[[str], NativeGraph],
        settings: AdapterSettings[GraphitiOptions],
        store: Store,
        models: Models,
    ) -> None:
        self.opened: dict[str, NativeGraph] = {}
        self.shielded = ShieldedCalls()
        self._make = make
        self._where, self._partitions = settings.where, settings.partitions
        self._driver = settings.options.driver
        self._store = store
        self._models = models
        self._limit = store.keeps_open or sys.maxsize
        self._opening = anyio.Lock()
        self._places = [anyio.Semaphore(self._limit, fast_acquire=True) for _ in range(2)]

    @asynccontextmanager
    async def graph(
        self, group_id: str, *, writing: bool = False, clearing: bool = False
    ) -> AsyncIterator[NativeGraph]:
        """Yield a graph, which stays open in the body.

        Args:
            writing: whether the body waits for a model.
            clearing: empty a graph that cannot be opened.
        """
        place = self._places[writing]
        with awaiting_turn(last=False):
            await place.acquire()
        try:
            graph = await self._graph(group_id, clearing)
            graph.users += 1
            try:
                yield graph
            finally:
                graph.users -= 1
        finally:
            place.release()

    async def _graph(self, group_id: str, clearing: bool) -> NativeGraph:
        if group_id not in self.opened:
            async with self._opening:
                if group_id not in self.opened:
                    await self._make_room()
                    self.opened[group_id] = await self._open(group_id, clearing)
        graph = self.opened[group_id] = self.opened.pop(group_id)  # now last in line to be closed
        return graph

    async def _open(self, group_id: str, clearing: bool) -> NativeGraph:
        graph = self._make(group_id)
        try:
            try:
                known = await self._known(graph)
                await graph.driver.open()
                await self._confirm(graph, known)
            except Exception:
                if not clearing:
                    raise
                await graph.driver.clear(group_id)
                await self._confirm(graph, None)
        except BaseException:
            await self.shielded.run(None, graph.close)
            raise
        return graph

    async def _make_room(self) -> None:
        for group_id, graph in list(self.opened.items()):
            if len(self.opened) < self._limit:
                return
            if not graph.busy:
                del self.opened[group_id]
                await self.shielded.run(None, graph.close)

    async def _known(self, graph: NativeGraph) -> Partition | None:
        """The row of a graph. Call this before the graph is opened, because that creates a missing one."""
        known = await to_thread.run_sync(self._partitions.listed, graph.group_id)
        if known is None:
            return None
        if known.engine != self._driver:
            raise ConfigError(
                f"{self._where}.driver: the graph of this scope was made with {known.engine}, and {self._driver} "
                "is configured; configure the former, or record the events again in another data_dir"
            )
        if not await graph.driver.exists():
            await to_thread.run_sync(lambda: self._partitions.open(known, exists=False))
        return known

    async def _confirm(self, graph: NativeGraph, known: Partition | None) -> None:
        """List an open graph, or compare its embedder with that of its row."""
        embedder = self._models.embedder
        dimensions = await self._models.dimensions(known.dimensions if known is not None else None)
        place = self._store.location(graph.group_id)
        wanted = Partition(graph.group_id, place, self._driver, embedder.name, dimensions, *embedder.prefixes)
        found = await graph.vector_length()
        if known is None and found not in (None, dimensions):  # another machine or data_dir made it
            raise ConfigError(
                f"{self._where}.embedder: the graph of this scope holds vectors of {found}, the embedder makes "
                f"{dimensions}; use the embedder that made it, or reset the scope"
            )
        await to_thread.run_sync(
            lambda: self._partitions.open(wanted, exists=True, is_empty=lambda: found is None)
        )
