"""MemOS: memory cubes behind a scheduler, of text, preferences, tools and skills (spec section 5.4).

The plugin module of the entry point ``memos``. The factory imports the transport alone: an HTTP client, or MemOS.
"""

from __future__ import annotations

from memory.adapter import AdapterSettings, MemoryAdapter, PluginInfo, hookimpl
from memory.backends.memos.ids import CUBE_IDS
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.transport import Transport

__all__ = ["MEMOS_CAPABILITIES", "MemosOptions", "memslot_create", "memslot_describe"]

MEMOS_CAPABILITIES = frozenset(
    {"bulk_ingest", "readiness", "feedback", "native_mutation", "provenance", "native_query"}
)


@hookimpl
def memslot_describe() -> PluginInfo:
    """What this plugin is; imports no SDK."""
    return PluginInfo(
        name="memos",
        kind="architecture",
        summary="MemOS: a memory cube per scope on a product server; typed memories, scheduler, feedback",
        capabilities=MEMOS_CAPABILITIES,
        consistency="async_derived",
        pet_observability="dated",
        sdk_modules=("httpx",),
        install="pip install 'memslot[memos]'",
        options=MemosOptions,
        alphabet=CUBE_IDS,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[MemosOptions]) -> MemoryAdapter:
    """Build the adapter; no network until a scope is set up."""
    from memory.backends.memos.adapter import MemosAdapter

    return MemosAdapter(settings, _transport(settings))


def _transport(settings: AdapterSettings[MemosOptions]) -> Transport:
    if settings.options.transport == "http":
        from memory.backends.memos.http import HttpTransport

        return HttpTransport(settings.options, settings.name)
    from memory.backends.memos.inprocess import InprocessTransport, check_environment

    check_environment(settings.options)
    return InprocessTransport(settings.data_dir, settings.name)
