"""MemOS: cubes of text, preferences, tools and skills behind a scheduler (spec section 5.4)."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, hookimpl
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import CUBE_IDS


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="memos",
        kind="architecture",
        summary="MemOS: a memory cube per scope on a product server; typed memories, scheduler, feedback",
        capabilities=frozenset(
            {"feedback", "bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"}
        ),
        consistency="async_derived",
        pet_observability="dated",
        sdk_modules=("httpx",),
        install="pip install 'memslot[memos]'",
        options=MemosOptions,
        alphabet=CUBE_IDS,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[MemosOptions]) -> MemoryAdapter:
    from memory.backends.memos.adapter import MemosAdapter

    return MemosAdapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.memos.conformance import MemosConformance

    return MemosConformance
