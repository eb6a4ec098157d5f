"""Tools that a model may call beside automatic recall: a search, and a way to keep one fact.

Each binding gives them the form of its SDK. The binding sets the scope, and no argument of a tool names a person.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from memory import MemoryScope, MemslotError
from memory.runtime import HostTurns, MemoryItems

SEARCH, STORE = "memory_search", "memory_store"
DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        SEARCH: "Search long-term memory of earlier conversations. What fits this turn is shown already.",
        STORE: "Keep one fact in long-term memory.",
    }
)
ARGUMENTS: Mapping[str, str] = MappingProxyType({SEARCH: "query", STORE: "content"})


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    argument = ARGUMENTS[name]
    properties = {argument: {"type": "string", "minLength": 1}}
    return {
        "type": "object",
        "properties": properties,
        "required": [argument],
        "additionalProperties": False,
    }


class ModelTools:
    """The work of the tools. A failure is an answer in words, so that it ends no turn."""

    def __init__(self, turns: HostTurns) -> None:
        self._turns = turns

    async def answer(self, name: str, given: str, scope: MemoryScope | None, session_id: str) -> str:
        """The answer of a tool: memories as a JSON list, or the status of the stored fact."""
        try:
            return await self._turns.call(lambda: self._do(name, given, scope, session_id))
        except MemslotError as error:
            return f"error: {error}"

    async def answer_json(self, name: str, arguments: str, scope: MemoryScope | None, session_id: str) -> str:
        """As :meth:`answer`, for a model's arguments as JSON."""
        try:
            given = json.loads(arguments)[ARGUMENTS[name]]
        except (ValueError, KeyError, TypeError):
            return f"error: {name} takes one argument, {ARGUMENTS[name]!r}, as a JSON object"
        return await self.answer(name, str(given), scope, session_id)

    def answer_blocking(self, name: str, given: str, scope: MemoryScope | None, session_id: str) -> str:
        """As :meth:`answer`, for hosts that do not await."""
        try:
            return self._turns.call_blocking(lambda: self._do(name, given, scope, session_id))
        except MemslotError as error:
            return f"error: {error}"

    def functions(
        self, scope: MemoryScope | None, session_id: str
    ) -> dict[str, Callable[[str], Awaitable[str]]]:
        """The tools as functions by name, for an SDK that reads a function's argument."""

        async def memory_search(query: str) -> str:
            return await self.answer(SEARCH, query, scope, session_id)

        async def memory_store(content: str) -> str:
            return await self.answer(STORE, content, scope, session_id)

        return {SEARCH: memory_search, STORE: memory_store}

    async def _do(self, name: str, given: str, scope: MemoryScope | None, session_id: str) -> str:
        items = MemoryItems(self._turns.memory.slot, scope or self._turns.scope)
        if name == SEARCH:
            found = await items.search(given, session_id=session_id)
            return json.dumps([item.content for item in found], ensure_ascii=False)
        receipt = await items.store(given, session_id=session_id, agent_id=self._turns.host)
        return receipt.status
