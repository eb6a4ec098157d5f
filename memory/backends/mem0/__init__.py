"""mem0 as a memory backend, through the ``mem0ai`` library (spec section 5.2).

The plugin module of the entry point ``mem0``. The SDK is imported by the factory alone.
"""

from __future__ import annotations

from pathlib import Path

from memory.adapter import (
    AdapterSettings,
    BareLibrary,
    IdAlphabet,
    MemoryAdapter,
    PluginInfo,
    hookimpl,
)
from memory.backends.mem0.options import Mem0Options

MEM0_CAPABILITIES = frozenset({"bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"})


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="mem0",
        kind="architecture",
        summary="mem0: memories extracted by an LLM, or verbatim without one, found by vector search",
        capabilities=MEM0_CAPABILITIES,
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("mem0",),
        install="pip install 'memslot[mem0]'",
        options=Mem0Options,
        alphabet=IdAlphabet(),
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Mem0Options]) -> MemoryAdapter:
    """Build the adapter. mem0 is imported here; its store is opened by the first call."""
    from memory.backends.mem0.adapter import Mem0Adapter

    return Mem0Adapter(settings)


@hookimpl
def memslot_bare(directory: Path) -> BareLibrary:
    """mem0 as a program that uses it directly would open it."""
    from memory.backends.mem0.bare import BareMem0

    return BareMem0(directory)
