"""A shadow is a memory beside the primary, with a separate slot. Its failures do not leave this module.

Its writes wait in the outbox and outlive the process. Its questions wait only in this process. One worker
carries out both, one scope at a time, and asks a question after the writes before it have arrived.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from memory import (
    AdapterMode,
    CapabilityNotSupported,
    InputError,
    MemoryAdapter,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    MemslotError,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
    Trace,
)
from memory.adapter import BackendRejected, ContextEntry, ShieldedCalls, StoreError, quantity
from memory.adapter.stores import Entry, Lane, Outbox, RecentKeys, Verdict, scope_key, scope_of

KIND = "mirror"
_RESET, _NO_EVENT = "reset_scope", "null"
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
_MAX_QUESTIONS = 100  # limit of waiting questions; older ones are dropped


class Shadow:
    """One memory beside the primary, behind its own slot.

    Args:
        name: distinguishes it from the mirror's other shadows.
        adapter: the memory.
        outbox: of the kind :data:`KIND`.
        log: a file for its traces and differences, one JSON object a line.
        services: further arguments of its slot.
    """

    def __init__(
        self, name: str, adapter: MemoryAdapter, outbox: Outbox, log: Path | None, **services: Any
    ) -> None:
        self.name = name
        self.slot = MemorySlot(adapter, trace_sink=self, **services)
        self.adapter = adapter
        self.counts: Counter[str] = Counter()  # calls: written, compared, failed
        self._outbox = outbox
        self._log = log
        self._known: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()  # writes it received
        self._questions: deque[tuple[MemoryScope, Callable[[], Awaitable[None]]]] = deque(
            maxlen=_MAX_QUESTIONS
        )
        self._todo: dict[MemoryScope, None] = {}  # scopes to serve, in order
        self._background = ShieldedCalls()
        self._held = self._ended = False
        self._running: anyio.CancelScope | None = None

    def emit(self, trace: Trace) -> None:
        self._write_line("call", trace.model_dump(mode="json"))

    def _write_line(self, kind: str, details: dict[str, Any]) -> None:
        if self._log is None:
            return
        line = json.dumps({"kind": kind, "shadow": self.name, **details}, ensure_ascii=False)
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            self.counts["unlogged"] += 1

    async def start(self) -> None:
        """Continue with the writes that an earlier process left."""
        self._look_at(*await self._waiting())

    async def _waiting(self) -> dict[MemoryScope, int]:
        """The number of waiting writes by scope."""
        counts = await self._outbox.counts()
        return {
            scope_of(lane.scope): count for lane, count in counts.items() if lane.destination == self.name
        }

    async def behind(self) -> int:
        """The number of waiting calls."""
        return sum((await self._waiting()).values()) + len(self._questions)

    async def keep(self, events: Iterable[MemoryEvent]) -> None:
        """Queue events that the primary has stored, or may have. Events already received are left out."""
        fresh = [event for event in events if self._known.add((event.scope, event.event_id))]

        def insert(db: Any) -> None:
            for event in fresh:
                lane = Lane(self.name, scope_key(event.scope))
                self._outbox.insert(db, lane, event.event_id, event.model_dump_json())

        try:
            await self._outbox.store.run(insert)
        except StoreError:  # the primary has stored them anyway
            self.counts["failed"] += len(fresh)
            self.counts["lost"] += len(fresh)
        self._look_at(*(event.scope for event in fresh))

    def ask(self, request: RetrieveRequest, primary: RetrieveResult, latency_ms: float) -> None:
        """Ask the same question, and log how the answer differs."""

        async def compare() -> None:
            answer = await self.slot.retrieve(request)
            details = {
                "at": datetime.now(UTC).isoformat(),
                "scope": request.scope.label,
                "session_id": request.session_id,
                "primary_ms": latency_ms,
                "latency_ms": answer.trace.latency_ms,
                "tokens": answer.trace.token_count,
                **differences(request, primary.entries, answer.entries),
            }
            self._write_line("difference", details)
            self.counts["compared"] += 1

        self._questions.append((request.scope, compare))
        self._look_at(request.scope)

    async def reset(self, scope: MemoryScope, within_s: float) -> str | None:
        """Clear a scope and drop its waiting calls. Returns why that failed, or None.

        Until a reset succeeds, no process writes to the scope or compares it.
        """
        lane = Lane(self.name, scope_key(scope))

        def replace(db: Any) -> None:
            db.execute("DELETE FROM outbox WHERE kind = ? AND destination = ? AND scope = ?", (KIND, *lane))
            self._outbox.put(db, lane, f"{_RESET}-{uuid4().hex}", _NO_EVENT)

        why: str | None = "it did not come to it"
        try:
            await self._outbox.store.run(replace)
            self._questions = deque((each for each in self._questions if each[0] != scope), _MAX_QUESTIONS)
            self._known.discard_where(lambda key: key[0] == scope)
            with anyio.move_on_after(within_s):
                why = await self._deliver(scope, within_s)
        except MemslotError as error:
            why = type(error).__name__
        return why

    async def set_mode(self, mode: AdapterMode, within_s: float) -> None:
        """Hold writes while read-only. Before the switch, waiting writes have ``within_s`` seconds to arrive."""
        try:
            if mode.read_only:
                await self.drained(within_s)
            self._held = mode.read_only
            with anyio.move_on_after(within_s):
                await self.slot.set_mode(mode)
            self._look_at(*await self._waiting())
        except MemslotError:
            self.counts["failed"] += 1

    async def drained(self, within_s: float) -> bool:
        """Wait until all permitted work is done. Returns whether nothing waits any more."""
        await self.start()
        with anyio.move_on_after(within_s):
            while not self._held and (self._todo or self._background.busy(self.name)):
                self._look_at()
                await self._background.idle(self.name)
        return not await self.behind()

    async def aclose(self, within_s: float) -> None:
        """Deliver waiting calls for ``within_s`` seconds; the next process delivers the rest. Idempotent."""
        if not self._ended:
            with suppress(MemslotError):  # health reports a store that cannot be used
                await self.drained(within_s)
            self._ended = True
            if self._running is not None:
                self._running.cancel()
            with anyio.move_on_after(within_s):
                await self._background.idle()
        await self.slot.aclose()

    def _look_at(self, *scopes: MemoryScope) -> None:
        self._todo.update(dict.fromkeys(scopes))
        if self._todo and not self._ended:
            self._background.begin(self.name, self._run)

    async def _run(self) -> None:
        with anyio.CancelScope() as self._running:
            while self._todo and not self._ended:
                scope = next(iter(self._todo))
                del self._todo[scope]
                try:
                    await self._serve(scope)
                except Exception:  # an error in one scope must not stop the others
                    self.counts["failed"] += 1

    async def _serve(self, scope: MemoryScope) -> None:
        """Deliver a scope's waiting writes, then ask its questions."""
        if scope in await self._waiting() and (self._held or await self._deliver(scope)):
            return  # questions wait for the writes before them
        for question in [question for question in self._questions if question[0] == scope]:
            if question in self._questions:
                self._questions.remove(question)
                await self.slot.delivery.set_up(scope)
                await question[1]()

    async def _deliver(self, scope: MemoryScope, within_s: float = 0.0) -> str | None:
        """Send a scope's waiting writes. Returns why some still wait, or None."""
        async with self._outbox.leasing(Lane(self.name, scope_key(scope)), within_s) as lease:
            if lease is None:
                return "another process delivers to it"
            return await self._outbox.deliver(lease, self._send)

    async def _send(self, entry: Entry) -> Verdict:
        """Make one attempt for an entry of the outbox."""
        scope, is_reset = scope_of(entry.scope), entry.payload == _NO_EVENT
        if self._held or self._ended:
            return Verdict("held", "it is read-only or closed")
        try:
            if self.slot.read_only:  # an earlier switch back failed
                await self.slot.set_mode(AdapterMode(read_only=False))
            if is_reset:
                return await self._reset(scope)
            await self.slot.delivery.set_up(scope)
            return await self._write(entry)
        except MemslotError as error:
            self.counts["failed"] += 1
            why = type(error).__name__
            final = isinstance(error, _FINAL) and not is_reset
            return Verdict("aside" if final else "waiting", why, why)

    async def _write(self, entry: Entry) -> Verdict:
        event, delivery = MemoryEvent.model_validate_json(entry.payload), self.slot.delivery
        if entry.sent and delivery.can_look_up and await delivery.find_event(event) is not None:
            return Verdict("committed")
        status = (await self.slot.record_event(event)).status
        if status == "skipped_read_only":
            return Verdict("held", "it is read-only")
        if status == "unknown":
            return Verdict("aside", error="NoAnswer")
        self.counts["written"] += 1
        return Verdict("committed")

    async def _reset(self, scope: MemoryScope) -> Verdict:
        with suppress(MemslotError):  # a broken scope may fail its setup, and the reset repairs it
            await self.slot.setup_scope(scope)
        if (await self.slot.reset_scope(scope)).verified:
            return Verdict("committed")
        why = "it could not show that nothing is left"
        return Verdict("waiting", why, "NotVerified")

    async def warnings(self) -> list[str]:
        """Reasons why its answers do not compare fairly. The slot names the entries that were set aside."""
        await self.start()
        found = []
        resets = "SELECT count(*) FROM outbox WHERE kind = ? AND destination = ? AND key LIKE ?"
        row = (KIND, self.name, f"{_RESET}-%")
        [unreset] = await self._outbox.store.run(lambda db: db.execute(resets, row).fetchone(), writes=False)
        if unreset:
            found.append(f"{quantity(unreset, 'scopes')} could not be reset, and it may hold what was erased")
        if lost := self.counts["lost"]:
            found.append(f"it lacks {quantity(lost, 'writes')} that could not be kept for it")
        if unlogged := self.counts["unlogged"]:
            found.append(f"{quantity(unlogged, 'lines')} of the log could not be written")
        return [f"shadow {self.name}: {warning}" for warning in found]


def differences(
    request: RetrieveRequest, primary: Iterable[ContextEntry], shadow: Iterable[ContextEntry]
) -> dict[str, Any]:
    """Compare two answers in numbers. ``same_events`` is None if the entries of one have no event ids."""
    own = request.session_id if request.exclude_session else None
    ours = [entry for entry in primary if own is None or entry.session_id != own]
    theirs = list(shadow)
    texts = [Counter(" ".join(entry.text.split()).casefold() for entry in part) for part in (ours, theirs)]
    events = [{event_id for entry in part for event_id in entry.event_ids} for part in (ours, theirs)]
    known = all(found or not part for found, part in zip(events, (ours, theirs), strict=True))
    return {
        "primary": len(ours),
        "shadow": len(theirs),
        "same_text": (texts[0] & texts[1]).total(),
        "same_events": len(events[0] & events[1]) if known else None,
    }
