"""Whether Honcho has derived what it will from what was written.

An empty queue does not say so: rows enter it after the write was answered, or never if the API ends before; done
ones are purged every twelve hours; and a failed derivation ends its row like a finished one. So each message of an
observed peer is accounted for by itself, whoever wrote it: a conclusion must name it (:mod:`sources`). Totals only
tell how long to wait. Nothing is taken from what this process remembers, so a fresh one says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import anyio

from memory import BackendReadiness
from memory.backends.honcho.reading import WorkspaceReader
from memory.backends.honcho.sources import NamedMessages

_LOOKS = 3
_LATE_S = 20.0
"""Seconds of an idle queue after which rows that are missing are not taken for late any more."""
_HELD = (
    "sessions of under 512 new tokens wait up to 30 min unless the server's DERIVER_FLUSH_ENABLED is true, and all "
    "wait while its worker does not run"
)
_UNNAMED = (
    "messages no conclusion was drawn: there was nothing to conclude or nothing new, the server's model failed, or "
    "they never entered its queue; its API does not tell which"
)


class Watch:
    """How far a workspace is, asked of its server.

    Attributes:
        derived: whether the last look found everything derived, and nothing was written since.
    """

    def __init__(self, server: WorkspaceReader, quiet_s: float) -> None:
        self._server = server
        self._quiet_s = quiet_s
        self._writing = self._writes = 0
        self._beginning = anyio.Lock()
        self.cleared()

    def cleared(self) -> None:
        """After a reset: nothing is there, nothing is expected."""
        self.derived = False
        self._newest: datetime | None = None
        self._rows_before: int | None = None
        self._expected = 0
        self._uncertain = True  # something may be on its way of which the queue's rows do not tell
        self._rows: tuple[int, ...] | None = None
        self._idle_since, self._looks = 0.0, 0
        self._sources: dict[tuple[str, datetime | None, str], NamedMessages] = {}

    @property
    def derived_at(self) -> datetime | None:
        """When the newest conclusion was derived, by the server's clock; None where that may have changed."""
        return self._newest if self.derived else None

    async def begin(self) -> None:
        """Before the first write: the rows that are in the queue, so that the write's own are told from them."""
        async with self._beginning:
            if self._rows_before is None:
                self._uncertain = await self._server.has_sessions()
                self._rows_before = await self._server.rows_of_observed()

    @contextmanager
    def writing(self, observed: int) -> Iterator[None]:
        """A write of so many observed messages; their rows are expected once it was answered."""
        self._writing += 1
        self.derived = False
        try:
            yield
            self._expected += observed
            self._uncertain = self._uncertain or not observed  # it may make a summary due
        except BaseException:
            self._uncertain = True  # it may be stored all the same
            raise
        finally:
            self._writing -= 1
            self._writes += 1
            self._looks = 0

    async def look(self) -> BackendReadiness:
        if self._writing:
            return _pending("a write is still under way")
        await self.begin()
        writes, expected = self._writes, self._expected
        total = await self._server.rows_of_observed()
        waiting, running = await self._server.under_way()
        idle_s = self._idle_for(total, waiting, running)
        quiet = self._looks >= _LOOKS and idle_s >= self._quiet_s
        if waiting or running:
            held = f"; {_HELD}" if not running else ""
            detail = f"{waiting} waiting in Honcho's queue, {running} in progress{held}"
            return _pending(detail, waiting + running)
        late = max(0, expected - (total - (self._rows_before or 0)))
        if late and idle_s < max(_LATE_S, self._quiet_s):
            return _pending(f"idle, but {late} messages are not in the queue yet", late)
        if self._uncertain and not quiet:
            return _pending("idle, but only just")
        stored, unnamed = await self._account()
        self._newest = (await self._server.conclusions())[1]
        if writes != self._writes or self._writing or (unnamed and not quiet):
            return _pending("idle, but only just")
        self._expected -= expected
        self._rows_before, self._uncertain = total, False
        self.derived = not unnamed
        if unnamed:
            detail = f"from {unnamed} of {stored} {_UNNAMED}"
            return BackendReadiness(state="unknown", detail=detail, last_derived_at=self._newest)
        return BackendReadiness(state="ready", pending_count=0, last_derived_at=self._newest)

    def _idle_for(self, *rows: int) -> float:
        """Seconds since which every look saw the same idle queue; 0 until there were some."""
        now, (_, waiting, running) = anyio.current_time(), rows
        if waiting or running or not self._looks or rows != self._rows:
            self._idle_since, self._looks = now, 0
        self._rows, self._looks = rows, self._looks + 1
        return now - self._idle_since if self._looks >= _LOOKS else 0.0

    async def _account(self) -> tuple[int, int]:
        """How many messages the observed peers have in all sessions, and how many of them no conclusion names."""
        stored = unnamed = 0
        for session in await self._server.sessions():
            for peer_id in self._server.observed:
                count = await self._server.count_messages(session.id, peer_id)
                key = (session.id, session.created_at, peer_id)
                sources = self._sources.setdefault(key, NamedMessages(self._server, session.id, peer_id))
                stored += count
                unnamed += await sources.unnamed(count)
        return stored, unnamed


def _pending(detail: str, count: int | None = None) -> BackendReadiness:
    return BackendReadiness(state="pending", detail=detail, pending_count=count)
