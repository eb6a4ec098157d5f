"""A shadow is a memory beside the primary, with a separate slot. Its failures do not leave this module.

Its writes wait in the outbox and outlive the process. Its questions wait only in this process. One worker
carries out both, one scope at a time, and asks a question after the writes before it have arrived.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
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
from memory.adapter.stores import Entry, Lane, Outbox, RecentKeys, Tables, Verdict, scope_key, scope_of
from memory.backends.mirror.shadow_log import ShadowLog, differences

log = logging.getLogger("memslot.mirror")
KIND = "mirror"
TABLES = Tables(
    "mirror",
    1,
    """
CREATE TABLE IF NOT EXISTS mirror_shadows (
    shadow TEXT NOT NULL,
    scope TEXT NOT NULL,
    unlike TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (shadow, scope)
);
""",
)
_TELL = (
    "INSERT INTO mirror_shadows (shadow, scope, unlike) VALUES (?, ?, ?) "
    "ON CONFLICT (shadow, scope) DO UPDATE SET unlike = excluded.unlike"
)
_RESET, _NO_EVENT = "reset_scope", "null"
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)
_MAX_QUESTIONS = 100  # limit of waiting questions; older ones are dropped


class _Question(NamedTuple):
    scope: MemoryScope
    ask: Callable[[], Awaitable[None]]


class Shadow:
    """One memory beside the primary, behind its own slot.

    Args:
        name: distinguishes it from the mirror's other shadows.
        adapter: the memory.
        outbox: of the kind :data:`KIND`, over a store with :data:`TABLES`.
        log: receives its traces and differences.
        services: further arguments of its slot.
    """

    def __init__(
        self, name: str, adapter: MemoryAdapter, outbox: Outbox, log: ShadowLog, **services: Any
    ) -> None:
        self.name = name
        self.adapter = adapter
        self.slot = MemorySlot(adapter, trace_sink=self, **services)
        self.counts: Counter[str] = Counter()  # calls: written, compared, failed
        self._outbox = outbox
        self._log = log
        self._unlike: dict[MemoryScope, str] = {}  # by known scope: why it differs, or ""
        self._new: set[MemoryScope] = set()  # scopes that began in this process, until their first comparison
        self._known: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()  # writes it received
        self._questions: deque[_Question] = deque(maxlen=_MAX_QUESTIONS)
        self._todo: dict[MemoryScope, None] = {}  # scopes to serve, in order
        self._background = ShieldedCalls()
        self._loaded = self._held = self._ended = False
        self._running: anyio.CancelScope | None = None

    def emit(self, trace: Trace) -> None:
        self._log.write("call", self.name, trace.model_dump(mode="json"))

    async def start(self) -> None:
        """Continue with the writes that an earlier process left."""
        await self._load()
        self._look_at(*await self._waiting())

    async def _load(self) -> None:
        if not self._loaded:
            told = "SELECT scope, unlike FROM mirror_shadows WHERE shadow = ?"
            rows = await self._outbox.store.run(
                lambda db: db.execute(told, (self.name,)).fetchall(), writes=False
            )
            self._unlike = {scope_of(key): why for key, why in rows} | self._unlike
            self._loaded = True

    def _lane(self, scope: MemoryScope) -> Lane:
        return Lane(self.name, scope_key(scope))

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
        scopes = dict.fromkeys(event.scope for event in fresh)
        try:
            await self._load()
            begun = scopes.keys() - self._unlike.keys()

            def insert(db: Any) -> None:
                for scope in begun:
                    db.execute(_TELL, (self.name, scope_key(scope), ""))
                for event in fresh:
                    self._outbox.insert(db, self._lane(event.scope), event.event_id, event.model_dump_json())

            await self._outbox.store.run(insert)
        except StoreError as error:  # the primary has stored them anyway
            self._count_failure(error)
            self._unlike.update(dict.fromkeys(scopes, "a write for it could not be kept"))
            return
        self._new |= begun
        self._unlike.update(dict.fromkeys(begun, ""))
        self._look_at(*scopes)

    async def ask(self, request: RetrieveRequest, primary: RetrieveResult, latency_ms: float) -> None:
        """Ask the same question, and log how the answer differs."""

        async def compare() -> None:
            details: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "scope": request.scope.label}
            answer = await self.slot.retrieve(request)
            details |= {"session_id": request.session_id, "primary_ms": latency_ms}
            details |= {"latency_ms": answer.trace.latency_ms, "tokens": answer.trace.token_count}
            details |= differences(request, primary.entries, answer.entries)
            self._log.write("difference", self.name, details)
            self.counts["compared"] += 1

        try:
            await self._look_for_a_past(request.scope, primary.entries)
        except StoreError as error:  # the primary has answered anyway
            self._count_failure(error)
        self._questions.append(_Question(request.scope, compare))
        self._look_at(request.scope)

    async def _look_for_a_past(self, scope: MemoryScope, entries: Iterable[ContextEntry]) -> None:
        """Mark the scope if the primary returns memory from before the mirror, which the shadow lacks."""
        await self._load()
        found = list(entries)
        if not found or (scope in self._unlike and scope not in self._new):
            return
        events = {event_id for entry in found for event_id in entry.event_ids}
        told = all((scope, event_id) in self._known for event_id in events)
        if scope not in self._new or not told:
            await self.differs(scope, "it was opened over a memory that the primary had already")
        self._new.discard(scope)

    async def reset(self, scope: MemoryScope, within_s: float) -> str | None:
        """Clear a scope and drop its waiting calls. Returns why that failed, or None.

        Until a reset succeeds, no process writes to the scope or compares it.
        """
        lane = self._lane(scope)

        def replace(db: Any) -> None:
            db.execute("DELETE FROM outbox WHERE kind = ? AND destination = ? AND scope = ?", (KIND, *lane))
            self._outbox.put(db, lane, f"{_RESET}-{uuid4().hex}", _NO_EVENT)

        await self._outbox.store.run(replace)
        self._questions = deque((each for each in self._questions if each.scope != scope), _MAX_QUESTIONS)
        self._known.discard_where(lambda key: key[0] == scope)
        self._new.discard(scope)
        why: str | None = "it did not come to it"
        with anyio.move_on_after(within_s):
            why = await self._deliver(scope, within_s)
        return why

    async def set_mode(self, mode: AdapterMode, within_s: float) -> None:
        """Hold writes while read-only.

        Before the switch, waiting writes have ``within_s`` seconds to arrive.
        """
        if mode.read_only:
            await self.drained(within_s)
        self._held = mode.read_only
        try:
            with anyio.move_on_after(within_s):
                await self.slot.set_mode(mode)
        except MemslotError as error:
            self._count_failure(error)
        self._look_at(*await self._waiting())

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
                if not await self.drained(within_s):
                    behind = "shadow %s was closed %d calls behind; its writes wait for the next start"
                    log.warning(behind, self.name, await self.behind())
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
                except Exception as error:  # an error in one scope must not stop the others
                    self._count_failure(error)

    async def _serve(self, scope: MemoryScope) -> None:
        """Deliver a scope's waiting writes, then ask its questions."""
        if scope in await self._waiting() and (self._held or await self._deliver(scope)):
            return  # questions wait for the writes before them
        for question in [question for question in self._questions if question.scope == scope]:
            if question in self._questions:
                self._questions.remove(question)
                await self.slot.delivery.set_up(scope)
                await question.ask()

    async def _deliver(self, scope: MemoryScope, within_s: float = 0.0) -> str | None:
        """Send a scope's waiting writes. Returns why some still wait, or None."""
        async with self._outbox.leasing(self._lane(scope), within_s) as lease:
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
                status = await self._reset(scope)
            else:
                await self.slot.delivery.set_up(scope)
                status = await self._write(entry)
        except MemslotError as error:
            self._count_failure(error)
            why = type(error).__name__
            if is_reset or not isinstance(error, _FINAL):
                return Verdict("waiting", why, why)
            await self.differs(scope, "record_event failed")
            return Verdict("aside", error=why)
        if status == "skipped_read_only":
            return Verdict("held", "it is read-only")
        if status == "unknown":
            await self.differs(scope, "a write without an answer may be missing")
        self.counts["written"] += 1
        return Verdict("committed")

    async def _write(self, entry: Entry) -> str:
        event, delivery = MemoryEvent.model_validate_json(entry.payload), self.slot.delivery
        if entry.sent and delivery.can_look_up and await delivery.find_event(event) is not None:
            return "committed"
        return (await self.slot.record_event(event)).status

    async def _reset(self, scope: MemoryScope) -> str:
        with suppress(MemslotError):  # a broken scope may fail its setup, and the reset repairs it
            await self.slot.setup_scope(scope)
        if not (await self.slot.reset_scope(scope)).verified:
            raise MemslotError("it could not show that nothing is left")
        await self._tell(scope, "")
        return "committed"

    async def differs(self, scope: MemoryScope, why: str) -> None:
        """Note that the shadow's memory of a scope differs from the primary's, until a reset."""
        if not self._unlike.get(scope):
            await self._tell(scope, why)

    async def _tell(self, scope: MemoryScope, why: str) -> None:
        row = (self.name, scope_key(scope), why)
        await self._outbox.store.run(lambda db: db.execute(_TELL, row))
        self._unlike[scope] = why

    def _count_failure(self, error: Exception) -> None:
        self.counts["failed"] += 1
        if self.counts["failed"] == 1:
            log.warning("shadow %s failed (%s); health counts further ones", self.name, type(error).__name__)

    async def state(self) -> dict[str, Any]:
        """Figures for health."""
        unlike = sum(map(bool, self._unlike.values()))
        return {**dict(self.counts), "behind": await self.behind(), "unlike_scopes": unlike}

    async def warnings(self) -> list[str]:
        """Reasons why its answers do not compare fairly, or why it may hold erased memories."""
        await self.start()
        found = []
        resets = "SELECT count(*) FROM outbox WHERE kind = ? AND destination = ? AND key LIKE ?"
        row = (KIND, self.name, f"{_RESET}-%")
        [unreset] = await self._outbox.store.run(lambda db: db.execute(resets, row).fetchone(), writes=False)
        if unreset:
            found.append(f"{quantity(unreset, 'scopes')} could not be reset, and it may hold what was erased")
        if reasons := [why for why in self._unlike.values() if why]:
            why = ", ".join(sorted(set(reasons)))
            found.append(f"its memory of {quantity(len(reasons), 'scopes')} is not the primary's: {why}")
        found += (await self._outbox.trouble()).warnings()
        if self._log.lost:
            found.append(f"{quantity(self._log.lost, 'lines')} of the log could not be written")
        return [f"shadow {self.name}: {warning}" for warning in found]
