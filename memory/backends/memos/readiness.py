"""Checks that written events are processed, stored and found by a search.

MemOS counts the tasks of all users together. A finished task may have kept the raw text,
because the model failed. It may also have stored nothing, or a memory that no search finds. So each event
stays open until it was seen stored and found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from memory import BackendError, BackendReadiness
from memory.adapter import BackendProtocolError, quantity
from memory.backends.memos.answers import Item, event_ids, unextracted, untouched
from memory.backends.memos.client import Native
from memory.backends.memos.ledger import Ledger, Written
from memory.backends.memos.options import MemosOptions

Status = Literal["committed", "queued", "pending", "unknown"]
Sendings = dict[str, dict[str, Written]]  # by event id, then by mark

_RAW = "the language model behind MemOS failed, and text was kept as it is"
_LOST = "memories are stored, but a search finds none: the embedder, reranker or index behind MemOS failed"
_GONE = (
    "nothing is stored: there was nothing to keep in them, MemOS merged or lost them, or an answer of its model "
    "could not be read, which it does not tell"
)
_UNTOUCHED = "still as sent, though the scheduler has no task for them: it was restarted, or failed"
_UNKNOWN_PAST = (
    "this scope holds memories of which nothing was noted, so it is not known whether all of them are there; reset "
    "the scope to end that"
)


@dataclass(eq=False)
class Readiness:
    """Tracks how far a MemOS server has processed the events sent to it."""

    native: Native
    options: MemosOptions
    ledger: Callable[[str], Ledger]
    # By cube.
    _open: defaultdict[str, Sendings] = field(default_factory=lambda: defaultdict(dict))
    _ledgers: dict[str, Ledger] = field(default_factory=dict)
    _writes: int = 0
    _idle_at: int = 0  # writes when the server was last seen without tasks

    async def noted(self, cube: str) -> list[str]:
        """The marks of the sendings that a reset beginning now will settle."""
        return await self._ledger(cube).marks()

    async def begin(self, cube: str, erased: Sequence[str]) -> None:
        """Begin an emptied scope. Sendings that were ``erased`` and earlier failures no longer count."""
        self._open.pop(cube, None)
        await self._ledger(cube).begin(erased)

    async def meet(self, cube: str) -> None:
        """Load the notes of a scope. A scope without notes and memories is new."""
        if cube in self._ledgers:
            return
        ledger = self.ledger(cube)
        opened = await ledger.load()
        if not (ledger.begun or ledger.problem or opened or await self.native.listing(cube)):
            await ledger.begin()
        self._ledgers[cube] = ledger
        self._open[cube] = _by_event(opened.values())

    def _ledger(self, cube: str) -> Ledger:
        return self._ledgers.setdefault(cube, self.ledger(cube))

    async def forget(self, cube: str, item: Item) -> None:
        """Settle the events of a memory that is about to be deleted."""
        events = set(event_ids(item))
        for written in self._waiting(cube):
            if any(memory.native_id == item.get("id") for memory in written.added):
                events.add(written.event_id)
        await self.settle(cube, [written for written in self._waiting(cube) if written.event_id in events])

    async def send(self, cube: str, written: Written) -> bool:
        """Note an event before it is sent. Returns whether it was sent before and may be stored."""
        sent_before = written.event_id in self._open[cube]
        await self._ledger(cube).sent(written)
        self.wrote(cube, written)
        return sent_before

    def wrote(self, cube: str, written: Written | None = None) -> None:
        self._writes += 1
        if written is not None:
            self._open[cube].setdefault(written.event_id, {})[written.mark] = written

    async def settle(self, cube: str, sendings: Iterable[Written]) -> None:
        """Close sendings that were seen stored and found, or that are certainly not stored."""
        known = []
        for written in sendings:
            of_event = self._open[cube].get(written.event_id, {})
            if of_event.pop(written.mark, None) is not None:
                known.append(written.mark)
            if not of_event:
                self._open[cube].pop(written.event_id, None)
        if known:
            await self._ledger(cube).close(known)

    def _waiting(self, cube: str) -> list[Written]:
        return [written for of_event in self._open[cube].values() for written in of_event.values()]

    @property
    def may_be_busy(self) -> bool:
        """Whether something was written since the server was last seen without tasks."""
        return self._writes != self._idle_at

    async def idle(self, timeout_s: float) -> bool:
        """Wait until the server has no tasks. False on a timeout."""
        with anyio.move_on_after(timeout_s):
            pause_s = 0.02
            while await self._busy():
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, 0.5)
            return True
        return False

    async def _busy(self) -> int:
        """The number of tasks under way, of all users.

        A zero after a write is counted again, because the local queue misses a task that it is handing over.
        """
        writes = self._writes
        busy = await self.native.busy()
        if not busy and self.may_be_busy:
            await anyio.sleep(0.05)
            busy = await self.native.busy()
        if not busy:
            self._idle_at = writes
        return busy

    async def ask(self, cube: str) -> BackendReadiness:
        if busy := await self._busy():
            detail = f"{quantity(busy, 'tasks')} under way, of all users of this server"
            return BackendReadiness(state="pending", detail=detail)
        return await self._judge(cube)

    async def look_up(self, written: Written, cube: str) -> tuple[Status, tuple[str, ...]]:
        """Search for each memory just written. Returns the status and warnings of the receipt."""
        found: dict[str, Item] = {}
        try:
            for memory in written.added:
                if memory.native_id not in found:
                    found |= await self.native.found(memory.text, cube, written.session_id)
            lost = [memory.native_id for memory in written.added if memory.native_id not in found]
            # MemOS returns ids even if its database is gone.
            stored = await self.native.listing(cube, lost[0]) if lost else {}
        except BackendError as error:
            return "unknown", (f"MemOS gave ids, and whether they are stored could not be seen: {error}",)
        if not lost:
            raw = any(unextracted(found[memory.native_id]) for memory in written.added)
            return "committed", (_RAW,) if raw else ()
        if lost[0] not in stored:
            raise BackendProtocolError(
                "add: MemOS answered 200 with the id of a memory that it has not stored; see the server's log",
                sent=False,
            )
        why = f"it is not among the first {len(found)} found" if found else _LOST
        return "pending", (f"stored as {lost[0]}, and not found again: {why}",)

    async def _judge(self, cube: str) -> BackendReadiness:
        """Judge a cube whose scheduler is idle: all events must be stored, extracted and found."""
        ledger, known = self._ledger(cube), {written.mark: written for written in self._waiting(cube)}
        opened = await ledger.load()  # other processes may have sent, settled or reset
        if not ledger.problem:
            self._open[cube] = _by_event(known.get(mark, written) for mark, written in opened.items())
        stored = await self.native.listing(cube)
        raw = sum(map(unextracted, stored.values()))
        awaiting = sum(map(self._awaits_scheduler, stored.values()))
        gone, crowded, lost = await self._count_unfound(cube, stored)
        failed = [f"{_RAW} in {raw} of {quantity(len(stored), 'memories')}"] if raw else []
        failed += [_LOST] if lost else []
        unknown = [ledger.problem or _UNKNOWN_PAST] if ledger.problem or not ledger.begun else []
        unknown += [f"of {quantity(gone, 'events')} {_GONE}"] if gone else []
        unknown += [f"{quantity(awaiting, 'memories are', 'memory is')} {_UNTOUCHED}"] if awaiting else []
        stored_unfound = quantity(crowded, "events are", "event is")
        unknown += [f"{stored_unfound} stored, and not among the first memories found"] if crowded else []
        if failed or unknown:
            return BackendReadiness(
                state="failed" if failed else "unknown", detail="; ".join(failed + unknown)
            )
        return BackendReadiness(
            state="ready", detail="what is stored is found" if stored else "nothing is stored"
        )

    def _awaits_scheduler(self, item: Item) -> bool:
        return self.options.async_mode == "async" and untouched(item)

    async def _count_unfound(self, cube: str, stored: Mapping[str, Item]) -> tuple[int, int, int]:
        """Count events without a memory, and events that a search does not find.

        Returns:
            The numbers of events without a memory, of events not found, and of searches that found nothing.
        """
        of_event: defaultdict[str, list[Item]] = defaultdict(list)
        for item in stored.values():
            for event_id in event_ids(item):
                of_event[event_id].append(item)
        gone: set[str] = set()  # a set, because an event may have been sent twice
        crowded: set[str] = set()
        lost = 0
        seen: dict[str, Item] = {}
        closed: list[Written] = []
        waiting = self._waiting(cube)
        for written in waiting:
            by_id = (stored.get(memory.native_id) for memory in written.added)
            mine = [*(item for item in by_id if item is not None), *of_event[written.event_id]]
            if not mine:
                gone.add(written.event_id)
                continue
            if not _among(mine, seen):
                found = await self.native.found(str(mine[0].get("memory")), cube, written.session_id)
                lost += not found
                seen |= found
            if not _among(mine, seen):
                crowded.add(written.event_id)
            elif not any(unextracted(item) or self._awaits_scheduler(item) for item in mine):
                closed.append(written)
        await self.settle(cube, closed)
        if not waiting and stored:  # one search checks what earlier processes wrote
            lost += not await self.native.found(str(next(iter(stored.values())).get("memory")), cube)
        return len(gone), 0 if lost else len(crowded), lost


def _by_event(sendings: Iterable[Written]) -> Sendings:
    found: Sendings = {}
    for written in sendings:
        found.setdefault(written.event_id, {})[written.mark] = written
    return found


def _among(items: Sequence[Item], found: Mapping[str, Item]) -> bool:
    return any(str(item.get("id")) in found for item in items)
