"""The five tools by which a model uses a memory itself, over any slot; each only where the backend can do it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from memory.contract.errors import CapabilityNotSupported, InputError
from memory.contract.receipts import NativeMutationReceipt
from memory.runtime.items import Item, MemoryItems

__all__ = ["MemoryTool", "MemoryTools"]

_LONGEST = 20_000
_Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=_LONGEST)]
_ItemId = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _Search(_Arguments):
    query: _Said = Field(description="What to look for, as a question or in the user's words.")
    limit: int = Field(default=10, ge=1, le=50, description="Most memories to return.")


class _Store(_Arguments):
    content: _Said = Field(description="One fact to remember, as a sentence that makes sense by itself.")


class _Get(_Arguments):
    id: _ItemId = Field(description="The id of a memory, from memory_search.")


class _Modify(_Get):
    content: _Said = Field(description="What the memory says from now on.")


Call = Callable[[Any], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class MemoryTool:
    """One tool, as a model is told of it.

    Attributes:
        name: such as ``memory_search``.
        description: for the model.
        writes: whether it changes the memory.
        input_schema: of its arguments, JSON Schema.
    """

    name: str
    description: str
    writes: bool
    arguments: type[BaseModel] = field(repr=False)

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.arguments.model_json_schema()


_TOOLS = {
    "search": MemoryTool(
        "memory_search", "Search long-term memory. Memories come best first.", False, _Search
    ),
    "store": MemoryTool("memory_store", "Remember one fact for later conversations.", True, _Store),
    "get": MemoryTool("memory_get", "Show one memory as it is now.", False, _Get),
    "modify": MemoryTool("memory_modify", "Correct one memory that turned out wrong.", True, _Modify),
    "forget": MemoryTool("memory_forget", "Delete one memory for good.", True, _Get),
}


class MemoryTools:
    """The tools of one scope.

    Args:
        items: the memory, and whose.
        read_only: leave out what writes.
    """

    def __init__(self, items: MemoryItems, *, read_only: bool = False) -> None:
        self._items = items
        offered = [_TOOLS[name] for name in items.offered]
        self.offered = tuple(tool for tool in offered if not (read_only and tool.writes))
        self._calls: dict[str, Call] = {
            "memory_search": self._search,
            "memory_store": self._store,
            "memory_get": self._get,
            "memory_modify": self._modify,
            "memory_forget": self._forget,
        }

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Use a tool; the answer is JSON-ready.

        Raises:
            CapabilityNotSupported: it is not offered.
            InputError: an argument is missing, unknown or malformed; the message names it, and no value.
            MemslotError: the memory refused or failed.
        """
        tool = next((one for one in self.offered if one.name == name), None)
        if tool is None:
            known = ", ".join(one.name for one in self.offered)
            raise CapabilityNotSupported(f"there is no tool {name!r} here; there are {known}")
        try:
            given = tool.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{name}.{where}: {first['msg']}") from None
        return await self._calls[name](given)

    async def _search(self, given: _Search) -> dict[str, Any]:
        return {"memories": [_shown(item) for item in await self._items.search(given.query, given.limit)]}

    async def _store(self, given: _Store) -> dict[str, Any]:
        receipt = await self._items.store(given.content)
        return {
            "status": receipt.status,
            "ids": list(receipt.native_ids),
            "warnings": list(receipt.warnings),
        }

    async def _get(self, given: _Get) -> dict[str, Any]:
        item = await self._items.get(given.id)
        return {"found": item is not None, "memory": None if item is None else _shown(item)}

    async def _modify(self, given: _Modify) -> dict[str, Any]:
        return _changed(await self._items.modify(given.id, given.content))

    async def _forget(self, given: _Get) -> dict[str, Any]:
        return _changed(await self._items.forget(given.id))


def _shown(item: Item) -> dict[str, Any]:
    """What is known of a memory; what is not, is left out."""
    told = {
        "id": item.id,
        "content": item.content,
        "score": item.score,
        "timestamp": item.timestamp and item.timestamp.isoformat(),
    }
    return {name: one for name, one in told.items() if one is not None}


def _changed(receipt: NativeMutationReceipt) -> dict[str, Any]:
    return {"status": receipt.status, "ids": list(receipt.native_ids), "warnings": list(receipt.warnings)}
