"""Runs SDK calls off the event loop, and async calls to their end even if the caller gives up (spec 5.1).

``anyio.to_thread`` frees an abandoned call's place while its thread still runs, so a store that is not
thread-safe would see two calls at once.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import current_token

from memory.contract._loops import start_task
from memory.contract.admission import Admission, awaiting_turn
from memory.contract.errors import BackendUnavailable

T = TypeVar("T")


class NativeWorker:
    """Daemon threads that run native calls, first come first served, on asyncio and trio.

    Args:
        threads: number of concurrent calls; 1 for stores that are not thread-safe.
        name: thread name prefix, for debuggers.
    """

    def __init__(self, threads: int = 1, name: str = "memslot") -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._size = threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._running: set[_Job] = set()
        self._closed = False
        self._last: _Job | None = None

    async def run(
        self, call: Callable[[], T], *, sends: bool = True, gives_up: Callable[[], bool] = lambda: False
    ) -> T:
        """Run ``call`` on a worker and return what it returns.

        A cancellation returns at once. A call that still waits for a worker is then dropped. A call that has
        begun finishes in the background, and its result is lost.

        Args:
            call: the native call.
            sends: False for a read within a write, so that the slot does not treat the write as sent.
            gives_up: tells a call that has begun that nobody waits for it. True if it will send nothing.

        Raises:
            BackendUnavailable: the worker is closed.
        """
        if self._closed:
            raise BackendUnavailable("the adapter is closed", sent=False)
        admission, job = Admission.current() if sends else Admission(), self._put(call)
        admission.ends.append(job.done)
        try:
            await job.done.wait()
        except BaseException:
            if job.claim():  # no worker has begun it, and none will
                self._running.discard(job)
                job.done.set()
                admission.dropped = True
            elif gives_up():
                admission.dropped = True
            else:
                admission.begun = True
            raise
        admission.begun = True
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _put(self, call: Callable[[], Any]) -> _Job:
        if not self._threads:
            for number in range(self._size):
                thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        job = _Job(call)
        self._running.add(job)
        self._jobs.put(job)
        return job

    async def idle(self) -> None:
        """Wait until all calls made so far have ended, including abandoned ones."""
        so_far = set(self._running)
        while not so_far.isdisjoint(self._running):  # noqa: ASYNC110 (set on other threads, seldom waited for)
            await anyio.sleep(0.002)

    async def aclose(self, last: Callable[[], object] | None = None, *, timeout_s: float = 10.0) -> bool:
        """End the threads once running calls have ended.

        Args:
            last: a final native call, such as closing the client on the thread that opened it. It runs once,
                unless it failed.
            timeout_s: how long to wait for running calls and for ``last``, in seconds.

        Returns:
            Whether everything ended in time. Idempotent.
        """
        self._closed = True
        with anyio.move_on_after(timeout_s, shield=True) as limit:
            await self.idle()
        if last is not None and (self._last is None or self._last.error is not None):
            self._last = self._put(last)
            with anyio.CancelScope(deadline=limit.deadline, shield=True):
                await self._last.done.wait()
        for _ in self._threads:
            self._jobs.put(None)
        finished = not self._running
        for thread in self._threads:
            thread.join(timeout=1.0 if finished else 0.0)
        self._threads.clear()
        if last is not None and self._last is not None and self._last.error is not None:
            raise self._last.error
        return finished

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.claim():
                job.run()
                self._running.discard(job)
                job.notify()
            del job


class _Job:
    """One call. The first claim decides whether a worker runs it or its caller gives it up."""

    __slots__ = ("_call", "_claimed", "_context", "_schedule", "done", "error", "result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._claimed = threading.Lock()
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        loop: Any = current_token().native_token
        self._schedule = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
        # The caller's context, for its counts; without sniffio's variable, because an SDK may start a loop.
        self._context = copy_context()
        if sniffio := sys.modules.get("sniffio"):
            self._context.run(sniffio.current_async_library_cvar.set, None)

    def claim(self) -> bool:
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        try:
            self.result = self._context.run(self._call)
        except BaseException as error:
            self.error = error

    def notify(self) -> None:
        """Wake the event loop that waits. Callable from any thread."""
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            self._schedule(self.done.set)


class ShieldedCalls:
    """Calls that outlast their caller, one at a time for each key. Works on asyncio and trio."""

    def __init__(self) -> None:
        self._running: dict[Hashable, anyio.Event] = {}

    async def run(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Run ``call`` after earlier calls of its key have ended, and return its result.

        A call of the key None waits for no other call. If cancelled during the wait, ``call`` never starts.
        If cancelled later, it continues in the background.
        """
        if key is None:
            key = object()
        else:
            with awaiting_turn():
                while key in self._running:
                    await self._running[key].wait()
        outcome, done = self._start(key, call)
        Admission.current().ends.append(done)
        await done.wait()
        if not outcome.done():
            raise BackendUnavailable("the event loop ended before the backend answered")
        return outcome.result()

    def begin(self, key: Hashable, call: Callable[[], Awaitable[object]]) -> None:
        """Run ``call`` in the background unless a call of its key is under way. Its errors are lost."""
        if key not in self._running:
            self._start(key, call)

    def _start(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> tuple[Future[T], anyio.Event]:
        outcome: Future[T] = Future()
        done = self._running[key] = anyio.Event()

        async def work() -> None:
            try:
                outcome.set_result(await call())
            except Exception as error:
                outcome.set_exception(error)
            finally:
                del self._running[key]
                done.set()

        start_task(work)
        return outcome, done

    def busy(self, key: Hashable | None = None) -> bool:
        """Whether a call of this key, or any, is under way."""
        return key in self._running if key is not None else bool(self._running)

    async def idle(self, key: Hashable | None = None) -> None:
        """Wait until the calls of ``key``, or all, have ended."""
        while pending := [done for running, done in self._running.items() if key is None or running == key]:
            await pending[0].wait()
