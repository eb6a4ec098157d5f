"""Any MCP server as a memory backend: a process for each scope, or one server with the scope as argument."""

from __future__ import annotations

from typing import Any

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, hookimpl
from memory.backends.mcp.options import McpOptions


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="mcp",
        kind="architecture",
        summary="any memory that is an MCP server, over stdio or HTTP; presets for known ones",
        capabilities=frozenset({"bulk_ingest", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("mcp",),
        install="pip install 'memslot[mcp]'",
        options=McpOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[McpOptions]) -> MemoryAdapter:
    from memory.backends.mcp.adapter import McpAdapter

    return McpAdapter(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memory.backends.mcp.conformance import McpConformance

    return McpConformance
