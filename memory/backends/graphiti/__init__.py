"""Graphiti as a memory backend, by ``graphiti-core`` on FalkorDB, Kuzu or Neo4j (spec section 5.3)."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, hookimpl
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.graphiti.translate import GROUP_IDS


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="graphiti",
        kind="architecture",
        summary="Graphiti: a temporal knowledge graph; facts are extracted by an LLM and invalidated, not deleted",
        capabilities=frozenset({"bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("graphiti_core", "httpx"),
        install="pip install 'memslot[graphiti]'",
        options=GraphitiOptions,
        alphabet=GROUP_IDS,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[GraphitiOptions]) -> MemoryAdapter:
    from memory.backends.graphiti.adapter import GraphitiAdapter
    from memory.backends.graphiti.stores import import_sdk

    import_sdk(settings.options.driver)
    return GraphitiAdapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.graphiti.conformance import GraphitiConformance

    return GraphitiConformance
