"""Delivery of one slot's events, resets included.

:meth:`Delivery.keep` puts an event into the outbox, and :meth:`Delivery.deliver` sends it. With a journal, every
event goes that way, and stays in the journal as the memory's past. Without one, the outbox forgets an event once it
is delivered, ``record_event`` sends at once, and the slot remembers the ids of its last writes.

What waits is delivered before the next journaled write of its scope, when the scope is set up, and when readiness
is asked for. While an older event waits, newer ones wait behind it.

A reset is noted before and after it, with or without a journal. A reset whose end is not noted is carried out again
before anything else happens to its scope.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import anyio
import anyio.to_thread

from memory.contract._loops import checkpoint
from memory.contract.errors import (
    BackendRejected,
    BackendUnavailable,
    CapabilityNotSupported,
    InputError,
    JournalError,
    MemslotError,
    ScopeError,
    StoreError,
)
from memory.contract.events import MemoryEvent
from memory.contract.formatting import TokenCounter
from memory.contract.receipts import ResetReceipt, Trace, WriteReceipt
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.slot.calls import NativeCalls, Span
from memory.slot.rendering import without_recalled_context
from memory.slot.sending import Sender, changed_nothing, skipped_receipts
from memory.slot.tracing import TraceSink
from memory.slot.turns import ScopeLeases
from memory.storage.journal import Appended, Journal, JournalEntry, JournalKey
from memory.storage.kept import reset_host_store
from memory.storage.outbox import (
    ELSEWHERE,
    NO_ANSWER,
    OUTBOX,
    UNREADABLE,
    Entry,
    Lease,
    Verdict,
    trouble_of,
)
from memory.storage.store import SqliteStore, Store

_REMEMBERED = 10_000
# How long to wait for another process that delivers to the scope, or that died over it.
_WRITE_LOCK_S, _RESET_LOCK_S = 2.0, 15.0
# Errors of the event itself, which a retry repeats. After any other, such as a closed slot, a retry may succeed.
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
_READ_ONLY_BEHIND = "the memory behind it is read-only"
Consistency = Literal["committed", "queued", "pending"]


class HostDefaults(NamedTuple):
    """What a host has chosen for a slot.

    Attributes:
        scope: default of the turn calls; None asks for one in each.
        budget: default of ``before_turn``.
        token_counter: measures context sections.
    """

    scope: MemoryScope | None
    budget: ContextBudget
    token_counter: TokenCounter


class Delivery:
    """What becomes of a slot's events and resets once its calls have let them through.

    Args:
        calls: the way to the adapter.
        store: of this memory: resets are noted there, and what hosts keep goes with a reset. None notes nothing.
        journal: keeps every event, and what became of it. None keeps an event only while it waits.
        leases: the scopes that views have set up.
        host: what the host has chosen.

    Attributes:
        store: where hosts keep what belongs to a scope.
        scope, budget, token_counter: the host's defaults.
        deadlines: seconds per kind of native call.
        last_write_at: when the backend took an event for the last time.
        resets: resets that were carried out, or may have been, by scope.
        queued: writes that the backend did not store at once, by scope.
        journal: the outbox of events.
        has_journal: whether it keeps every event, and not only those that wait.
    """

    def __init__(
        self,
        calls: NativeCalls,
        store: Store | None,
        journal: Journal | None,
        leases: ScopeLeases,
        host: HostDefaults,
    ) -> None:
        self._calls = calls
        self._noted_in = None if store is None else store.handle(OUTBOX)
        self.store: Store | None = self._noted_in
        self.has_journal = journal is not None
        self.journal = journal or Journal(store or SqliteStore(None), past=False)
        self.leases = leases
        self.scope, self.budget, self.token_counter = host
        self.deadlines = calls.deadlines
        self.sender = Sender(calls, self._note, self._note_failure)
        self.write = self._write_at_once if journal is None else self._write_kept
        self.last_write_at: datetime | None = None
        self.resets: Counter[MemoryScope] = Counter()
        self.queued: Counter[MemoryScope] = Counter()
        self._derived: Counter[MemoryScope] = Counter()  # of these, how many were retrievable when it said so
        self._under_reset: set[MemoryScope] = set()  # by this slot, now
        self._resets = self.journal.resets
        # By scope and event id: what was said, as a hash, and the receipt.
        self._written: OrderedDict[tuple[MemoryScope, str], tuple[int, WriteReceipt]] = OrderedDict()
        self._failures: Counter[str] = (
            Counter()
        )  # writes since the last that succeeded, by class of the error
        self._closed = False
        self._key = lru_cache(maxsize=4096)(partial(JournalKey.of_adapter, calls.adapter))

    # What waits.

    @property
    def lasting(self) -> bool:
        """Whether what waits outlives this process."""
        return self.journal.lasting

    def waiting(self, scope: MemoryScope | None = None) -> int:
        """How many events of a scope, or of all, wait for this backend."""
        if not self.journal.has_backlog:
            return 0
        if scope is not None:
            return self.journal.backlog(self._key(scope))
        return sum(self.waiting(scope) for scope in self.waiting_scopes())

    def waiting_scopes(self) -> list[MemoryScope]:
        """The scopes with events that wait."""
        return [key.scope for key, _ in self.journal.undelivered() if self._is_ours(key)]

    async def refresh(self) -> None:
        """See what other processes have left to be delivered."""
        await self.journal.refresh()

    async def warnings(self) -> list[str]:
        """What is not as it should be, for health; it is ``degraded`` as long as there is something."""
        found = [
            f"{count} writes since the last success failed ({name})"
            if name != NO_ANSWER
            else f"{count} writes since the last success got no answer; they may or may not be stored"
            for name, count in self._failures.items()
        ]
        others = sum(count for key, count in self.journal.undelivered() if not self._is_ours(key))
        if others:
            found.append(f"{others} events wait for another backend, or another store of this one")
        if self.journal.begun:
            try:
                found += (await self.journal.store.run(trouble_of, writes=False)).warnings()
            except StoreError as error:
                found.append(str(error))
        return found

    def _is_ours(self, key: JournalKey) -> bool:
        try:
            return self._key(key.scope) == key
        except MemslotError:  # a scope that this backend cannot represent
            return False

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

    def check_readable(self, scope: MemoryScope) -> None:
        """Raises BackendUnavailable if a reset ended without an answer: it may have left something.

        A reset that is under way here does not count. A read beside it sees the memory before or after it.
        """
        if scope not in self._under_reset and self._resets.is_open(self._key(scope)):
            raise BackendUnavailable(
                f"a reset of scope {scope.label} was begun and its end is not known, so nothing of it is shown; "
                "set the scope up again, or call reset_scope, to have it finished",
                sent=False,
            )

    def close(self) -> None:
        """The slot is closed. Idempotent."""
        if not self._closed:
            self._closed = True
            self.journal.close()
            if self._noted_in is not None:
                self._noted_in.close()

    # Writes.

    async def _write_at_once(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Send events of one scope that this slot has not written before.

        Returns:
            A receipt for each.

        Raises:
            BackendUnavailable: an older reset could not be finished, which would remove them.
        """
        if not events:
            return []
        await self._finish_reset(self._key(events[0].scope))
        known: dict[str, WriteReceipt] = {}
        if self._written:
            for event in events:
                if (event.scope, event.event_id) not in self._written:
                    continue
                if (earlier := await self._earlier(span, event)) is not None:
                    known[event.event_id] = earlier
        fresh = [event for event in events if event.event_id not in known] if known else events
        if fresh:
            for event, receipt in zip(fresh, await self.sender.by(span)(span, fresh), strict=True):
                known[receipt.event_id] = receipt
                self._remember(event, receipt)
        return list(known.values()) if len(events) == 1 else [known[event.event_id] for event in events]

    async def _earlier(self, span: Span, event: MemoryEvent) -> WriteReceipt | None:
        """The receipt of an event that this slot has written before; None where it is to be sent.

        An id with other words is sent: the backend decides what it does with it.
        """
        said, earlier = self._written[event.scope, event.event_id]
        if said != _said(event):
            return None
        if earlier.status == "unknown":
            found, _ = await self.sender.look_up(span, event)
            return found
        return _repeated(earlier)

    def _remember(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        if receipt.status == "skipped_read_only":
            return
        self._written[event.scope, event.event_id] = (_said(event), receipt)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    def forget_writes(self, scope: MemoryScope) -> None:
        """The backend may hold something else than was written to a scope: ids are no repetition any more."""
        for key in [key for key in self._written if key[0] == scope]:
            del self._written[key]

    def _note_failure(self, error: MemslotError) -> None:
        self._failures[type(error).__name__] += 1

    def _note(self, scope: MemoryScope, receipts: Sequence[WriteReceipt]) -> None:
        for receipt in receipts:
            if receipt.status == "unknown":
                self._calls.unknown_writes += 1
                self._failures[NO_ANSWER] += 1
            elif receipt.status != "skipped_read_only":
                self.last_write_at = datetime.now(UTC)
                self._failures.clear()
            if receipt.status in ("queued", "pending"):
                self.queued[scope] += 1

    async def keep(self, event: MemoryEvent) -> bool | None:
        """Put an event into the outbox. :meth:`deliver` sends it, in this process or a later one.

        Returns:
            Whether the event is new. None if the slot is read-only or closed, so that nothing was kept.

        Raises:
            JournalError: the store cannot keep it.
            InputError: nothing is left of it once recalled context is stripped, or its id has other messages.
            BackendRejected: it was refused for good before.
            ScopeError: the adapter cannot represent its scope.
        """
        if self._calls.gate.read_only or self._calls.closed:
            return None
        key = self._key(event.scope)
        event = without_recalled_context(event)
        written = self._written.get((event.scope, event.event_id))
        if written is not None and written[0] == _said(event):
            return False
        done = await self.journal.append(key, [event], send=False)
        await checkpoint()  # not before: its number is that of its arrival
        [before] = done.before
        if before is not None and before.status == "aside":
            self._state_of(before, "")  # raises what it was refused with
        return before is None

    async def _write_kept(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Keep events of one scope and send them.

        Returns:
            A receipt for each; ``queued`` where the backend cannot take them now.

        Raises:
            JournalError: nothing was kept or sent.
            MemslotError: the backend refused an event for good; ``receipts`` are of the others that are stored.
        """
        if not events:
            return []
        key = self._key(events[0].scope)
        done = await self.journal.append(key, events)
        if done.lease is not None and done.sent and not any(done.before) and not self._resets.is_open(key):
            try:
                return await self._send_fresh(
                    span, done.lease, key, list(zip(events, done.seqs, strict=True))
                )
            finally:
                await self._let_go(done.lease)
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
        """The lane is ours: what is older goes first, and nothing that is newer before these."""
        fresh = {
            event.event_id: (event, seq)
            for event, seq, before in zip(events, done.seqs, done.before, strict=True)
            if before is None
        }
        known: dict[str, WriteReceipt] = {}
        try:
            held = ""
            if self.journal.backlog(key) > len(fresh) or self._resets.is_open(key):
                first = min((seq for _, seq in fresh.values()), default=max(done.seqs) + 1)
                held = await self._deliver_entries(span, lease, key, before=first) or ""
            if fresh and not held:
                seqs = [seq for _, seq in fresh.values()]
                ours = self.journal.outbox.holds(lease) if done.sent else self.journal.mark_sent(lease, seqs)
                held = "" if await ours else ELSEWHERE
            if fresh and not held:
                sent = await self._send_fresh(span, lease, key, list(fresh.values()))
                known = {receipt.event_id: receipt for receipt in sent}
        finally:
            await self._let_go(lease)
        if fresh and held:
            known = {event_id: _kept(event_id, held) for event_id in fresh}
        if len(known) < len(events):
            others = [event for event in events if event.event_id not in known]
            found = await self._receipts(key, others, done, held)
            known |= {receipt.event_id: receipt for receipt in found}
        return [known[event.event_id] for event in events]

    async def _send_fresh(
        self, span: Span, lease: Lease, key: JournalKey, fresh: list[tuple[MemoryEvent, int]]
    ) -> list[WriteReceipt]:
        """Send events that were just recorded. What the backend refused for good is raised."""
        journal, events = self.journal, [event for event, _ in fresh]
        seqs = {event.event_id: seq for event, seq in fresh}
        failure: MemslotError | None = None
        try:
            receipts = await self.sender.by(span)(span, events)
        except MemslotError as error:
            failure, receipts = error, list(error.receipts)
        verdicts = {receipt.event_id: _verdict_of(receipt) for receipt in receipts}
        left = [event for event in events if event.event_id not in verdicts]
        if failure is not None:
            # Of a batch, only the first event without a receipt is known to be the one refused.
            for number, event in enumerate(left):
                refused = isinstance(failure, _FINAL) and number == 0
                verdicts[event.event_id] = _verdict_of_error(failure, refused=refused)
        try:
            await journal.note(lease, key, {seqs[event_id]: made for event_id, made in verdicts.items()})
        except JournalError as error:  # costs a warning, not what was written
            if failure is not None:
                raise
            why = f"{error}; what was written may be asked for and sent again"
            return [each.model_copy(update={"warnings": (*each.warnings, why)}) for each in receipts]
        if failure is not None and isinstance(failure, _FINAL):
            failure.receipts = tuple(receipts)
            raise failure
        stored = {receipt.event_id: receipt for receipt in receipts if receipt.status != "skipped_read_only"}
        why = str(failure) or type(failure).__name__ if failure is not None else _READ_ONLY_BEHIND
        return [stored.get(event.event_id) or _kept(event.event_id, why) for event in events]

    async def _receipts(
        self, key: JournalKey, events: Sequence[MemoryEvent], done: Appended, held: str
    ) -> list[WriteReceipt]:
        """What the journal says of events now."""
        earlier = {entry.event.event_id for entry in done.before if entry is not None and entry.delivered}
        receipts = []
        for event in events:
            entry = await self.journal.find(key, event.event_id)
            if entry is None:  # the oldest go first where there is no room
                receipts.append(_kept(event.event_id, "its turn will come"))
            elif event.event_id in earlier:
                receipts.append(_repeated(_receipt_of(entry)))
            else:
                receipts.append(self._state_of(entry, held))
        return receipts

    def _state_of(self, entry: JournalEntry, held: str) -> WriteReceipt:
        event_id = entry.event.event_id
        if entry.delivered:
            return _receipt_of(entry)
        if entry.error == NO_ANSWER:
            warning = f"no answer in {entry.attempts} attempts; it may be stored, and is not sent again"
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(warning,))
        if entry.status == "aside":
            raise BackendRejected(
                f"{self._calls.backend_name}: event {event_id!r} was refused for good ({entry.error}); see number "
                f"{entry.seq} of 'memslot journal list'",
                backend_name=self._calls.backend_name,
                operation="record_event",
            )
        return entry.receipt or _kept(event_id, held or "its turn will come")

    # What is older.

    async def deliver(self, scope: MemoryScope, queue_timeout_s: float | None = None) -> str | None:
        """Finish a reset whose end is not known, then deliver what waits, in its place in the order of writes.

        Args:
            scope: it is set up.
            queue_timeout_s: seconds for it; by default as long as a write may take.

        Returns:
            Why some of it still waits, or None. A backend that is down is no error of a delivery.

        Raises:
            BackendUnavailable: the reset could not be finished.
        """
        key, why = self._key(scope), "this slot is read-only"
        await self.journal.refresh(key)
        if not (self.waiting(scope) or self._resets.is_open(key)):
            return None

        async def perform() -> list[WriteReceipt]:
            nonlocal why
            why = await self._deliver_alone(span, key, queue_timeout_s) or ""
            return []

        with self._calls.span("deliver", scope) as span:
            await self._calls.write(span, perform, list)
        return why or None

    async def _deliver_alone(self, span: Span, key: JournalKey, within_s: float | None) -> str | None:
        # Nothing is shown until a reset is finished, and whoever died over one is known to be dead after a while.
        wait_s = _RESET_LOCK_S if self._resets.is_open(key) else 0.0
        async with self._alone(key, wait_s) as lease:
            if lease is None:
                return ELSEWHERE
            await self._finish_reset(key)
            return await self._deliver_entries(span, lease, key, within_s=within_s)

    async def _deliver_entries(
        self,
        span: Span,
        lease: Lease,
        key: JournalKey,
        *,
        before: float = math.inf,
        within_s: float | None = None,
    ) -> str | None:
        """Deliver what waits for a scope with numbers below ``before``; why some of it still waits, or None."""
        try:
            await self._finish_reset(key)
        except BackendUnavailable as error:
            return str(error)
        ends = time.monotonic() + (self._calls.deadlines.write_s if within_s is None else within_s)
        try:
            return await self.journal.outbox.deliver(
                lease, lambda entry: self._send_entry(span, entry), before=before, ends=ends
            )
        except JournalError as error:  # what became of one is not noted
            return str(error)
        finally:
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await self.journal.refresh(key)

    async def _send_entry(self, span: Span, entry: Entry) -> Verdict:
        try:
            event = JournalEntry.of(entry).event
        except JournalError:
            return Verdict("aside", error=UNREADABLE)
        if entry.sent:  # perhaps: by us, or by a process that died over it
            found, absent = await self.sender.look_up(span, event)
            if found is not None:
                return self._delivered(event, found)
            if not absent:
                return Verdict("held", "the backend could not be asked for an older event")
        try:
            if span.fields.get("event_id") == event.event_id:
                [receipt] = await self.sender.send_one(span, [event])
            else:
                [receipt] = await self._send_traced(event)
        except MemslotError as error:
            return _verdict_of_error(error, refused=isinstance(error, _FINAL))
        return self._delivered(event, receipt)

    async def _send_traced(self, event: MemoryEvent) -> list[WriteReceipt]:
        """Send an event that waited, as a call with a trace of its own."""
        fields = {"session_id": event.session_id, "event_id": event.event_id}
        with Span(self._calls, "record_event", event.scope, fields, writes=True, yielded=True) as span:
            return self._calls.traced(span, await self.sender.send_one(span, [event]))

    def _delivered(self, event: MemoryEvent, receipt: WriteReceipt) -> Verdict:
        if not self.has_journal and receipt.status != "unknown":
            self._remember(event, receipt)
        return _verdict_of(receipt)

    @asynccontextmanager
    async def _alone(self, key: JournalKey, within_s: float = 0.0) -> AsyncIterator[Lease | None]:
        """Be the one process that sends anything of a scope; None where another one is all the time."""
        async with self.journal.outbox.leasing(key.lane, within_s) as lease:
            if lease is not None:
                await self.journal.refresh(key)
            yield lease

    async def _let_go(self, lease: Lease) -> None:
        if not lease.released:
            with anyio.CancelScope(shield=True), suppress(JournalError):  # or it ends by standing still
                await self.journal.outbox.release(lease)

    # For what is built on a slot, beside the contract.

    @property
    def can_look_up(self) -> bool:
        """Whether :meth:`find_event` can say if an event is stored."""
        return self.sender.can_look_up

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """Native ids an event is stored under, or None where it is not stored; see :attr:`can_look_up`.

        Raises:
            CapabilityNotSupported: this backend has no look-up.
            BackendError: the backend failed.
        """
        calls = self._calls
        with calls.span("find_event", event.scope, event_id=event.event_id) as span:
            if not self.can_look_up:
                raise CapabilityNotSupported(f"{calls.backend_name} cannot look an event up by its id")
            calls.check_scope(event.scope)
            return await calls.look_up(span, event)

    async def record(self, event: MemoryEvent) -> WriteReceipt:
        """As :meth:`MemorySlot.record_event`."""
        with self._calls.span(
            "record_event", event.scope, session_id=event.session_id, event_id=event.event_id
        ) as span:
            event = without_recalled_context(event)
            [receipt] = await self._calls.write(
                span, lambda: self.write(span, [event]), lambda: skipped_receipts(event)
            )
        return receipt

    def scope_or_default(self, scope: MemoryScope | None = None) -> MemoryScope:
        """``scope``, or the slot's own; ScopeError where there is neither."""
        if (chosen := scope or self.scope) is None:
            raise ScopeError("no scope: give scope=, or set memory.scope in the configuration")
        return chosen

    def resets_of(self, scope: MemoryScope | None = None) -> int:
        """How often a scope, or any, was reset through this slot, or may have been."""
        return self.resets.total() if scope is None else self.resets[scope]

    def is_set_up(self, scope: MemoryScope) -> bool:
        """Whether the scope was set up, and not released since."""
        return self._calls.scopes.get(scope, False)

    def release_scope(self, scope: MemoryScope) -> None:
        """Forget that a scope was set up, with what is held for it in this process. Its memory stays."""
        self.leases.let_go(scope)
        self._calls.drop_scope(scope)

    def trace_to(self, sink: TraceSink) -> None:
        """Let one more sink receive the trace of every call."""
        self._calls.sinks.append(sink)

    def emit_trace(self, operation: str, scope: MemoryScope | None, **fields: object) -> Trace:
        """A line in the trace for what was decided about the memory without a call of it, such as ``recall``.

        None of its fields is user text.
        """
        return self._calls.finish(Span(self._calls, operation, scope, {}), None, **fields)

    # Resets.

    async def reset(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        """Reset a scope. What was before is neither delivered nor replayed any more.

        That is noted before the backend is asked, and for good unless it certainly reset nothing: a process that
        dies over it, or gets no answer, must not deliver to a memory that was cleared.

        Raises:
            BackendError: the backend failed, or another process is delivering to the scope.
        """
        key = self._key(scope)
        async with self._alone(key, _RESET_LOCK_S) as lease:
            if lease is None:
                raise BackendUnavailable(
                    f"scope {scope.label}: {ELSEWHERE}; reset it again later", sent=False
                )
            return await self._reset_noted(span, key)

    async def _reset_noted(self, span: Span, key: JournalKey) -> ResetReceipt:
        repeated = await self._resets.refresh(key)
        if not repeated:
            self._under_reset.add(key.scope)
        try:
            await self._resets.begin(key)
            receipt = await self._reset_begun(span, key)
        except BaseException as error:
            if changed_nothing(span, error) and not repeated:
                with anyio.CancelScope(shield=True):
                    await self._resets.cancel(key)
            raise
        finally:
            self._under_reset.discard(key.scope)
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await self.journal.refresh(key)
        return receipt

    async def _reset_begun(self, span: Span, key: JournalKey) -> ResetReceipt:
        receipt = await self._reset_native(span, key.scope)
        if not await self._resets.end(key):
            return receipt
        left = "its events in the journal, until they are forgotten"
        return receipt.model_copy(update={"left": (*receipt.left, left)})

    async def _reset_native(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        calls = self._calls
        kept: tuple[str, ...] = ()
        self.forget_writes(scope)
        try:
            receipt = await calls.call(
                span, calls.deadlines.reset_s, lambda: calls.adapter.reset_scope(scope), ResetReceipt
            )
            if self._noted_in is not None:
                of_hosts = (self._noted_in, calls.backend_name, scope)
                kept = await anyio.to_thread.run_sync(reset_host_store, *of_hosts)
        except BaseException as error:
            self.resets[scope] += not changed_nothing(span, error)
            raise
        self.resets[scope] += 1
        self.note_derived(scope, self.queued[scope])
        return receipt.model_copy(update={"left": (*receipt.left, *kept)})

    async def _finish_reset(self, key: JournalKey) -> None:
        """Carry out again what was begun, where its end is not known; what was recorded since stays."""
        if not self._resets.is_open(key):
            return
        scope = key.scope
        try:
            with Span(self._calls, "reset_scope", scope, {}, writes=True) as span:
                self._calls.traced(span, await self._reset_begun(span, key))
        except MemslotError as error:
            raise BackendUnavailable(
                f"a reset of scope {scope.label} was begun and could not be finished ({error}); until then "
                "nothing of it is read or delivered",
                backend_name=self._calls.backend_name,
                operation="reset_scope",
                sent=False,
            ) from error


def _verdict_of(receipt: WriteReceipt) -> Verdict:
    if receipt.status == "skipped_read_only":  # by a slot behind this one, or a process it is attached to
        return Verdict("waiting", _READ_ONLY_BEHIND, "ReadOnlyError")
    outcome = receipt.model_copy(update={"trace": None}).model_dump_json()
    why = "an older event got no answer" if receipt.status == "unknown" else ""
    return Verdict(receipt.status, why, outcome=outcome)


def _verdict_of_error(error: MemslotError, *, refused: bool) -> Verdict:
    state = "aside" if refused else "waiting"
    return Verdict(state, str(error) or type(error).__name__, type(error).__name__)


def _receipt_of(entry: JournalEntry) -> WriteReceipt:
    # One that was taken over from an export has no receipt.
    of_export = {"event_id": entry.event.event_id, "status": entry.status}
    return entry.receipt or WriteReceipt.model_validate(of_export)


def _said(event: MemoryEvent) -> int:
    return hash(tuple((message.role, message.content) for message in event.messages))


def _repeated(receipt: WriteReceipt) -> WriteReceipt:
    warning = "recorded before; it was not sent again"
    return receipt.model_copy(update={"warnings": (*receipt.warnings, warning)})


def _kept(event_id: str, why: str) -> WriteReceipt:
    warning = f"kept in the journal, to be delivered later: {why}"
    return WriteReceipt(event_id=event_id, status="queued", warnings=(warning,))
