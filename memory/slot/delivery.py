"""Sending events: looked up after a lost answer, sent again only where that is safe (DESIGN section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

import anyio
import anyio.to_thread

from memory.contract.adapter import SupportsBulkIngest, SupportsEventLookup
from memory.contract.errors import BackendError, BackendProtocolError, CapabilityNotSupported, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.host_store import reset_host_file
from memory.slot.rules import Rules, Span
from memory.slot.sqlite_file import Place

_RETRY_PAUSE_S = 0.2
Consistency = Literal["committed", "queued", "pending"]


class Delivery:
    """Writes of one slot, once the rules have let them through; the host file goes with a scope's reset."""

    def __init__(self, rules: Rules, host_file: Place | None) -> None:
        self._rules = rules
        self._host_file = host_file
        self.last_write_at: datetime | None = None
        self.resets: Counter[MemoryScope] = Counter()
        self.queued: Counter[MemoryScope] = Counter()  # writes the backend did not store at once
        self._derived: Counter[MemoryScope] = Counter()  # of these, how many were retrievable when it said so

    def waiting(self, scope: MemoryScope | None = None) -> int:
        return 0

    def waiting_scopes(self) -> list[MemoryScope]:
        return []

    async def refresh(self) -> bool:
        """See what other processes have put into the journal; whether it is one that others use, too."""
        return False

    def warnings(self) -> list[str]:
        return []

    def check_readable(self, scope: MemoryScope) -> None:
        """Refuse to read what a reset may have left; without a journal nothing is known of one."""

    async def keep(self, event: MemoryEvent) -> bool | None:
        return None

    def note_derived(self, scope: MemoryScope, queued: int) -> None:
        """The first ``queued`` of a scope's queued writes are retrievable, or gone."""
        if queued:
            self._derived[scope] = max(queued, self._derived[scope])

    def consistency(
        self, scope: MemoryScope, of_adapter: Consistency | None, waited: int
    ) -> Consistency | None:
        """The state of what was read: as the adapter says, unless events waited here before it or wait now."""
        if waited or self.waiting(scope):
            return "pending"
        return of_adapter or ("pending" if self.queued[scope] > self._derived[scope] else None)

    async def deliver(self, scope: MemoryScope, queue_timeout_s: float | None = None) -> str | None:
        """Deliver what waits, by default for as long as a write may take; why some of it still waits, or None."""
        return None

    async def reset(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        rules = self._rules
        kept: tuple[str, ...] = ()
        try:
            receipt = await rules.call(
                span, rules.deadlines.reset_s, lambda: rules.adapter.reset_scope(scope), ResetReceipt
            )
            if self._host_file is not None:
                of_hosts = (self._host_file, rules.backend_name, scope)
                kept = await anyio.to_thread.run_sync(reset_host_file, *of_hosts)
        except BaseException as error:
            self.resets[scope] += not changed_nothing(span, error)
            raise
        self.resets[scope] += 1
        self.note_derived(scope, self.queued[scope])
        return receipt.model_copy(update={"left": (*receipt.left, *kept)})

    def close(self) -> None:
        """The slot is closed. Idempotent."""

    async def write(self, span: Span, event: MemoryEvent) -> list[WriteReceipt]:
        """Send an event; again only where a look-up or the backend's own deduplication makes it safe."""
        rules, attempt = self._rules, 1
        lost: MemslotError | None = None  # an ambiguous attempt: whatever later ones say, it may be stored
        while True:
            try:
                receipt = await rules.call(
                    span,
                    rules.deadlines.write_s,
                    lambda: rules.adapter.record_event(event),
                    WriteReceipt,
                    check=lambda receipt: _check_receipts([receipt], [event]),
                )
                break
            except MemslotError as error:
                if lost is None and not ambiguous(error):
                    raise
                lost, again = lost or error, ambiguous(error) and attempt <= rules.traits.write_retries
            found, absent = await self._look_up(span, event)
            if not (again and absent):
                warnings = (f"{lost}; it may or may not be stored",)
                receipt = found or WriteReceipt(event_id=event.event_id, status="unknown", warnings=warnings)
                break
            await anyio.sleep(_RETRY_PAUSE_S * attempt)
            span.attempts = attempt = attempt + 1
        self._note(event.scope, [receipt])
        return [receipt]

    async def write_all(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Send events of one scope by the adapter's bulk call, ``traits.bulk_size`` at a time, in order. Every call
        has a place and a deadline of its own, so others have their turn between two. A call without an answer goes
        as written where a look-up finds all of its events; the error of a failed one carries all known receipts."""
        rules, adapter = self._rules, cast(SupportsBulkIngest, self._rules.adapter)
        size = rules.traits.bulk_size or max(1, len(events))
        receipts: list[WriteReceipt] = []
        for start in range(0, len(events), size):
            batch = events[start : start + size]
            deadline_s = min(rules.deadlines.write_s * len(batch), rules.deadlines.bulk_s)
            try:
                written = await rules.call(
                    span,
                    deadline_s,
                    lambda: adapter.record_events(batch),  # noqa: B023
                    check=lambda receipts: _check_receipts(receipts, batch),  # noqa: B023
                )
            except MemslotError as error:
                written = await self._stored(span, batch, error)
                if len(written) < len(batch):
                    rules.unknown_writes += len(batch) - len(written) if ambiguous(error) else 0
                    self._note(events[0].scope, written)
                    error.receipts = (*receipts, *written)
                    raise
            self._note(events[0].scope, written)
            receipts.extend(written)
        return receipts

    async def _stored(
        self, span: Span, batch: Sequence[MemoryEvent], error: MemslotError
    ) -> list[WriteReceipt]:
        """Receipts of the events that a failed call has written; looked up, up to the first that is missing."""
        known: dict[str, WriteReceipt] = {receipt.event_id: receipt for receipt in error.receipts}
        if ambiguous(error):
            for event in batch:
                if event.event_id not in known:
                    found, _ = await self._look_up(span, event)
                    if found is None:
                        break
                    known[event.event_id] = found
        return [known[event.event_id] for event in batch if event.event_id in known]

    async def _look_up(self, span: Span, event: MemoryEvent) -> tuple[WriteReceipt | None, bool]:
        """The receipt of an event that the backend has; else None, and whether sending it again is safe."""
        if not isinstance(self._rules.adapter, SupportsEventLookup):
            return None, True  # with write_retries above 0 it declares that the backend deduplicates
        try:
            if (ids := await self._rules.look_up(span, event)) is None:
                return None, True
            # Where memories are derived from what is stored, its being stored says nothing of them.
            receipt = WriteReceipt(
                event_id=event.event_id,
                status="committed" if self._rules.traits.consistency == "immediate" else "queued",
                native_ids=ids,
                warnings=("confirmed by look-up after the answer was lost",),
            )
        except MemslotError as error:
            return None, isinstance(error, CapabilityNotSupported)  # of a slot whose adapter has no look-up
        return receipt, False

    def _note(self, scope: MemoryScope, receipts: Sequence[WriteReceipt]) -> None:
        for receipt in receipts:
            if receipt.status == "unknown":
                self._rules.unknown_writes += 1
            elif receipt.status != "skipped_read_only":
                self.last_write_at = datetime.now(UTC)
            if receipt.status in ("queued", "pending"):
                self.queued[scope] += 1


def _check_receipts(receipts: Sequence[Any], events: Sequence[MemoryEvent]) -> None:
    for receipt in receipts:
        if not isinstance(receipt, WriteReceipt):
            raise BackendProtocolError(f"a write returned {type(receipt).__name__}, not WriteReceipt")
    if [receipt.event_id for receipt in receipts] != [event.event_id for event in events]:
        raise BackendProtocolError("a write did not return one receipt per event, in order and by its id")


def skipped_receipts(*events: MemoryEvent) -> list[WriteReceipt]:
    return [WriteReceipt(event_id=event.event_id, status="skipped_read_only") for event in events]


def ambiguous(error: BaseException) -> bool:
    return isinstance(error, BackendError) and error.ambiguous


def changed_nothing(span: Span, error: BaseException) -> bool:
    """Whether a call that failed so was certainly not carried out."""
    return not span.attempts or (isinstance(error, MemslotError) and not ambiguous(error))
