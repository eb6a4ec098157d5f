"""Fire and forget (Spec-19 12.4): an agent's writes leave from a thread, one at a time, in their order.

The thread has an event loop of its own. So agents on asyncio, on trio and without a loop use the same queue. The
queue lives in the process: what the agent's death leaves unsent is lost. Failures are logged as 12.6 asks.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import threading
from collections.abc import Callable
from concurrent import futures

from memory import BackendError, BackendUnavailable, MemslotError
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import Fact
from memory.stigmem.writers import Write, carry_out, log

MAX_QUEUED_FACTS = 1000
_CLOSING_S = 1.0
_EXIT_GRACE_S = 1.0

Written = futures.Future[tuple[Fact, ...]]
"""The facts of a write, once the node has stored them. Its exception says why there are none: InputError for bad
input, BackendUnavailable for a full queue, else the node's failure. A closed queue cancels it."""


def ended(outcome: tuple[Fact, ...] | MemslotError) -> Written:
    """The outcome of a write that is not queued."""
    written: Written = futures.Future()
    if isinstance(outcome, MemslotError):
        written.set_exception(outcome)
    else:
        written.set_result(outcome)
    return written


class WriteQueue:
    """A bounded queue of writes, and the thread that sends them, which starts with the first.

    Close the queue to have its last writes sent. If nobody does, the end of the process waits a second for them.

    Args:
        open_node: makes the client of the node; called on the thread.
        max_facts: facts that may wait or be under way.
    """

    def __init__(self, open_node: Callable[[], StigmemNode], *, max_facts: int = MAX_QUEUED_FACTS) -> None:
        self._open_node = open_node
        self._max_facts = max_facts
        self._lock = threading.Lock()
        self._full = self._closed = False
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def queued_facts(self) -> int:
        """Facts of the writes that wait or are under way."""
        return sum(self._waiting.values()) if self._loop else 0

    def submit(self, write: Write) -> Written:
        """Take a write, or refuse it where there is no room. Never waits, never raises."""
        with self._lock:
            loop = self._running()
            room = loop is not None and self.queued_facts + len(write.facts) <= self._max_facts
            newly_full, self._full = not room and not self._full, not room
            if loop is not None and room:
                # Without the caller's context, which may say that this is trio.
                call = contextvars.Context().run
                written = call(asyncio.run_coroutine_threadsafe, self._send(write), loop)
                self._waiting[written] = len(write.facts)
        if room:
            written.add_done_callback(lambda sent: self._waiting.pop(sent, None))
            return written
        why = "closed" if self._closed else f"full ({self._max_facts} facts)"
        if newly_full:
            log.warning("stigmem: the write queue is %s; this and further writes are dropped", why)
        return ended(BackendUnavailable(f"stigmem: the write queue is {why}", sent=False))

    def _running(self) -> asyncio.AbstractEventLoop | None:
        """The loop of the thread, which is started if needed; None if there can be no thread."""
        if self._closed:
            return None
        if self._pid == os.getpid():
            return self._loop
        # After a fork the child has no thread, and the queued writes are its parent's.
        loop = asyncio.new_event_loop()
        self._waiting: dict[Written, int] = {}
        self._one_at_a_time, self._ending = asyncio.Lock(), asyncio.Event()
        self._node: StigmemNode | None = None
        thread = threading.Thread(target=self._run, args=(loop,), name="memslot-stigmem", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending, or the process has no thread left
            loop.close()
            return None
        self._pid, self._loop, self._thread = os.getpid(), loop, thread
        atexit.register(self.close, _EXIT_GRACE_S)
        return loop

    async def _send(self, write: Write) -> tuple[Fact, ...]:
        async with self._one_at_a_time:
            try:
                self._node = self._node or self._open_node()
                return await carry_out(self._node, write)
            except BaseException as error:  # costs one write, and must not end the thread
                if self._closed and isinstance(error, asyncio.CancelledError):
                    raise
                failure = error
                if not isinstance(error, MemslotError):
                    failure = BackendError(f"stigmem: {type(error).__name__} in a write")
                # 12.6: an answer of 4xx or 5xx is an error, no answer a warning.
                silent = isinstance(failure, BackendError) and failure.status is None
                level = logging.WARNING if silent else logging.ERROR
                log.log(level, "stigmem: %s not written: %s", write.what, failure)
                raise failure from None

    def close(self, timeout_s: float = 5.0) -> int:
        """Send what is queued for at most ``timeout_s`` seconds, and cancel the rest. Idempotent.

        Blocks, and a second longer where a write must be cancelled. On an event loop use
        ``anyio.to_thread.run_sync(queue.close)``.

        Returns:
            The number of cancelled writes. The one under way may exist.
        """
        atexit.unregister(self.close)
        with self._lock:
            closed, self._closed = self._closed, True
        loop = self._loop
        if closed or loop is None or self._pid != os.getpid():
            return 0
        _, left = futures.wait(list(self._waiting), timeout_s)
        abandoned = sum(written.cancel() for written in left)
        if abandoned:
            log.warning("stigmem: %d writes were abandoned on close", abandoned)
        loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_CLOSING_S)  # one that hangs in a system call ends by itself
        return abandoned

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._ending.wait()
        async with self._one_at_a_time:
            if self._node is not None:
                await self._node.aclose()
