"""Delivery through the journal: an event is on disk before it is sent, and what was not confirmed goes out later.

Later means: before the next write of its scope, when its scope is set up, when writing is allowed again, and when
readiness is asked for. Order within a scope is kept: while an older event waits, newer ones wait behind it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence, Set

import anyio

from memory.contract.errors import (
    BackendRejected,
    CapabilityNotSupported,
    InputError,
    JournalError,
    MemslotError,
    ScopeError,
)
from memory.contract.events import MemoryEvent
from memory.contract.receipts import ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.delivery import Delivery, ambiguous
from memory.slot.journal import Journal
from memory.slot.journal_file import JournalEntry
from memory.slot.rules import Rules, Span

_PAGE = 100
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_MOST_UNANSWERED = 5
_NO_ANSWER = "NoAnswer"
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
"""What is wrong with an event itself. Anything else can be mended: a slot that was closed, a missing module."""


class DurableDelivery(Delivery):
    """Writes of one slot, kept in a journal.

    Args:
        rules: the slot's.
        journal: keeps the events; closed with the slot.
    """

    def __init__(self, rules: Rules, journal: Journal) -> None:
        super().__init__(rules)
        self.journal = journal
        self._closed = False
        self._never_sent: set[tuple[MemoryScope, str]] = (
            set()
        )  # kept by this process, and not looked up for nothing
        self._pauses: dict[MemoryScope, tuple[float, float]] = {}  # until when, and how long the next one is

    def waiting(self, scope: MemoryScope | None = None) -> int:
        """Events kept and not delivered yet, of one scope or of all."""
        return self.journal.backlog(scope)

    def waiting_scopes(self) -> list[MemoryScope]:
        """Scopes with events that are kept and not delivered yet."""
        return self.journal.waiting_scopes()

    async def keep(self, event: MemoryEvent) -> bool | None:
        """As :meth:`MemorySlot.keep_event`."""
        before = (await self.journal.append([event]))[0]
        if before is None:
            self._never_sent.add((event.scope, event.event_id))
        return before is None or not before.delivered

    async def reset(
        self, span: Span, scope: MemoryScope, native: Callable[[], Awaitable[ResetReceipt]]
    ) -> ResetReceipt:
        """What was before a reset is neither delivered nor replayed any more. Its words stay.

        What waits is withheld before the backend is asked, and for good unless it surely reset nothing: whoever
        dies over it, or gets no answer, must not deliver to a memory that was cleared.
        """
        withheld = await self.journal.suspend(scope)
        try:
            receipt = await super().reset(span, scope, native)
        except BaseException as error:
            if not span.attempts or (isinstance(error, MemslotError) and not ambiguous(error)):
                with anyio.CancelScope(shield=True):
                    await self.journal.restore(scope, withheld)
            raise
        if not await self.journal.reset(scope):
            return receipt
        left = "its events in the journal, until they are forgotten"
        return receipt.model_copy(update={"left": (*receipt.left, left)})

    def close(self) -> None:
        """Give the journal back. Idempotent."""
        if not self._closed:
            self._closed = True
            self.journal.close()

    async def one(self, span: Span, event: MemoryEvent) -> WriteReceipt:
        """Keep an event and send it; ``queued`` where the backend cannot take it now.

        Raises:
            JournalError: it could not be kept; nothing was sent.
            BackendRejected: the backend refused this event for good.
        """
        return (await self.many(span, [event]))[0]

    async def many(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """As :meth:`one`, for events of one scope.

        Raises:
            JournalError: they could not be kept; nothing was sent.
            MemslotError: the backend refused an event for good. ``receipts`` holds those of the others stored.
        """
        if not events:
            return []
        before = await self.journal.append(events)
        known = {entry.event.event_id: _earlier(entry) for entry in before if entry and entry.delivered}
        first = [event for event, entry in zip(events, before, strict=True) if entry is None]
        scope = events[0].scope
        # An event that was handed over before and not confirmed is an older one: it goes first, and is looked up.
        held = await self.catch_up(span, scope, {event.event_id for event in first})
        for entry in before:
            if entry and not entry.delivered:
                known[entry.event.event_id] = await self._state_of(scope, entry.event.event_id, held)
        if first and held:
            known.update({event.event_id: _kept(event.event_id, held) for event in first})
        elif first:
            known.update({receipt.event_id: receipt for receipt in await self._sent(span, scope, first)})
        return [known[event.event_id] for event in events]

    async def _sent(
        self, span: Span, scope: MemoryScope, events: Sequence[MemoryEvent]
    ) -> list[WriteReceipt]:
        """Send events; a journal that cannot keep the receipts costs a warning, not what was written."""
        try:
            return (await self._send(span, scope, events))[0]
        except JournalError as error:
            if not error.receipts:
                raise
            warning = f"{error}; what was written may be asked for and sent again"
            return [
                receipt.model_copy(update={"warnings": (*receipt.warnings, warning)})
                for receipt in error.receipts
            ]

    async def _state_of(self, scope: MemoryScope, event_id: str, held: str | None) -> WriteReceipt:
        """What became of an event that was handed over before."""
        entry = await self.journal.find(scope, event_id)
        if entry is not None and entry.error == _NO_ANSWER:
            warning = f"no answer in {entry.attempts} attempts; it may be stored, and is not sent again"
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(warning,))
        if entry is not None and entry.status == "rejected":
            raise BackendRejected(
                f"{self._rules.backend_name}: event {event_id!r} was refused for good ({entry.error})",
                backend_name=self._rules.backend_name,
                operation="record_event",
            )
        if entry is not None and entry.receipt is not None:
            return entry.receipt
        return _kept(event_id, held or "it waits for its turn")

    async def deliver(self, scope: MemoryScope, queue_timeout_s: float | None = None) -> None:
        """Deliver what waits for a scope, in its place in the order of writes; still down is no error here."""

        async def perform() -> list[WriteReceipt]:
            await self.catch_up(span, scope, queue_timeout_s=queue_timeout_s)
            return []

        if self.waiting(scope):
            with self._rules.span("deliver", scope) as span:
                await self._rules.write(span, scope, perform, list)

    async def catch_up(
        self,
        span: Span,
        scope: MemoryScope,
        but: Set[str] = frozenset(),
        *,
        queue_timeout_s: float | None = None,
    ) -> str | None:
        """Deliver what waits for a scope, oldest first; the caller holds the scope's place in the order of writes.

        Args:
            span: of the call that it is done for.
            scope: whose events.
            but: ids of events the caller sends itself, next.
            queue_timeout_s: how long to begin further ones, in seconds; by default as long as a write may take.

        Returns:
            None where nothing older waits any more, else why it still does.
        """
        if self.journal.backlog(scope) <= len(but):
            return None
        until, _ = self._pauses.get(scope, (0.0, 0.0))
        if time.monotonic() < until:
            return "older events wait for the backend"
        ends = time.monotonic() + (
            self._rules.deadlines.write_s if queue_timeout_s is None else queue_timeout_s
        )
        while True:
            page = [
                entry
                for entry in await self.journal.waiting(scope, _PAGE + len(but))
                if entry.event.event_id not in but
            ]
            if not page:
                self._pauses.pop(scope, None)
                return None
            for entry in page:
                if time.monotonic() >= ends:
                    return "older events are still being delivered"
                held = await self._again(span, scope, entry)
                if held is not None:
                    return held

    async def _again(self, span: Span, scope: MemoryScope, entry: JournalEntry) -> str | None:
        """Deliver one older event; why it still waits, or None."""
        event = entry.event
        # It may have been sent, by us or by a process that died over it.
        sent = (scope, event.event_id) not in self._never_sent
        self._never_sent.discard((scope, event.event_id))
        found, absent = await self._look_up(span, event) if sent else (None, True)
        if found is not None:
            await self.journal.record(scope, [found])
            return None
        if not absent:
            return self._pause(scope, "the backend could not be asked for an older event")
        try:
            receipts, held = await self._send(span, scope, [event])
        except MemslotError:
            return None  # refused for good and recorded so; it holds nothing up
        if receipts[0].status != "unknown":
            return held
        if entry.attempts + 1 >= _MOST_UNANSWERED:
            await self.journal.failed(scope, [event.event_id], _NO_ANSWER, final=True)
            return None
        return self._pause(scope, "an older event got no answer")

    async def _send(
        self, span: Span, scope: MemoryScope, events: Sequence[MemoryEvent]
    ) -> tuple[list[WriteReceipt], str | None]:
        """Receipts, and why some of the events wait; what the backend refused for good is raised."""
        try:
            if len(events) == 1:
                receipts = [await super().one(span, events[0])]
            else:
                receipts = await super().many(span, events)
        except MemslotError as error:
            return await self._kept_back(scope, events, error)
        try:
            await self.journal.record(scope, receipts)
        except JournalError as error:
            error.receipts = tuple(receipts)
            raise
        self._pauses.pop(scope, None)
        return receipts, None

    async def _kept_back(
        self, scope: MemoryScope, events: Sequence[MemoryEvent], error: MemslotError
    ) -> tuple[list[WriteReceipt], str]:
        """A delivery failed: receipts of what is stored, ``queued`` for what goes out later, and why.

        Raises:
            MemslotError: ``error`` itself, where sending again would not help.
        """
        stored = {receipt.event_id: receipt for receipt in error.receipts}
        await self.journal.record(scope, list(stored.values()))
        left = [event.event_id for event in events if event.event_id not in stored]
        final = isinstance(error, _FINAL)
        # Of a batch, only the first event without a receipt is known to be the one refused.
        refused, later = (left[:1], left[1:]) if final else ([], left)
        await self.journal.failed(scope, refused, type(error).__name__, final=True)
        await self.journal.failed(scope, later, type(error).__name__, final=False)
        if final:
            raise error
        held = self._pause(scope, str(error))
        return [stored.get(event.event_id) or _kept(event.event_id, held) for event in events], held

    def _pause(self, scope: MemoryScope, why: str) -> str:
        _, pause = self._pauses.get(scope, (0.0, _FIRST_PAUSE_S))
        self._pauses[scope] = (time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE_S))
        return why


def _earlier(entry: JournalEntry) -> WriteReceipt:
    assert entry.receipt is not None
    warning = "recorded before; it was not sent again"
    return entry.receipt.model_copy(update={"warnings": (*entry.receipt.warnings, warning)})


def _kept(event_id: str, why: str) -> WriteReceipt:
    return WriteReceipt(
        event_id=event_id,
        status="queued",
        warnings=(f"kept in the journal, to be delivered later: {why}",),
    )
