"""Sending events: looked up after a lost answer, sent again only where that is safe.

The slot and the guarded bulk capability both write through this (DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio

from memory.contract.adapter import SupportsEventLookup
from memory.contract.errors import BackendError, BackendProtocolError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import Trace, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.rules import Rules

__all__ = ["Delivery"]

_RETRY_PAUSE_S = 0.2


class Delivery:
    """Writes of one slot, once the rules have let them through.

    Args:
        rules: the slot's.

    Attributes:
        last_write_at: when the backend last confirmed a write; None before the first.
        unknown_writes: writes so far that got no answer, and of which nothing could be found out.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.last_write_at: datetime | None = None
        self.unknown_writes = 0

    def waiting(self, scope: MemoryScope | None = None) -> int:
        """Events kept and not delivered yet; always 0 without a journal."""
        return 0

    async def deliver(self, scope: MemoryScope) -> None:
        """Deliver what waits for a scope; without a journal nothing ever does."""

    async def reset(self, scope: MemoryScope) -> None:
        """The scope was reset: what waits for it is not delivered any more."""

    def close(self) -> None:
        """The slot is closed."""

    async def one(self, event: MemoryEvent) -> WriteReceipt:
        """Send an event; again only where a look-up or the backend's own deduplication makes it safe.

        Returns:
            The receipt; ``unknown`` for an event that may or may not be stored.

        Raises:
            BackendError: the backend failed, and the event is not stored.
        """
        rules, attempt = self._rules, 0
        lost: MemslotError | None = (
            None  # an ambiguous attempt: whatever later ones say, it may have been stored
        )
        while True:
            attempt += 1
            try:
                receipt = await self._attempt(event)
                break
            except MemslotError as error:
                if lost is None and not _ambiguous(error):
                    raise
                lost, again = lost or error, _ambiguous(error) and attempt <= rules.traits.write_retries
            found, absent = await self._look_up(event)
            if found is None and absent and again:
                await anyio.sleep(_RETRY_PAUSE_S * attempt)
                continue
            warning = f"{lost}; it may or may not be stored"
            receipt = found or WriteReceipt(event_id=event.event_id, status="unknown", warnings=(warning,))
            break
        self._confirmed([receipt])
        native = receipt.trace or Trace(
            backend_name=rules.backend_name, scope=event.scope, native_operation="record_event"
        )
        trace = native.model_copy(update={"attempts": max(native.attempts, attempt)})
        return receipt.model_copy(update={"trace": trace})

    async def _attempt(self, event: MemoryEvent) -> WriteReceipt:
        rules = self._rules
        receipt = await rules.call(
            "record_event", rules.deadlines.write_s, lambda: rules.adapter.record_event(event)
        )
        return self._answered([event], [receipt])[0]

    async def many(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Send events of one scope by the adapter's bulk call, ``traits.bulk_size`` at a time, in order.

        Every call has a deadline of its own. A call without an answer goes as written where a look-up finds all of
        its events.

        Raises:
            MemslotError: a call failed, and later events were not sent. ``receipts`` holds those of the events
                that are stored, as far as the adapter or a look-up can tell.
        """
        size = self._rules.traits.bulk_size or max(1, len(events))
        receipts: list[WriteReceipt] = []
        for start in range(0, len(events), size):
            batch = events[start : start + size]
            try:
                written = await self._batch(batch)
            except MemslotError as error:
                written = await self._stored(batch, error)
                if len(written) < len(batch):
                    self.unknown_writes += len(batch) - len(written) if _ambiguous(error) else 0
                    self._confirmed(written)
                    error.receipts = (*receipts, *written)
                    raise
            self._confirmed(written)
            receipts.extend(written)
        return receipts

    async def _batch(self, batch: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        rules = self._rules
        adapter: Any = rules.adapter
        receipts: list[WriteReceipt] = await rules.call(
            "record_events", rules.deadlines.write_s * len(batch), lambda: adapter.record_events(batch)
        )
        return self._answered(batch, receipts)

    def _answered(self, events: Sequence[MemoryEvent], receipts: Sequence[Any]) -> list[WriteReceipt]:
        told = [getattr(receipt, "event_id", None) for receipt in receipts]
        if told != [event.event_id for event in events]:
            raise BackendProtocolError(
                f"{self._rules.backend_name}: a write did not return one receipt per event, in order"
            )
        return list(receipts)

    async def _stored(self, batch: Sequence[MemoryEvent], error: MemslotError) -> list[WriteReceipt]:
        """Receipts of the events that a failed call has written; looked up, up to the first that is missing."""
        known: dict[str, WriteReceipt] = {receipt.event_id: receipt for receipt in error.receipts}
        if _ambiguous(error):
            for event in batch:
                if event.event_id not in known:
                    found, _ = await self._look_up(event)
                    if found is None:
                        break
                    known[event.event_id] = found
        return [known[event.event_id] for event in batch if event.event_id in known]

    async def _look_up(self, event: MemoryEvent) -> tuple[WriteReceipt | None, bool]:
        """The receipt of an event that the backend has; else None, and whether sending it again is safe."""
        adapter = self._rules.adapter
        if not isinstance(adapter, SupportsEventLookup):
            return None, True  # with write_retries above 0 it declares that the backend deduplicates

        async def look() -> WriteReceipt | None:
            ids = await adapter.find_event(event)
            if ids is None:
                return None
            warnings = ("confirmed by look-up after the answer was lost",)
            return WriteReceipt(
                event_id=event.event_id, status="committed", native_ids=tuple(ids), warnings=warnings
            )

        try:
            found = await self._rules.call("find_event", self._rules.deadlines.query_s, look)
        except MemslotError:
            return None, False
        return found, found is None

    def _confirmed(self, receipts: Sequence[WriteReceipt]) -> None:
        for receipt in receipts:
            if receipt.status == "unknown":
                self.unknown_writes += 1
                continue
            self.last_write_at = datetime.now(UTC)


def _ambiguous(error: MemslotError) -> bool:
    return isinstance(error, BackendError) and error.ambiguous
