"""Fire and forget (Spec-19 12.4): a thread sends an agent's writes, one at a time and in order.

The thread has a separate event loop, so agents on asyncio, on trio and without a loop use the same queue. The
queue is in memory, and unsent writes are lost when the process dies. Failures are logged as 12.6 requires.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress

from memory import BackendError, BackendUnavailable, MemslotError
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import Fact
from memory.stigmem.writers import Write, carry_out, log

MAX_QUEUED_FACTS = 1000
_CLOSING_S = 1.0
_EXIT_GRACE_S = 1.0

Written = futures.Future[tuple[Fact, ...]]
"""A future of a write's facts, set once the node has stored them. Its exception is InputError for bad input,
BackendUnavailable for a full queue, else the node's error. Closing the queue may cancel it."""


def ended(outcome: tuple[Fact, ...] | MemslotError) -> Written:
    """Return a finished future for a write that is not queued."""
    written: Written = futures.Future()
    if isinstance(outcome, MemslotError):
        written.set_exception(outcome)
    else:
        written.set_result(outcome)
    return written


class WriteQueue:
    """A bounded queue of writes, and the thread that sends them. The thread starts with the first write.

    Close the queue to send its last writes. Otherwise, the process waits one second for them at its end.

    Args:
        open_node: creates the node's client. It runs on the thread.
        max_facts: how many facts may wait or be under way.
    """

    def __init__(self, open_node: Callable[[], StigmemNode], *, max_facts: int = MAX_QUEUED_FACTS) -> None:
        self._open_node = open_node
        self._max_facts = max_facts
        self._lock = threading.Lock()
        self._full = self._closed = False
        self._pid = self._facts = 0

    @property
    def queued_facts(self) -> int:
        """The number of facts in writes that wait or are under way."""
        return self._facts

    def submit(self, write: Write) -> Written:
        """Queue a write, or refuse it if there is no room. Never waits and never raises."""
        written = Written()
        with self._lock:
            room = self._has_thread() and self._facts + len(write.facts) <= self._max_facts
            newly_full, self._full = not room and not self._full, not room
            if room:
                self._waiting[written] = len(write.facts)
                self._facts += len(write.facts)
                self._jobs.put((write, written))
        if room:
            written.add_done_callback(self._leave)
            return written
        why = "closed" if self._closed else f"full ({self._max_facts} facts)"
        if newly_full:
            log.warning("stigmem: the write queue is %s; this and further writes are dropped", why)
        return ended(BackendUnavailable(f"stigmem: the write queue is {why}", sent=False))

    def _leave(self, written: Written) -> None:
        with self._lock:
            self._facts -= self._waiting.pop(written, 0)

    def _has_thread(self) -> bool:
        if self._closed or self._pid == os.getpid():
            return not self._closed
        # A forked child has no thread, and the queued writes belong to its parent.
        self._jobs: queue.SimpleQueue[tuple[Write, Written] | None] = queue.SimpleQueue()
        self._waiting: dict[Written, int] = {}
        self._facts = 0
        self._node: StigmemNode | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: asyncio.Task[None] | None = None
        thread = threading.Thread(target=self._run, name="memslot-stigmem", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending, or the process has no thread left
            return False
        self._pid, self._thread = os.getpid(), thread
        atexit.register(self.close, _EXIT_GRACE_S)
        return True

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            while (job := self._jobs.get()) is not None:
                runner.run(self._send(*job))
            if self._node is not None:
                runner.run(self._node.aclose())

    async def _send(self, write: Write, written: Written) -> None:
        if written.cancelled():
            return
        self._under_way = asyncio.current_task()
        try:
            self._node = self._node or self._open_node()
            facts = await carry_out(self._node, write)
            with suppress(futures.InvalidStateError):  # cancelled meanwhile
                written.set_result(facts)
        except BaseException as error:  # an error may cost one write, but must not end the thread
            if written.cancelled():
                return
            failure = error
            if not isinstance(error, MemslotError):
                failure = BackendError(f"stigmem: {type(error).__name__} in a write")
            # By 12.6, an answer of 4xx or 5xx is logged as an error, and no answer as a warning.
            silent = isinstance(failure, BackendError) and failure.status is None
            level = logging.WARNING if silent else logging.ERROR
            log.log(level, "stigmem: %s not written: %s", write.what, failure)
            with suppress(futures.InvalidStateError):
                written.set_exception(failure)
        finally:
            self._under_way = None

    def close(self, timeout_s: float = 5.0) -> int:
        """Send the queued writes for at most ``timeout_s`` seconds, and cancel the rest. Idempotent.

        This blocks, and takes up to a second longer if it must cancel a write. On an event loop, use
        ``anyio.to_thread.run_sync(queue.close)``.

        Returns:
            The number of cancelled writes. The node may have stored the one that was under way.
        """
        atexit.unregister(self.close)
        with self._lock:
            closed, self._closed = self._closed, True
            if closed or self._pid != os.getpid():
                return 0
            waiting = list(self._waiting)
        self._jobs.put(None)
        _, left = futures.wait(waiting, timeout_s)
        abandoned = sum(written.cancel() for written in left)
        if abandoned:
            log.warning("stigmem: %d writes were abandoned on close", abandoned)
            with suppress(RuntimeError):  # the loop has just ended
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(lambda: self._under_way and self._under_way.cancel())
        self._thread.join(_CLOSING_S if abandoned else max(_CLOSING_S, timeout_s))
        return abandoned
