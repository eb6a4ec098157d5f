"""A shadow: a slot of its own, fed from a bounded queue, whose failures stay in here."""

from __future__ import annotations

import json
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory import (
    AdapterMode,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    MemslotError,
    ReadOnlyError,
    RetrieveRequest,
    RetrieveResult,
    Trace,
)
from memory.adapter import ContextEntry, LifecycleError, MemoryAdapter, ShieldedCalls

log = logging.getLogger("memslot.mirror")
_PAUSE_S = 0.05
_REMEMBERED = 10_000  # event ids; far more than can still be handed over twice


class ShadowLog:
    """Where the traces of shadows and their differences go; without a path, nowhere.

    Args:
        path: a file to append to; one that cannot be written is counted, and harms nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lost = 0

    def write(self, kind: str, shadow: str, told: dict[str, Any]) -> None:
        """Append one line."""
        if self._path is None:
            return
        line = json.dumps({"kind": kind, "shadow": shadow, **told}, ensure_ascii=False)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            self.lost += 1


@dataclass(frozen=True, slots=True)
class _Job:
    """One call for a shadow. Those that write wait while it is read-only."""

    scope: MemoryScope
    writes: bool
    what: str
    call: Callable[[], Awaitable[object]]


class Shadow:
    """One memory beside the primary.

    Args:
        name: its own, for health and log.
        adapter: what it is.
        make_slot: the adapter behind the slot's rules, tracing to the shadow; closed with it.
        most: calls that may wait.
        log: where its traces and differences go.

    Attributes:
        counts: calls by what became of them: ``written``, ``compared``, ``failed``, ``left_out``.
        unlike: scopes whose memory lacks something that the primary has, or has something it lacks.
    """

    def __init__(
        self,
        name: str,
        adapter: MemoryAdapter,
        make_slot: Callable[[Shadow], MemorySlot],
        most: int,
        log: ShadowLog,
    ) -> None:
        self.name = name
        self.adapter = adapter
        self.slot = make_slot(self)
        self.log = log
        self.counts: Counter[str] = Counter()
        self.unlike: dict[MemoryScope, str] = {}
        self._most = most
        self._jobs: deque[_Job] = deque()
        self._known: OrderedDict[tuple[MemoryScope, str], None] = OrderedDict()
        self._unreset: set[MemoryScope] = set()
        self._background = ShieldedCalls()
        self._held = self._ended = False
        self._running: anyio.CancelScope | None = None

    def emit(self, trace: Trace) -> None:
        """A trace of its slot."""
        self.log.write("call", self.name, trace.model_dump(mode="json"))

    # -- what is asked of it ----------------------------------------------------------------------------

    def write(self, scope: MemoryScope, what: str, call: Callable[[], Awaitable[object]]) -> None:
        """Have it write, once its turn has come."""
        self._add(_Job(scope, True, what, call))

    def record(self, event: MemoryEvent) -> None:
        """Have it record an event, once: the slot may send it to the primary again, and so may the host."""
        key = (event.scope, event.event_id)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

        async def send() -> object:
            try:
                return await self.slot.record_event(event)
            except BaseException:
                self._known.pop(key, None)
                raise

        self.write(event.scope, "record_event", send)

    def ask(self, request: RetrieveRequest, primary: RetrieveResult, latency_ms: float) -> None:
        """Ask it what the primary was asked, after the writes that came before, and compare."""

        async def compare() -> None:
            told = {"at": datetime.now(UTC).isoformat(), "scope": request.scope.label}
            told["session_id"] = request.session_id
            answer = await self.slot.retrieve(request)
            found = differences(request, primary.entries, answer.entries)
            ours = {"latency_ms": answer.trace.latency_ms, "tokens": answer.trace.token_count}
            self.log.write("difference", self.name, {**told, "primary_ms": latency_ms, **ours, **found})
            self.counts["compared"] += 1

        self._add(_Job(request.scope, False, "retrieve", compare))

    def diverges(self, scope: MemoryScope, why: str) -> None:
        """Note that from now on its memory of a scope is not the primary's."""
        self.unlike.setdefault(scope, why)

    async def reset(self, scope: MemoryScope, within_s: float) -> str | None:
        """Clear a scope, and forget what waits for it; why that failed, or None.

        Until it succeeds, nothing more of the scope is written or compared.
        """
        self._jobs = deque(job for job in self._jobs if job.scope != scope)
        self._known = OrderedDict.fromkeys(key for key in self._known if key[0] != scope)
        self._unreset.add(scope)
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
        self._jobs.appendleft(_Job(scope, True, "reset_scope", clear))
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
            while not self._held and (self._jobs or self._background.busy(self.name)):
                self._work()
                await self._background.idle()
        return not self._jobs

    @property
    def behind(self) -> int:
        """Calls that wait."""
        return len(self._jobs)

    async def aclose(self, within_s: float) -> None:
        """Finish what waits, for a while; what is left then is lost, and told. Idempotent."""
        if not self._ended:
            await self.drained(within_s)
            self._ended = True
            lost = sum(job.writes for job in self._jobs)
            if lost:
                log.warning("shadow %s was closed %d writes behind; its memory lacks them", self.name, lost)
            self._jobs.clear()
            if self._running is not None:
                self._running.cancel()
        await self.slot.aclose()

    # -- inside -----------------------------------------------------------------------------------------

    def _add(self, job: _Job) -> None:
        if self._ended:
            return
        if len(self._jobs) >= self._most:
            self.counts["left_out"] += 1
            if job.writes:
                self.diverges(job.scope, "it lagged too far behind")
            return
        self._jobs.append(job)
        self._work()

    def _work(self) -> None:
        if self._next() is not None:
            self._background.begin(self.name, self._run)

    def _next(self) -> _Job | None:
        """The job whose turn it is; None where there is none, or it would write while that is not allowed."""
        waits = not self._jobs or (self._held and self._jobs[0].writes)
        return None if waits or self._ended else self._jobs[0]

    async def _run(self) -> None:
        with anyio.CancelScope() as self._running:
            while (job := self._next()) is not None:
                self._jobs.popleft()
                try:
                    status = await self._do(job)
                except ReadOnlyError as error:
                    status = "skipped_read_only" if job.writes else self._failed(job, error)
                except Exception as error:
                    status = self._failed(job, error)
                if status == "skipped_read_only":
                    self._jobs.appendleft(job)
                    if not self._held:  # a switch back that failed; the other way round it is to wait
                        await self._switch_back()
                elif status == "unknown":
                    self.diverges(job.scope, "a write without an answer may be missing")
                elif status != "failed":
                    self.counts["written"] += job.writes

    async def _switch_back(self) -> None:
        await anyio.sleep(_PAUSE_S)
        with suppress(MemslotError):
            await self.slot.set_mode(AdapterMode(read_only=False))

    async def _do(self, job: _Job) -> str | None:
        if job.what == "reset_scope":
            await job.call()
            return None
        async with self.slot.leases.lease(job.scope):
            if job.scope in self._unreset:
                why = await self._reset(job.scope)
                if why is not None:
                    raise LifecycleError(f"the scope could not be reset: {why}")
            return getattr(await job.call(), "status", None)

    async def _reset(self, scope: MemoryScope) -> str | None:
        receipt = await self.slot.reset_scope(scope)
        if not receipt.verified:
            return "it could not show that nothing is left"
        self._unreset.discard(scope)
        self.unlike.pop(scope, None)
        return None

    def _failed(self, job: _Job | None, error: Exception) -> str:
        self.counts["failed"] += 1
        if job is not None and job.writes:
            self.diverges(job.scope, f"{job.what} failed")
        if self.counts["failed"] == 1:
            log.warning("shadow %s failed (%s); health counts further ones", self.name, type(error).__name__)
        return "failed"

    def state(self) -> dict[str, Any]:
        """For health, JSON-ready."""
        return {**dict(self.counts), "behind": self.behind, "unlike_scopes": len(self.unlike)}

    def warnings(self) -> list[str]:
        """What makes its answers no fair comparison."""
        told = [f"{len(self._unreset)} scopes could not be reset"] if self._unreset else []
        if self.unlike:
            why = ", ".join(sorted(set(self.unlike.values())))
            told.append(f"its memory of {len(self.unlike)} scopes is not the primary's: {why}")
        if self.log.lost:
            told.append(f"{self.log.lost} lines of the log could not be written")
        return [f"shadow {self.name}: {one}" for one in told]


def differences(
    request: RetrieveRequest, primary: Iterable[ContextEntry], shadow: Iterable[ContextEntry]
) -> dict[str, Any]:
    """How two answers to one question differ, in numbers.

    Returns:
        ``primary`` and ``shadow``: entries of each; ``same_text``: those with the same words; ``same_events``:
        events both were derived from, None where one of the two does not tell.
    """
    own = request.session_id if request.exclude_session else None
    ours = [entry for entry in primary if own is None or entry.session_id != own]
    theirs = list(shadow)
    texts = [Counter(" ".join(entry.text.split()).casefold() for entry in part) for part in (ours, theirs)]
    events = [{one for entry in part for one in entry.event_ids} for part in (ours, theirs)]
    told = all(found or not part for found, part in zip(events, (ours, theirs), strict=True))
    return {
        "primary": len(ours),
        "shadow": len(theirs),
        "same_text": (texts[0] & texts[1]).total(),
        "same_events": len(events[0] & events[1]) if told else None,
    }
