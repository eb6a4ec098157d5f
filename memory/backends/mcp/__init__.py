"""Any memory that is an MCP server, as a backend: the block says which tool stores, searches, lists and deletes.

One server process and directory for each scope, or one server whose tools take the scope as an argument.
The plugin module of the entry point ``mcp``.
"""

from __future__ import annotations

from memory.adapter import AdapterSettings, MemoryAdapter, PluginInfo, hookimpl
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
    """Build the adapter; no process is started until a scope is set up."""
    from memory.backends.mcp.adapter import McpAdapter

    return McpAdapter(settings)
