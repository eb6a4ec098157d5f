"""A memory as an MCP server, by the official SDK: ``memslot tools mcp CONFIG``."""
