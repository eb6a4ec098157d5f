"""A memory as an MCP server, by the official SDK: ``memslot mcp CONFIG``."""
