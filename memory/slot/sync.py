"""The slot for programs without an event loop. Its blocking calls run on a loop in a separate thread."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from typing import TypeVar, Unpack
from uuid import UUID

from anyio.from_thread import BlockingPortal, start_blocking_portal

from memory.contract.errors import LifecycleError
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot, ScopedMemory
from memory.slot.turns import RecallFields, TurnFields

T = TypeVar("T")

# Kept alive in forked processes: a collected stack would wait for a thread that only the parent has.
_OF_PARENTS: list[ExitStack] = []


@contextmanager
def opened_in_thread(opening: AbstractAsyncContextManager[MemorySlot]) -> Iterator[SyncMemory]:
    """Enter ``opening`` in an event loop that runs in a thread, and leave it at the end of the block.

    In a forked process the end of the block closes nothing: the parent still uses it.
    """
    with ExitStack() as stack:
        portal, pid = stack.enter_context(start_blocking_portal()), os.getpid()
        slot = stack.enter_context(portal.wrap_async_context_manager(opening))
        try:
            yield SyncMemory(slot, portal, pid)
        finally:
            if os.getpid() != pid:
                _OF_PARENTS.append(stack.pop_all())


class SyncMemory:
    """A slot, or one person's view of it, for code that does not await. ``open_memory_sync`` makes it.

    Any thread may call it. Each call waits for its answer.
    """

    def __init__(
        self, slot: MemorySlot, portal: BlockingPortal, pid: int, view: ScopedMemory | None = None
    ) -> None:
        self.slot = slot
        self._portal = portal
        self._pid = pid  # the process that has the thread; a forked one has only a copy of this object
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
        return SyncMemory(self.slot, self._portal, self._pid, view)

    def run(self, call: Callable[[MemorySlot], Awaitable[T]]) -> T:
        """Run any other call of the slot: ``memory.run(lambda slot: slot.health())``."""
        return self._call(partial(call, self.slot))

    def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        if self.slot.closed:
            why = "its 'with' block ended, or nothing holds what open_memory_sync returned"
            raise LifecycleError(f"this memory is closed: {why}; open it again with open_memory_sync")
        if os.getpid() != self._pid:
            why = (
                "this memory was opened before the process was forked; open it in each worker, after the fork"
            )
            raise LifecycleError(why)
        return self._portal.call(call)
