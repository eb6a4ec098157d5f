"""mem0 as a memory backend, by its library ``mem0ai`` (spec section 5.2). Only the factories import it."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, IdAlphabet, PluginInfo, hookimpl
from memory.backends.mem0.options import Mem0Options


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="mem0",
        kind="architecture",
        summary="mem0: memories extracted by an LLM, or verbatim without one, found by vector search",
        capabilities=frozenset({"bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("mem0",),
        install="pip install 'memslot[mem0]'",
        options=Mem0Options,
        alphabet=IdAlphabet(),
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Mem0Options]) -> MemoryAdapter:
    from memory.backends.mem0.adapter import Mem0Adapter

    return Mem0Adapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.mem0.conformance import Mem0Conformance

    return Mem0Conformance
