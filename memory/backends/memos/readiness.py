"""Checks that written events are processed, stored and found by a search.

A finished task of MemOS may have kept the raw text, or stored nothing, or a memory that no search finds. So the
memory's outbox notes the id of each event before it is sent, and drops it once the event was seen stored and found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import anyio

from memory import BackendReadiness
from memory.adapter import quantity
from memory.adapter.stores import Lane, Outbox
from memory.backends.memos.answers import Item, event_ids, unextracted, untouched
from memory.backends.memos.client import Native
from memory.backends.memos.options import MemosOptions

KIND = "memos"  # of the outbox's entries
_BEGUN = ""  # key of the entry of a cube to which nothing was ever sent without a note

RAW = "the language model behind MemOS failed, and text was kept as it is"
LOST = "memories are stored, but a search finds none: the embedder, reranker or index behind MemOS failed"
_GONE = (
    "nothing is stored: there was nothing to keep in them, MemOS merged or lost them, or an answer of its model "
    "could not be read, which it does not tell"
)
_UNTOUCHED = "still as sent, though the scheduler has no task for them: it was restarted, or failed"
_UNKNOWN_PAST = (
    "this scope holds memories of which nothing was noted, so it is not known whether all of them are there; reset "
    "the scope to end that"
)


class Readiness:
    def __init__(self, native: Native, options: MemosOptions, outbox: Outbox) -> None:
        self._native = native
        self._options = options
        self._outbox = outbox
        self._writes = 0
        self._idle_at = 0  # writes when the server was last seen without tasks

    def _lane(self, cube: str) -> Lane:
        return Lane(self._options.url, cube)

    async def noted(self, cube: str) -> set[str]:
        """The ids of the events in question. One that is empty says that every event was noted."""
        in_lane = "kind = ? AND destination = ? AND scope = ?"
        values = (KIND, *self._lane(cube))
        entries = await self._outbox.store.run(lambda db: Outbox.read(db, in_lane, values), writes=False)
        return {entry.key for entry in entries}

    async def meet(self, cube: str) -> None:
        """Note that a scope is new, if it has neither notes nor memories."""
        if not (await self.noted(cube) or await self._native.listing(cube)):
            await self.begin(cube)

    async def begin(self, cube: str, erased: Iterable[str] = ()) -> None:
        """Begin a scope, or one that a reset has emptied of the events ``erased``."""

        def note(db: Any) -> None:
            self._outbox.settle(db, self._lane(cube), erased)
            self._outbox.insert(db, self._lane(cube), _BEGUN, "[]", state="begun")

        await self._outbox.store.run(note)

    async def send(self, cube: str, event_id: str) -> bool:
        """Note an event before it is sent. Returns whether it was sent before and may be stored."""
        known = await self._outbox.store.run(
            lambda db: self._outbox.insert(db, self._lane(cube), event_id, "[]", state="noted", sent=True)
        )
        self.wrote()
        return known is not None

    def wrote(self) -> None:
        self._writes += 1

    async def settle(self, cube: str, events: Collection[str]) -> None:
        """Drop the notes of events that were seen stored and found, or that are certainly not stored."""
        if events:
            await self._outbox.store.run(lambda db: self._outbox.settle(db, self._lane(cube), events))

    @property
    def may_be_busy(self) -> bool:
        """Whether something was written since the server was last seen without tasks."""
        return self._writes != self._idle_at

    async def idle(self, timeout_s: float) -> bool:
        with anyio.move_on_after(timeout_s):
            pause_s = 0.02
            while await self._busy():
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, 0.5)
            return True
        return False

    async def _busy(self) -> int:
        """The number of tasks under way. A zero after a write is counted again: a task may be on its way."""
        writes = self._writes
        busy = await self._native.busy()
        if not busy and self.may_be_busy:
            await anyio.sleep(0.05)
            busy = await self._native.busy()
        if not busy:
            self._idle_at = writes
        return busy

    async def ask(self, cube: str) -> BackendReadiness:
        """Judge a cube: all its events must be stored, extracted and found."""
        if busy := await self._busy():
            detail = f"{quantity(busy, 'tasks')} under way, of all users of this server"
            return BackendReadiness(state="pending", detail=detail)
        noted = await self.noted(cube)
        stored = await self._native.listing(cube)
        raw = sum(map(unextracted, stored.values()))
        awaiting = sum(map(self._awaits_scheduler, stored.values()))
        gone, crowded, lost = await self._count_unfound(cube, noted - {_BEGUN}, stored)
        failed = [f"{RAW} in {raw} of {quantity(len(stored), 'memories')}"] if raw else []
        failed += [LOST] if lost else []
        unknown = [] if _BEGUN in noted else [_UNKNOWN_PAST]
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
        return self._options.async_mode == "async" and untouched(item)

    async def _count_unfound(
        self, cube: str, noted: Collection[str], stored: Mapping[str, Item]
    ) -> tuple[int, int, int]:
        """The numbers of events without a memory, of events not found, and of searches that found nothing."""
        of_event: defaultdict[str, list[Item]] = defaultdict(list)
        for item in stored.values():
            for event_id in event_ids(item):
                of_event[event_id].append(item)
        gone = crowded = lost = 0
        seen: dict[str, Item] = {}
        settled: list[str] = []
        for event_id in noted:
            mine = of_event[event_id]
            if not mine:
                gone += 1
                continue
            if not _among(mine, seen):
                found = await self._native.found(str(mine[0].get("memory")), cube)
                lost += not found
                seen |= found
            if not _among(mine, seen):
                crowded += 1
            elif not any(unextracted(item) or self._awaits_scheduler(item) for item in mine):
                settled.append(event_id)
        await self.settle(cube, settled)
        if not noted and stored:  # one search checks what earlier processes wrote
            lost += not await self._native.found(str(next(iter(stored.values())).get("memory")), cube)
        return gone, 0 if lost else crowded, lost


def _among(items: Sequence[Item], found: Mapping[str, Item]) -> bool:
    return any(str(item.get("id")) in found for item in items)
