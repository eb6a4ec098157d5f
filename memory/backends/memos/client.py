"""What the adapter does with a MemOS: requests built, sent and understood, one method for each purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory import MemoryEvent, MemoryFeedback, RetrieveRequest
from memory.backends.memos.answers import (
    Added,
    Item,
    added,
    count_busy,
    data_of,
    feedback_ids,
    items,
    metadata_of,
    task_states,
    writer_of,
)
from memory.backends.memos.ids import MemosScope
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Body, Requests
from memory.backends.memos.transport import Transport

__all__ = ["Listing", "Native", "is_by"]

_ACTIVE = frozenset({"waiting", "pending", "in_progress"})


@dataclass(frozen=True, slots=True)
class Listing:
    """All memories of a cube.

    Attributes:
        raw: the groups as MemOS gave them; PostgreSQL puts every memory into every group.
        by_id: each memory once.
    """

    raw: Any
    by_id: Mapping[str, Item]

    @property
    def items(self) -> tuple[Item, ...]:
        """The memories, in MemOS' order."""
        return tuple(self.by_id.values())


class Native:
    """One MemOS behind a transport.

    Args:
        transport: the way there.
        options: the block.
    """

    def __init__(self, transport: Transport, options: MemosOptions) -> None:
        self.requests = Requests(options)
        self._transport = transport
        self._redis = options.scheduler == "redis"

    async def health(self) -> dict[str, Any]:
        """What the server says of itself, which is always that it is healthy."""
        answer = await self._transport.call("health", {})
        return answer if isinstance(answer, dict) else {}

    async def add(self, event: MemoryEvent, home: MemosScope, place: MemosScope) -> tuple[Added, ...]:
        """``/product/add`` to one cube; empty where MemOS kept nothing."""
        return added(await self._transport.call("add", self.requests.add(event, home, place)))

    async def note(self, text: str, home: MemosScope, info: dict[str, str]) -> tuple[Added, ...]:
        """``/product/add`` of a text as it is."""
        return added(await self._transport.call("add", self.requests.note(text, home, info)))

    async def search(self, request: RetrieveRequest, home: MemosScope, mode: str | None = None) -> Any:
        """``/product/search``: the groups; by default in the configured mode."""
        body = self.requests.search(request, home, mode)
        return data_of(await self._transport.call("search", body), "search")

    async def found(
        self,
        text: str,
        home: MemosScope,
        *,
        session_id: str | None = None,
        where: Body | None = None,
        mode: str | None = "fast",
    ) -> dict[str, Item]:
        """The memories that a search for ``text`` finds, by id. With ``fine`` they would be others."""
        body = self.requests.ask(text, home, session_id=session_id, where=where, mode=mode)
        data = data_of(await self._transport.call("search", body), "search")
        return {str(item.get("id")): item for _, _, item in items(data, "search")}

    async def listing(self, home: MemosScope, native_id: str | None = None) -> Listing:
        """``/product/get_memory``: the cube's memories, or at least the one of ``native_id``."""
        body = self.requests.listing(home, native_id=native_id)
        data = data_of(await self._transport.call("get_memory", body), "get_memory")
        return Listing(data, {str(item.get("id")): item for _, _, item in items(data, "get_memory")})

    async def stored(self, home: MemosScope, place: MemosScope) -> Mapping[str, Item]:
        """What a scope has in a cube, by id: all of its own cube, of a shared one what it has written."""
        rows = (await self.listing(place)).by_id
        if place == home:
            return rows
        return {one: item for one, item in rows.items() if is_by(home, item)}

    async def clear(self, home: MemosScope) -> None:
        """``/product/delete_memory`` for the whole cube; what MemOS says of it is wrong more often than not."""
        data_of(await self._transport.call("delete_memory", self.requests.clear(home)), "delete_memory")

    async def delete(self, native_ids: Sequence[str], home: MemosScope) -> Any:
        """``/product/delete_memory`` by id: the answer, which is the same for ids that do not exist."""
        return await self._transport.call("delete_memory", self.requests.delete(native_ids, home))

    async def feedback(self, feedback: MemoryFeedback, home: MemosScope) -> tuple[str, ...]:
        """``/product/feedback``, carried out: ids of the memories it changed."""
        return feedback_ids(await self._transport.call("feedback", self.requests.feedback(feedback, home)))

    async def busy(self, homes: Sequence[MemosScope]) -> int:
        """Tasks that wait or run: of these users with Redis; of all users with the local queue."""
        if not self._redis:
            return await self.busy_for_all()
        states = [state for home in homes for state in (await self.tasks(home)).values()]
        return sum(state in _ACTIVE for state in states)

    async def busy_for_all(self) -> int:
        """Tasks of all users that wait or run."""
        return count_busy(await self._transport.call("all_status", {}))

    async def tasks(self, home: MemosScope) -> dict[str, str]:
        """State of each task of a user; always empty without Redis."""
        return task_states(await self._transport.call("task_status", {"user_id": home.user_id}))

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()


def is_by(home: MemosScope, item: Item) -> bool:
    """Whether a memory of a shared cube is what this scope wrote."""
    return writer_of(metadata_of(item)) == home.cube_id
