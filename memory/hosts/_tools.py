"""Tools for a model in addition to automatic recall: a search, and a way to store one fact.

Each binding adapts them to its SDK. The binding sets the scope; the model cannot name another person.
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
    """Return the JSON Schema of a tool's arguments."""
    argument = ARGUMENTS[name]
    properties = {argument: {"type": "string", "minLength": 1}}
    return {
        "type": "object",
        "properties": properties,
        "required": [argument],
        "additionalProperties": False,
    }


class ModelTools:
    """Runs the tools. A failure becomes an answer in words, so that it does not end the turn."""

    def __init__(self, turns: HostTurns) -> None:
        self._turns = turns

    async def answer(self, name: str, given: str, scope: MemoryScope | None, session_id: str) -> str:
        """Run a tool. Returns memories as a JSON list, or the status of the stored fact."""
        try:
            return await self._turns.call(lambda: self._do(name, given, scope, session_id))
        except MemslotError as error:
            return f"error: {error}"

    def answer_blocking(self, name: str, given: str, scope: MemoryScope | None, session_id: str) -> str:
        """Run a tool like :meth:`answer`, for synchronous hosts."""
        try:
            return self._turns.call_blocking(lambda: self._do(name, given, scope, session_id))
        except MemslotError as error:
            return f"error: {error}"

    def functions(
        self, scope: MemoryScope | None, session_id: str
    ) -> dict[str, Callable[[str], Awaitable[str]]]:
        """Return the tools as functions by name, for an SDK that inspects a function's arguments."""

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
