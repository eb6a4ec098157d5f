"""A scope's workspace on the server: its peers and sessions, what we know of it, how it is emptied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from honcho import Peer
from honcho.api_types import PeerConfig

from memory import MemoryScope
from memory.adapter import BackendProtocolError, BackendRejected, none_if_404
from memory.backends.honcho.client import Connections, WorkspaceReader
from memory.backends.honcho.options import MAX_ROWS, OTHERS_PEER, HonchoOptions
from memory.backends.honcho.readiness import Watch
from memory.backends.honcho.translate import IDS, Part

_DELETION_S = 5.0
_HELD_S = 45.0  # after which waiting work is held back: an idle worker looks into its queue more often


class HonchoScope(WorkspaceReader):
    def __init__(
        self, scope: MemoryScope, native: Mapping[str, str], options: HonchoOptions, connections: Connections
    ) -> None:
        super().__init__(native, options, connections)
        self.scope = scope
        self.watch = Watch(self, options.quiet_period_s)
        self.uncertain: set[str] = set()  # events of which a part may be stored already
        self.options = options
        self._writer = connections.writer(self.workspace_id)
        self._peers: dict[str, Any] = {}
        self._sessions: dict[str, Any] = {}
        self._reading = 0
        self._cleared: anyio.Event | None = None
        self._idle = anyio.Event()

    def peer_of(self, role: str) -> str:
        return {"user": self.peer_id, "assistant": self.options.assistant_peer}.get(role, OTHERS_PEER)

    async def add(self, batch: Sequence[Part]) -> list[str]:
        """At most a hundred parts of one session: their ids. Makes what is missing."""
        await self.watch.begin()
        session_id, roles = batch[0].event.session_id, [part.role for part in batch]
        peers = {role: await self._peer(self.peer_of(role)) for role in set(roles)}
        session = await self._open_session(session_id)
        messages = [
            peers[part.role].message(part.content, metadata=part.metadata, created_at=part.event.timestamp)
            for part in batch
        ]
        observed = sum(self.peer_of(role) in self.observed for role in roles)
        try:
            with self.watch.writing(observed):
                stored: list[Any] = await session.aio.add_messages(messages)
        except BackendRejected as error:
            if error.status == 404:
                self._sessions.pop(session_id, None)  # deleted by another client
            raise
        if len(stored) != len(batch):
            raise BackendProtocolError(f"{len(batch)} messages were sent, {len(stored)} answered")
        answered_for = {(message.workspace_id, message.session_id) for message in stored}
        if answered_for != {(self.workspace_id, session.id)}:
            raise BackendProtocolError("the answer is about messages of another workspace or session")
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
        """Made once. One that is being deleted is waited for; it cannot be used until it is gone."""
        if session_id not in self._sessions:
            native_id, metadata = IDS.encode(session_id), dict[str, object](session_id=session_id)
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
                await anyio.sleep(self.options.poll_s)
            self._sessions[session_id] = session
        return self._sessions[session_id]

    def forget(self) -> None:
        """What was made may be gone: make it again when it is needed."""
        self._peers.clear()
        self._sessions.clear()
        self._writer._workspace_ensured = False
        self.uncertain.clear()
        self.watch.cleared()

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
        self._cleared = anyio.Event()
        try:
            while self._reading:
                await self._idle.wait()
            yield
        finally:
            self._cleared.set()
            self._cleared = None


async def wait_until_idle(workspace: HonchoScope, timeout_s: float) -> None:
    """At most ``timeout_s`` seconds, and not for what the worker holds back. While something is derived from a
    session Honcho fails to delete it, and it stays: not to be used, not to be deleted again."""
    seen, since = -1, anyio.current_time()
    with anyio.move_on_after(timeout_s):
        while (await workspace.watch.look()).state == "pending":
            waiting, running = await workspace.under_way()
            if running or waiting != seen:
                seen, since = waiting, anyio.current_time()
            elif anyio.current_time() - since > _HELD_S:
                return
            await anyio.sleep(workspace.options.poll_s)


async def clear(workspace: HonchoScope, timeout_s: float) -> tuple[int, bool]:
    """Delete what a workspace holds: how many messages, conclusions of no session and card lines there were; and
    whether, within ``timeout_s`` seconds, two looks in a row found nothing left."""
    removed, empty = 0, 0
    with anyio.move_on_after(timeout_s):
        deleted: dict[str, int] = {}
        while empty < 2:
            more = await _delete_sessions(workspace)
            removed += sum(more.values())
            listed = {**deleted, **more}
            deleted = {native_id: 0 for native_id in listed if await workspace.count_messages(native_id)}
            # Those of a session go with it.
            rest = [] if deleted else (await workspace.reader.aio.conclusions.list(size=MAX_ROWS)).items
            for conclusion in rest:
                await none_if_404(workspace.user.conclusions.aio.delete(conclusion.id))
            removed += len(rest)
            waiting = sum(await workspace.under_way())
            cards = await _clear_cards(workspace)
            removed += cards
            found = more or deleted or rest or waiting or cards
            empty = 0 if found else empty + 1
            if empty < 2:
                await anyio.sleep(workspace.options.poll_s)
    workspace.forget()
    return removed, empty >= 2


async def _delete_sessions(workspace: HonchoScope) -> dict[str, int]:
    """How many messages each session had."""
    deleted: dict[str, int] = {}
    while True:
        page: Any = await workspace.reader.aio.sessions(size=MAX_ROWS)
        fresh = [session for session in page.items if session.id not in deleted]
        if not fresh:
            return deleted
        for session in fresh:
            deleted[session.id] = await workspace.count_messages(session.id)
            await none_if_404(session.aio.delete())


async def _clear_cards(workspace: HonchoScope) -> int:
    """Only those with lines, because setting one would make a workspace that is not there."""
    lines = 0
    for peer_id in workspace.observed:
        peer = Peer(peer_id, workspace.reader)
        if card := await none_if_404(peer.aio.get_card()):
            lines += len(card)
            await peer.aio.set_card([])
    return lines
