"""The seam for a durable outbox (DESIGN section 5); memslot ships none and uses none by default.

An implementation gives at-least-once delivery keyed by event id: what was appended and not reconciled is written
again after a restart. Its duplicate windows are those of any outbox: a crash between the native write and
``reconcile``, and an ``unknown`` receipt that had been stored after all.
"""

from __future__ import annotations

from typing import Protocol

from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt

__all__ = ["Outbox"]


class Outbox(Protocol):
    """Keeps events that the backend has not confirmed."""

    async def append(self, event: MemoryEvent) -> None:
        """Make the event durable before it is sent. An error here fails the write; nothing is sent."""
        ...

    async def reconcile(self, receipt: WriteReceipt) -> None:
        """The backend has the event (committed, queued or pending): forget it."""
        ...
