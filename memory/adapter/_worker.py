"""Running an SDK off the event loop, and async calls to their end, even where the caller no longer waits (5.1).
``anyio.to_thread`` gives an abandoned call's place back while its thread still runs, and a store that is not
thread-safe, such as embedded Qdrant, then sees two calls at once. A request abandoned at its deadline may still be
carried out; so that none lands after the switch to read-only, it goes on here, and the switch waits for it."""

from __future__ import annotations

import asyncio
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

from memory.contract._loops import on_trio
from memory.contract.admission import Admission, awaiting_turn
from memory.contract.errors import BackendUnavailable

T = TypeVar("T")


class NativeWorker:
    """One or more daemon threads that run native calls, first come first served.

    Args:
        threads: calls that may run at a time; 1 for stores that are not thread-safe.
        name: thread name prefix, for debuggers.

    Works on asyncio and trio. Threads start with the first call and end with :meth:`aclose`.
    """

    def __init__(self, threads: int = 1, name: str = "memslot") -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._size = threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._running: set[_Job] = set()
        self._closed = False
        self._last: _Job | None = None

    async def run(self, call: Callable[[], T], *, sends: bool = True) -> T:
        """Run ``call`` on a worker and return what it returns.

        Args:
            call: the native call.
            sends: False for a read within a write, which does not make the slot take the write for sent.

        Cancellation (a deadline, say) returns at once. A call still waiting for a worker is then dropped and
        never runs; one that has begun finishes in the background, and its result is lost.

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
        """Wait until every call made so far, abandoned ones included, has ended, and for no later one."""
        so_far = set(self._running)
        while not so_far.isdisjoint(self._running):  # noqa: ASYNC110 (set on other threads, seldom waited for)
            await anyio.sleep(0.002)

    async def aclose(self, last: Callable[[], object] | None = None, *, timeout_s: float = 10.0) -> bool:
        """End the threads once running calls have ended.

        Args:
            last: a final native call, such as closing the client on the thread that opened it.
            timeout_s: how long to wait for running calls and for ``last``, in seconds.

        Returns:
            Whether everything ended in time. Idempotent: ``last`` runs once, unless it failed; where calls did not
            end in time, it runs when a thread is free.
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
    """One call. The first claim decides: a worker runs it, or its caller has given it up."""

    __slots__ = ("_call", "_claimed", "_context", "_schedule", "done", "error", "result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] = call
        self._claimed = threading.Lock()
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        loop: Any = current_token().native_token
        self._schedule = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
        # The worker counts into the same context, but an SDK may start a loop of its own there.
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
        """From any thread, on the event loop that waits."""
        with suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            self._schedule(self.done.set)


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
        Admission.current().ends.append(done)
        await done.wait()
        if not outcome.done():
            raise BackendUnavailable("the event loop ended before the backend answered")
        return outcome.result()

    def begin(self, key: Hashable, call: Callable[[], Awaitable[object]]) -> None:
        """Run ``call`` in the background unless one of its key is under way; what it raises is lost."""
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

        if on_trio():
            trio: Any = sys.modules["trio"]
            trio.lowlevel.spawn_system_task(work)
        else:
            task = asyncio.ensure_future(work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return outcome, done

    def busy(self, key: Hashable | None = None) -> bool:
        """Whether a call of this key, or any, is under way."""
        return key in self._running if key is not None else bool(self._running)

    async def idle(self, key: Hashable | None = None) -> None:
        """Wait until the calls of ``key``, or all, have ended."""
        while pending := [done for running, done in self._running.items() if key is None or running == key]:
            await pending[0].wait()
