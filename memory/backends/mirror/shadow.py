"""A shadow: a slot of its own beside the primary, whose failures stay in here.

Its writes wait in the outbox and outlive the process. Its questions wait in this process alone. One worker carries
both out, a scope at a time, and asks a question once the writes before it have arrived.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory import (
    AdapterMode,
    CapabilityNotSupported,
    InputError,
    MemoryAdapter,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    MemorySlot,
    MemslotError,
    ReadOnlyError,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
    SupportsFeedback,
    Trace,
)
from memory.adapter import BackendRejected, ContextEntry, ShieldedCalls
from memory.adapter.stores import Entry, RecentKeys, Verdict
from memory.backends.mirror.waiting import RESET, ShadowWrites, Write

log = logging.getLogger("memslot.mirror")
_PAUSE_S = 0.05
_FINAL = (BackendRejected, CapabilityNotSupported, InputError, ScopeError)


@dataclass
class ShadowLog:
    """A file of traces of shadows, and of their differences. It counts lines that cannot be written."""

    path: Path | None
    lost: int = 0

    def write(self, kind: str, shadow: str, details: dict[str, Any]) -> None:
        if self.path is None:
            return
        line = json.dumps({"kind": kind, "shadow": shadow, **details}, ensure_ascii=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            self.lost += 1


@dataclass(frozen=True, slots=True)
class _Question:
    scope: MemoryScope
    ask: Callable[[], Awaitable[None]]


@dataclass(eq=False)
class Shadow:
    """One memory beside the primary, behind the rules of a slot of its own.

    Args:
        name: tells it from others of the mirror.
        adapter: the memory.
        services: what its slot gets beside the adapter.
        max_calls: how many calls may wait for it; further ones are left out, and health says so.
        log: takes its traces and differences.
        writes: its waiting writes.
    """

    name: str
    adapter: MemoryAdapter
    services: InitVar[Mapping[str, Any]]
    max_calls: int
    log: ShadowLog
    writes: ShadowWrites

    def __post_init__(self, services: Mapping[str, Any]) -> None:
        self.slot = MemorySlot(self.adapter, trace_sink=self, **services)
        self.counts: Counter[str] = Counter()  # calls: written, compared, failed, left_out
        self._questions: deque[_Question] = deque()
        self._scopes: dict[MemoryScope, None] = {}  # scopes to be looked at, in order
        self._known: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()
        self._new: dict[MemoryScope, set[str]] = {}  # for scopes that this process began: ids of their events
        self._why: dict[MemoryScope, str] = {}  # why the last delivery of a scope stopped
        self._tried: dict[MemoryScope, anyio.Event] = {}  # resets that somebody waits for
        self._background = ShieldedCalls()
        self._held = self._ended = False
        self._running: anyio.CancelScope | None = None

    def emit(self, trace: Trace) -> None:
        self.log.write("call", self.name, trace.model_dump(mode="json"))

    async def start(self) -> None:
        """Go on with what an earlier process left."""
        await self.writes.load()
        self._scopes.update(dict.fromkeys(self.writes.waiting))
        self._work()

    async def set_up(self, scope: MemoryScope) -> None:
        """Set a scope up before its first call, and deliver what waits for it."""
        await self.start()
        self._look_at(scope)

    async def prepare(self, writes: Iterable[Write]) -> list[Write]:
        """Keep writes that the primary is about to get. Returns the writes that the shadow gets, too."""
        await self.writes.load()
        kept: list[Write] = []
        for write in writes:
            if write.operation == "record_event":
                if (write.scope, write.key) in self._known:
                    continue  # the slot may send an event to the primary again, and so may the host
                if self.behind + len(kept) >= self.max_calls:
                    await self._left_out(write.scope)
                    continue
                self._known.add((write.scope, write.key))
                if self.writes.is_new(write.scope):
                    self._new.setdefault(write.scope, set())
                if write.scope in self._new:
                    self._new[write.scope].add(write.key)
            kept.append(write)
        await self.writes.prepare(kept)
        return kept

    async def release(self, writes: Iterable[Write], *, sure: bool = True) -> None:
        """The primary has these writes, or may have them. :meth:`reset` then carries a reset out."""
        writes = list(writes)
        await self.writes.release(writes, sure=sure)
        self._look_at(*(write.scope for write in writes if write.operation != RESET))

    async def drop(self, writes: Iterable[Write]) -> None:
        """The primary certainly does not have these writes."""
        writes = list(writes)
        await self.writes.drop(writes)
        for write in writes:
            self._known.discard((write.scope, write.key))

    async def ask(self, request: RetrieveRequest, primary: RetrieveResult, latency_ms: float) -> None:
        """Ask the same question, and log how the answer differs."""
        await self._look_for_a_past(request.scope, primary.entries)

        async def compare() -> None:
            details: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "scope": request.scope.label}
            answer = await self.slot.retrieve(request)
            details |= {"session_id": request.session_id, "primary_ms": latency_ms}
            details |= {"latency_ms": answer.trace.latency_ms, "tokens": answer.trace.token_count}
            details |= differences(request, primary.entries, answer.entries)
            self.log.write("difference", self.name, details)
            self.counts["compared"] += 1

        if self.behind >= self.max_calls:
            self.counts["left_out"] += 1
        elif not self._ended:
            self._questions.append(_Question(request.scope, compare))
            self._look_at(request.scope)

    async def _look_for_a_past(self, scope: MemoryScope, entries: Iterable[ContextEntry]) -> None:
        """Rows of the primary that the shadow was never told of come from before the mirror."""
        await self.writes.load()
        if not self.writes.is_new(scope) and scope not in self._new:
            return
        known = self._new.get(scope, set())
        if any(not known.issuperset(entry.event_ids) or not known for entry in entries):
            await self.writes.diverges(scope, "it was opened over a memory that the primary had already")
            self._new.pop(scope, None)

    async def reset(self, write: Write, within_s: float) -> str | None:
        """Clear a scope, and forget what waits for it; why that failed, or None.

        Until it succeeds, nothing more of the scope is written or compared, in this process or a later one.
        """
        scope = write.scope
        await self.writes.withdraw(scope, but=write.key)
        self._questions = deque(question for question in self._questions if question.scope != scope)
        self._known.discard_where(lambda key: key[0] == scope)
        self._new.pop(scope, None)
        self._why[scope] = "it did not come to it"
        tried = self._tried[scope] = anyio.Event()
        self._scopes = {scope: None, **self._scopes}
        self._work()
        with anyio.move_on_after(within_s):
            await tried.wait()
        return self._why[scope] if await self.writes.count(scope) else None

    async def set_mode(self, mode: AdapterMode, within_s: float) -> None:
        """Hold writes while read-only. Writes that wait may be delivered first, for a while."""
        if mode.read_only:
            await self.drained(within_s)
            self._held = True
        try:
            with anyio.move_on_after(within_s):
                await self.slot.set_mode(mode)
        except MemslotError as error:
            self._count_failure(error)
        self._held = mode.read_only
        self._look_at(*self.writes.waiting)

    async def drained(self, within_s: float) -> bool:
        """Wait until nothing is left to do that may be done; whether that came in time."""
        await self.start()
        with anyio.move_on_after(within_s):
            while not self._held and (self._scopes or self._background.busy(self.name)):
                self._work()
                await self._background.idle(self.name)
        return not self.behind

    @property
    def behind(self) -> int:
        """How many calls wait."""
        return sum(self.writes.waiting.values()) + len(self._questions)

    async def aclose(self, within_s: float) -> None:
        """Finish what waits, for a while; the next process delivers the rest. Idempotent."""
        if not self._ended:
            with suppress(MemslotError):  # health reports a store that cannot be used
                await self.drained(within_s)
            self._ended = True
            self._questions.clear()
            if self.behind:
                behind = "shadow %s was closed %d writes behind; they wait for the next start"
                log.warning(behind, self.name, self.behind)
            if self._running is not None:
                self._running.cancel()
            with anyio.move_on_after(_PAUSE_S):
                await self._background.idle()
        await self.slot.aclose()

    async def _left_out(self, scope: MemoryScope) -> None:
        self.counts["left_out"] += 1
        await self.writes.diverges(scope, "it lagged too far behind")

    def _look_at(self, *scopes: MemoryScope) -> None:
        self._scopes.update(dict.fromkeys(scopes))
        self._work()

    def _work(self) -> None:
        if self._scopes and not self._ended:
            self._background.begin(self.name, self._run)

    async def _run(self) -> None:
        with anyio.CancelScope() as self._running:
            while self._scopes and not self._ended:
                scope = next(iter(self._scopes))
                del self._scopes[scope]
                try:
                    await self._serve(scope)
                except Exception as error:  # one scope ends the work of no other
                    self._count_failure(error)
                if scope in self._tried and scope not in self._scopes:
                    self._tried.pop(scope).set()

    async def _serve(self, scope: MemoryScope) -> None:
        """Deliver what waits for a scope, then ask what was asked after it."""
        outbox = self.writes.outbox
        if scope in self.writes.waiting and not self._held:
            async with outbox.leasing(self.writes.lane(scope)) as lease:
                why = await outbox.deliver(lease, self._send) if lease else "another process delivers to it"
            self._why[scope] = why or ""
            await self.writes.count(scope)
        if scope in self.writes.waiting:
            return  # questions come after the writes before them
        for question in [question for question in self._questions if question.scope == scope]:
            if question in self._questions:
                self._questions.remove(question)
                async with self.slot.delivery.leases.lease(scope):
                    await question.ask()

    async def _send(self, entry: Entry) -> Verdict:
        """One attempt of the outbox."""
        given = json.loads(entry.payload)
        operation = given.pop("operation")
        write = _READERS[operation](given)
        if self._held or self._ended or not await self.writes.stands(entry):
            return Verdict("held", "it is read-only, closed or reset")
        try:
            status = await self._carry_out(operation, write, entry)
        except ReadOnlyError:
            status = "skipped_read_only"
        except MemslotError as error:
            self._count_failure(error)
            if operation == RESET or not isinstance(error, _FINAL):
                return Verdict("waiting", type(error).__name__, type(error).__name__)
            await self.writes.diverges(write.scope, f"{operation} failed")
            return Verdict("aside", error=type(error).__name__)
        if status == "skipped_read_only":
            await self._switch_back()
            return Verdict("held", "it is read-only")
        if status == "unknown":
            await self.writes.diverges(write.scope, "a write without an answer may be missing")
        self.counts["written"] += 1
        return Verdict("committed")

    async def _carry_out(self, operation: str, write: Any, entry: Entry) -> str:
        if operation == RESET:
            return await self._reset(write.scope, entry)
        async with self.slot.delivery.leases.lease(write.scope):
            if isinstance(write, MemoryFeedback):
                taken = self.slot.capability(SupportsFeedback)
                if taken is None:
                    raise CapabilityNotSupported("it takes no feedback")
                return (await taken.apply_feedback(write)).status
            if (
                entry.sent
                and self.slot.delivery.can_look_up
                and await self.slot.delivery.find_event(write) is not None
            ):
                return "committed"
            return (await self.slot.record_event(write)).status

    async def _reset(self, scope: MemoryScope, entry: Entry) -> str:
        with suppress(MemslotError):  # what cannot be set up may be what is broken, and is reset then
            await self.slot.setup_scope(scope)
        receipt = await self.slot.reset_scope(scope)
        if not receipt.verified:
            raise MemslotError("it could not show that nothing is left")
        await self.writes.was_reset(scope, entry.outcome)
        self._new[scope] = set()
        return "committed"

    async def _switch_back(self) -> None:
        """The mirror is not read-only, and the shadow is: a switch back has failed."""
        await anyio.sleep(_PAUSE_S)
        with suppress(MemslotError):
            await self.slot.set_mode(AdapterMode(read_only=False))
            self._look_at(*self.writes.waiting)

    def _count_failure(self, error: Exception) -> None:
        self.counts["failed"] += 1
        if self.counts["failed"] == 1:
            log.warning("shadow %s failed (%s); health counts further ones", self.name, type(error).__name__)

    def state(self) -> dict[str, Any]:
        """Figures for health."""
        return {**dict(self.counts), "behind": self.behind, "unlike_scopes": len(self.writes.unlike)}

    async def warnings(self) -> list[str]:
        """Reasons why its answers are no fair comparison, or why it may hold erased memories."""
        await self.start()
        found = []
        if unreset := await self.writes.resets():
            found.append(f"{unreset} scopes could not be reset, and it may hold what was erased")
        if unlike := self.writes.unlike:
            why = ", ".join(sorted(set(unlike.values())))
            found.append(f"its memory of {len(unlike)} scopes is not the primary's: {why}")
        found += (await self.writes.outbox.trouble()).warnings()
        if self.log.lost:
            found.append(f"{self.log.lost} lines of the log could not be written")
        return [f"shadow {self.name}: {warning}" for warning in found]


@dataclass(frozen=True, slots=True)
class _Reset:
    scope: MemoryScope


_READERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "record_event": lambda given: MemoryEvent.model_validate(given["event"]),
    "apply_feedback": lambda given: MemoryFeedback.model_validate(given["feedback"]),
    RESET: lambda given: _Reset(MemoryScope.model_validate(given["scope"])),
}


def differences(
    request: RetrieveRequest, primary: Iterable[ContextEntry], shadow: Iterable[ContextEntry]
) -> dict[str, Any]:
    """How two answers differ, in numbers; ``same_events`` is None where one of the two does not tell its own."""
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
