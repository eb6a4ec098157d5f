"""The queue of an agent's writes to a Stigmem node (Spec-19 12.4): fire and forget.

Writes go out one at a time, in their order, from a thread with an event loop of its own. So agents on asyncio, on
trio and without a loop use the same queue. Writes that do not fit are dropped and counted. Failures are logged as
12.6 asks, and never raised.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.to_thread

from memory import BackendError, MemslotError
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import Fact
from memory.stigmem.writers import Write, carry_out, log

MAX_QUEUED_FACTS = 1000
_CANCEL_GRACE_S = 1.0
_EXIT_GRACE_S = 1.0

WriteState = Literal["queued", "written", "failed", "refused", "dropped", "abandoned", "skipped"]
"""``refused``: bad input. ``dropped``: the queue was full or closed. ``abandoned``: the queue closed first.
``skipped``: Stigmem is off, or a ping came too soon."""


@dataclass(eq=False)
class Ticket:
    """The outcome of one write.

    Attributes:
        what: the kind of write.
        entity: its entity; None for a write that was refused or skipped.
        error: why it failed.
        facts: as the node stored them; a write that failed half-way has some.
    """

    what: str
    entity: str | None = field(repr=False)
    state: WriteState
    error: MemslotError | None = field(default=None, repr=False)
    facts: tuple[Fact, ...] = field(default=(), init=False, repr=False)
    _size: int = field(default=0, init=False, repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.state != "queued":
            self._ended.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the write has ended, at most ``timeout_s`` seconds. Returns whether it has."""
        return self._ended.wait(timeout_s)

    def _add(self, fact: Fact) -> None:
        self.facts += (fact,)


@dataclass(frozen=True)
class QueueReport:
    """Counts of writes over the queue's life. ``accepted`` is the sum of the next four.

    Attributes:
        failed: writes that failed; some of their facts may exist.
        abandoned: writes that the queue gave up; the one under way may exist.
    """

    accepted: int = 0
    written: int = 0
    failed: int = 0
    abandoned: int = 0
    waiting: int = 0
    dropped: int = 0


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
        self._full = self._closed = self._abandoning = False
        self._thread: threading.Thread | None = None
        self._begin()

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Write, Ticket] | None] = queue.SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._facts = 0
        self._under_way: Ticket | None = None
        self._node: StigmemNode | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def submit(self, write: Write) -> Ticket:
        """Take a write, or drop it where there is no room. Never waits, never raises."""
        ticket = Ticket(write.what, write.entity, "queued")
        ticket._size = len(write.facts)
        with self._lock:
            room = self._has_thread() and self._facts + ticket._size <= self._max_facts
            newly_full, self._full = not room and not self._full, not room
            self._counts.update({"accepted": 1, "waiting": 1} if room else {"dropped": 1})
            if room:
                self._facts += ticket._size
                self._jobs.put((write, ticket))
                return ticket
        if newly_full:
            why = "closed" if self._closed else f"full ({self._max_facts} facts)"
            log.warning("stigmem: the write queue is %s; this and further writes are dropped", why)
        return Ticket(write.what, write.entity, "dropped")

    def _has_thread(self) -> bool:
        if self._closed:
            return False
        if self._thread is not None and self._thread.is_alive():
            return True
        if self._thread is not None:
            # After a fork the child has no thread, and the queued writes are its parent's.
            self._begin()
        thread = threading.Thread(target=self._run, name="memslot-stigmem", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending, or the process has no thread left
            return False
        self._thread = thread
        atexit.register(self.close, _EXIT_GRACE_S)
        return True

    @property
    def queued_facts(self) -> int:
        """Facts of the writes that wait or are under way."""
        return self._facts

    def report(self) -> QueueReport:
        """Counts of the writes so far."""
        with self._lock:
            return QueueReport(**self._counts)

    def close(self, timeout_s: float = 5.0) -> QueueReport:
        """Send what is queued for at most ``timeout_s`` seconds; abandon, count and log the rest. Idempotent.

        Blocks, and up to a second longer where a write must be cancelled. On an event loop use :meth:`aclose`.
        """
        deadline = time.monotonic() + timeout_s
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
        self._jobs.put(None)
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._abandon(thread)
        report = self.report()
        if report.abandoned:
            log.warning("stigmem: %d of %d writes were abandoned on close", report.abandoned, report.accepted)
        return report

    def _abandon(self, thread: threading.Thread) -> None:
        self._abandoning = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just ended, and every write with it
                self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        thread.join(_CANCEL_GRACE_S)
        # A thread that hangs in a system call finishes nothing itself.
        if self._under_way is not None:
            self._finish(self._under_way, "abandoned")
        with suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    self._finish(job[1], "abandoned")
        self._jobs.put(None)  # a thread that comes free later ends

    async def aclose(self, timeout_s: float = 5.0) -> QueueReport:
        """As :meth:`close`, without blocking the event loop."""
        return await anyio.to_thread.run_sync(self.close, timeout_s)

    # The following methods run on the queue's thread.

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            while (job := self._jobs.get()) is not None:
                write, self._under_way = job
                runner.run(self._send(write, self._under_way))
                self._under_way = None
            runner.run(self._close_node())

    def _gave_up(self) -> bool:
        return self._abandoning

    async def _send(self, write: Write, ticket: Ticket) -> None:
        if self._abandoning:
            self._finish(ticket, "abandoned")
            return
        self._task = asyncio.current_task()
        try:
            self._node = self._node or self._open_node()
            await carry_out(self._node, write, ticket._add)
        except MemslotError as error:
            self._finish(ticket, "failed", error)
        except BaseException as error:
            # Any failure costs one write. It must not end the thread.
            if isinstance(error, asyncio.CancelledError) and self._gave_up():
                self._finish(ticket, "abandoned")
            else:
                why = f"stigmem: {type(error).__name__} in a write"
                self._finish(ticket, "failed", BackendError(why))
        else:
            self._finish(ticket, "written")
        finally:
            self._task = None

    async def _close_node(self) -> None:
        if self._node is not None:
            with anyio.move_on_after(_CANCEL_GRACE_S):
                await self._node.aclose()

    def _finish(self, ticket: Ticket, state: WriteState, error: MemslotError | None = None) -> None:
        with self._lock:
            if ticket.state != "queued":
                return
            ticket.state = state
            self._counts.update({"waiting": -1, state: 1})
            self._facts -= ticket._size
        if error is not None:
            # 12.6: an answer of 4xx or 5xx is an error, no answer a warning.
            silent = isinstance(error, BackendError) and error.status is None
            level = logging.WARNING if silent else logging.ERROR
            log.log(level, "stigmem: %s not written: %s", ticket.what, error)
        ticket.error = error
        ticket._ended.set()
