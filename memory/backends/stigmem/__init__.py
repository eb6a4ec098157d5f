"""Stigmem as a memory backend: facts with sources, on nodes over HTTP."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, IdAlphabet, PluginInfo, hookimpl
from memory.backends.stigmem.options import StigmemOptions


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="stigmem",
        kind="architecture",
        summary="Stigmem: every message a fact with its source, on a node over HTTP, found by words (FTS5, bm25)",
        capabilities=frozenset({"bulk_ingest", "readiness", "provenance", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("httpx",),
        install="pip install 'memslot[stigmem]'",
        options=StigmemOptions,
        alphabet=IdAlphabet(safe="", escape="-", separator=".", max_length=63),
    )


@hookimpl
def memslot_create(settings: AdapterSettings[StigmemOptions]) -> MemoryAdapter:
    from memory.backends.stigmem.adapter import StigmemAdapter

    return StigmemAdapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.stigmem.conformance import StigmemConformance

    return StigmemConformance
