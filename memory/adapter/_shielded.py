"""Async calls that run to their end, even where the caller no longer waits (DESIGN section 5.1).

A request abandoned at its deadline may still be carried out by the server. So that none lands after the switch to
read-only, a write goes on in the background until its answer is there, and the switch waits for it. What
:class:`~memory.adapter._worker.NativeWorker` is for synchronous SDKs, this is for asynchronous ones.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar, cast

import anyio

from memory.contract._loops import on_trio
from memory.contract.admission import Admission, awaiting_turn
from memory.contract.errors import BackendUnavailable

T = TypeVar("T")


class _Outcome(Generic[T]):
    def __init__(self) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self.finished = False


class ShieldedCalls:
    """Calls that outlast their caller, one at a time for each key. Works on asyncio and trio."""

    def __init__(self) -> None:
        self._running: dict[Hashable, anyio.Event] = {}
        self._tasks: set[object] = set()

    async def run(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Run ``call`` once earlier ones of its key have ended; return or raise what it does.

        One of the key None waits for no other, and says by itself whether it waits (:func:`awaiting_turn`).

        Cancelled while waiting for an earlier one, ``call`` never starts; later, it goes on by itself.

        Raises:
            BackendUnavailable: the event loop ended before ``call`` did.
        """
        if key is None:
            key = object()
        else:
            with awaiting_turn():
                while key in self._running:
                    await self._running[key].wait()
        outcome, done = self._start(key, call)
        Admission.current().track_completion(done)
        await done.wait()
        if outcome.error is not None:
            raise outcome.error
        if not outcome.finished:
            raise BackendUnavailable("the event loop ended before the backend answered")
        return cast(T, outcome.value)

    def begin(self, key: Hashable, call: Callable[[], Awaitable[object]]) -> None:
        """Run ``call`` in the background unless one of its key is under way; what it raises is lost."""
        if key not in self._running:
            self._start(key, call)

    def _start(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> tuple[_Outcome[T], anyio.Event]:
        outcome: _Outcome[T] = _Outcome()
        done = self._running[key] = anyio.Event()

        async def work() -> None:
            try:
                outcome.value = await call()
                outcome.finished = True
            except Exception as error:
                outcome.error = error
            finally:
                del self._running[key]
                done.set()

        self._spawn(work)
        return outcome, done

    def busy(self, key: Hashable | None = None) -> bool:
        """Whether a call of this key, or any, is under way."""
        return key in self._running if key is not None else bool(self._running)

    async def idle(self, key: Hashable | None = None) -> None:
        """Wait until the calls of ``key``, or all, have ended."""
        while pending := [done for running, done in self._running.items() if key is None or running == key]:
            await pending[0].wait()

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        if on_trio():
            trio: Any = sys.modules["trio"]
            trio.lowlevel.spawn_system_task(work)
            return
        task: asyncio.Task[None] = asyncio.ensure_future(cast(Any, work()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
