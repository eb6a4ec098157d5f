"""What was sent to MemOS and not yet seen stored and found: entries of the memory's outbox. No texts.

MemOS forgets its tasks, and loses events without a row, so only what was noted before the sending can tell. With
``memory.state`` on PostgreSQL, every machine reads the same entries.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.adapter import StoreError
from memory.adapter.stores import Entry, Lane, Outbox
from memory.backends.memos.answers import Added

KIND = "memos"
_BEGUN = "begun"  # key of the entry that says that everything sent to a cube was noted


@dataclass(frozen=True, slots=True)
class Written:
    """An event that was sent to a cube, and what it became, as far as that is known.

    Each sending has a mark of its own: what closes one closes no other, whichever process does it.
    """

    event_id: str
    session_id: str
    place: str
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    added: tuple[Added, ...] = field(default=(), kw_only=True)


class Sendings:
    """What is in question of one cube, by mark. To find an event takes no longer among many."""

    def __init__(self, by_mark: Mapping[str, Written] | None = None) -> None:
        self._by_mark: dict[str, Written] = {}
        self._of_event: Counter[tuple[str, str]] = Counter()
        for written in (by_mark or {}).values():
            self.add(written)

    def add(self, written: Written) -> None:
        if written.mark not in self._by_mark:
            self._of_event[written.place, written.event_id] += 1
        self._by_mark[written.mark] = written

    def get(self, mark: str, default: Written) -> Written:
        return self._by_mark.get(mark, default)

    def remove(self, mark: str) -> bool:
        """Whether it was among them."""
        written = self._by_mark.pop(mark, None)
        if written is None:
            return False
        event = written.place, written.event_id
        self._of_event[event] -= 1
        if not self._of_event[event]:
            del self._of_event[event]
        return True

    def has(self, place: str, event_id: str) -> bool:
        return (place, event_id) in self._of_event

    def to(self, place: str) -> list[Written]:
        return [written for written in self._by_mark.values() if written.place == place]


class Ledger:
    """The open events of one cube of a server.

    Attributes:
        begun: whether everything that was ever sent to this cube was noted.
    """

    def __init__(self, outbox: Outbox, server: str, cube: str) -> None:
        self._outbox = outbox
        self._lane = Lane(server, cube)
        self.begun = False
        self._unread = ""
        self._unnoted = ""

    @property
    def problem(self) -> str:
        """Why what was noted cannot be relied on; empty where it can."""
        return self._unnoted or self._unread

    async def load(self) -> dict[str, Written]:
        """What every process has noted, by mark."""
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
        """Marks of all that is noted, unreadable or not; none where the store cannot be read."""
        try:
            return [entry.key for entry in await self._entries() if entry.key != _BEGUN]
        except StoreError:
            return []

    async def _entries(self) -> list[Entry]:
        in_lane, values = "kind = ? AND destination = ? AND scope = ? ORDER BY seq", (KIND, *self._lane)
        return await self._outbox.store.run(lambda db: Outbox.read(db, in_lane, values), writes=False)

    async def begin(self, erased: Iterable[str] = ()) -> None:
        """A cube that is new, or was emptied of what is ``erased``: whatever it holds from now on is noted."""

        def note(db: Any) -> None:
            self._outbox.settle(db, self._lane, erased)
            self._outbox.insert(db, self._lane, _BEGUN, "[]", state="begun")

        await self._note(note)
        self.begun = not self._unnoted

    async def sent(self, event: Written) -> None:
        """Before an event is sent. Where it cannot be noted, nothing is ready until a reset."""
        payload = json.dumps([event.event_id, event.session_id, event.place])
        former = self._unnoted
        await self._note(
            lambda db: self._outbox.insert(db, self._lane, event.mark, payload, state="unknown", sent=True)
        )
        self._unnoted = self._unnoted or former

    async def close(self, marks: Iterable[str]) -> None:
        """What was seen stored and found, or certainly is not stored."""
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
    event_id, session_id, place = json.loads(entry.payload)
    return Written(event_id, session_id, place, entry.key)
