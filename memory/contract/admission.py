"""A native call's place among others, as both sides know it: the slot that admits it, and the adapter's own queues.
The slot cannot see whether a call that was given up had begun, or still waited for a turn inside the adapter; that
the adapter says by :func:`awaiting_turn` and :func:`yield_turn`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

_current: ContextVar[Admission | None] = ContextVar("memslot_admission", default=None)


class Admission:
    """One native call: its place in each limit, and whether it may have reached the native system."""

    __slots__ = ("_begun", "_dropped", "_ends", "_held", "_limits")

    def __init__(self, limits: Sequence[anyio.Semaphore] = ()) -> None:
        self._limits = limits
        self._held = 0
        self._begun = self._dropped = False
        self._ends: list[anyio.Event] = []

    @classmethod
    def current(cls) -> Admission:
        """Of the call that is being made; one that nobody asks, outside of any."""
        return _current.get() or cls()

    @property
    def sent(self) -> bool:
        """False where the call was given up in a queue of the adapter, and nothing of it had begun."""
        return self._begun or not self._dropped

    @property
    def limited(self) -> bool:
        return bool(self._limits)

    def begin(self) -> None:
        """Something of the call was handed to the native system."""
        self._begun = True

    def drop(self) -> None:
        """Something of the call was given up before its turn."""
        self._dropped = True

    def track_completion(self, ended: anyio.Event) -> None:
        """Part of the call goes on until ``ended``, also where the call is given up."""
        self._ends.append(ended)

    @property
    def over(self) -> bool:
        return all(end.is_set() for end in self._ends)

    async def ended(self) -> None:
        for end in self._ends:
            await end.wait()

    async def enter(self) -> None:
        """Wait for a place in every limit, first come first served. Cancelled, none is held."""
        try:
            for limit in self._limits:
                await limit.acquire()
                self._held += 1
        except BaseException:
            self.leave()
            raise

    def leave(self) -> bool:
        """Give the places back; whether there were any."""
        held, self._held = self._held, 0
        for limit in self._limits[:held]:
            limit.release()
        return held > 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """The call is made in the body."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


@contextmanager
def awaiting_turn(*, last: bool = True) -> Iterator[None]:
    """Around a wait for a turn inside an adapter: a call given up in here was not sent.

    Args:
        last: what follows is the native call; False where it may have to wait once more.
    """
    admission = Admission.current()
    try:
        yield
    except BaseException:
        admission.drop()
        raise
    if last:
        admission.begin()


async def yield_turn(seconds: float) -> None:
    """Sleep between two looks; where ``max_concurrency`` is limited, others have the call's place meanwhile."""
    admission = Admission.current()
    held = admission.leave()
    await anyio.sleep(seconds)
    if held:
        await admission.enter()
