"""Honcho as a memory backend, by ``honcho-ai`` (spec 5.1): peers, sessions, derived representations."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, hookimpl
from memory.backends.honcho.options import HonchoOptions
from memory.backends.honcho.translate import IDS


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="honcho",
        kind="architecture",
        summary="Honcho: messages of peers in sessions; a server derives what it concludes of the user, as prose",
        capabilities=frozenset({"bulk_ingest", "readiness", "provenance", "native_query"}),
        consistency="async_derived",
        pet_observability="weak",
        sdk_modules=("honcho", "httpx"),
        install="pip install 'memslot[honcho]'",
        options=HonchoOptions,
        alphabet=IDS,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[HonchoOptions]) -> MemoryAdapter:
    from memory.backends.honcho.adapter import HonchoAdapter

    return HonchoAdapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.honcho.conformance import HonchoConformance

    return HonchoConformance
