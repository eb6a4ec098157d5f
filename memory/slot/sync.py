"""The slot for programs without an event loop: blocking calls onto a loop that runs in a thread of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, Unpack

from anyio.from_thread import BlockingPortal

from memory.contract.errors import LifecycleError
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, ScopedMemory, TurnFields

T = TypeVar("T")


class SyncMemory:
    """A slot, or one person's view of it, for code that does not await. Made by ``open_memory_sync``. Calls may
    come from any thread; each waits for its answer."""

    def __init__(self, slot: MemorySlot, portal: BlockingPortal, view: ScopedMemory | None = None) -> None:
        self.slot = slot
        self._portal = portal
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
        """As :meth:`MemorySlot.reset_scope`, of this person."""
        view = self._view or self.slot.for_scope()
        return self._call(view.reset)

    def for_scope(
        self, *, persona_id: str | None = None, run_id: str | None = None, agent_id: str | None = None
    ) -> SyncMemory:
        """As :meth:`MemorySlot.for_scope`."""
        view = self.slot.for_scope(persona_id=persona_id, run_id=run_id, agent_id=agent_id)
        return SyncMemory(self.slot, self._portal, view)

    def _call(self, call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        if self.slot.closed:
            raise LifecycleError("this memory is closed; open it again with open_memory_sync")
        return self._portal.call(call, *arguments)

    def run(self, call: Callable[[MemorySlot], Awaitable[T]]) -> T:
        """Anything else of the slot: ``memory.run(lambda slot: slot.health())``."""
        return self._call(call, self.slot)
