"""A shadow: a slot of its own, fed from a bounded queue, whose failures stay in here."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory import (
    AdapterMode,
    LifecycleError,
    MemoryAdapter,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    MemslotError,
    ReadOnlyError,
    RetrieveRequest,
    RetrieveResult,
    Trace,
)
from memory.adapter import BoundedQueue, ContextEntry, RecentKeys, ShieldedCalls, replace_file

_CUT_OFF = "a reset did not end as it should, and the primary may have kept what the shadow lost"


class ShadowFacts:
    """By the labels of scopes, in a JSON file that is written before anybody relies on it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.unlike: dict[str, str] = {}  # why its memory is not the primary's
        self.unreset: set[str] = set()  # the primary was told to, the shadow may not have done it
        self.problem = ""  # why the file cannot be relied on
        self._primary_unsure: set[str] = set()  # of these, the primary's own reset is not known to have ended
        self._begun: set[str] = set()  # scopes the shadow has been told of, in whatever process
        self._open: set[str] = set()  # scopes this process has written to
        self._load()

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            stored: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            self.unlike, self.unreset = dict(stored["unlike"]), set(stored["unreset"])
            self._begun, left_open = set(stored["begun"]), set(stored["open"])
            self._primary_unsure = set(stored["primary_unsure"])
        except (OSError, ValueError, LookupError, TypeError):
            damaged = f"{self._path.name} is damaged; reset its scopes, or remove the file"
            self.problem = f"what was known of it could not be read: {damaged}"
            self._path = None  # never written over: it may say what must not be forgotten
            return
        for label in left_open:
            self.unlike.setdefault(label, "a process ended before the shadow had everything")
        if left_open:
            self._save()

    def expects(self, scope: MemoryScope) -> None:
        """The primary is about to write: ended before the shadow hears of it, the process leaves it in question."""
        if scope.label not in self._open:
            self._open.add(scope.label)
            self._save()

    def begin(self, scope: MemoryScope) -> bool:
        """A write is on its way to the shadow; whether it is the first that it ever gets of the scope."""
        if first := self.is_new(scope):
            self._begun.add(scope.label)
            self._save()
        return first

    def is_new(self, scope: MemoryScope) -> bool:
        return scope.label not in self._begun

    def diverges(self, scope: MemoryScope, why: str) -> None:
        """From now on its memory of a scope is not the primary's."""
        if scope.label not in self.unlike:
            self.unlike[scope.label] = why
            self._save()

    def reset_begins(self, scope: MemoryScope) -> None:
        """Until :meth:`reset_done` the shadow may hold what was erased."""
        self.unreset.add(scope.label)
        self._primary_unsure.add(scope.label)
        self._save()

    def primary_reset(self, scope: MemoryScope) -> None:
        self._primary_unsure.discard(scope.label)
        self._save()

    def reset_refused(self, scope: MemoryScope) -> None:
        """The primary kept its memory, and so the shadow keeps its own."""
        self.unreset.discard(scope.label)
        self.primary_reset(scope)

    def reset_done(self, scope: MemoryScope) -> None:
        self.unreset.discard(scope.label)
        self.unlike.pop(scope.label, None)
        if scope.label in self._primary_unsure:
            self.unlike[scope.label] = _CUT_OFF
            self._primary_unsure.discard(scope.label)
        self._begun.add(scope.label)
        self._save()

    def closed(self) -> None:
        if self._open:
            self._open.clear()
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        facts = {"unreset": self.unreset, "begun": self._begun, "open": self._open}
        facts["primary_unsure"] = self._primary_unsure
        content = {"unlike": self.unlike, **{name: sorted(labels) for name, labels in facts.items()}}
        try:
            replace_file(self._path, json.dumps(content, ensure_ascii=False))
            self.problem = ""
        except OSError as error:
            self.problem = f"what is known of it could not be kept in {self._path.name} ({error.strerror})"


log = logging.getLogger("memslot.mirror")
_PAUSE_S = 0.05
_LANE = "calls"  # one lane: a question comes after all writes before it
_CLOSED = "it was closed before it had everything"


@dataclass
class ShadowLog:
    """Traces of shadows, and their differences. A line that cannot be written is counted, and harms nothing."""

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
class _Job:
    scope: MemoryScope
    writes: bool
    what: str
    call: Callable[[], Awaitable[object]]


