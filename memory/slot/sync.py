"""The slot for programs without an event loop. Its blocking calls run on a loop in a separate thread."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, Unpack
from uuid import UUID

from anyio.from_thread import BlockingPortal, start_blocking_portal

from memory.contract.errors import LifecycleError
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, ScopedMemory, TurnFields

T = TypeVar("T")

# Kept alive in forked processes: a collected stack would wait for a thread that only the parent has.
_OF_PARENTS: list[ExitStack] = []


@dataclass(frozen=True)
class LoopThread:
    """An event loop in a separate thread. A forked process has a copy of this object, but not the thread."""

    portal: BlockingPortal
    pid: int

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` in the loop and wait for it.

        Raises:
            LifecycleError: this process was forked from the one that opened the memory.
        """
        if os.getpid() != self.pid:
            why = (
                "this memory was opened before the process was forked; open it in each worker, after the fork"
            )
            raise LifecycleError(why)
        return self.portal.call(work)


@dataclass(frozen=True)
class Opened(Generic[T]):
    value: T
    thread: LoopThread


@contextmanager
def opened_in_thread(opening: AbstractAsyncContextManager[T]) -> Iterator[Opened[T]]:
    """Enter ``opening`` in an event loop that runs in a thread, and leave it at the end of the block.

    In a forked process the end of the block closes nothing: the parent still uses it.
    """
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        thread = LoopThread(portal, os.getpid())
        value = stack.enter_context(portal.wrap_async_context_manager(opening))
        try:
            yield Opened(value, thread)
        finally:
            if os.getpid() != thread.pid:
                _OF_PARENTS.append(stack.pop_all())


class SyncMemory:
    """A slot, or one person's view of it, for code that does not await. ``open_memory_sync`` makes it.

    Any thread may call it. Each call waits for its answer.
    """

    def __init__(self, slot: MemorySlot, thread: LoopThread, view: ScopedMemory | None = None) -> None:
        self.slot = slot
        self._thread = thread
        self._view = view
        self._of: MemorySlot | ScopedMemory = view or slot

    def __repr__(self) -> str:
        return f"<blocking {self._of!r}>"

    def before_turn(self, user: str, *, session_id: str, **fields: Unpack[RecallFields]) -> str:
        """As :meth:`MemorySlot.before_turn`."""
        return self._call(partial(self._of.before_turn, user, session_id=session_id, **fields))

    def after_turn(self, *, session_id: str, **fields: Unpack[TurnFields]) -> WriteReceipt:
        """As :meth:`MemorySlot.after_turn`."""
        return self._call(partial(self._of.after_turn, session_id=session_id, **fields))

    def reset(self) -> ResetReceipt:
        """As :meth:`MemorySlot.reset_scope`, for this person's scope."""
        view = self._view or self.slot.for_scope()
        return self._call(view.reset)

    def for_scope(
        self,
        scope: MemoryScope | str | int | UUID | None = None,
        *,
        persona_id: str | int | UUID | None = None,
        run_id: str | int | UUID | None = None,
        agent_id: str | int | UUID | None = None,
    ) -> SyncMemory:
        """As :meth:`MemorySlot.for_scope`."""
        view = self.slot.for_scope(scope, persona_id=persona_id, run_id=run_id, agent_id=agent_id)
        return SyncMemory(self.slot, self._thread, view)

    def _call(self, call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        if self.slot.closed:
            why = "its 'with' block ended, or nothing holds what open_memory_sync returned"
            raise LifecycleError(f"this memory is closed: {why}; open it again with open_memory_sync")
        return self._thread.call(partial(call, *arguments))

    def run(self, call: Callable[[MemorySlot], Awaitable[T]]) -> T:
        """Run any other call of the slot: ``memory.run(lambda slot: slot.health())``."""
        return self._call(call, self.slot)
