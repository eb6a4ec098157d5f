"""Any MCP server as a memslot backend: a process for each scope, or one server over HTTP.

Events become tool calls, and the rows of a tool's answer become entries, in the server's order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memory import (
    BackendError,
    BackendHealth,
    BackendTimeout,
    MemoryEvent,
    MemoryScope,
    NativeQueryRequest,
    NativeQueryResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BackendProtocolError,
    ContextEntry,
    IdAlphabet,
    NativeError,
    NativeWorker,
    Operation,
    PluginInfo,
    PluginOptions,
    ScopeEncoder,
    SequentialBulk,
    hookimpl,
)
from memslot_mcp.sessions import Sessions


class Tool(BaseModel):
    """A tool of the server, its arguments, and where its answer holds the rows.

    A text in ``arguments`` may contain ``{scope}``. A text may also be exactly one placeholder: ``{id}``,
    ``{text}`` or ``{fields}`` of a message, ``{query}`` or ``{limit}`` of a search, ``{id}`` of a row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tool: str
    """Its name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of each call."""
    rows: str = ""
    """The place of the rows in the answer, as names with dots. Empty: the answer is the list."""


class Row(BaseModel):
    """The places of a row's fields, as names with dots, such as ``observations.0``."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: str = "id"
    text: str = "text"
    fields: str = "fields"


class Options(PluginOptions):
    """The block ``memory.backends.mcp``."""

    command: list[str] = Field(default_factory=list)
    """Starts a server over stdio for each scope, in the scope's own directory."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of that server, beside PATH and HOME. ``{directory}`` is the scope's directory."""
    url: str = ""
    """A running server over streamable HTTP, instead of ``command``. Every tool's arguments name ``{scope}``."""
    store: Tool
    """Stores one message."""
    search: Tool
    """Finds the rows of ``{query}``, best first."""
    list_all: Tool
    """Lists every row, for look-ups, native queries and resets."""
    delete: Tool
    """Deletes the row ``{id}``."""
    row: Row = Row()
    """The places of a row's fields."""
    top_k: int = Field(default=20, gt=0)
    """Rows that a search returns if the request sets no ``max_items``."""
    timeout_s: float = Field(default=20.0, gt=0)
    """Longest time of a call, seconds."""

    @model_validator(mode="after")
    def _one_server(self) -> Options:
        if bool(self.command) == bool(self.url):
            raise ValueError("give command or url, and not both")
        tools = {name: getattr(self, name) for name in ("store", "search", "list_all", "delete")}
        shared = [name for name, tool in tools.items() if "{scope}" not in json.dumps(tool.arguments)]
        if self.url and shared:
            raise ValueError(f"every scope would share the server: add {{scope}} to {', '.join(shared)}")
        return self


