"""The one way of events to the backend: into the outbox, to the adapter, and the verdict back into the outbox.

With a journal, every event passes through the outbox and stays there as the memory's history. Without a
journal, only events that a host hands over do, and the outbox forgets each one after its delivery.

A waiting event is delivered before the next journaled write of its scope, when the scope is set up, and when
a host waits for readiness. While an older event waits, newer ones wait behind it.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial

import anyio

from memory.contract.errors import (
    BackendRejected,
    BackendUnavailable,
    CapabilityNotSupported,
    InputError,
    JournalError,
    MemslotError,
    ScopeError,
)
from memory.contract.events import MemoryEvent
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.calls import NativeCalls, Span
from memory.slot.resetting import Resetting
from memory.slot.sending import Sender, Written
from memory.storage.entries import NO_ANSWER, UNREADABLE, Entry, Verdict
from memory.storage.journal import Journal, JournalEntry
from memory.storage.leases import Lease
from memory.storage.outbox import ELSEWHERE
from memory.storage.resets import JournalKey
from memory.storage.store import SqliteStore, Store

# Seconds to wait for another process that delivers to the scope, or that died during a delivery.
_WRITE_LOCK_S, _RESET_LOCK_S = 2.0, 15.0
# The event itself causes these errors, so every retry fails. After any other, a retry may succeed.
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
_READ_ONLY_BEHIND = "the memory behind it is read-only"


class Writes:
    """Writes the events of one slot, and resets its scopes in turn with that; arguments as for :class:`Delivery`.

    Attributes:
        write: sends events of one scope, and returns a receipt for each.
        key_of: the lane of a scope. Raises ScopeError if the adapter cannot represent the scope.
    """

    def __init__(
        self, calls: NativeCalls, journal: Journal | None, store: Store | None, host_store: Store | None
    ) -> None:
        self.written = Written(remembers=journal is None)
        self.sender = Sender(calls, self.written)
        self.journal = journal or Journal(store or SqliteStore(None), past=False)
        self.key_of = lru_cache(maxsize=4096)(partial(JournalKey.of_adapter, calls.adapter))
        self.resetting = Resetting(calls, self.journal.resets, host_store, self.written, self.key_of)
        self._calls = calls
        self.write = self._write_unkept if journal is None else self._write_kept
        self._leases = self.journal.outbox.leases

    async def keep(self, event: MemoryEvent) -> bool:
        """As :meth:`Delivery.keep`, for a slot that is open and writable."""
        key = self.key_of(event.scope)
        if self.written.receipt_of(event) is not None:
            return False
        [before] = (await self.journal.append(key, [event], send=False)).before
        if before is not None and before.kept.state == "aside":
            self._state_of(before, "")  # raises the refusal
        return before is None

    async def receipt_of(
        self, key: JournalKey, event_id: str, held: str | None = None, *, again: bool = True
    ) -> WriteReceipt:
        """The state of a kept event: ``queued`` while it waits, ``unknown`` once the journal dropped it.

        ``held`` says why the lane is held up, and ``again`` whether this is a repetition.
        Raises BackendRejected if the backend refused the event for good.
        """
        entry = await self.journal.find(key, event_id)
        if entry is None:
            why = "the journal holds this event no longer: it was delivered and dropped, or a reset erased it"
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(why,))
        receipt = self._state_of(entry, held)
        return _repeated(receipt) if again and entry.delivered else receipt

    async def _write_kept(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Keep events of one scope and send them behind the older ones of the outbox.

        A receipt is ``queued`` if the backend cannot take the event now. If the backend refuses one for good,
        the ``receipts`` of its error are those of the stored events. A JournalError means that nothing was sent.
        """
        key = self.key_of(events[0].scope)
        done = await self.journal.append(key, events)
        made = list(zip(events, done.seqs, done.before, strict=True))
        fresh: dict[int, MemoryEvent] = {}
        for event, seq, before in made:
            if before is None:
                fresh[seq] = event
        known: dict[str, WriteReceipt] = {}
        held: str | None = None
        if fresh and done.lease is not None:
            try:
                if not done.sent or self.journal.resets.is_open(key):
                    held = await self._deliver_older(span, done.lease, key, fresh)
                if held is None:
                    known = await self._send_kept(span, done.lease, key, fresh)
                else:
                    known = {event.event_id: _kept(event.event_id, held) for event in fresh.values()}
            except JournalError:
                self._leases.abandon(done.lease)
                raise
            finally:
                await self._leases.let_go(done.lease)
        elif fresh or not all(before and before.delivered for before in done.before):
            async with self._alone(key, _WRITE_LOCK_S) as lease:
                last = max(done.seqs) + 1
                held = await self._deliver_entries(span, lease, key, before=last) if lease else ELSEWHERE
        elif done.lease is not None:
            await self._leases.let_go(done.lease)
        receipts: list[WriteReceipt] = []
        for event, _, before in made:
            receipt = known.get(event.event_id)
            if receipt is None:
                again = before is not None and before.delivered
                receipt = await self.receipt_of(key, event.event_id, held, again=again)
            receipts.append(receipt)
        return receipts

    async def _write_unkept(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Send those events of one scope that this slot has not sent before."""
        key = self.key_of(events[0].scope)
        await self.resetting.finish(key.scope)
        known: dict[str, WriteReceipt] = {}
        for event in events:
            earlier = self.written.receipt_of(event)
            if earlier is not None and earlier.status != "unknown":
                known[event.event_id] = _repeated(earlier)
            elif earlier is not None:
                found, _ = await self.sender.look_up(span, event)
                known |= {event.event_id: found} if found else {}
        fresh = [event for event in events if event.event_id not in known]
        if fresh and span.operation == "record_events":
            known |= {receipt.event_id: receipt for receipt in await self.sender.send_all(span, fresh)}
        elif fresh:
            known[fresh[0].event_id] = await self.sender.send_one(span, fresh[0])
        return [known[event.event_id] for event in events]

    async def _deliver_older(
        self, span: Span, lease: Lease, key: JournalKey, fresh: Mapping[int, MemoryEvent]
    ) -> str | None:
        """Deliver what comes before fresh events. Why these cannot be sent now, or None."""
        held = await self._deliver_entries(span, lease, key, before=min(fresh))
        if held is None and not await self.journal.mark_sent(lease, list(fresh)):
            return ELSEWHERE
        return held

    async def _send_kept(
        self, span: Span, lease: Lease, key: JournalKey, fresh: Mapping[int, MemoryEvent]
    ) -> dict[str, WriteReceipt]:
        """Send events that were just recorded. If the backend refuses one for good, raise its error."""
        events, failure = list(fresh.values()), None
        try:
            if span.operation == "record_events":
                receipts = await self.sender.send_all(span, events)
            else:
                receipts = [await self.sender.send_one(span, events[0])]
        except MemslotError as error:
            failure, receipts = error, list(error.receipts)
        known: dict[str, WriteReceipt] = {}
        for receipt in receipts:
            known[receipt.event_id] = receipt
        verdicts: dict[int, Verdict] = {}
        refused = isinstance(failure, _FINAL)
        for seq, event in fresh.items():
            if event.event_id in known:
                verdicts[seq] = _verdict_of(known[event.event_id])
            elif failure is not None:
                # In a batch, only the first event without a receipt is certainly the refused one.
                verdicts[seq], refused = _verdict_of_error(failure, refused=refused), False
        try:
            await self.journal.note(lease, key, verdicts)
        except JournalError as error:  # the events are written, so this is only a warning
            self._leases.abandon(lease)
            if failure is not None:
                raise
            why = f"{error}; what was written may be asked for and sent again"
            return {name: _warned(receipt, why) for name, receipt in known.items()}
        if isinstance(failure, _FINAL):
            failure.receipts = tuple(receipts)
            raise failure
        why = _READ_ONLY_BEHIND if failure is None else str(failure) or type(failure).__name__
        for event in events:
            answer = known.get(event.event_id)
            if answer is None or answer.status == "skipped_read_only":
                known[event.event_id] = _kept(event.event_id, why)
        return known

    def _state_of(self, entry: JournalEntry, held: str | None) -> WriteReceipt:
        event_id, kept = entry.event.event_id, entry.kept
        if entry.delivered and entry.receipt is not None:
            return entry.receipt
        if kept.error == NO_ANSWER:
            warning = f"no answer in {kept.attempts} attempts; it may be stored, and is not sent again"
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(warning,))
        if kept.state == "aside":
            raise BackendRejected(
                f"{self._calls.backend_name}: event {event_id!r} was refused for good ({kept.error}); see number "
                f"{kept.seq} of 'memslot journal list'",
                backend_name=self._calls.backend_name,
                operation="record_event",
            )
        return entry.receipt or _kept(event_id, held or "its turn will come")

    async def _deliver_entries(
        self,
        span: Span,
        lease: Lease,
        key: JournalKey,
        *,
        before: float = math.inf,
        within_s: float | None = None,
    ) -> str | None:
        """Deliver a scope's waiting events with numbers below ``before``. Why some still wait, or None."""
        try:
            await self.resetting.finish(key.scope)
        except BackendUnavailable as error:
            return str(error)
        ends = time.monotonic() + (self._calls.deadlines.write_s if within_s is None else within_s)
        try:
            return await self.journal.outbox.deliver(
                lease, lambda entry: self._send_entry(span, entry), before=before, ends=ends
            )
        except JournalError as error:  # a verdict could not be noted
            self._leases.abandon(lease)
            return str(error)
        finally:
            if not lease.released:
                with anyio.CancelScope(shield=True), suppress(JournalError):
                    await self.journal.refresh(key)

    async def _send_entry(self, span: Span, entry: Entry) -> Verdict:
        try:
            event = JournalEntry.of(entry).event
        except JournalError:
            return Verdict("aside", error=UNREADABLE)
        if entry.sent:  # possibly sent, by this process or by a dead one
            found, absent = await self.sender.look_up(span, event)
            if found is not None:
                return _verdict_of(found)
            if not absent:
                return Verdict("held", "the backend could not be asked for an older event")
        try:
            if span.fields.get("event_id") == event.event_id:
                return _verdict_of(await self.sender.send_one(span, event))
            # An older event is a separate call, with its own trace.
            fields = {"session_id": event.session_id, "event_id": event.event_id}
            with Span(self._calls, "record_event", event.scope, fields, writes=True, yielded=True) as own:
                receipt = self._calls.traced(own, await self.sender.send_one(own, event))
        except MemslotError as error:
            return _verdict_of_error(error, refused=isinstance(error, _FINAL))
        return _verdict_of(receipt)

    @asynccontextmanager
    async def _alone(self, key: JournalKey, within_s: float) -> AsyncIterator[Lease | None]:
        """Hold the scope's lease, which keeps other processes from sending. None if one of them keeps it."""
        async with self.journal.outbox.leasing(key.lane, within_s) as lease:
            if lease is not None:
                await self.journal.refresh(key)
            yield lease

    async def deliver(self, span: Span, scope: MemoryScope, within_s: float | None) -> str | None:
        """As :meth:`Delivery.deliver`, within its span."""
        key = self.key_of(scope)
        # An open reset blocks all reads, so wait long enough to notice that the lease's holder is dead.
        wait_s = _RESET_LOCK_S if self.resetting.is_open(scope) else 0.0
        async with self._alone(key, wait_s) as lease:
            if lease is None:
                return ELSEWHERE
            await self.resetting.finish(scope)
            return await self._deliver_entries(span, lease, key, within_s=within_s)

    async def reset(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        """As :meth:`Resetting.carry_out`, while no process delivers to the scope."""
        key = self.key_of(scope)
        async with self._alone(key, _RESET_LOCK_S) as lease:
            if lease is None:
                raise BackendUnavailable(
                    f"scope {scope.label}: {ELSEWHERE}; reset it again later", sent=False
                )
            try:
                return await self.resetting.carry_out(span, scope)
            finally:
                with anyio.CancelScope(shield=True), suppress(JournalError):
                    await self.journal.refresh(key)


def _verdict_of(receipt: WriteReceipt) -> Verdict:
    if receipt.status == "skipped_read_only":  # a slot behind this one, or the attached process, is read-only
        return Verdict("waiting", _READ_ONLY_BEHIND, "ReadOnlyError")
    outcome = receipt.model_copy(update={"trace": None}).model_dump_json()
    why = "an older event got no answer" if receipt.status == "unknown" else ""
    return Verdict(receipt.status, why, outcome=outcome)


def _verdict_of_error(error: MemslotError, *, refused: bool) -> Verdict:
    state = "aside" if refused else "waiting"
    return Verdict(state, str(error) or type(error).__name__, type(error).__name__)


def _kept(event_id: str, why: str) -> WriteReceipt:
    warning = f"kept in the journal, to be delivered later: {why}"
    return WriteReceipt(event_id=event_id, status="queued", warnings=(warning,))


def _warned(receipt: WriteReceipt, warning: str) -> WriteReceipt:
    return receipt.model_copy(update={"warnings": (*receipt.warnings, warning)})


def _repeated(receipt: WriteReceipt) -> WriteReceipt:
    return _warned(receipt, "recorded before; it was not sent again")
