"""An MCP server over a memory, with the official SDK: ``memslot tools mcp CONFIG``."""
