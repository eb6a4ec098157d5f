"""A scope's workspace on the server: peers and sessions, readiness and reset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import anyio
from honcho import Peer, Session
from honcho.api_types import PeerConfig

from memory import BackendReadiness, MemoryScope
from memory.adapter import BackendProtocolError, BackendRejected, quantity
from memory.adapter.http import none_if_404
from memory.backends.honcho.client import Connections, WorkspaceReader
from memory.backends.honcho.named import NamedMessages
from memory.backends.honcho.options import MAX_ROWS, OTHERS_PEER, HonchoOptions
from memory.backends.honcho.translate import IDS, Part

_LOOKS = 3
_HELD = (
    "sessions of under 512 new tokens wait up to 30 min unless the server's DERIVER_FLUSH_ENABLED is true, and all "
    "wait while its worker does not run"
)
_UNNAMED = (
    "no conclusion was drawn from one alone: the server's model was given several at once, there was "
    "nothing to conclude, the model failed, or they never entered its queue; its API does not tell which"
)


class Watch:
    """Tracks whether Honcho has derived all its conclusions.

    An empty queue does not prove this: rows may enter it late or never, and a failed derivation also finishes its
    row. So each message of an observed peer must have a conclusion that names it alone.
    """

    def __init__(self, server: WorkspaceReader, quiet_s: float) -> None:
        self._server = server
        self._quiet_s = quiet_s
        self._writing = self._writes = 0
        self.cleared()

    def cleared(self) -> None:
        self.derived = False
        self._newest: datetime | None = None
        self._needs_quiet = True  # no conclusion can prove that nothing more enters the queue
        self._idle_since, self._looks = 0.0, 0  # of an idle queue, since the last write
        self._sources: dict[tuple[str, datetime | None, str], NamedMessages] = {}

    @property
    def derived_at(self) -> datetime | None:
        """The newest conclusion's time by the server's clock. None if it may have changed."""
        return self._newest if self.derived else None

    @contextmanager
    def writing(self, *, observed: bool) -> Iterator[None]:
        """Wrap a write. One of unobserved peers alone may make a summary due, which no conclusion proves."""
        self._writing += 1
        self.derived = False
        needed_quiet, self._needs_quiet = self._needs_quiet, True
        try:
            yield
            self._needs_quiet = needed_quiet or not observed
        finally:
            self._writing -= 1
            self._writes += 1
            self._looks = 0

    async def look(self) -> BackendReadiness:
        if self._writing:
            return _pending("a write is still under way")
        writes = self._writes
        waiting, running = await self._server.under_way()
        if waiting or running:
            self._looks = 0
            held = f"; {_HELD}" if not running else ""
            detail = f"{waiting} waiting in Honcho's queue, {running} in progress{held}"
            return _pending(detail, waiting + running)
        now = anyio.current_time()
        if not self._looks:
            self._idle_since = now
        self._looks += 1
        quiet = self._looks >= _LOOKS and now - self._idle_since >= self._quiet_s
        sessions = await self._server.sessions()
        first = self._looks == 1 and not self._needs_quiet
        if sessions and not (quiet or first):
            return _pending("idle, but only just")
        stored, unnamed = await self._account(sessions)
        self._newest = (await self._server.conclusions())[1]
        if writes != self._writes or self._writing or (unnamed and not quiet):
            return _pending("idle, but only just")
        self._needs_quiet = False
        self.derived = not unnamed
        if unnamed:
            detail = f"from {unnamed} of {quantity(stored, 'messages')} {_UNNAMED}"
            return BackendReadiness(state="unknown", detail=detail, last_derived_at=self._newest)
        return BackendReadiness(state="ready", pending_count=0, last_derived_at=self._newest)

    async def _account(self, sessions: Sequence[Session]) -> tuple[int, int]:
        stored = unnamed = 0
        for session in sessions:
            for peer_id in self._server.observed:
                count = await self._server.count_messages(session.id, peer_id)
                key = (session.id, session.created_at, peer_id)
                sources = self._sources.setdefault(key, NamedMessages(self._server, session, peer_id))
                stored += count
                unnamed += await sources.unnamed(count)
        return stored, unnamed


def _pending(detail: str, count: int | None = None) -> BackendReadiness:
    return BackendReadiness(state="pending", detail=detail, pending_count=count)


_HELD_S = 45.0  # seconds after which waiting work counts as held back; an idle worker polls more often


class HonchoScope(WorkspaceReader):
    def __init__(
        self,
        scope: MemoryScope,
        native: Mapping[str, str],
        options: HonchoOptions,
        connections: Connections,
    ) -> None:
        super().__init__(native, options, connections)
        self.scope = scope
        self.watch = Watch(self, options.quiet_period_s)
        self.uncertain: set[str] = set()  # events that may be stored in part
        self.options = options
        self._writer = connections.client(self.workspace_id, reads=False)
        self._peers: dict[str, Any] = {}
        self._sessions: dict[str, Any] = {}

    def peer_of(self, role: str) -> str:
        return {"user": self.peer_id, "assistant": self.options.assistant_peer}.get(role, OTHERS_PEER)

    async def add(self, batch: Sequence[Part]) -> list[str]:
        """Send at most a hundred parts of one session, and return their ids. Creates missing peers and sessions."""
        session_id, roles = batch[0].event.session_id, [part.role for part in batch]
        peers = {role: await self._peer(self.peer_of(role)) for role in set(roles)}
        session = await self._open_session(session_id)
        messages = [
            peers[part.role].message(part.content, metadata=part.metadata, created_at=part.event.timestamp)
            for part in batch
        ]
        observed = any(self.peer_of(role) in self.observed for role in roles)
        try:
            with self.watch.writing(observed=observed):
                stored: list[Any] = await session.aio.add_messages(messages)
        except BackendRejected as error:
            if error.status == 404:
                self._sessions.pop(session_id, None)  # deleted by another client
            raise
        if len(stored) != len(batch):
            raise BackendProtocolError(f"of {quantity(len(batch), 'messages')}, {len(stored)} were answered")
        answered_for = {(message.workspace_id, message.session_id) for message in stored}
        if answered_for != {(self.workspace_id, session.id)}:
            raise BackendProtocolError("the answer is about messages of another workspace or session")
        return [message.id for message in stored]

    async def _peer(self, peer_id: str) -> Any:
        if not self._peers:
            # The user's peer is created first, so that every workspace has one.
            fields = self.scope.model_dump(exclude_none=True)
            self._peers[self.peer_id] = await self._writer.aio.peer(self.peer_id, metadata=fields)
        if peer_id not in self._peers:
            config = PeerConfig(observe_me=peer_id in self.observed)
            self._peers[peer_id] = await self._writer.aio.peer(peer_id, configuration=config)
        return self._peers[peer_id]

    async def _open_session(self, session_id: str) -> Any:
        if session_id not in self._sessions:
            native_id, metadata = IDS.encode(session_id), dict[str, object](session_id=session_id)
            session = await none_if_404(self._writer.aio.session(native_id, metadata=metadata))
            if session is None:
                raise BackendRejected(
                    "the session of this name is being deleted, or Honcho's cache still has it as deleted (up to 5 "
                    "min without Redis); try again later, or use another session_id",
                    diagnostics={"status": 404},
                )
            self._sessions[session_id] = session
        return self._sessions[session_id]

    def forget(self) -> None:
        """Forget peers and sessions, which may be gone. The next use creates them again."""
        self._peers.clear()
        self._sessions.clear()
        self._writer._workspace_ensured = False
        self.uncertain.clear()
        self.watch.cleared()


async def wait_until_idle(workspace: HonchoScope, timeout_s: float) -> None:
    """Wait before a deletion: Honcho never deletes a session that it derives from. Held back work is ignored."""
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
    """Delete what a workspace holds. Returns the number of deleted rows, and whether two looks found none left."""
    removed, empty = 0, 0
    with anyio.move_on_after(timeout_s):
        deleted: dict[str, int] = {}
        while empty < 2:
            more = await _delete_sessions(workspace)
            removed += sum(more.values())
            listed = {**deleted, **more}
            deleted = {native_id: 0 for native_id in listed if await workspace.count_messages(native_id)}
            # Honcho deletes a session's conclusions with the session.
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
    """Delete all sessions. Returns the number of messages by session."""
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
    """Empty the cards that have lines. Setting another card would create a missing workspace."""
    lines = 0
    for peer_id in workspace.observed:
        peer = Peer(peer_id, workspace.reader)
        if card := await none_if_404(peer.aio.get_card()):
            lines += len(card)
            await peer.aio.set_card([])
    return lines
