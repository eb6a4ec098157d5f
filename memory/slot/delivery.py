"""The writes, resets and waiting events of a slot, and calls for code that is built on a slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import anyio

from memory.contract._loops import checkpoint
from memory.contract._quantity import quantity
from memory.contract.errors import CapabilityNotSupported, MemslotError, ScopeError, StoreError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import TokenCounter
from memory.contract.receipts import Trace, WriteReceipt
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.slot.background import Deliveries
from memory.slot.calls import NativeCalls, Span
from memory.slot.recalls import Recalls
from memory.slot.rendering import without_recalled_context
from memory.slot.tracing import TraceSink
from memory.slot.writes import Writes
from memory.storage.entries import OUTBOX, trouble_of
from memory.storage.journal import Journal
from memory.storage.resets import JournalKey
from memory.storage.store import Store

Consistency = Literal["committed", "queued", "pending"]


@runtime_checkable
class OwnedElsewhere(Protocol):
    """An adapter of a memory that another process owns, together with its journal and its resets."""

    keeps_events: bool  # whether the owner has a journal
    host_store: Store  # the owner removes a scope's data from it at a reset

    async def keep(self, event: MemoryEvent) -> bool | None: ...
    def resets_of(self, scope: MemoryScope | None = None) -> int: ...


class Delivery:
    """The waiting events of a slot, and calls beyond the contract for code that is built on one.

    Args:
        calls: the way to the adapter.
        store: this memory's store, for notes of resets and the hosts' data. None notes nothing.
        journal: keeps every event and its result. None keeps an event only while it waits.
        set_up: sets a scope up.

    Attributes:
        store: holds the hosts' data of each scope.
        scope, budget, token_counter: the host's defaults.
        deadlines: seconds per kind of native call.
        writes: sends events to the backend. resetting: resets its scopes.
        journal: the outbox of events.
        recalls: what each turn recalled, if there is a journal.
    """

    def __init__(
        self,
        calls: NativeCalls,
        store: Store | None,
        journal: Journal | None,
        set_up: Callable[[MemoryScope], Awaitable[None]],
        scope: MemoryScope | None,
        budget: ContextBudget,
        token_counter: TokenCounter,
    ) -> None:
        self._calls = calls
        noted_in = None if store is None else store.handle(OUTBOX)
        self._owner = calls.adapter if isinstance(calls.adapter, OwnedElsewhere) else None
        self.store = noted_in if self._owner is None else self._owner.host_store
        has_journal = journal is not None if self._owner is None else self._owner.keeps_events
        self.recalls = Recalls(calls.adapter.backend_name, self.store if has_journal else None)
        self._set_up = set_up
        self._setting_up: dict[MemoryScope, anyio.Lock] = {}
        self.scope, self.budget, self.token_counter = scope, budget, token_counter
        self.deadlines = calls.deadlines
        self.writes = Writes(calls, journal, store, noted_in)
        self.journal = self.writes.journal
        self.resetting = self.writes.resetting
        self._later = Deliveries(self._set_up_and_deliver) if calls.traits.extracts and has_journal else None
        self._queues_turns = False  # whether after_turn has queued a turn in this process
        self._closed = False

    @property
    def loop(self) -> object | None:
        """The event loop that the slot belongs to; None before its first call."""
        return self._calls.loop

    async def set_up(self, scope: MemoryScope) -> None:
        """Set a scope up at its first use."""
        is_set_up = self._calls.scopes.get
        if not is_set_up(scope, False):
            async with self._setting_up.setdefault(scope, anyio.Lock()):
                if not is_set_up(scope, False):
                    await self._set_up(scope)
            self._setting_up.pop(scope, None)

    def waiting(self, scope: MemoryScope | None = None) -> int:
        """How many events of a scope, or of all scopes, wait for this backend."""
        if scope is not None:
            return self.journal.backlog(self.writes.key_of(scope))
        return sum(count for key, count in self.journal.undelivered() if self._is_ours(key))

    def waiting_scopes(self) -> list[MemoryScope]:
        """The scopes with waiting events."""
        return [key.scope for key, _ in self.journal.undelivered() if self._is_ours(key)]

    async def warnings(self) -> list[str]:
        """Sentences for health. Each of them makes the backend's health ``degraded``."""
        found = [*self.writes.written.warnings(), *self.resetting.warnings()]
        others = sum(count for key, count in self.journal.undelivered() if not self._is_ours(key))
        if others:
            waiting = quantity(others, "events wait", "event waits")
            found.append(f"{waiting} for another backend, or another store of this one")
        if self.journal.store.begun:
            try:
                found += (await self.journal.store.run(trouble_of, writes=False)).warnings()
            except StoreError as error:
                found.append(str(error))
        return found

    async def set_aside(self, scope: MemoryScope) -> str:
        """Health's sentence about events of this scope that were refused for good; empty without any."""
        if not self.journal.store.begun:
            return ""
        lane = self.writes.key_of(scope).lane
        trouble = await self.journal.store.run(lambda db: trouble_of(db, lane=lane), writes=False)
        return trouble.warnings()[0] if trouble.aside else ""

    def _is_ours(self, key: JournalKey) -> bool:
        try:
            return self.writes.key_of(key.scope) == key
        except MemslotError:  # this backend cannot represent the scope
            return False

    def consistency(
        self, scope: MemoryScope, of_adapter: Consistency | None, waited: int
    ) -> Consistency | None:
        """The adapter's word on a read's consistency, or ``pending`` if events waited before or wait now."""
        if waited or self.waiting(scope):
            return "pending"
        return of_adapter or ("pending" if self.writes.written.is_pending(scope) else None)

    def close(self) -> None:
        """Close the journal and the store. Idempotent."""
        if not self._closed:
            self._closed = True
            self.journal.close()
            self.recalls.close()
            if self.store is not None:
                self.store.close()

    async def keep(self, event: MemoryEvent) -> bool | None:
        """Put an event into the outbox. :meth:`deliver` sends it, in this process or a later one.

        Returns:
            Whether the event is new. None if the slot is read-only or closed, so that nothing was kept.

        Raises:
            JournalError, ScopeError: the store cannot keep the event, or the adapter cannot represent its scope.
            InputError: the event holds nothing but recalled context, or its id belongs to other messages.
            BackendRejected: the backend refused the event for good before.
        """
        if self._calls.gate.read_only or self._calls.closed:
            return None
        self.writes.key_of(event.scope)
        event = without_recalled_context(event)
        if self._owner is not None:
            return await self._owner.keep(event)
        is_new = await self.writes.keep(event)
        await checkpoint()  # yielding any earlier could change the order of arrival
        return is_new

    async def deliver(self, scope: MemoryScope, queue_timeout_s: float | None = None) -> str | None:
        """Finish a reset without a known end, then deliver waiting events, in turn with the scope's writes.

        Args:
            scope: a scope that is set up.
            queue_timeout_s: seconds for the delivery; by default as long as a write may take.

        Returns:
            Why some events still wait, or None. Only a reset that cannot be finished raises BackendUnavailable.
        """
        key, why = self.writes.key_of(scope), "this slot is read-only"
        await self.journal.refresh(key)
        if not (self.waiting(scope) or self.resetting.is_open(scope)):
            return None

        async def perform() -> list[WriteReceipt]:
            nonlocal why
            why = await self.writes.deliver(span, scope, queue_timeout_s) or ""
            return []

        with self._calls.span("deliver", scope) as span:
            await self._calls.write(span, perform, list)
        return why or None

    async def resume(self, scope: MemoryScope) -> None:
        """As :meth:`deliver`, but in the background if the backend extracts with a language model."""
        if self._later is None or self.resetting.is_open(scope):
            await self.deliver(scope)
        elif self._owner is None:
            self._later.start(scope)

    async def _set_up_and_deliver(self, scope: MemoryScope) -> str | None:
        await self.set_up(scope)
        return await self.deliver(scope)

    async def end_deliveries(self) -> None:
        """Deliver queued turns for as long as one write may take. The rest waits for the next opening."""
        if self._later is not None:
            await self._later.end(self.deadlines.write_s if self._queues_turns else 0.0)

    async def record(self, event: MemoryEvent) -> WriteReceipt:
        """As :meth:`MemorySlot.record_event`."""
        with self._calls.span(
            "record_event", event.scope, session_id=event.session_id, event_id=event.event_id
        ) as span:
            event = without_recalled_context(event)
            [receipt] = await self._calls.write(
                span, lambda: self.writes.write(span, [event]), lambda: skipped_receipts([event])
            )
        return receipt

    async def record_turn(self, event: MemoryEvent) -> WriteReceipt:
        """As :meth:`MemorySlot.after_turn`."""
        calls, scope = self._calls, event.scope
        if self._later is None or calls.gate.read_only:
            return await self.record(event)
        with calls.span("keep", scope, session_id=event.session_id, event_id=event.event_id) as span:
            calls.check_scope(scope)
            is_new = await self.keep(event)
            if is_new is None:
                [receipt] = skipped_receipts([event])
            elif is_new or self._owner is not None:
                receipt = WriteReceipt(event_id=event.event_id, status="queued")
            else:
                receipt = await self.writes.receipt_of(self.writes.key_of(scope), event.event_id)
            if self._owner is None:
                self._queues_turns = True
                self._later.start(scope)
            return calls.traced(span, receipt)

    @property
    def can_look_up(self) -> bool:
        """Whether :meth:`find_event` is able to look events up."""
        return self.writes.sender.can_look_up

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The native ids of an event, or None if it is not stored; see :attr:`can_look_up`.

        Raises:
            CapabilityNotSupported: this backend has no look-up.
            BackendError: the backend failed.
        """
        calls = self._calls
        with calls.span("find_event", event.scope, event_id=event.event_id) as span:
            if not self.can_look_up:
                raise CapabilityNotSupported(f"{calls.backend_name} cannot look an event up by its id")
            calls.check_scope(event.scope)
            return await calls.look_up(span, event, self.deadlines.query_s)

    def scope_or_default(self, scope: MemoryScope | None = None) -> MemoryScope:
        """``scope``, or else the slot's own. Raises ScopeError if there is neither."""
        if (chosen := scope or self.scope) is None:
            raise ScopeError("no scope: give scope=, or set memory.scope in the configuration")
        return chosen

    def resets_of(self, scope: MemoryScope | None = None) -> int:
        """How often this slot has reset a scope, or any scope. For a shared memory, all processes count."""
        if self._owner is not None:
            return self._owner.resets_of(scope)
        counts = self.resetting.counts
        return counts.total() if scope is None else counts[scope]

    def trace_to(self, sink: TraceSink) -> None:
        """Add a sink that receives the trace of every call."""
        self._calls.sinks.append(sink)

    def emit_trace(self, operation: str, scope: MemoryScope | None, **fields: object) -> Trace:
        """Emit a trace without user text for a decision that called no backend, such as ``recall``."""
        return self._calls.finish(Span(self._calls, operation, scope, {}), None, **fields)


def skipped_receipts(events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
    """Receipts of events while the slot is read-only."""
    return [WriteReceipt(event_id=event.event_id, status="skipped_read_only") for event in events]
