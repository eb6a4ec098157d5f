"""Events into tool calls, rows into entries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from memory import (
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    NativeQueryRequest,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BaseAdapter,
    ContextEntry,
    IdAlphabet,
    NativeQueryResult,
    NativeWorker,
    Operation,
    ResetReceipt,
    ScopeEncoder,
)
from memory.backends.mcp.options import McpOptions, Tool
from memory.backends.mcp.servers import Servers, at

_SIGN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # Chinese, Japanese, Korean: no blanks between words
_WORD = re.compile(rf"[{_SIGN}]|[^\W{_SIGN}]+")
_SHORTEST = 3
"""Words of fewer letters are in every text, and asking for them costs a call each."""


class McpAdapter(BaseAdapter):
    """A memory behind the tools of an MCP server; one process and directory for each scope.

    Args:
        settings: the block, and where data may lie.
    """

    traits = AdapterTraits(
        consistency="immediate",
        cs_filtering="none",
        pet_observability="dated",
        native_queries={"list": Operation()},
        write_retries=1,  # find_event can tell whether a write arrived
        max_concurrency=1,
    )

    def __init__(self, settings: AdapterSettings[McpOptions]) -> None:
        self.backend_name = settings.name
        self.worker: NativeWorker = NativeWorker(name="memslot-mcp")
        self._options = settings.options
        self.directory = settings.options.directory or settings.data_dir / "mcp"
        self.servers = Servers(settings.options, self.directory)
        self._ids = ScopeEncoder(IdAlphabet(safe="-", escape="_", max_length=64))

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The directory of the scope's process."""
        return {"directory": self._ids.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Start the server, so that what is wrong with it shows before the first turn."""
        await self._rows(scope, self._tool("list_all"))

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """One call for all messages where the tool takes a list, else one for each."""
        return (await self.record_events([event]))[0]

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """One event after the other, in one turn of the worker."""
        return [await self._record(event) for event in events]

    async def _record(self, event: MemoryEvent) -> WriteReceipt:
        tool, each = self._tool("store"), [_values(event, number) for number in range(len(event.messages))]
        together = "$each" in json.dumps(tool.arguments)
        space = self._space(event.scope)

        def store() -> None:
            for values in [{"each": each}] if together else each:
                self.servers.call(space, tool, **values)

        await self.worker.run(store)
        return self.receipt(event, tool.tool, [values["name"] for values in each], status="committed")

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The names of the event's rows, if all are there."""
        wanted = [_values(event, number)["name"] for number in range(len(event.messages))]
        names = {
            at(row, self._options.row.name) for row in await self._rows(event.scope, self._tool("list_all"))
        }
        return tuple(wanted) if names.issuperset(wanted) else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """The rows that the search tool finds; asked word by word, those that hold most words come first."""
        tool, limit = self._tool("search"), request.budget.max_items or self._options.top_k
        if self._options.by_word:
            rows = await self._by_word(request, limit)
        else:
            rows = (await self._rows(request.scope, tool, query=request.query, limit=limit))[:limit]
        ids = self.native_scope(request.scope)
        return RetrieveResult(
            request=request,
            raw={"rows": rows},
            entries=tuple(self._entry(row, ids) for row in rows),
            trace=self.trace(request.scope, tool.tool, consistency="committed"),
        )

    async def _by_word(self, request: RetrieveRequest, limit: int) -> list[Any]:
        words = dict.fromkeys(
            word
            for word in _WORD.findall(request.query.casefold())
            if len(word) >= _SHORTEST or not word.isascii()
        )
        found: dict[str, tuple[int, Any]] = {}
        for word in words:
            for row in await self._rows(request.scope, self._tool("search"), query=word, limit=limit):
                name = str(at(row, self._options.row.name))
                held = word in str(at(row, self._options.row.text)).casefold()
                found[name] = (found.get(name, (0, row))[0] + held, row)
        ranked = sorted((hit for hit in found.values() if hit[0]), key=lambda hit: -hit[0])
        return [row for _, row in ranked[:limit]]

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """``list``: every row, as the server tells it."""
        tool = self._tool("list_all")
        return NativeQueryResult(
            raw={"rows": await self._rows(request.scope, tool)}, trace=self.trace(request.scope, tool.tool)
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Delete every row that there is, and look again."""
        listing, delete = self._tool("list_all"), self._tool("delete")
        names = [at(row, self._options.row.name) for row in await self._rows(scope, listing)]
        space = self._space(scope)
        if names:
            await self.worker.run(lambda: self.servers.call(space, delete, names=names))
        left = await self._rows(scope, listing)
        trace = self.trace(scope, delete.tool)
        return ResetReceipt(scope=scope, verified=not left, removed=len(names), trace=trace)

    async def health(self) -> BackendHealth:
        """``ok`` if the server can be started and lists nothing, in a directory of its own."""
        await self.worker.run(lambda: self.servers.rows("health", self._tool("list_all")))
        return self.health_of(details={"command": self._options.command[0], "preset": self._options.preset})

    def close_native(self) -> None:
        """End every process, on the thread that started them."""
        self.servers.close_all()

    def _tool(self, name: str) -> Tool:
        tool: Tool = getattr(self._options, name)
        return tool

    def _space(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["directory"]

    async def _rows(self, scope: MemoryScope, tool: Tool, **values: Any) -> list[Any]:
        space = self._space(scope)
        return await self.worker.run(lambda: self.servers.rows(space, tool, **values))

    def _entry(self, row: Any, ids: Mapping[str, str]) -> ContextEntry:
        place = self._options.row
        fields = _fields(at(row, place.fields))
        said_at = fields.get("timestamp")
        return ContextEntry(
            str(at(row, place.text) or ""),
            native_id=str(at(row, place.name)),
            timestamp=datetime.fromisoformat(said_at) if isinstance(said_at, str) else None,
            event_ids=(fields["event_id"],) if "event_id" in fields else (),
            labels=(("role", str(fields["role"])),) if "role" in fields else (),
            session_id=fields.get("session_id"),
            scope_ids=ids,
        )


def _values(event: MemoryEvent, number: int) -> dict[str, str]:
    """What the templates of a message may use."""
    message = event.messages[number]
    fields = event.model_dump(mode="json", exclude={"messages", "scope"}, exclude_none=True)
    return {
        "name": f"{event.event_id}#{number}",
        "text": message.content or json.dumps(message.tool_calls, ensure_ascii=False),
        "role": message.role,
        "fields": json.dumps({**fields, "role": message.role}, ensure_ascii=False),
    }


def _fields(text: Any) -> dict[str, Any]:
    """The fields that were put into a row; nothing where another client wrote it."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
