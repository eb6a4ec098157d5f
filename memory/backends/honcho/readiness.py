"""Whether Honcho has derived what it will from what was written.

An empty queue does not say so: rows enter it after the write was answered, done ones are purged every twelve hours,
and a failed derivation looks like a finished one. So: as many rows as were written, then idle; where that cannot be
told, idle for a while; and a newer conclusion than before, or "unknown".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import anyio

from memory import BackendReadiness

__all__ = ["Watch"]

_NOTHING = (
    "processed, but nothing was derived: either there was nothing to conclude, or the server's model failed, "
    "which its queue does not tell"
)
_QUIET = "the queue stayed idle; whether all that was written passed it cannot be told"

_LOOKS = 3
_HELD = (
    "sessions of under 512 new tokens wait up to 30 min unless the server's DERIVER_FLUSH_ENABLED is true, and all "
    "wait while its worker does not run"
)


class Watch:
    """What was written to a scope since it was last seen processed.

    Args:
        queue: gives (all rows listed, waiting, in progress) of the observed peers.
        newest: gives the time of the newest conclusion.
    """

    def __init__(
        self,
        queue: Callable[[], Awaitable[tuple[int, int, int]]],
        newest: Callable[[], Awaitable[datetime | None]],
    ) -> None:
        self._queue = queue
        self._newest = newest
        self._base: int | None = None
        self._derived_at: datetime | None = None
        self._expected = 0
        self._writing = 0
        self._counts = False

    @property
    def settled(self) -> bool:
        """Whether all this adapter wrote was seen processed."""
        return self._counts and not self._expected and not self._writing

    @property
    def derived_at(self) -> datetime | None:
        """When the newest conclusion was derived, by the server's clock; None where that may have changed."""
        return self._derived_at if self.settled else None

    async def begin(self) -> None:
        """Before the first write: what is there already."""
        if self._base is None:
            derived_at = await self._newest()
            self._base = (await self._queue())[0]
            self._derived_at, self._counts = derived_at, True

    @contextmanager
    def writing(self, observed: int) -> Iterator[None]:
        """A write of so many observed messages; they are expected once it was answered."""
        self._writing += 1
        try:
            yield
            self._expected += observed
        except BaseException:
            self._counts = False  # it may be stored all the same
            raise
        finally:
            self._writing -= 1

    async def look(self) -> BackendReadiness:
        """The state at this moment. ``ready`` only where the counts prove it."""
        expected, row = self._expected, await self._queue()
        return await self._judge(expected, *row, quiet=False)

    async def wait(self, timeout_s: float, quiet_s: float, poll_s: float) -> BackendReadiness:
        """Look again and again until processed; ``pending`` after ``timeout_s`` seconds."""
        started = anyio.current_time()
        answer = BackendReadiness(state="pending", detail=f"no answer within {timeout_s:g} s")
        idle_since, looks = started, 0
        with anyio.move_on_after(timeout_s):
            while True:
                expected, row = self._expected, await self._queue()
                now = anyio.current_time()
                if row[1] or row[2] or self._writing:
                    idle_since, looks = now, 0
                looks += 1
                quiet = looks >= _LOOKS and now - idle_since >= quiet_s
                answer = await self._judge(expected, *row, quiet=quiet)
                if answer.state != "pending":
                    break
                await anyio.sleep(poll_s)
        return answer.model_copy(update={"waited_ms": (anyio.current_time() - started) * 1000})

    async def _judge(
        self, expected: int, total: int, waiting: int, running: int, *, quiet: bool
    ) -> BackendReadiness:
        if self._writing:
            return _pending("a write is still under way")
        if waiting or running:
            held = f"; {_HELD}" if not running else ""
            detail = f"{waiting} waiting in Honcho's queue, {running} in progress{held}"
            return _pending(detail, waiting + running)
        missing = max(0, expected - (total - (self._base or 0)))
        counted = self._counts and not missing
        if not counted and not quiet:
            waits_for = f"{missing} messages are not in the queue yet" if missing else "only just"
            return _pending(f"idle, but {waits_for}", missing or None)
        newest = await self._newest()
        derived = newest is not None and (self._derived_at is None or newest > self._derived_at)
        if expected and not derived and not counted:
            return _pending("idle, but not all messages entered the queue, and nothing was derived", missing)
        self._rest(expected, total, newest)
        answer = BackendReadiness(state="ready", pending_count=0, last_derived_at=newest)
        if expected and not derived:
            return answer.model_copy(update={"state": "unknown", "detail": _NOTHING})
        return answer if counted else answer.model_copy(update={"detail": _QUIET})

    def _rest(self, expected: int, total: int, newest: datetime | None) -> None:
        """What was expected is processed; what was written meanwhile is not."""
        self._base, self._derived_at, self._counts = total, newest, True
        self._expected -= expected

    def cleared(self) -> None:
        """After a reset: nothing is there, nothing is expected."""
        self._base, self._derived_at, self._expected, self._counts = None, None, 0, False


def _pending(detail: str, count: int | None = None) -> BackendReadiness:
    return BackendReadiness(state="pending", detail=detail, pending_count=count)
