"""A native call's place among other calls, shared by the slot that admits it and the adapter's own queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock

import anyio

_current: ContextVar[Admission | None] = ContextVar("memslot_admission", default=None)


@dataclass(slots=True, eq=False)
class Admission:
    """One native call: its place in each limit, and whether it may have reached the native system."""

    limits: Sequence[anyio.Semaphore] = ()
    begun: bool = False  # a part of the call was handed to the native system
    dropped: bool = False  # a part of the call was abandoned before its turn
    # One event for each part that continues after the call is abandoned, set at its end.
    ends: list[anyio.Event] = field(default_factory=list)
    _held: int = 0

    @classmethod
    def current(cls) -> Admission:
        """The admission of the current call. Outside of a call, a new one."""
        return _current.get() or cls()

    @property
    def sent(self) -> bool:
        """False if the call was abandoned in a queue of the adapter before it had begun."""
        return self.begun or not self.dropped

    @property
    def over(self) -> bool:
        return all(end.is_set() for end in self.ends)

    async def ended(self) -> None:
        for end in self.ends:
            await end.wait()

    async def enter(self) -> None:
        """Wait for a place in every limit, first come first served. A cancelled wait holds no place."""
        try:
            for limit in self.limits:
                await limit.acquire()
                self._held += 1
        except BaseException:
            self.leave()
            raise

    def leave(self) -> bool:
        """Give the places back. True if there were any."""
        held, self._held = self._held, 0
        for limit in self.limits[:held]:
            limit.release()
        return held > 0

    @contextmanager
    def active(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


@contextmanager
def awaiting_turn(*, last: bool = True) -> Iterator[None]:
    """Enclose a wait for a turn inside an adapter. A call that is abandoned in the body was not sent.

    ``last`` is False if the call may have to wait once more before the native call.
    """
    admission = Admission.current()
    try:
        yield
    except BaseException:
        admission.dropped = True
        raise
    if last:
        admission.begun = True


async def yield_turn(seconds: float) -> None:
    """Sleep between two polls. If calls are limited, other calls may use this call's place meanwhile."""
    admission = Admission.current()
    held = admission.leave()
    await anyio.sleep(seconds)
    if held:
        await admission.enter()


_llm_use: ContextVar[LlmUse | None] = ContextVar("memslot_llm_use", default=None)
_lock = Lock()


@dataclass(slots=True)
class LlmUse:
    """Answers of language models, and the tokens they read and wrote; None once an answer does not say."""

    calls: int = 0
    tokens: int | None = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        token = _llm_use.set(self)
        try:
            yield
        finally:
            _llm_use.reset(token)


def count_llm_call(tokens: int | None) -> None:
    """Count a language model's answer for the trace of the current native call. Any thread may call this.

    ``tokens`` are read and written together, from the endpoint; None if it does not say.
    """
    if (use := _llm_use.get()) is not None:
        with _lock:
            use.calls += 1
            use.tokens = None if use.tokens is None or tokens is None else use.tokens + tokens
