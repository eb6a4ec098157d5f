"""Checks each graph that is opened against its row in the memory's table of partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread

from memory import ConfigError
from memory.adapter import AdapterSettings
from memory.adapter.stores import Partition
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.stores import Store

if TYPE_CHECKING:
    from memory.backends.graphiti.client import NativeGraph
    from memory.backends.graphiti.models import Models


class Listing:
    """The table's rows for graphs: location, engine, and the embedder of the vectors."""

    def __init__(self, settings: AdapterSettings[GraphitiOptions], store: Store, models: Models) -> None:
        self._settings = settings
        self._partitions = settings.partitions
        self._store = store
        self._models = models

    async def refuse_missing(self, graph: NativeGraph) -> None:
        """Check a listed graph before it is opened, because opening would create a missing graph.

        Raises:
            StoreError: the graph is listed, but its engine does not have it.
            ConfigError: another driver made it.
        """
        known = await to_thread.run_sync(self._partitions.listed, graph.group_id)
        if known is None:
            return
        driver = self._settings.options.driver
        if known.engine != driver:
            raise ConfigError(
                f"{self._settings.where}.driver: the graph of this scope was made with {known.engine}, and "
                f"{driver} is configured; configure the former, or record the events again in another data_dir"
            )
        if not await graph.driver.exists():
            await to_thread.run_sync(lambda: self._partitions.open(known, exists=False))

    async def confirm(self, graph: NativeGraph) -> None:
        """List an open graph, or compare it with its row.

        Raises:
            ConfigError: another embedder made its vectors, or their length differs.
        """
        group_id = graph.group_id
        known = await to_thread.run_sync(self._partitions.listed, group_id)
        embedder = self._models.embedder
        query_prefix, document_prefix = embedder.prefixes
        wanted = Partition(
            scope=group_id,
            location=self._store.location(group_id),
            engine=self._settings.options.driver,
            embedder=embedder.name,
            dimensions=await self._models.dimensions(known.dimensions if known is not None else None),
            query_prefix=query_prefix,
            document_prefix=document_prefix,
        )
        if known is not None and replace(known, location=wanted.location) == wanted:
            return
        found = await graph.vector_length()
        if known is None and found not in (None, wanted.dimensions):  # another machine or data_dir made it
            raise ConfigError(
                f"{self._settings.where}.embedder: the graph of this scope holds vectors of {found}, the embedder "
                f"makes {wanted.dimensions}; use the embedder that made it, or reset the scope"
            )
        empty = found is None
        await to_thread.run_sync(lambda: self._partitions.open(wanted, exists=True, is_empty=lambda: empty))

    def close(self) -> None:
        """Close the handle on the table. Idempotent."""
        self._settings.store.close()
