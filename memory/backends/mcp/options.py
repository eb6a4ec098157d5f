"""The block ``memory.backends.mcp``, and the presets that fill it in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memory.adapter import DataPath, PluginOptions


class Tool(BaseModel):
    """A tool of the server, and how it is called.

    In ``arguments`` a text may hold ``{text}``, ``{role}``, ``{name}``, ``{fields}``, ``{query}``, ``{limit}`` and
    ``{names}``; ``{"$each": {...}}`` is one such object for each message of an event.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tool: str
    """Its name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What it is called with."""
    rows: str = ""
    """Where the rows lie in its answer: names with dots; empty is the answer itself."""


class Row(BaseModel):
    """Where a row of the answer says what, as names with dots (``observations.0``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = "name"
    """Its own id, which ``{name}`` gave it."""
    text: str = "text"
    """What was said."""
    fields: str = "fields"
    """The JSON that ``{fields}`` put there."""


class McpOptions(PluginOptions):
    """The block ``memory.backends.mcp``."""

    preset: Literal["server-memory"] | None = "server-memory"
    """A known server, which fills in what the block leaves out. None: the block says everything."""
    command: list[str] = Field(default_factory=list)
    """How the server is started, over stdio."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment, beside PATH and HOME; ``{directory}`` is the directory of the scope."""
    directory: DataPath | None = None
    """Where the scopes' directories lie. None: ``mcp`` in ``memory.data_dir``."""
    store: Tool | None = None
    """Stores the messages of an event."""
    search: Tool | None = None
    """Finds rows by ``{query}``."""
    list_all: Tool | None = None
    """Answers every row: for look-ups, native queries and the check after a reset."""
    delete: Tool | None = None
    """Deletes the rows whose names are ``{names}``."""
    row: Row = Row()
    """Where a row says what."""
    by_word: bool = False
    """The server finds texts that hold the whole query: ask for each of its words, and rank by how many match."""
    top_k: int = Field(default=20, gt=0)
    """How many rows are shown where the request sets no ``max_items``."""
    open_servers: int = Field(default=4, gt=0)
    """How many processes may run at a time; the one that was not asked for longest is ended first."""
    timeout_s: float = Field(default=20.0, gt=0)
    """How long a tool may take, seconds."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        preset = PRESETS.get(given.get("preset", "server-memory") or "", {})
        return {**preset, **{name: value for name, value in given.items() if value or name not in preset}}

    @model_validator(mode="after")
    def _complete(self) -> McpOptions:
        missing = [
            name for name in ("command", "store", "search", "list_all", "delete") if not getattr(self, name)
        ]
        if missing:
            raise ValueError(f"give {', '.join(missing)}, or a preset: {', '.join(PRESETS)}")
        return self


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # @modelcontextprotocol/server-memory 2026.8.31: one JSONL file; a substring of name, type or observation.
    "server-memory": {
        "command": ["npx", "-y", "@modelcontextprotocol/server-memory"],
        "env": {"MEMORY_FILE_PATH": "{directory}/memory.jsonl"},
        "store": {
            "tool": "create_entities",
            "arguments": {
                "entities": {
                    "$each": {"name": "{name}", "entityType": "{fields}", "observations": ["{text}"]},
                }
            },
        },
        "search": {"tool": "search_nodes", "arguments": {"query": "{query}"}, "rows": "entities"},
        "list_all": {"tool": "read_graph", "rows": "entities"},
        "delete": {"tool": "delete_entities", "arguments": {"entityNames": "{names}"}},
        "row": {"name": "name", "text": "observations.0", "fields": "entityType"},
        "by_word": True,
    },
}  # fmt: skip