@dataclass(eq=False)
class Shadow:
    """One memory beside the primary, behind the rules of a slot of its own, which gets ``services`` too."""

    name: str
    adapter: MemoryAdapter
    services: InitVar[Mapping[str, Any]]
    max_calls: InitVar[int]  # that may wait or be under way
    log: ShadowLog
    facts: ShadowFacts

    def __post_init__(self, services: Mapping[str, Any], max_calls: int) -> None:
        self.slot = MemorySlot(self.adapter, trace_sink=self, **services)
        self.counts: Counter[str] = Counter()  # calls: written, compared, failed, left_out
        self._jobs: BoundedQueue[str, _Job] = BoundedQueue(max_calls, lambda _: self._work())
        self._known: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()
        self._new: dict[MemoryScope, set[str]] = {}  # scopes begun by this process: the events they were told
        self._background = ShieldedCalls()
        self._held = self._ended = False
        self._running: anyio.CancelScope | None = None

    def emit(self, trace: Trace) -> None:
        self.log.write("call", self.name, trace.model_dump(mode="json"))

    def write(self, scope: MemoryScope, what: str, call: Callable[[], Awaitable[object]]) -> None:
        self._add(_Job(scope, True, what, call))

    def record(self, event: MemoryEvent) -> None:
        """Once: the slot may send the event to the primary again, and so may the host."""
        key = (event.scope, event.event_id)
        if not self._known.add(key):
            return
        if self.facts.begin(event.scope):
            self._new.setdefault(event.scope, set())
        if event.scope in self._new:
            self._new[event.scope].add(event.event_id)

        async def send() -> object:
            try:
                return await self.slot.record_event(event)
            except BaseException:
                self._known.discard(key)
                raise

        self.write(event.scope, "record_event", send)

    def ask(self, request: RetrieveRequest, primary: RetrieveResult, latency_ms: float) -> None:
        self._look_for_a_past(request.scope, primary.entries)

        async def compare() -> None:
            details: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "scope": request.scope.label}
            answer = await self.slot.retrieve(request)
            details |= {"session_id": request.session_id, "primary_ms": latency_ms}
            details |= {"latency_ms": answer.trace.latency_ms, "tokens": answer.trace.token_count}
            details |= differences(request, primary.entries, answer.entries)
            self.log.write("difference", self.name, details)
            self.counts["compared"] += 1

        self._add(_Job(request.scope, False, "retrieve", compare))

    def _look_for_a_past(self, scope: MemoryScope, entries: Iterable[ContextEntry]) -> None:
        """What the primary knows of a scope that the shadow was never told of, is from before the mirror."""
        if not self.facts.is_new(scope) and scope not in self._new:
            return
        known = self._new.get(scope, set())
        if any(not known.issuperset(entry.event_ids) or not known for entry in entries):
            self.facts.diverges(scope, "it was opened over a memory that the primary had already")
            self._new.pop(scope, None)

    async def reset(self, scope: MemoryScope, within_s: float) -> str | None:
        """Clear a scope, and forget what waits for it; why that failed, or None. Until it succeeds, nothing
        more of the scope is written or compared, in this process or a later one."""
        self._jobs.withdraw(lambda _, job: job.scope == scope)
        self._known.discard_where(lambda key: key[0] == scope)
        self._new.pop(scope, None)
        why: list[str | None] = ["it did not come to it"]
        tried = anyio.Event()

        async def clear() -> None:
            try:
                with suppress(MemslotError):  # what cannot be set up may be what is broken, and is reset then
                    await self.slot.setup_scope(scope)
                why[0] = await self._reset(scope)
            except MemslotError as error:
                why[0] = type(error).__name__
            finally:
                tried.set()

        # After the call under way, which may be a write of this scope, and before all others.
        self._jobs.insert_first(_LANE, _Job(scope, True, "reset_scope", clear))
        self._work()
        with anyio.move_on_after(within_s):
            await tried.wait()
        return why[0]

    async def set_mode(self, mode: AdapterMode, within_s: float) -> None:
        """Hold writes while read-only; first, those that wait have a while."""
        if mode.read_only:
            await self.drained(within_s)
            self._held = True
        try:
            with anyio.move_on_after(within_s):
                await self.slot.set_mode(mode)
        except MemslotError as error:
            self._failed(None, error)
        self._held = mode.read_only
        self._work()

    async def drained(self, within_s: float) -> bool:
        """Wait until nothing is left to do that may be done; whether that came in time."""
        with anyio.move_on_after(within_s):
            while not self._held and (len(self._jobs) or self._background.busy(self.name)):
                self._work()
                await self._background.idle()
        return not len(self._jobs)

    @property
    def behind(self) -> int:
        return len(self._jobs)

    async def aclose(self, within_s: float) -> None:
        """Finish what waits, for a while; what is left then is lost, and told. Idempotent."""
        if not self._ended:
            await self.drained(within_s)
            self._ended = True
            self._jobs.close()
            lost = [job for job in self._jobs.withdraw() if job.writes]
            for job in lost:
                self.facts.diverges(job.scope, _CLOSED)
            if lost:
                behind = "shadow %s was closed %d writes behind; its memory lacks them"
                log.warning(behind, self.name, len(lost))
            if self._running is not None:
                self._running.cancel()
            with anyio.move_on_after(_PAUSE_S):
                await self._background.idle()
            if not self._background.busy():  # else the next process finds what this one left undone
                self.facts.closed()
        await self.slot.aclose()

    def _add(self, job: _Job) -> None:
        if not self._jobs.offer(_LANE, job) and not self._ended:
            self.counts["left_out"] += 1
            if job.writes:
                self.facts.diverges(job.scope, "it lagged too far behind")
        self._work()

    def _work(self) -> None:
        if len(self._jobs) and not self._ended:
            self._background.begin(self.name, self._run)

    async def _run(self) -> None:
        with anyio.CancelScope() as self._running:
            # While it is read-only, what would write waits, and so does what comes after it.
            while not self._ended and (
                lease := self._jobs.lease(_LANE, lambda job: not (self._held and job.writes))
            ):
                job = lease.item
                try:
                    status = await self._do(job)
                except ReadOnlyError as error:
                    status = "skipped_read_only" if job.writes else self._failed(job, error)
                except Exception as error:
                    status = self._failed(job, error)
                except BaseException:  # closed: it may be stored or not
                    if job.writes:
                        self.facts.diverges(job.scope, _CLOSED)
                    raise
                if status == "skipped_read_only":
                    lease.put_back()
                    if not self._held:  # a switch back that failed; the other way round it is to wait
                        await anyio.sleep(_PAUSE_S)
                        with suppress(MemslotError):
                            await self.slot.set_mode(AdapterMode(read_only=False))
                    continue
                lease.end()
                if status == "unknown":
                    self.facts.diverges(job.scope, "a write without an answer may be missing")
                elif status != "failed":
                    self.counts["written"] += job.writes

    async def _do(self, job: _Job) -> str | None:
        if job.what == "reset_scope":
            await job.call()
            return None
        async with self.slot.leases.lease(job.scope):
            if job.scope.label in self.facts.unreset and (why := await self._reset(job.scope)):
                raise LifecycleError(f"the scope could not be reset: {why}")
            return getattr(await job.call(), "status", None)

    async def _reset(self, scope: MemoryScope) -> str | None:
        receipt = await self.slot.reset_scope(scope)
        if not receipt.verified:
            return "it could not show that nothing is left"
        self.facts.reset_done(scope)
        self._new[scope] = set()
        return None

    def _failed(self, job: _Job | None, error: Exception) -> str:
        self.counts["failed"] += 1
        if job is not None and job.writes:
            self.facts.diverges(job.scope, f"{job.what} failed")
        if self.counts["failed"] == 1:
            log.warning("shadow %s failed (%s); health counts further ones", self.name, type(error).__name__)
        return "failed"

    def state(self) -> dict[str, Any]:
        return {**dict(self.counts), "behind": self.behind, "unlike_scopes": len(self.facts.unlike)}

    def warnings(self) -> list[str]:
        """What makes its answers no fair comparison, or leaves in it what was erased elsewhere."""
        unreset, unlike = self.facts.unreset, self.facts.unlike
        found = [self.facts.problem] if self.facts.problem else []
        if unreset:
            found.append(f"{len(unreset)} scopes could not be reset, and it may hold what was erased")
        if unlike:
            why = ", ".join(sorted(set(unlike.values())))
            found.append(f"its memory of {len(unlike)} scopes is not the primary's: {why}")
        if self.log.lost:
            found.append(f"{self.log.lost} lines of the log could not be written")
        return [f"shadow {self.name}: {warning}" for warning in found]


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
