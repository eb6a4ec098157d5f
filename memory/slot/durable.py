"""Delivery through the journal: an event is on disk before it is sent, and what was not confirmed goes out later.
Later is before the next write of its scope, when that is set up, when writing is allowed again, and when readiness
is asked for; while an older event waits, newer ones wait behind it. A reset is noted before and after: one without
a noted end is carried out again before anything else happens to its scope."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Sequence, Set
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any

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
from memory.slot.delivery import Delivery, changed_nothing
from memory.slot.journal import Journal
from memory.slot.journal_file import JournalEntry, JournalKey
from memory.slot.rules import Rules, Span
from memory.slot.sqlite_file import Place

_PAGE = 100
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_MAX_UNANSWERED = 5
# How long to wait for another process that delivers to the scope, or that died over it.
_WRITE_LOCK_S, _RESET_LOCK_S, _LEASE_PAUSE_S = 2.0, 15.0, 0.05
_NO_ANSWER = "NoAnswer"
_ELSEWHERE = "another process is delivering to it"
# Errors of the event itself, which a retry repeats. After any other, such as a closed slot, a retry may succeed.
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)


class DurableDelivery(Delivery):
    def __init__(self, rules: Rules, host_file: Place | None, journal: Journal) -> None:
        super().__init__(rules, host_file)
        self.journal = journal
        self._closed = False
        self._pauses: dict[MemoryScope, tuple[float, float]] = {}  # its end, and how long the next one is
        self._key = lru_cache(maxsize=4096)(partial(JournalKey.of_adapter, rules.adapter))

    def waiting(self, scope: MemoryScope | None = None) -> int:
        if scope is not None:
            return self.journal.backlog(self._key(scope))
        return sum(self.waiting(scope) for scope in self.waiting_scopes())

    def waiting_scopes(self) -> list[MemoryScope]:
        return [key.scope for key, _ in self.journal.undelivered() if self._is_ours(key)]

    async def refresh(self) -> bool:
        await self.journal.refresh()
        return self.journal.on_server

    def warnings(self) -> list[str]:
        others = sum(count for key, count in self.journal.undelivered() if not self._is_ours(key))
        waiting = [f"{others} events in the journal wait for another backend, or another store of this one"]
        return [*self.journal.warnings(), *(waiting if others else [])]

    def _is_ours(self, key: JournalKey) -> bool:
        try:
            return self._key(key.scope) == key
        except MemslotError:  # a scope that this backend cannot represent
            return False

    def check_readable(self, scope: MemoryScope) -> None:
        """Raises BackendUnavailable while the end of a reset is not known: it may have left something."""
        if self.journal.resetting(self._key(scope)):
            raise BackendUnavailable(
                f"a reset of scope {scope.label} was begun and its end is not known, so nothing of it is shown; "
                "set the scope up again, or call reset_scope, to have it finished",
                sent=False,
            )

    async def reset(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        """What was before a reset is neither delivered nor replayed any more. That is noted before the backend is
        asked, and for good unless it certainly reset nothing: whoever dies over it, or gets no answer, must not
        deliver to a memory that was cleared."""
        key = self._key(scope)
        async with self._alone(key, _RESET_LOCK_S) as held:
            if held:
                raise BackendUnavailable(f"scope {scope.label}: {held}; reset it again later", sent=False)
            repeated = self.journal.resetting(key)
            await self.journal.begin_reset(key)
            try:
                return await self._reset_begun(span, key)
            except BaseException as error:
                if changed_nothing(span, error) and not repeated:
                    with anyio.CancelScope(shield=True):
                        await self.journal.cancel_reset(key)
                raise

    @asynccontextmanager
    async def _alone(self, key: JournalKey, within_s: float = 0.0) -> AsyncIterator[str | None]:
        """Be the one process that sends anything of a scope; yields why not, where another one is all the time."""
        ends = time.monotonic() + within_s
        # Nobody here is told when another process ends.
        while not (ours := await self.journal.lease(key)) and time.monotonic() < ends:  # noqa: ASYNC110
            await anyio.sleep(_LEASE_PAUSE_S)
        try:
            yield None if ours else _ELSEWHERE
        finally:
            if ours:
                await self.journal.release(key)

    async def _reset_begun(self, span: Span, key: JournalKey) -> ResetReceipt:
        receipt = await super().reset(span, key.scope)
        if not await self.journal.end_reset(key):
            return receipt
        left = "its events in the journal, until they are forgotten"
        return receipt.model_copy(update={"left": (*receipt.left, left)})

    async def _finish_reset(self, scope: MemoryScope) -> None:
        """Carry out again what was begun, where its end is not known; what was recorded since stays."""
        if self.journal.resetting(self._key(scope)):
            try:
                with Span(self._rules, "reset_scope", scope, {}, writes=True) as span:
                    self._rules.traced(span, await self._reset_begun(span, self._key(scope)))
            except MemslotError as error:
                raise BackendUnavailable(
                    f"a reset of scope {scope.label} was begun and could not be finished ({error}); until then "
                    "nothing of it is read or delivered",
                    backend_name=self._rules.backend_name,
                    operation="reset_scope",
                    sent=False,
                ) from error

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.journal.close()

    async def keep(self, event: MemoryEvent) -> bool | None:
        [before] = await self.journal.append(self._key(event.scope), [event], sent=False)
        if before is not None and before.status == "rejected":
            await self._state_of(event.scope, event.event_id, None)  # raises what it was refused with
        return before is None or before.status in ("waiting", "unknown")

    def write(self, span: Span, event: MemoryEvent) -> Coroutine[Any, Any, list[WriteReceipt]]:
        return self.write_all(span, [event])

    async def write_all(self, span: Span, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Keep events of one scope and send them; ``queued`` where the backend cannot take them now. Raises
        JournalError where nothing was kept or sent, and what the backend refused for good, with ``receipts`` of the
        others that are stored."""
        if not events:
            return []
        scope = events[0].scope
        # Alone from here, or another might send it between the next two steps.
        async with self._alone(self._key(scope), _WRITE_LOCK_S) as held:
            before = await self.journal.append(self._key(scope), events, sent=not held)
            known = {entry.event.event_id: _earlier(entry) for entry in before if entry and entry.delivered}
            first = [event for event, entry in zip(events, before, strict=True) if entry is None]
            # One that was handed over before and not confirmed is an older one: it goes first, and is looked up.
            held = held or await self.catch_up(span, scope, {event.event_id for event in first})
            for entry in before:
                if entry and not entry.delivered:
                    known[entry.event.event_id] = await self._state_of(scope, entry.event.event_id, held)
            if first and held:
                known.update({event.event_id: _kept(event.event_id, held) for event in first})
            elif first:
                sent, _ = await self._send(span, scope, first)
                known.update({receipt.event_id: receipt for receipt in sent})
            return [known[event.event_id] for event in events]

    async def _state_of(self, scope: MemoryScope, event_id: str, held: str | None) -> WriteReceipt:
        entry = await self.journal.find(self._key(scope), event_id)
        if entry is None:  # the oldest go first where there is no room
            return _kept(event_id, "its turn will come")
        if entry.error == _NO_ANSWER:
            warning = f"no answer in {entry.attempts} attempts; it may be stored, and is not sent again"
            return WriteReceipt(event_id=event_id, status="unknown", warnings=(warning,))
        if entry.status == "rejected":
            raise BackendRejected(
                f"{self._rules.backend_name}: event {event_id!r} was refused for good ({entry.error})",
                backend_name=self._rules.backend_name,
                operation="record_event",
            )
        return entry.receipt or _kept(event_id, held or "its turn will come")

    async def deliver(self, scope: MemoryScope, queue_timeout_s: float | None = None) -> str | None:
        """Finish a reset of which the end is not known (else BackendUnavailable), then deliver what waits, in its
        place in the order of writes; a backend that is still down is no error of a delivery."""
        key, why = self._key(scope), "this slot is read-only"

        async def perform() -> list[WriteReceipt]:
            nonlocal why
            async with self._alone(key) as held:
                if not held:
                    await self._finish_reset(scope)
                    held = await self.catch_up(span, scope, within_s=queue_timeout_s)
                why = held or ""
            return []

        if not (self.journal.on_server or self.waiting(scope) or self.journal.resetting(key)):
            return None
        with self._rules.span("deliver", scope) as span:
            await self._rules.write(span, perform, list)
        return why or None

    async def catch_up(
        self, span: Span, scope: MemoryScope, but: Set[str] = frozenset(), *, within_s: float | None = None
    ) -> str | None:
        """Deliver what waits for a scope, oldest first, ``but`` what the caller sends next; why some of it still
        waits, or None. The caller holds the scope's place in the order of writes."""
        key = self._key(scope)
        try:
            await self._finish_reset(scope)
        except BackendUnavailable as error:
            return str(error)
        if self.journal.backlog(key) <= len(but):
            return None
        until, _ = self._pauses.get(scope, (0.0, 0.0))
        if time.monotonic() < until:
            return "older events wait for the backend"
        ends = time.monotonic() + (self._rules.deadlines.write_s if within_s is None else within_s)
        while True:
            waiting = await self.journal.waiting(key, _PAGE + len(but))
            page = [entry for entry in waiting if entry.event.event_id not in but]
            if not page:
                self._pauses.pop(scope, None)
                return None
            for entry in page:
                if time.monotonic() >= ends:
                    return "older events are still being delivered"
                if held := await self._send_older(span, key, entry):
                    return held

    async def _send_older(self, span: Span, key: JournalKey, entry: JournalEntry) -> str | None:
        """Why it still waits, or None."""
        event, scope = entry.event, key.scope
        if entry.sent:  # perhaps: by us, or by a process that died over it
            found, absent = await self._look_up(span, event)
            if found is not None:
                await self.journal.record(key, [found])
                return None
            if not absent:
                return self._pause(scope, "the backend could not be asked for an older event")
        elif not await self.journal.mark_sent(key, event.event_id):
            return _ELSEWHERE
        try:
            receipts, held = await self._send(span, scope, [event])
        except JournalError as error:  # what became of it is not noted
            return str(error)
        except MemslotError:
            return None  # refused for good and recorded so; it holds nothing up
        if receipts[0].status != "unknown":
            return held
        if entry.attempts + 1 >= _MAX_UNANSWERED:
            await self.journal.failed(key, [event.event_id], _NO_ANSWER, final=True)
            return None
        return self._pause(scope, "an older event got no answer")

    async def _send(
        self, span: Span, scope: MemoryScope, events: Sequence[MemoryEvent]
    ) -> tuple[list[WriteReceipt], str | None]:
        """Receipts, and why some of the events wait; what the backend refused for good is raised."""
        try:
            if len(events) == 1:
                receipts = await super().write(span, events[0])
            else:
                receipts = await super().write_all(span, events)
            stored = tuple(receipt for receipt in receipts if receipt.status != "skipped_read_only")
            if len(stored) < len(receipts):  # by a slot behind this one, or a process it is attached to
                error = BackendUnavailable("the memory behind it is read-only", sent=False)
                error.receipts = stored
                raise error
        except MemslotError as error:
            return await self._kept_back(scope, events, error)
        try:
            await self.journal.record(self._key(scope), receipts)
        except JournalError as error:  # costs a warning, not what was written
            why = f"{error}; what was written may be asked for and sent again"
            warned = [each.model_copy(update={"warnings": (*each.warnings, why)}) for each in receipts]
            return warned, why
        self._pauses.pop(scope, None)
        return receipts, None

    async def _kept_back(
        self, scope: MemoryScope, events: Sequence[MemoryEvent], error: MemslotError
    ) -> tuple[list[WriteReceipt], str]:
        """A delivery failed: receipts of what is stored, ``queued`` for what goes out later, and why."""
        key = self._key(scope)
        stored = {receipt.event_id: receipt for receipt in error.receipts}
        await self.journal.record(key, list(stored.values()))
        left = [event.event_id for event in events if event.event_id not in stored]
        final = isinstance(error, _FINAL)
        # Of a batch, only the first event without a receipt is known to be the one refused.
        refused, later = (left[:1], left[1:]) if final else ([], left)
        await self.journal.failed(key, refused, type(error).__name__, final=True)
        await self.journal.failed(key, later, type(error).__name__, final=False)
        if final:
            raise error
        held = self._pause(scope, str(error) or type(error).__name__)
        return [stored.get(event.event_id) or _kept(event.event_id, held) for event in events], held

    def _pause(self, scope: MemoryScope, why: str) -> str:
        _, pause = self._pauses.get(scope, (0.0, _FIRST_PAUSE_S))
        self._pauses[scope] = (time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE_S))
        return why


def _earlier(entry: JournalEntry) -> WriteReceipt:
    warning = "recorded before; it was not sent again"
    # One that was taken over from an export has no receipt.
    of_export = {"event_id": entry.event.event_id, "status": entry.status}
    receipt = entry.receipt or WriteReceipt.model_validate(of_export)
    return receipt.model_copy(update={"warnings": (*receipt.warnings, warning)})


def _kept(event_id: str, why: str) -> WriteReceipt:
    warning = f"kept in the journal, to be delivered later: {why}"
    return WriteReceipt(event_id=event_id, status="queued", warnings=(warning,))
