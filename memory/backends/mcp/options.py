"""The block ``memory.backends.mcp``, and presets for servers that run without a key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from memory.adapter import DataPath, PluginOptions, Public
from memory.adapter.http import server_address


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Name of a preset -> the values that it gives a block."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(
        Path(__file__).with_name("presets.yaml").read_text("utf-8")
    )
    return found


class Tool(BaseModel):
    """A tool of the server, and its arguments.

    A text in ``arguments`` may contain ``{scope}``, ``{directory}`` and ``{key}``, a row's name as 32
    hexadecimal digits. A text may also be exactly one of these placeholders:

    - of a message: ``{text}``, ``{role}``, ``{name}``, ``{fields}``
    - of a request: ``{query}``, ``{any_word}`` (its words with OR between them), ``{limit}``
    - of rows: ``{names}``, and ``{page}`` from 1 to the first page without rows

    ``{"$each": {...}}`` becomes a list with one such object for each message of an event.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tool: str
    """Its name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What it is called with."""
    rows: str = ""
    """Where the rows lie in its answer: names with dots; empty is the answer itself."""
    error: str = ""
    """Where its answer says what went wrong, of a tool that fails without saying so by the protocol."""
    absent: str | None = None
    """What lies there where it knows no such row: of ``read``, whose row a search may still have shown."""

    def asks_for(self, sign: str) -> bool:
        return sign in json.dumps(self.arguments)


class Row(BaseModel):
    """Where the fields of a row are in an answer, as names with dots (``observations.0``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = "name"
    """Its own id, which ``{name}`` or ``{key}`` gave it."""
    text: str = "text"
    """What was said."""
    fields: str = "fields"
    """The JSON that ``{fields}`` put there."""


def _address(url: str) -> str:
    """Check an address. It stays unchanged, because a server may distinguish ``/mcp/`` from ``/mcp``."""
    if "@" in urlsplit(url).netloc:
        raise ValueError("must not hold credentials; give them in headers")
    server_address(url)
    return url


class McpOptions(PluginOptions):
    """The block ``memory.backends.mcp``."""

    preset: Literal["server-memory", "memory-libsql", "basic-memory"] | None = "server-memory"
    """A known server, which fills in what the block leaves out. None: the block says everything."""
    command: list[str] = Field(default_factory=list)
    """How the server is started, over stdio: a process for each scope."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment, beside PATH and HOME; ``{directory}`` is the directory of the scope."""
    url: Public[Annotated[str, AfterValidator(_address)]] | None = None
    """A server that runs, over streamable HTTP, instead of ``command``. ``{scope}`` stands here, or in the
    arguments of every tool that reads or writes rows."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """What every request to ``url`` says, such as ``Authorization``."""
    directory: DataPath | None = None
    """Where the scopes' directories lie. None: ``mcp`` in ``memory.data_dir``."""
    setup: Tool | None = None
    """Makes a scope where the server needs to be told of it. May be called again."""
    store: Tool | None = None
    """Stores the messages of an event."""
    search: Tool | None = None
    """Finds rows by ``{query}``."""
    read: Tool | None = None
    """Answers the whole row of a ``{key}`` or ``{name}``, where a search shows less."""
    look_up: Tool | None = None
    """Finds the row of a ``{key}`` or ``{name}``, where ``list_all`` is not complete."""
    list_all: Tool | None = None
    """Answers every row: for look-ups, native queries and the check after a reset."""
    delete: Tool | None = None
    """Deletes the rows whose names are ``{names}``; called for each if it asks for ``{name}`` or ``{key}``."""
    row: Row = Row()
    """Where a row says what."""
    by_word: bool = False
    """The server finds texts that hold the whole query: ask for each of its words, and rank by how many match."""
    top_k: int = Field(default=20, gt=0)
    """How many rows are shown where the request sets no ``max_items``."""
    open_servers: int = Field(default=4, gt=0)
    """How many processes or connections there may be at a time; the one not asked for longest ends first."""
    timeout_s: float = Field(default=20.0, gt=0)
    """How long a tool may take, seconds."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        preset = presets().get(given.get("preset", "server-memory") or "", {})
        if given.get("url") or given.get("command"):  # they replace the preset's
            preset = {name: value for name, value in preset.items() if name not in ("url", "command")}
        return {**preset, **{name: value for name, value in given.items() if value or name not in preset}}

    @model_validator(mode="after")
    def _complete(self) -> McpOptions:
        missing = [name for name in _NEEDED if not getattr(self, name)]
        if not self.command and not self.url:
            missing.insert(0, "command or url")
        if missing:
            raise ValueError(f"give {', '.join(missing)}, or a preset: {', '.join(presets())}")
        shared = [name for name in _NEEDED if not getattr(self, name).asks_for("{scope}")]
        if self.url and "{scope}" not in self.url and shared:
            raise ValueError(
                f"every scope would share the server at url: put {{scope}} into the url, or into the arguments of "
                f"{', '.join(shared)}"
            )
        return self


_NEEDED = ("store", "search", "list_all", "delete")
