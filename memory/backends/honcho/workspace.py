"""A scope's workspace on the server: its peers and sessions, what we know of it, how it is emptied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import anyio
from honcho import Peer, Session
from honcho.api_types import PeerConfig

from memory import MemoryScope
from memory.adapter import BackendProtocolError, BackendRejected, none_if_404, without_nul
from memory.backends.honcho.client import Connections
from memory.backends.honcho.ids import IDS
from memory.backends.honcho.options import MAX_ROWS, OTHERS_PEER, HonchoOptions
from memory.backends.honcho.readiness import Watch
from memory.backends.honcho.translate import Part

T = TypeVar("T")
_DELETION_S = 5.0
_LOOKS = 2
_HELD_S = 45.0
"""Seconds after which work that waits is held back: an idle worker looks into its queue more often than that."""


async def all_rows(page: Any, most: int | None = None) -> list[Any]:
    """The rows of a page and of those after it, at most so many.

    Not by ``async for``: left half-way, the SDK's generator is a warning on trio.
    """
    rows: list[Any] = []
    while page is not None:
        rows.extend(page.items)
        if most is not None and len(rows) >= most:
            return rows[:most]
        page = await page.get_next_page()
    return rows


class HonchoScope:
    """A scope's workspace; ``peer_id`` is the user's, and so is ``user``, a peer to read by.

    Attributes:
        observed: peers of whom Honcho derives what it concludes.
        reader: an SDK client that makes nothing.
        watch: what was written and may still be under way.
        uncertain: events of which a part may be stored already.
    """

    def __init__(
        self, scope: MemoryScope, native: Mapping[str, str], options: HonchoOptions, connections: Connections
    ) -> None:
        self.scope = scope
        self.workspace_id = native["workspace_id"]
        self.peer_id = native["peer_id"]
        self.observed = (self.peer_id, *((options.assistant_peer,) if options.observe_assistant else ()))
        self.reader = connections.reader(self.workspace_id)
        self.user = Peer(self.peer_id, self.reader)
        self.watch = Watch(self, options.quiet_period_s)
        self.uncertain: set[str] = set()
        self._options = options
        self._writer = connections.writer(self.workspace_id)
        self._peers: dict[str, Any] = {}
        self._sessions: dict[str, Any] = {}
        self._reading = 0
        self._cleared: anyio.Event | None = None
        self._idle = anyio.Event()

    def session(self, session_id: str) -> Any:
        """A session, by our id, for reading."""
        return self.native_session(IDS.encode(session_id))

    def native_session(self, native_id: str) -> Any:
        """A session, by Honcho's id, for reading and deleting."""
        return Session(native_id, self.reader)

    def peer_of(self, role: str) -> str:
        """Who speaks in a role."""
        return {"user": self.peer_id, "assistant": self._options.assistant_peer}.get(role, OTHERS_PEER)

    async def add(self, batch: Sequence[Part]) -> list[str]:
        """``session.add_messages`` of at most a hundred parts of one session: their ids. Makes what is missing."""
        await self.watch.begin()
        session_id, roles = batch[0].event.session_id, [part.role for part in batch]
        peers = {role: await self._peer(self.peer_of(role)) for role in set(roles)}
        session = await self._open_session(session_id)
        messages = [
            peers[part.role].message(part.content, metadata=part.metadata, created_at=part.event.timestamp)
            for part in batch
        ]
        seen = sum(self.peer_of(role) in self.observed for role in roles)
        try:
            with self.watch.writing(IDS.encode(session_id), seen):
                stored: list[Any] = await session.aio.add_messages(messages)
        except BackendRejected as error:
            if error.status == 404:
                self._sessions.pop(session_id, None)  # deleted by another client
            raise
        if len(stored) != len(batch):
            raise BackendProtocolError(f"{len(batch)} messages were sent, {len(stored)} answered")
        return [message.id for message in stored]

    async def _peer(self, peer_id: str) -> Any:
        if not self._peers:
            # First, so that the workspace is the one that holds the user, whoever speaks first.
            fields = self.scope.model_dump(exclude_none=True)
            self._peers[self.peer_id] = await self._writer.aio.peer(self.peer_id, metadata=fields)
        if peer_id not in self._peers:
            config = PeerConfig(observe_me=peer_id in self.observed)
            self._peers[peer_id] = await self._writer.aio.peer(peer_id, configuration=config)
        return self._peers[peer_id]

    async def _open_session(self, session_id: str) -> Any:
        """The session, made once. One that is being deleted is waited for; it cannot be used until it is gone."""
        if session_id not in self._sessions:
            native_id, metadata = IDS.encode(session_id), {"session_id": session_id}
            until = anyio.current_time() + _DELETION_S
            while True:
                session = await none_if_404(self._writer.aio.session(native_id, metadata=metadata))
                if session is not None:
                    break
                if anyio.current_time() > until:
                    raise BackendRejected(
                        "the session of this name is being deleted, or Honcho's cache still has it as deleted "
                        "(up to 5 min without Redis); try again later, or use another session_id",
                        diagnostics={"status": 404},
                    )
                await anyio.sleep(self._options.poll_s)
            self._sessions[session_id] = session
        return self._sessions[session_id]

    def forget(self) -> None:
        """What was made may be gone: make it again when it is needed."""
        self._peers.clear()
        self._sessions.clear()
        self._writer._workspace_ensured = False

    async def stored(self, session_id: str, event_id: str) -> dict[tuple[int, int], str]:
        """The parts of an event that are stored, by their key: ``session.messages`` by metadata."""
        filters = {"metadata": {"event_id": without_nul(event_id)}}
        page = await self.session(session_id).aio.messages(filters=filters, size=MAX_ROWS)
        return {_key(message.metadata): message.id for message in await all_rows(page)}

    async def answers(self) -> None:
        """Ask for the queue, which needs nothing to be there: whether this is a Honcho that lets us in."""
        await self.reader.aio.queue_status()

    async def rows(self) -> tuple[int, int, int]:
        """Queue rows of the observed peers: all that Honcho still lists, waiting, in progress."""
        statuses = [await self.reader.aio.queue_status(sender=peer_id) for peer_id in self.observed]
        return (
            sum(status.total_work_units for status in statuses),
            sum(status.pending_work_units for status in statuses),
            sum(status.in_progress_work_units for status in statuses),
        )

    async def under_way(self) -> tuple[int, int]:
        """Queue rows, whosever, that wait or are in progress."""
        status = await self.reader.aio.queue_status()
        return status.pending_work_units, status.in_progress_work_units

    async def empty(self) -> bool:
        """Whether there is no session."""
        return not (await self.reader.aio.sessions(size=1)).items

    async def concluded(
        self, since: datetime | None, sessions: Collection[str]
    ) -> tuple[datetime | None, set[str]]:
        """When the newest conclusion was derived, by the server's clock; and which of these sessions, by native id,
        have one newer than ``since``."""
        found: set[str] = set()
        page = await self.reader.aio.conclusions.list(size=MAX_ROWS if sessions else 1)
        newest = page.items[0].created_at if page.items else None
        while page is not None and len(found) < len(sessions):
            newer = [one for one in page.items if since is None or one.created_at > since]
            found.update(one.session_id for one in newer if one.session_id in sessions)
            page = await page.get_next_page() if len(newer) == len(page.items) else None
        return newest, found

    async def said(self) -> dict[str, int]:
        """How many messages of the observed peers each session holds; sessions without any are left out."""
        of_observed, counts = {"peer_id": {"in": list(self.observed)}}, {}
        for session in await all_rows(await self.reader.aio.sessions(size=MAX_ROWS)):
            page = await self.native_session(session.id).aio.messages(filters=of_observed, size=1)
            if page.total:
                counts[session.id] = page.total
        return counts

    async def unless_unknown(self, call: Awaitable[T]) -> T | None:
        """The answer, or None where Honcho has not met the user yet, which it says with 404.

        So does an address that is not Honcho's: the queue, which needs no user, must answer.
        """
        answer = await none_if_404(call)
        if answer is None:
            await self.answers()
        return answer

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While sessions are deleted nobody reads them: Honcho would keep them in its cache as deleted."""
        while self._cleared is not None:
            await self._cleared.wait()
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1
            if not self._reading:
                self._idle.set()
                self._idle = anyio.Event()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Without readers."""
        self._cleared = anyio.Event()
        try:
            while self._reading:
                await self._idle.wait()
            yield
        finally:
            self._cleared.set()
            self._cleared = None


