"""Whether what was written can be found: the scheduler's word, what is stored, and a search for it.

Without Redis MemOS only counts the tasks of all users. A finished task may have kept the text as it was, because
the model failed. It may have stored nothing, or what no search finds, without a word. So each event stays in
question until it was seen stored and found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from memory import BackendError, BackendReadiness
from memory.adapter import BackendProtocolError
from memory.backends.memos.answers import Item, event_ids, is_by, unextracted, untouched
from memory.backends.memos.client import Native
from memory.backends.memos.ledger import Ledger, Sendings, Written
from memory.backends.memos.options import MemosOptions

Status = Literal["committed", "queued", "pending", "unknown"]

_RAW = "the language model behind MemOS failed, and text was kept as it is"
_LOST = "memories are stored, but a search finds none: the embedder, reranker or index behind MemOS failed"
_GONE = (
    "nothing is stored: there was nothing to keep in them, MemOS merged or lost them, or an answer of its model "
    "could not be read, which it does not tell"
)
_UNTOUCHED = "still as sent, though the scheduler has no task for them: it was restarted, or failed"
_UNKNOWN_PAST = (
    "what this scope holds was written where nothing of it was noted, so nobody knows whether all of it is there; "
    "a reset ends that"
)


@dataclass(eq=False)
class Readiness:
    """Asks a MemOS how far it is; ``shared`` are cubes that every scope writes to besides its own."""

    native: Native
    options: MemosOptions
    shared: Sequence[str]
    ledger: Callable[[str], Ledger]
    # By cube: not yet seen stored and found.
    _open: defaultdict[str, Sendings] = field(default_factory=lambda: defaultdict(Sendings))
    _ledgers: dict[str, Ledger] = field(default_factory=dict)
    _old_failures: dict[str, frozenset[str]] = field(default_factory=dict)
    _unreconciled: dict[str, object] = field(default_factory=dict)  # each write leaves a mark of its own

    async def noted(self, cube: str) -> list[str]:
        """Marks of what is in question before a reset; what other processes send during it stays so."""
        return await self._ledger(cube).marks()

    async def begin(self, cube: str, erased: Sequence[str]) -> None:
        """An emptied scope: what was ``erased``, or failed before, is not held against what will be written."""
        self._open.pop(cube, None)
        self._unreconciled.pop(cube, None)
        await self._ledger(cube).begin(erased)
        if self.options.redis:
            self._old_failures[cube] = await self._failures(cube)

    async def meet(self, cube: str) -> None:
        """Learn of a scope what was noted of it; one of which nothing was, and that holds nothing, is new."""
        if cube in self._ledgers:
            return
        ledger = self.ledger(cube)
        opened = await ledger.load()
        if not (ledger.begun or ledger.problem or opened or await self.native.listing(cube)):
            await ledger.begin()
        self._ledgers[cube] = ledger
        self._open[cube] = Sendings(opened)
        if self.options.redis and not opened:
            self._old_failures[cube] = await self._failures(cube)

    def _ledger(self, cube: str) -> Ledger:
        return self._ledgers.setdefault(cube, self.ledger(cube))

    async def forget(self, cube: str, place: str, item: Item) -> None:
        """A memory that shall be gone: whether its event is stored is no question any more."""
        waiting, events = self._open[cube].to(place), set(event_ids(item))
        for written in waiting:
            if any(memory.native_id == item.get("id") for memory in written.added):
                events.add(written.event_id)
        await self.settle(cube, [written.mark for written in waiting if written.event_id in events])

    async def send(self, cube: str, written: Written) -> bool:
        """Note an event before it is sent; return whether it was sent before and may be stored."""
        sent_before = self._open[cube].has(written.place, written.event_id)
        await self._ledger(cube).sent(written)
        self.wrote(cube, written)
        return sent_before

    def wrote(self, cube: str, written: Written | None = None) -> None:
        self._unreconciled[written.place if written else cube] = object()
        if written is not None:
            self._open[cube].add(written)

    async def settle(self, cube: str, marks: Sequence[str]) -> None:
        """Seen stored and found, or certainly not stored; of an event that was refused, that sending alone."""
        known = [mark for mark in marks if self._open[cube].remove(mark)]
        if known:
            await self._ledger(cube).close(known)

    async def idle(self, timeout_s: float, cubes: Sequence[str] | None = None) -> bool:
        """Wait until no task waits or runs, for these users or for all that were written to; whether that came."""
        with anyio.move_on_after(timeout_s):
            pause_s = 0.02
            while True:
                before = dict(self._unreconciled)
                asked = tuple(before if cubes is None else cubes)
                if not asked or not await self._busy(asked):
                    self._reconcile(asked, before)
                    return True
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, 0.5)
        return False

    async def _busy(self, cubes: Sequence[str]) -> int:
        """The local queue counts none while it hands one over, so none is looked at twice."""
        busy = await self.native.busy(cubes)
        if busy or self.options.redis or self._unreconciled.keys().isdisjoint(cubes):
            return busy
        await anyio.sleep(0.05)
        return await self.native.busy(cubes)

    def _reconcile(self, cubes: Sequence[str], before: Mapping[str, object]) -> None:
        """Nothing is under way for them, but what was written since they were asked about."""
        for cube in cubes:
            if cube in before and self._unreconciled.get(cube) is before[cube]:
                del self._unreconciled[cube]

    async def ask(self, cube: str) -> BackendReadiness:
        before = dict(self._unreconciled)
        places = (cube, *self.shared)
        busy = await self._busy(places)
        if busy:
            whose = ", of all who write to shared cubes" if self.shared else ""
            whose = whose if self.options.redis else ", of all users of this server"
            count, detail = None if whose else busy, f"{busy} tasks under way{whose}"
            return BackendReadiness(state="pending", pending_count=count, detail=detail)
        if self.options.redis:
            failed = await self._failures(cube) - self._old_failures.get(cube, frozenset())
            if failed:
                return BackendReadiness(state="failed", detail=f"{len(failed)} tasks of the scheduler failed")
        self._reconcile(places, before)
        return await self._judge(cube)

    async def look_up(self, written: Written) -> tuple[Status, tuple[str, ...]]:
        """Status and warnings of a receipt, by whether a search finds everything that was just written."""
        found: dict[str, Item] = {}
        try:
            for memory in written.added:
                if memory.native_id not in found:
                    found |= await self.native.found(memory.text, written.place, written.session_id)
            lost = [memory.native_id for memory in written.added if memory.native_id not in found]
            # MemOS answers with ids even where its database is gone.
            stored = await self.native.listing(written.place, lost[0]) if lost else {}
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
        """Idle: now all that was written must be stored, by the model's work where it was to work, and found."""
        ledger, known = self._ledger(cube), self._open[cube]
        opened = await ledger.load()  # other processes have sent, closed or reset meanwhile
        if not ledger.problem:
            self._open[cube] = Sendings({mark: known.get(mark, written) for mark, written in opened.items()})
        detail = "nothing is stored"
        failed: list[str] = []
        unknown: list[str] = []
        if ledger.problem or not ledger.begun:
            unknown.append(ledger.problem or _UNKNOWN_PAST)
        for place in (cube, *self.shared):
            look = self.native.stored if place == cube else self._shared_rows
            stored = await look(cube, place)
            raw = sum(map(unextracted, stored.values()))
            awaiting = sum(map(self._awaits_scheduler, stored.values()))
            gone, crowded, lost = await self._count_unfound(cube, place, stored)
            problems = (
                (failed, raw, f"{_RAW} in {raw} of {len(stored)} memories"),
                (failed, lost, _LOST),
                (unknown, gone, f"of {gone} events {_GONE}"),
                (unknown, awaiting, f"{awaiting} memories are {_UNTOUCHED}"),
                (unknown, crowded, f"{crowded} events are stored, and not among the first memories found"),
            )
            where = "" if place == cube else f"in the shared cube {place}: "
            for found, count, text in problems:
                if count:
                    found.append(where + text)
            detail = "what is stored is found" if stored else detail
        if failed or unknown:
            state: Literal["failed", "unknown"] = "failed" if failed else "unknown"
            return BackendReadiness(state=state, detail="; ".join(failed + unknown))
        return BackendReadiness(state="ready", detail=detail)

    async def _shared_rows(self, cube: str, place: str) -> Mapping[str, Item]:
        """What the events in question became in a shared cube, which may be large: searched for, at last listed."""
        rows: dict[str, Item] = {}
        for written in self._open[cube].to(place):
            if not any(written.event_id in event_ids(item) for item in rows.values()):
                text = written.added[0].text if written.added else ""
                found = await self.native.found(text, place, written.session_id) if text else {}
                mine = {native_id: item for native_id, item in found.items() if is_by(cube, item)}
                if not any(written.event_id in event_ids(item) for item in mine.values()):
                    return await self.native.stored(cube, place)
                rows |= mine
        return rows

    def _awaits_scheduler(self, item: Item) -> bool:
        return self.options.async_mode == "async" and untouched(item)

    async def _count_unfound(self, cube: str, place: str, stored: Mapping[str, Item]) -> tuple[int, int, int]:
        """Events of which a cube stores nothing; those not among what is found; whether nothing is found at
        all. What was written by others is one question, as no search is wasted on each of it."""
        of_event: defaultdict[str, list[Item]] = defaultdict(list)
        for item in stored.values():
            for event_id in event_ids(item):
                of_event[event_id].append(item)
        gone: set[str] = set()  # an event may have been sent more than once
        crowded: set[str] = set()
        lost = 0
        seen: dict[str, Item] = {}
        closed: list[str] = []
        waiting = self._open[cube].to(place)
        for written in waiting:
            by_id = (stored.get(memory.native_id) for memory in written.added)
            mine = [*(item for item in by_id if item is not None), *of_event[written.event_id]]
            if not mine:
                gone.add(written.event_id)
                continue
            if not _among(mine, seen):
                text = str(mine[0].get("memory"))
                found = await self.native.found(text, place, written.session_id)
                lost += not found
                seen |= found
            if not _among(mine, seen):
                crowded.add(written.event_id)
            elif not any(unextracted(item) or self._awaits_scheduler(item) for item in mine):
                closed.append(written.mark)
        await self.settle(cube, closed)
        if not waiting and stored:
            lost += not await self.native.found(str(next(iter(stored.values())).get("memory")), place)
        return len(gone), 0 if lost else len(crowded), lost

    async def _failures(self, cube: str) -> frozenset[str]:
        return frozenset(task for task, state in (await self.native.tasks(cube)).items() if state == "failed")


def _among(items: Sequence[Item], found: Mapping[str, Item]) -> bool:
    return any(str(item.get("id")) in found for item in items)
