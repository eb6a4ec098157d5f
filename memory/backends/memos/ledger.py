"""Notes, in the memory's outbox, on events that were sent to MemOS and not yet seen stored and found.

MemOS forgets its tasks, and loses events without leaving a row. Only a note made before sending reveals a
lost event. The notes contain no texts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from memory.adapter import StoreError
from memory.adapter.stores import Entry, Lane, Outbox
from memory.backends.memos.answers import Added

KIND = "memos"
_BEGUN = "begun"  # key of the entry for a cube whose sendings were all noted


@dataclass(frozen=True, slots=True)
class Written:
    """One sending of an event, and the memories that are known of it.

    Each sending has a unique mark, so that settling it never settles another, even in another process.
    """

    event_id: str
    session_id: str
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    added: tuple[Added, ...] = field(default=(), kw_only=True)


class Ledger:
    """The open events of one cube on a server.

    Attributes:
        begun: whether everything ever sent to this cube was noted.
    """

    def __init__(self, outbox: Outbox, server: str, cube: str) -> None:
        self._outbox = outbox
        self._lane = Lane(server, cube)
        self.begun = False
        self._unread = ""
        self._unnoted = ""

    @property
    def problem(self) -> str:
        """Why the notes are unreliable; empty if they are reliable."""
        return self._unnoted or self._unread

    async def load(self) -> dict[str, Written]:
        """The sendings that any process has noted, by mark."""
        try:
            entries = await self._entries()
            opened = {entry.key: _written(entry) for entry in entries if entry.key != _BEGUN}
        except (StoreError, ValueError, TypeError) as error:
            self._unread = f"what was sent is not known any more: {error}"
            return {}
        self.begun = len(opened) < len(entries)
        self._unread = ""
        return opened

    async def marks(self) -> list[str]:
        """The marks of all sendings, even of unreadable entries. Empty if the store cannot be read."""
        try:
            return [entry.key for entry in await self._entries() if entry.key != _BEGUN]
        except StoreError:
            return []

    async def _entries(self) -> list[Entry]:
        in_lane, values = "kind = ? AND destination = ? AND scope = ? ORDER BY seq", (KIND, *self._lane)
        return await self._outbox.store.run(lambda db: Outbox.read(db, in_lane, values), writes=False)

    async def begin(self, erased: Iterable[str] = ()) -> None:
        """Begin a new cube, or a cube that a reset has emptied of the ``erased`` sendings."""

        def note(db: Any) -> None:
            self._outbox.settle(db, self._lane, erased)
            self._outbox.insert(db, self._lane, _BEGUN, "[]", state="begun")

        await self._note(note)
        self.begun = not self._unnoted

    async def sent(self, event: Written) -> None:
        """Note an event before it is sent. If the note fails, the cube is not ready until a reset."""
        payload = json.dumps([event.event_id, event.session_id])
        former = self._unnoted
        await self._note(
            lambda db: self._outbox.insert(db, self._lane, event.mark, payload, state="noted", sent=True)
        )
        self._unnoted = self._unnoted or former

    async def close(self, marks: Iterable[str]) -> None:
        """Remove sendings that were seen stored and found, or that are certainly not stored."""
        former = self._unnoted
        await self._note(lambda db: self._outbox.settle(db, self._lane, marks))
        self._unnoted = self._unnoted or former

    async def _note(self, note: Any) -> None:
        self._unnoted = ""
        try:
            await self._outbox.store.run(note)
        except StoreError as error:
            self._unnoted = f"what is sent cannot be noted: {error}"


def _written(entry: Entry) -> Written:
    if not entry.readable:
        raise ValueError(f"entry {entry.seq} of the outbox is unreadable")
    event_id, session_id = json.loads(entry.payload)
    return Written(event_id, session_id, entry.key)
