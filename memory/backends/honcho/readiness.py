"""Whether Honcho has derived what it will from what was written.

An empty queue does not say so: rows enter it after the write was answered, or never if the API ends before; done
ones are purged every twelve hours; a failed derivation looks like a finished one; and one sender's queue leaves
summaries out. So: as many rows as were written, then nothing under way for anybody, then a newer conclusion in each
session written to. What this adapter has not counted itself is counted once, messages against rows. A doubt stays
until a reset, or until what was missing comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import anyio

from memory import BackendReadiness

if TYPE_CHECKING:
    from memory.backends.honcho.workspace import HonchoScope

_LOOKS = 3
_LATE_S = 20.0
"""Seconds of an idle queue after which rows that are missing are not taken for late any more."""
_STALE_S = 60.0
_HELD = (
    "sessions of under 512 new tokens wait up to 30 min unless the server's DERIVER_FLUSH_ENABLED is true, and all "
    "wait while its worker does not run"
)
_NOTHING = (
    "was derived though it was processed: there was nothing to conclude, or the server's model failed, which its "
    "queue does not tell"
)


class Watch:
    """What was written to a scope since it was last seen processed."""

    def __init__(self, server: HonchoScope, quiet_s: float) -> None:
        self._server = server
        self._quiet_s = quiet_s
        self._writing = self._writes = 0
        self._beginning = anyio.Lock()
        self.cleared()

    def cleared(self) -> None:
        """After a reset: nothing is there, nothing is expected."""
        self._base: int | None = None
        self._since: datetime | None = None
        self._expected: Counter[str] = Counter()
        self._exact = False  # all messages that are stored are known to have entered the queue
        self._unseen = False  # something was written of which no row tells, and which may make a summary due
        self._underived = 0
        self._seen_at = 0.0
        self._rows: tuple[int, int, int] | None = None
        self._idle_since, self._looks = 0.0, 0

    @property
    def settled(self) -> bool:
        """Whether all that is stored was seen processed."""
        return self._exact and not (self._expected or self._writing or self._underived)

    @property
    def derived_at(self) -> datetime | None:
        """When the newest conclusion was derived, by the server's clock; None where that may have changed."""
        return self._since if self.settled else None

    async def begin(self) -> None:
        """At first, and before writes: what is there; looked at anew after a while, for rows may be purged."""
        async with self._beginning:  # a write is not sent while its own row could be taken for an old one
            if self._base is None:
                self._exact = await self._server.empty()
                since = None if self._exact else (await self._server.concluded(None, ()))[0]
                self._base, self._since = (await self._server.rows())[0], since
            elif not self._writing and not self._expected and anyio.current_time() - self._seen_at > _STALE_S:
                self._base = (await self._server.rows())[0]
            else:
                return
            self._seen_at = anyio.current_time()

    @contextmanager
    def writing(self, session: str, observed: int) -> Iterator[None]:
        """A write to a session, by native id, of so many observed messages; expected once it was answered."""
        self._writing += 1
        try:
            yield
            if observed:
                self._expected[session] += observed
            else:
                self._unseen = True
        except BaseException:
            self._exact = False  # it may be stored all the same
            raise
        finally:
            self._writing -= 1
            self._writes += 1
            self._looks = 0

    async def look(self) -> BackendReadiness:
        """The state at this moment."""
        if self._writing:
            return _pending("a write is still under way")
        await self.begin()
        writes = self._writes
        expected, rows = self._expected.copy(), await self._server.rows()
        total, waiting, running = rows
        missing = max(0, expected.total() - (total - (self._base or 0)))
        if not (waiting or running or missing):
            waiting, running = await self._server.under_way()
        idle_s = self._idle_for(rows, busy=bool(waiting or running or self._writing))
        if waiting or running:
            held = f"; {_HELD}" if not running else ""
            detail = f"{waiting} waiting in Honcho's queue, {running} in progress{held}"
            return _pending(detail, waiting + running)
        if missing and idle_s < max(_LATE_S, self._quiet_s):
            return _pending(f"idle, but {missing} messages are not in the queue yet", missing)
        if missing:
            detail = (
                f"{missing} messages are stored and did not enter Honcho's queue: its API ended just after taking "
                "them, or their rows were purged"
            )
            return BackendReadiness(state="unknown", detail=detail)
        quiet = self._looks >= _LOOKS and idle_s >= self._quiet_s
        if not quiet and (self._unseen or not self._exact):
            return _pending("idle, but only just")
        return await self._judge(expected, total, writes)

    def _idle_for(self, rows: tuple[int, int, int], *, busy: bool) -> float:
        """Seconds since which every look saw the same idle queue; 0 until there were some."""
        now = anyio.current_time()
        if busy or not self._looks or rows != self._rows:
            self._idle_since, self._looks = now, 0
        self._rows, self._looks = rows, self._looks + 1
        return now - self._idle_since if self._looks >= _LOOKS else 0.0

    async def _judge(self, expected: Counter[str], total: int, writes: int) -> BackendReadiness:
        newest, derived = await self._server.concluded(self._since, expected.keys())
        doubts = [] if self._exact else await self._uncounted(total)
        self._underived += sum(count for session, count in expected.items() if session not in derived)
        self._expected -= expected
        self._base, self._since, self._seen_at = total, newest, anyio.current_time()
        if writes == self._writes and not self._writing:
            self._exact, self._unseen = not doubts, False
        if self._underived:
            doubts.append(f"of {self._underived} messages nothing {_NOTHING}")
        if doubts:
            return BackendReadiness(state="unknown", detail="; ".join(doubts), last_derived_at=newest)
        return BackendReadiness(state="ready", pending_count=0, last_derived_at=newest)

    async def _uncounted(self, total: int) -> list[str]:
        """What others wrote, or we without an answer: whether it all entered the queue, and led anywhere."""
        said = await self._server.said()
        messages, doubts = sum(said.values()), []
        if messages > total:
            doubts.append(
                f"{messages - total} of {messages} messages are not in Honcho's queue: they were processed and "
                "purged, or never entered it"
            )
        bare = said.keys() - (await self._server.concluded(None, said.keys()))[1]
        if bare:
            doubts.append(f"in {len(bare)} of {len(said)} sessions nothing {_NOTHING}")
        return doubts


def _pending(detail: str, count: int | None = None) -> BackendReadiness:
    return BackendReadiness(state="pending", detail=detail, pending_count=count)