class McpMemory(SequentialBulk):
    traits = AdapterTraits(
        consistency="immediate",
        cs_filtering="none",
        pet_observability="dated",
        native_queries={"list": Operation()},
        write_retries=1,  # find_event tells whether a write arrived
        bulk_size=1,
        # The SDK raises McpError for its own time-out.
        errors={"mcp.shared.exceptions.McpError": NativeError(BackendTimeout)},
    )

    def __init__(self, name: str, options: Options, data_dir: Path) -> None:
        self.backend_name = name
        self.directory = data_dir / name
        self.worker: NativeWorker = NativeWorker(name=f"memslot-{name}")
        self.sessions = Sessions(
            options.command, options.env, options.url, self.directory, timeout_s=options.timeout_s
        )
        self._options = options
        self._ids = ScopeEncoder(IdAlphabet(safe="", escape="-", separator="-s", max_length=64))

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"space": self._ids.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """List the rows, so that a broken server fails before the first turn."""
        await self._list(scope)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Store each message by a call of its own. A repeat after a failure stores what is missing."""
        space, tool = self._space(event.scope), self._options.store
        shared = event.model_dump(mode="json", exclude={"messages", "scope"}, exclude_none=True)
        ids = _ids_of(event)

        def store() -> None:
            known = {self._at(row, "id") for row in self._rows(space, self._options.list_all)}
            for row_id, message in zip(ids, event.messages, strict=True):
                if row_id not in known:
                    text = message.content or json.dumps(message.tool_calls, ensure_ascii=False)
                    fields = json.dumps({**shared, "space": space, "role": message.role})
                    self._call(space, tool, id=row_id, text=text, fields=fields)

        await self.worker.run(store)
        return self.receipt(event, tool.tool, ids)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The rows of the event, if each of its messages has one."""
        known = {self._at(row, "id") for row in await self._list(event.scope)}
        ids = _ids_of(event)
        return ids if known.issuperset(ids) else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        space, tool = self._space(request.scope), self._options.search
        limit = request.budget.max_items or self._options.top_k
        found = await self.worker.run(lambda: self._rows(space, tool, query=request.query, limit=limit))
        rows = found[:limit]
        return RetrieveResult(
            request=request,
            raw={"rows": rows},
            entries=tuple(self._entry(row) for row in rows),
            trace=self.trace(request.scope, tool.tool, consistency="committed"),
        )

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``list``: every row of the scope."""
        rows = await self._list(request.scope)
        trace = self.trace(request.scope, self._options.list_all.tool)
        return NativeQueryResult(raw={"rows": rows}, trace=trace)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Delete every row, then list the rows again."""
        space, delete, listing = self._space(scope), self._options.delete, self._options.list_all

        def delete_all() -> tuple[int, int]:
            rows = self._rows(space, listing)
            for row in rows:
                self._call(space, delete, id=self._at(row, "id"))
            return len(rows), len(self._rows(space, listing))

        removed, left = await self.worker.run(delete_all)
        trace = self.trace(scope, delete.tool)
        return ResetReceipt(scope=scope, verified=not left, removed=removed, trace=trace)

    async def health(self) -> BackendHealth:
        """Raise if a server cannot start or does not answer."""
        await self.worker.run(lambda: self.sessions.tools("health"))
        return self.health_of()

    def close_native(self) -> None:
        self.sessions.close()

    def _space(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["space"]

    async def _list(self, scope: MemoryScope) -> list[Any]:
        space = self._space(scope)
        return await self.worker.run(lambda: self._rows(space, self._options.list_all))

    def _rows(self, space: str, tool: Tool, **values: Any) -> list[Any]:
        rows = at(self._call(space, tool, **values), tool.rows)
        if not isinstance(rows, list):
            raise BackendProtocolError(f"the tool {tool.tool} answered no list at {tool.rows!r}")
        return rows

    def _call(self, space: str, tool: Tool, **values: Any) -> Any:
        """The tool's answer as JSON, or None. Errors do not repeat it, because it may contain user text."""
        arguments = filled(tool.arguments, {**values, "scope": space})
        result = self.sessions.call(space, tool.tool, arguments)
        if result.isError:
            raise BackendError(f"the tool {tool.tool} failed", operation=tool.tool)
        if result.structuredContent is not None:
            return result.structuredContent
        with suppress(ValueError):
            return json.loads("".join(getattr(part, "text", "") for part in result.content))
        return None

    def _at(self, row: Any, field: str) -> str:
        place = getattr(self._options.row, field)
        if (value := at(row, place)) is None:
            raise BackendProtocolError(f"a row of the server has nothing at {place!r}, which is row.{field}")
        return str(value)

    def _entry(self, row: Any) -> ContextEntry:
        fields = json.loads(self._at(row, "fields"))
        return ContextEntry(
            self._at(row, "text"),
            native_id=self._at(row, "id"),
            timestamp=datetime.fromisoformat(fields["timestamp"]) if "timestamp" in fields else None,
            event_ids=(fields["event_id"],),
            labels=(("role", fields["role"]),),
            session_id=fields.get("session_id"),
            scope_ids={"space": fields["space"]},
        )


def _ids_of(event: MemoryEvent) -> tuple[str, ...]:
    return tuple(f"{event.event_id}#{number}" for number in range(len(event.messages)))


def at(value: Any, path: str) -> Any:
    """The value at ``names.with.dots``, or None."""
    for name in filter(None, path.split(".")):
        try:
            value = value[int(name) if isinstance(value, list) else name]
        except (LookupError, TypeError, ValueError):
            return None
    return value


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """The template of arguments with its placeholders replaced."""
    if isinstance(template, dict):
        return {name: filled(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, values) for value in template]
    if not isinstance(template, str):
        return template
    for name, value in values.items():
        if template == f"{{{name}}}":
            return value
    return template.replace("{scope}", values["scope"])


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="mcp",
        kind="architecture",
        summary="any memory that is an MCP server, over stdio or HTTP",
        capabilities=frozenset({"bulk_ingest", "native_query"}),
        consistency="immediate",
        pet_observability="dated",
        sdk_modules=("mcp",),
        install="pip install memslot-mcp",
        options=Options,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Options]) -> McpMemory:
    return McpMemory(settings.name, settings.options, settings.data_dir)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memslot_mcp.conformance import Profile

    return Profile
