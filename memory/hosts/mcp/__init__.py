"""A memory as an MCP server, by the official SDK: ``memslot mcp CONFIG``.

- :mod:`memory.hosts.mcp.server`: tools and resources of one scope.
- :mod:`memory.hosts.mcp.running`: over stdio, whose stdout carries the protocol alone, and over streamable HTTP.
- :mod:`memory.hosts.mcp.command`: the command.
"""
