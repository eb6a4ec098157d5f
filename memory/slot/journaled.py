"""Writes that pass through the outbox.

With a journal, every event passes through it and stays there as the memory's history. Without a journal, only
events that a host hands over do, and the outbox forgets each one after its delivery.

A waiting event is delivered before the next journaled write of its scope, when the scope is set up, and when
a host waits for readiness. While an older event waits, newer ones wait behind it.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

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
from memory.slot.sending import Sender
from memory.slot.written import Written, repeated
from memory.storage.entries import NO_ANSWER, UNREADABLE, Entry, Verdict
from memory.storage.journal import Appended, Journal, JournalEntry
from memory.storage.leases import Lease
from memory.storage.outbox import ELSEWHERE
from memory.storage.resets import JournalKey

# Seconds to wait for another process that delivers to the scope, or that died during a delivery.
_WRITE_LOCK_S, _RESET_LOCK_S = 2.0, 15.0
# The event itself causes these errors, so every retry fails. After any other, a retry may succeed.
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
_READ_ONLY_BEHIND = "the memory behind it is read-only"


class JournaledWrites:
    """Writes one slot's events through its journal.

    Args:
        calls: the way to the adapter.
        journal: keeps every event before it is sent.
        sender: sends the events.
        resetting: finishes resets without a known end.
        key_of: returns the lane of a scope.
        written: remembers delivered events if the outbox forgets them; else None.
    """

    def __init__(
        self,
        calls: NativeCalls,
        journal: Journal,
        sender: Sender,
        resetting: Resetting,
        key_of: Callable[[MemoryScope], JournalKey],
        written: Written | None,
    ) -> None:
        self.journal = journal
        self.resetting = resetting
        self._calls = calls
        self._leases = journal.outbox.leases
        self._sender = sender
        self._key_of = key_of
        self._written = written

    async def keep(self, key: JournalKey, event: MemoryEvent) -> bool:
        """Put an event into the outbox. True if the event is new.

        Raises:
            JournalError: the journal cannot keep the event.
            BackendRejected: the backend refused the event for good before.
        """
        [before] = (await self.journal.append(key, [event], send=False)).before
        if before is not None and before.kept.state == "aside":
            self._state_of(before, "")  # raises the refusal
        return before is None

    async def receipt_of(
        self, key: JournalKey, event_id: str, held: str = "", *, again: bool = True
    ) -> WriteReceipt:
        """The state of a kept event: ``queued`` while it waits, ``unknown`` once the journal dropped it.

        Args:
            key: the event's lane.
            event_id: the event.
            held: why the lane is held up.
            again: whether this is a repetition, which was not sent again.

        Raises:
            BackendRejected: the backend refused the event for good.
        """
        entry = await self.journal.find(key, event_id)
        if entry is None:
            warning = (
                "the journal holds this event no longer: it was delivered and dropped, or a reset erased it"
            )
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(warning,))
        receipt = self._state_of(entry, held)
        return repeated(receipt) if again and entry.delivered else receipt

    async def write(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Keep events of one scope and send them.

        Returns:
            A receipt for each event; ``queued`` if the backend cannot take it now.

        Raises:
            JournalError: nothing was kept or sent.
            MemslotError: the backend refused an event for good; ``receipts`` are those of the stored events.
        """
        if not events:
            return []
        key = self._key_of(events[0].scope)
        done = await self.journal.append(key, events)
        is_first = done.sent and done.before.count(None) == len(events)
        if done.lease is not None and is_first and not self.resetting.noted.is_open(key):
            try:
                return await self._send_fresh(span, done.lease, key, events, done.seqs)
            finally:
                await self._leases.let_go(done.lease)
        if done.lease is not None:
            return await self._write_leased(span, key, events, done, done.lease)
        held = ELSEWHERE
        async with self._alone(key, _WRITE_LOCK_S) as lease:
            if lease is not None:
                held = await self._deliver_entries(span, lease, key, before=max(done.seqs) + 1) or ""
        return await self._receipts(key, events, done, held)

    async def _write_leased(
        self, span: Span, key: JournalKey, events: Sequence[MemoryEvent], done: Appended, lease: Lease
    ) -> list[WriteReceipt]:
        """Write events while holding the lane's lease: after all older events, and before any newer one."""
        fresh: list[MemoryEvent] = []
        seqs: list[int] = []
        for event, seq, before in zip(events, done.seqs, done.before, strict=True):
            if before is None:
                fresh.append(event)
                seqs.append(seq)
        known: dict[str, WriteReceipt] = {}
        try:
            held = ""
            if self.journal.backlog(key) > len(fresh) or self.resetting.noted.is_open(key):
                first = min(seqs, default=max(done.seqs) + 1)
                held = await self._deliver_entries(span, lease, key, before=first) or ""
            if fresh and not held:
                ours = self._leases.holds(lease) if done.sent else self.journal.mark_sent(lease, seqs)
                held = "" if await ours else ELSEWHERE
            if fresh and not held:
                sent = await self._send_fresh(span, lease, key, fresh, seqs)
                known = {receipt.event_id: receipt for receipt in sent}
        except JournalError:
            self._leases.abandon(lease)
            raise
        finally:
            await self._leases.let_go(lease)
        if fresh and held:
            known = {event.event_id: _kept(event.event_id, held) for event in fresh}
        if len(known) < len(events):
            others = [event for event in events if event.event_id not in known]
            found = await self._receipts(key, others, done, held)
            known |= {receipt.event_id: receipt for receipt in found}
        return [known[event.event_id] for event in events]

    async def _send_fresh(
        self, span: Span, lease: Lease, key: JournalKey, events: Sequence[MemoryEvent], seqs: Sequence[int]
    ) -> list[WriteReceipt]:
        """Send events that were just recorded. If the backend refuses one for good, raise its error."""
        failure: MemslotError | None = None
        try:
            receipts = await self._sender.by(span)(span, events)
        except MemslotError as error:
            failure, receipts = error, list(error.receipts)
        known: dict[str, WriteReceipt] = {}
        for receipt in receipts:
            known[receipt.event_id] = receipt
        verdicts: dict[int, Verdict] = {}
        refused = isinstance(failure, _FINAL)
        for event, seq in zip(events, seqs, strict=True):
            if (answer := known.get(event.event_id)) is not None:
                verdicts[seq] = _verdict_of(answer)
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
            return [each.model_copy(update={"warnings": (*each.warnings, why)}) for each in receipts]
        if isinstance(failure, _FINAL):
            failure.receipts = tuple(receipts)
            raise failure
        why = str(failure) or type(failure).__name__ if failure is not None else _READ_ONLY_BEHIND
        found = []
        for event in events:
            answer = known.get(event.event_id)
            if answer is None or answer.status == "skipped_read_only":
                answer = _kept(event.event_id, why)
            found.append(answer)
        return found

    async def _receipts(
        self, key: JournalKey, events: Sequence[MemoryEvent], done: Appended, held: str
    ) -> list[WriteReceipt]:
        """Receipts of events, read from the journal."""
        earlier = {entry.event.event_id for entry in done.before if entry is not None and entry.delivered}
        return [
            await self.receipt_of(key, event.event_id, held, again=event.event_id in earlier)
            for event in events
        ]

    def _state_of(self, entry: JournalEntry, held: str) -> WriteReceipt:
        event_id = entry.event.event_id
        if entry.delivered and entry.receipt is not None:
            return entry.receipt
        kept = entry.kept
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
            await self.resetting.finish(key)
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
        if entry.sent:  # possibly sent, by this process or by one that died meanwhile
            found, absent = await self._sender.look_up(span, event)
            if found is not None:
                return self._delivered(event, found)
            if not absent:
                return Verdict("held", "the backend could not be asked for an older event")
        try:
            if span.fields.get("event_id") == event.event_id:
                [receipt] = await self._sender.send_one(span, [event])
            else:
                [receipt] = await self._send_traced(event)
        except MemslotError as error:
            return _verdict_of_error(error, refused=isinstance(error, _FINAL))
        return self._delivered(event, receipt)

    async def _send_traced(self, event: MemoryEvent) -> list[WriteReceipt]:
        """Send a waiting event as a separate call with its own trace."""
        fields = {"session_id": event.session_id, "event_id": event.event_id}
        with Span(self._calls, "record_event", event.scope, fields, writes=True, yielded=True) as span:
            return self._calls.traced(span, await self._sender.send_one(span, [event]))

    def _delivered(self, event: MemoryEvent, receipt: WriteReceipt) -> Verdict:
        if self._written is not None and receipt.status != "unknown":
            self._written.remember(event, receipt)
        return _verdict_of(receipt)

    @asynccontextmanager
    async def _alone(self, key: JournalKey, within_s: float = 0.0) -> AsyncIterator[Lease | None]:
        """Hold the scope's lease, which keeps other processes from sending. None if one of them keeps it."""
        async with self.journal.outbox.leasing(key.lane, within_s) as lease:
            if lease is not None:
                await self.journal.refresh(key)
            yield lease

    async def deliver(self, span: Span, key: JournalKey, within_s: float | None) -> str | None:
        """Finish a reset without a known end, then deliver waiting events. Why some still wait, or None."""
        # An open reset blocks all reads, so wait long enough to notice that the lease's holder is dead.
        wait_s = _RESET_LOCK_S if self.resetting.noted.is_open(key) else 0.0
        async with self._alone(key, wait_s) as lease:
            if lease is None:
                return ELSEWHERE
            await self.resetting.finish(key)
            return await self._deliver_entries(span, lease, key, within_s=within_s)

    async def reset(self, span: Span, key: JournalKey) -> ResetReceipt:
        """As :meth:`Resetting.carry_out`, while no process delivers to the scope.

        Raises:
            BackendError: the backend failed, or another process is delivering to the scope.
        """
        async with self._alone(key, _RESET_LOCK_S) as lease:
            if lease is None:
                raise BackendUnavailable(
                    f"scope {key.scope.label}: {ELSEWHERE}; reset it again later", sent=False
                )
            try:
                return await self.resetting.carry_out(span, key)
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