def _key(metadata: Mapping[str, Any]) -> tuple[int, int]:
    part = metadata.get("part")
    number = int(part.partition("/")[0]) - 1 if isinstance(part, str) else 0
    position = metadata.get("message")
    return (position if isinstance(position, int) else -1, number)


async def wait_until_idle(home: HonchoScope, timeout_s: float, poll_s: float) -> None:
    """Wait until the worker is done with the workspace, at most ``timeout_s`` seconds; not for what it holds back.

    While something is derived from a session Honcho fails to delete it, and it stays: not to be used, not to be
    deleted again.
    """
    seen, since = -1, anyio.current_time()
    with anyio.move_on_after(timeout_s):
        while (await home.watch.look()).state == "pending":
            waiting, running = await home.under_way()
            if running or waiting != seen:
                seen, since = waiting, anyio.current_time()
            elif anyio.current_time() - since > _HELD_S:
                return
            await anyio.sleep(poll_s)


async def clear(home: HonchoScope, timeout_s: float, poll_s: float) -> tuple[int, bool]:
    """Delete what a workspace holds.

    Returns:
        How many messages, conclusions of no session and card lines there were; and whether, within ``timeout_s``
        seconds, two looks in a row found nothing left.
    """
    removed, empty = 0, 0
    with anyio.move_on_after(timeout_s):
        deleted: dict[str, int] = {}
        while empty < _LOOKS:
            more = await _delete_sessions(home)
            removed += sum(more.values())
            deleted = {one: 0 for one in {**deleted, **more} if await _messages(home, one)}
            # Those of a session go with it.
            rest = [] if deleted else (await home.reader.aio.conclusions.list(size=MAX_ROWS)).items
            for conclusion in rest:
                await none_if_404(home.user.conclusions.aio.delete(conclusion.id))
            removed += len(rest)
            waiting = sum(await home.under_way())
            cards = await _clear_cards(home)
            removed += cards
            found = more or deleted or rest or waiting or cards
            empty = 0 if found else empty + 1
            if empty < _LOOKS:
                await anyio.sleep(poll_s)
    home.forget()
    home.uncertain.clear()
    home.watch.cleared()
    return removed, empty >= _LOOKS


async def _delete_sessions(home: HonchoScope) -> dict[str, int]:
    """Delete every session that is listed; how many messages each had."""
    deleted: dict[str, int] = {}
    while True:
        page = await home.reader.aio.sessions(size=MAX_ROWS)
        fresh = [session for session in page.items if session.id not in deleted]
        if not fresh:
            return deleted
        for session in fresh:
            deleted[session.id] = await _messages(home, session.id)
            await none_if_404(session.aio.delete())


async def _messages(home: HonchoScope, native_id: str) -> int:
    page = await home.native_session(native_id).aio.messages(size=1)
    return page.total or 0


async def _clear_cards(home: HonchoScope) -> int:
    """Empty the cards; only those with lines, because setting one would make a workspace that is not there."""
    lines = 0
    for peer_id in home.observed:
        peer = Peer(peer_id, home.reader)
        card = await none_if_404(peer.aio.get_card())
        if card:
            lines += len(card)
            await peer.aio.set_card([])
    return lines
