"""The open graphs of one adapter. If their number is limited, the least recently used one makes room."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from memory.adapter import ShieldedCalls, awaiting_turn
from memory.backends.graphiti.listing import Listing

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph


class OpenGraphs:
    """Opens each graph at its first use.

    Reads and writes have separate limits, because a write waits for its model.

    Args:
        make: a graph of an id, not opened yet.
        listing: the list of graphs that there are.
        shielded: closes graphs, even if the caller is cancelled.
        limit: how many stay open; None is all.

    Attributes:
        opened: the open graphs by id, the least recently used first.
    """

    def __init__(
        self, make: Callable[[str], NativeGraph], listing: Listing, shielded: ShieldedCalls, limit: int | None
    ) -> None:
        self.opened: dict[str, NativeGraph] = {}
        self._make = make
        self._listing = listing
        self._shielded = shielded
        self._limit = sys.maxsize if limit is None else limit
        self._opening = anyio.Lock()
        self._places = [anyio.Semaphore(self._limit, fast_acquire=True) for _ in range(2)]

    @asynccontextmanager
    async def graph(self, group_id: str, *, writing: bool, clearing: bool) -> AsyncIterator[NativeGraph]:
        """Yield a graph, which stays open in the body. ``clearing`` empties one that cannot be opened."""
        place = self._places[writing]
        if place.value:
            place.acquire_nowait()
        else:
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
                await self._listing.refuse_missing(graph)
                await graph.driver.open()
                await self._listing.confirm(graph)
            except Exception:
                if not clearing:
                    raise
                await graph.driver.clear(group_id)
                await self._listing.confirm(graph)
        except BaseException:
            await self._shielded.run(None, graph.close)
            raise
        return graph

    async def _make_room(self) -> None:
        for group_id, graph in list(self.opened.items()):
            if len(self.opened) < self._limit:
                return
            if not graph.busy:
                del self.opened[group_id]
                await self._shielded.run(None, graph.close)
