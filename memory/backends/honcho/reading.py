"""What is read of a scope's workspace. Nothing here makes anything on the server."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from honcho import Peer, Session

from memory.adapter import none_if_404, without_nul
from memory.backends.honcho.client import Connections
from memory.backends.honcho.options import MAX_ROWS, HonchoOptions
from memory.backends.honcho.translate import IDS

T = TypeVar("T")


async def all_rows(page: Any, limit: int | None = None) -> list[Any]:
    """The rows of a page and of those after it, at most ``limit``.

    Not by ``async for``: left half-way, the SDK's generator is a warning on trio.
    """
    rows: list[Any] = []
    while page is not None:
        rows.extend(page.items)
        if limit is not None and len(rows) >= limit:
            return rows[:limit]
        page = await page.get_next_page()
    return rows


class WorkspaceReader:
    """A workspace; ``peer_id`` is the user's, and so is ``user``, a peer to read by.

    Attributes:
        observed: peers of whom Honcho derives what it concludes.
        reader: an SDK client that makes nothing.
    """

    def __init__(self, native: Mapping[str, str], options: HonchoOptions, connections: Connections) -> None:
        self.workspace_id = native["workspace_id"]
        self.peer_id = native["peer_id"]
        self.observed = (self.peer_id, *((options.assistant_peer,) if options.observe_assistant else ()))
        self.reader = connections.reader(self.workspace_id)
        self.user = Peer(self.peer_id, self.reader)

    def session(self, session_id: str) -> Session:
        """A session, by our id, for reading."""
        return self.native_session(IDS.encode(session_id))

    def native_session(self, native_id: str) -> Session:
        """A session, by Honcho's id, for reading and deleting."""
        return Session(native_id, self.reader)

    async def check_access(self) -> None:
        """Ask for the queue, which needs nothing to be there: whether this is a Honcho that lets us in."""
        await self.reader.aio.queue_status()

    async def unless_unknown(self, call: Awaitable[T]) -> T | None:
        """The answer, or None where Honcho has not met the user yet, which it says with 404.

        So does an address that is not Honcho's: the queue, which needs no user, must answer.
        """
        answer = await none_if_404(call)
        if answer is None:
            await self.check_access()
        return answer

    async def stored(self, session_id: str, event_id: str) -> dict[tuple[int, int], str]:
        """The parts of an event that are stored, by their key: ``session.messages`` by metadata."""
        filters: dict[str, Any] = {"metadata": {"event_id": without_nul(event_id)}}
        page = await self.session(session_id).aio.messages(filters=filters, size=MAX_ROWS)
        return {_key(message.metadata): message.id for message in await all_rows(page)}

    async def sessions(self) -> list[Session]:
        return await all_rows(await self.reader.aio.sessions(size=MAX_ROWS))

    async def count_messages(self, native_id: str, peer_id: str | None = None) -> int:
        """How many messages a session holds, of all peers or of one."""
        filters: dict[str, Any] | None = None if peer_id is None else {"peer_id": peer_id}
        page = await self.native_session(native_id).aio.messages(filters=filters, size=1)
        return page.total or 0

    async def has_sessions(self) -> bool:
        return bool((await self.reader.aio.sessions(size=1)).items)

    async def rows_of_observed(self) -> int:
        """Queue rows of the observed peers' messages, done ones that are not purged yet among them."""
        statuses = [await self.reader.aio.queue_status(sender=peer_id) for peer_id in self.observed]
        return sum(status.total_work_units for status in statuses)

    async def under_way(self) -> tuple[int, int]:
        """Queue rows, whosever, summaries too, that wait or are in progress."""
        status = await self.reader.aio.queue_status()
        return status.pending_work_units, status.in_progress_work_units

    async def conclusions(self, filters: dict[str, Any] | None = None) -> tuple[int, datetime | None]:
        """How many conclusions match, and when the newest of them was derived, by the server's clock."""
        page = await self.reader.aio.conclusions.list(size=1, filters=filters)
        return page.total or 0, page.items[0].created_at if page.items else None


def _key(metadata: Mapping[str, Any]) -> tuple[int, int]:
    part = metadata.get("part")
    number = int(part.partition("/")[0]) - 1 if isinstance(part, str) else 0
    position = metadata.get("message")
    return (position if isinstance(position, int) else -1, number)
