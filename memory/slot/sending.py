"""Sends events, and keeps a record of their receipts (DESIGN section 5)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import anyio

from memory.contract._quantity import quantity
from memory.contract.adapter import SupportsBulkIngest, SupportsEventLookup
from memory.contract.errors import BackendError, BackendProtocolError, CapabilityNotSupported, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.calls import NativeCalls, Span

_REMEMBERED = 10_000
_RETRY_PAUSE_S = 0.2
_LAST_LOOK_S = 0.4  # a look-up gets this much even if the write has used up its time


class Written:
    """The writes of one slot.

    Args:
        remembers: whether receipts are kept here, because no journal keeps them.

    Attributes:
        last_at: when the backend last accepted an event; None if it never did.
        queued: writes that the backend did not store at once, by scope.
        unknown: writes that got no answer.
    """

    def __init__(self, *, remembers: bool) -> None:
        self.last_at: datetime | None = None
        self.queued: Counter[MemoryScope] = Counter()
        self.unknown = 0
        self.remembers = remembers
        # Queued writes that were retrievable at the last look.
        self._derived: Counter[MemoryScope] = Counter()
        # (scope, event id) -> (hash of the messages, receipt)
        self._receipts: OrderedDict[tuple[MemoryScope, str], tuple[int, WriteReceipt]] = OrderedDict()
        self._failures: Counter[str] = Counter()  # since the last success, by reason

    def note(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Note the receipt of an event that was sent."""
        if receipt.status == "skipped_read_only":
            return
        if receipt.status == "unknown":
            self.unknown += 1
            self._failures["got no answer, and may or may not be stored"] += 1
        else:
            self.last_at = datetime.now(UTC)
            self._failures.clear()
        if receipt.status in ("queued", "pending"):
            self.queued[event.scope] += 1
        if self.remembers:
            self.remember(event, receipt)

    def note_failure(self, error: MemslotError) -> None:
        """Note a failed write."""
        self._failures[f"failed ({type(error).__name__})"] += 1

    def remember(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Remember that the backend has an event, so that a repetition is not sent."""
        self._receipts[event.scope, event.event_id] = (_said(event), receipt)
        if len(self._receipts) > _REMEMBERED:
            self._receipts.popitem(last=False)

    def receipt_of(self, event: MemoryEvent) -> WriteReceipt | None:
        """The receipt of an event that was sent before with the same messages, or None."""
        said, receipt = self._receipts.get((event.scope, event.event_id), (0, None))
        return receipt if receipt is not None and said == _said(event) else None

    def forget(self, scope: MemoryScope) -> None:
        """Forget a scope's events: its contents may have changed, so a known id is no longer a repetition."""
        for key in [key for key in self._receipts if key[0] == scope]:
            del self._receipts[key]

    def note_derived(self, scope: MemoryScope, queued: int) -> None:
        """The first ``queued`` of a scope's queued writes are retrievable, or gone."""
        if queued:
            self._derived[scope] = max(queued, self._derived[scope])

    def is_pending(self, scope: MemoryScope) -> bool:
        """Whether some writes of a scope may not be retrievable yet."""
        return self.queued[scope] > self._derived[scope]

    def warnings(self) -> list[str]:
        """Sentences about writes that failed since the last success, for health."""
        failures = self._failures.items()
        return [f"{quantity(count, 'writes')} since the last success {why}" for why, count in failures]


class Sender:
    """Sends the events of one slot, and notes every receipt and every error in ``written``."""

    def __init__(self, calls: NativeCalls, written: Written) -> None:
        self._calls = calls
        self._written = written

    @property
    def can_look_up(self) -> bool:
        """Whether the adapter can say if an event is stored."""
        return isinstance(self._calls.adapter, SupportsEventLookup)

    async def send_one(self, span: Span, event: MemoryEvent) -> WriteReceipt:
        """Send one event. Resend it only if a look-up or the backend's own deduplication makes that safe."""
        calls, attempt, began = self._calls, 1, anyio.current_time()
        lost: MemslotError | None = None  # the first ambiguous attempt, after which the event may be stored
        while True:
            try:
                receipt = await calls.call(
                    span,
                    calls.deadlines.write_s,
                    lambda: calls.adapter.record_event(event),
                    WriteReceipt,
                    check=lambda receipt: _check_receipts([receipt], [event]),
                )
                break
            except MemslotError as error:
                if lost is None and not ambiguous(error):
                    self._written.note_failure(error)
                    raise
                lost, again = lost or error, ambiguous(error) and attempt <= calls.traits.write_retries
            left_s = calls.deadlines.write_s - (anyio.current_time() - began)
            found, absent = await self.look_up(span, event, max(left_s, _LAST_LOOK_S))
            if not (again and absent and left_s > 0):
                warnings = (f"{lost}; it may or may not be stored",)
                receipt = found or WriteReceipt(event_id=event.event_id, status="unknown", warnings=warnings)
                break
            await anyio.sleep(_RETRY_PAUSE_S * attempt)
            span.attempts = attempt = attempt + 1
        self._written.note(event, receipt)
        return receipt

    async def send_all(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Send events of one scope by the adapter's bulk call, ``traits.bulk_size`` at a time, in order.

        Each bulk call has its own place and deadline, so other calls run in between. A call without an answer
        succeeds if a look-up finds all of its events.

        Raises:
            MemslotError: a call failed; its ``receipts`` are those of all events known to be stored.
        """
        calls, adapter = self._calls, cast(SupportsBulkIngest, self._calls.adapter)
        size = calls.traits.bulk_size or max(1, len(events))
        receipts: list[WriteReceipt] = []
        for start in range(0, len(events), size):
            batch, began = events[start : start + size], anyio.current_time()
            deadline_s = min(calls.deadlines.write_s * len(batch), calls.deadlines.bulk_s)
            failure: MemslotError | None = None
            try:
                written = await calls.call(
                    span,
                    deadline_s,
                    lambda: adapter.record_events(batch),  # noqa: B023
                    check=lambda receipts: _check_receipts(receipts, batch),  # noqa: B023
                )
            except MemslotError as error:
                left_s = deadline_s - (anyio.current_time() - began)
                written = await self._stored(span, batch, error, max(left_s, _LAST_LOOK_S))
                failure = error if len(written) < len(batch) else None
            receipts.extend(written)
            by_id = {event.event_id: event for event in batch}
            for receipt in written:
                self._written.note(by_id[receipt.event_id], receipt)
            if failure is not None:
                self._written.unknown += len(batch) - len(written) if ambiguous(failure) else 0
                self._written.note_failure(failure)
                failure.receipts = tuple(receipts)
                raise failure
        return receipts

    async def _stored(
        self, span: Span, batch: Sequence[MemoryEvent], error: MemslotError, deadline_s: float
    ) -> list[WriteReceipt]:
        """Receipts of the events that a failed call has written. Look-ups stop at the first missing event."""
        known: dict[str, WriteReceipt] = {receipt.event_id: receipt for receipt in error.receipts}
        if ambiguous(error):
            for event in batch:
                if event.event_id not in known:
                    found, _ = await self.look_up(span, event, deadline_s)
                    if found is None:
                        break
                    known[event.event_id] = found
        return [known[event.event_id] for event in batch if event.event_id in known]

    async def look_up(
        self, span: Span, event: MemoryEvent, deadline_s: float | None = None
    ) -> tuple[WriteReceipt | None, bool]:
        """The receipt of an event that the backend has, or None; and whether a second send is safe.

        ``deadline_s`` is in seconds: by default the shorter of ``write_s`` and ``query_s``.
        """
        if not self.can_look_up:
            return None, True  # by write_retries above 0, the adapter declares that the backend deduplicates
        deadlines = self._calls.deadlines
        try:
            limit_s = deadline_s or min(deadlines.write_s, deadlines.query_s)
            ids = await self._calls.look_up(span, event, limit_s)
            if ids is None:
                return None, True
            # The event is stored, but memories derived from it may not exist yet.
            receipt = WriteReceipt(
                event_id=event.event_id,
                status="committed" if self._calls.traits.consistency == "immediate" else "queued",
                native_ids=ids,
                warnings=("confirmed by look-up after the answer was lost",),
            )
        except MemslotError as error:
            return None, isinstance(error, CapabilityNotSupported)  # a slot behind this one has no look-up
        if self._written.remembers:
            self._written.remember(event, receipt)
        return receipt, False


def _check_receipts(receipts: Sequence[Any], events: Sequence[MemoryEvent]) -> None:
    for receipt in receipts:
        if not isinstance(receipt, WriteReceipt):
            raise BackendProtocolError(f"a write returned {type(receipt).__name__}, not WriteReceipt")
    mismatched = len(receipts) != len(events)
    for receipt, event in zip(receipts, events, strict=False):
        mismatched = mismatched or receipt.event_id != event.event_id
    if mismatched:
        raise BackendProtocolError("a write did not return one receipt per event, in order and by its id")


def ambiguous(error: BaseException) -> bool:
    """Whether a call that failed with this error may have been carried out."""
    return isinstance(error, BackendError) and error.ambiguous


def _said(event: MemoryEvent) -> int:
    return hash(tuple((message.role, message.content) for message in event.messages))
