"""The adapter for MCP servers. Events become tool calls, and rows become entries."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory import (
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
    HTTPX_ERRORS,
    AdapterSettings,
    AdapterTraits,
    BackendProtocolError,
    ContextEntry,
    IdAlphabet,
    NativeError,
    NativeWorker,
    Operation,
    ScopeEncoder,
    SequentialBulk,
)
from memory.backends.mcp.options import McpOptions, Tool
from memory.backends.mcp.servers import HEALTH, Servers, at

_SIGN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # Chinese, Japanese, Korean: no blanks between words
_WORD = re.compile(rf"[{_SIGN}]|[^\W{_SIGN}]+")
_SHORTEST = 3  # letters; shorter words are in every text, and each would cost a call
_WORD_LIMIT = 64  # only the first words of a longer query are searched


class McpAdapter(SequentialBulk):
    traits = AdapterTraits(
        consistency="immediate",
        cs_filtering="none",
        pet_observability="dated",
        native_queries={"list": Operation()},
        write_retries=1,  # find_event can tell whether a write arrived
        bulk_size=1,
        max_concurrency=1,
        # The SDK raises McpError for its own time-out.
        errors={**HTTPX_ERRORS, "mcp.shared.exceptions.McpError": NativeError(BackendTimeout)},
    )

    def __init__(self, settings: AdapterSettings[McpOptions]) -> None:
        self.backend_name = settings.name
        self.worker: NativeWorker = NativeWorker(name="memslot-mcp")
        options = self._options = settings.options
        where = (options.preset or "", options.url or "", str(options.directory or ""), *options.command)
        self.traits = replace(self.traits, store="|".join(where))
        self.directory = options.directory or settings.data_dir / "mcp"
        self.servers = Servers(options, self.directory)
        # Lower case, digits and single hyphens, because servers merge other characters in project names.
        self._ids = ScopeEncoder(IdAlphabet(safe="", escape="-", separator="-s", max_length=64))

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"directory": self._ids.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Start the server, so that a broken one fails before the first turn."""
        space = self._space(scope)
        await self.worker.run(lambda: self.servers.check(space))
        if setup := self._options.setup:
            await self.worker.run(lambda: self.servers.call(space, setup))
        await self._rows(scope, self._tool("list_all"))

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        tool, each = self._tool("store"), self._values(event)
        space = self._space(event.scope)

        def store() -> None:
            for values in [{"each": each}] if tool.asks_for('"$each"') else each:
                self.servers.call(space, tool, **values)

        await self.worker.run(store)
        return self.receipt(event, tool.tool, self._names(each), status="committed")

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        each, look_up = self._values(event), self._options.look_up
        wanted = self._names(each)
        if look_up is None:
            rows = await self._rows(event.scope, self._tool("list_all"))
        else:
            rows = [row for values in each for row in await self._rows(event.scope, look_up, **values)]
        return tuple(wanted) if {self._name(row) for row in rows}.issuperset(wanted) else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        tool, limit = self._tool("search"), request.budget.max_items or self._options.top_k
        words = _words(request.query)
        rows = []
        if self._options.by_word:
            rows = await self._by_word(request.scope, words, limit)
        elif words:
            asked = {"query": request.query, "any_word": " OR ".join(words), "limit": limit}
            rows = (await self._rows(request.scope, tool, **asked))[:limit]
        if read := self._options.read:
            rows = await self._whole(request.scope, rows, read)
        ids = self.native_scope(request.scope)
        return RetrieveResult(
            request=request,
            raw={"rows": rows},
            entries=tuple(self._entry(row, ids) for row in rows),
            trace=self.trace(request.scope, tool.tool, consistency="committed"),
        )

    async def _by_word(self, scope: MemoryScope, words: list[str], limit: int) -> list[Any]:
        found: dict[str, tuple[int, Any]] = {}
        for word in words:
            for row in await self._rows(scope, self._tool("search"), query=word, limit=limit):
                name = self._name(row)
                held = word in self._text(row).casefold()
                found[name] = (found.get(name, (0, row))[0] + held, row)
        ranked = sorted((hit for hit in found.values() if hit[0]), key=lambda hit: -hit[0])
        return [row for _, row in ranked[:limit]]

    async def _whole(self, scope: MemoryScope, rows: list[Any], read: Tool) -> list[Any]:
        """The complete rows, each read by its name. Rows that no longer exist are left out."""
        space = self._space(scope)

        def read_all() -> list[Any]:
            answers = [self.servers.call(space, read, key=name, name=name) for name in map(self._name, rows)]
            return [at(answer, read.rows) for answer in answers if answer is not None]

        return await self.worker.run(read_all)

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        tool = self._tool("list_all")
        rows = await self._rows(request.scope, tool)
        return NativeQueryResult(raw={"rows": rows}, trace=self.trace(request.scope, tool.tool))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Delete all rows and list them again, until none is left or the rest cannot be deleted."""
        listing, delete, space = self._tool("list_all"), self._tool("delete"), self._space(scope)
        removed: set[str] = set()

        def delete_all() -> bool:
            while left := [self._name(row) for row in self.servers.rows(space, listing)]:
                if removed.issuperset(left):
                    return False
                removed.update(left)
                if delete.asks_for("{name}") or delete.asks_for("{key}"):
                    for name in left:
                        self.servers.call(space, delete, key=name, name=name)
                else:
                    self.servers.call(space, delete, names=left)
            return True

        verified = await self.worker.run(delete_all)
        trace = self.trace(scope, delete.tool)
        return ResetReceipt(scope=scope, verified=verified, removed=len(removed), trace=trace)

    async def health(self) -> BackendHealth:
        await self.worker.run(lambda: self.servers.check(HEALTH))
        address = self._options.url or self._options.command[0]
        return self.health_of(details={"server": address, "preset": self._options.preset})

    def close_native(self) -> None:
        self.servers.close_all()

    def _tool(self, name: str) -> Tool:
        tool: Tool = getattr(self._options, name)
        return tool

    def _space(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["directory"]

    def _name(self, row: Any) -> str:
        return str(self._found(row, "name"))

    def _text(self, row: Any) -> str:
        """The text of a row. Rows of other clients, without memslot's fields, may have none."""
        ours = _fields(at(row, self._options.row.fields))
        return str(self._found(row, "text") if ours else at(row, self._options.row.text) or "")

    def _found(self, row: Any, field: str) -> Any:
        place = getattr(self._options.row, field)
        if (value := at(row, place)) is None:
            raise BackendProtocolError(f"a row of the server has nothing at {place!r}, where row.{field} is")
        return value

    def _names(self, each: list[dict[str, str]]) -> list[str]:
        used = "key" if self._tool("store").asks_for("{key}") else "name"
        return [values[used] for values in each]

    async def _rows(self, scope: MemoryScope, tool: Tool, **values: Any) -> list[Any]:
        space = self._space(scope)
        return await self.worker.run(lambda: self.servers.rows(space, tool, **values))

    def _entry(self, row: Any, ids: Mapping[str, str]) -> ContextEntry:
        fields = _fields(at(row, self._options.row.fields))
        said_at = fields.get("timestamp")
        return ContextEntry(
            self._text(row),
            native_id=self._name(row),
            timestamp=datetime.fromisoformat(said_at) if isinstance(said_at, str) else None,
            event_ids=(fields["event_id"],) if "event_id" in fields else (),
            labels=(("role", str(fields["role"])),) if "role" in fields else (),
            session_id=fields.get("session_id"),
            scope_ids={**ids, **({"directory": fields["space"]} if "space" in fields else {})},
        )

    def _values(self, event: MemoryEvent) -> list[dict[str, str]]:
        fields = event.model_dump(mode="json", exclude={"messages", "scope"}, exclude_none=True)
        fields["space"] = self._space(event.scope)  # the slot refuses a row of another scope
        return [
            {
                "name": (name := f"{event.event_id}#{number}"),
                "key": hashlib.sha256(name.encode()).hexdigest()[:32],
                "text": message.content or json.dumps(message.tool_calls, ensure_ascii=False),
                "role": message.role,
                "fields": json.dumps(
                    {**fields, **message.model_dump(mode="json", exclude={"content"}, exclude_none=True)},
                    ensure_ascii=False,
                ),
            }
            for number, message in enumerate(event.messages)
        ]


def _words(query: str) -> list[str]:
    words = dict.fromkeys(_WORD.findall(query.casefold()))
    return [word for word in words if len(word) >= _SHORTEST or not word.isascii()][:_WORD_LIMIT]


def _fields(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
