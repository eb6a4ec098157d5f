"""mirror: one memory answers, others see the same traffic, so that a new backend can be tried before the switch.

The plugin module of the entry point ``mirror``. It has no SDK of its own.
"""

from __future__ import annotations

from memory.adapter import AdapterSettings, MemoryAdapter, PluginInfo, hookimpl
from memory.backends.mirror.options import MirrorOptions


@hookimpl
def memslot_describe() -> PluginInfo:
    """What this plugin is; kind, consistency and capabilities of a configured one are its primary's."""
    return PluginInfo(
        name="mirror",
        kind="architecture",
        summary="one memory answers, shadows get the same writes and questions, and may fail without harm",
        capabilities=frozenset(
            {"feedback", "bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"}
        ),
        consistency="immediate",
        options=MirrorOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[MirrorOptions]) -> MemoryAdapter:
    """Build the primary and its shadows, each as its own configuration would."""
    from memory.backends.mirror.adapter import build_mirror

    return build_mirror(settings)
