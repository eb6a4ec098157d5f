"""Whether what was written can be found: the scheduler's word, and a search for what was written last.

With Redis MemOS tells of every task of a user. Its local queue only counts the tasks of all users, so an empty one
proves little; and a finished task may have stored what no search finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

from memory import BackendError, BackendReadiness
from memory.adapter import BackendProtocolError
from memory.backends.memos.native import Native
from memory.backends.memos.parsing import Added, Item, event_ids, metadata_of, unextracted
from memory.backends.memos.requests import MemosScope

__all__ = ["Status", "Readiness", "Written"]

Status = Literal["committed", "pending", "unknown"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_DOUBTS = 4
_SECOND_LOOK_S = 0.05
_RAW = "the language model behind MemOS failed, and text was kept as it is"
_LOST = "memories are stored, but a search finds none: the embedder, reranker or index behind MemOS failed"


@dataclass(frozen=True, slots=True)
class Written:
    """What an event became, for looking it up again."""

    event_id: str
    session_id: str
    added: tuple[Added, ...]

    def is_in(self, item: Item) -> bool:
        """Whether a memory is one of these, or was made of the event later."""
        same = any(memory.native_id == item.get("id") for memory in self.added)
        return same or self.event_id in event_ids(metadata_of(item))


class Readiness:
    """Asks a MemOS how far it is.

    Args:
        native: the MemOS.
        redis: the scheduler keeps its tasks in Redis.
    """

    def __init__(self, native: Native, *, redis: bool) -> None:
        self._native = native
        self._redis = redis
        self._last: dict[MemosScope, Written] = {}
        self._old_failures: dict[MemosScope, frozenset[str]] = {}
        self._unreconciled: dict[MemosScope, object] = {}  # each write leaves a mark of its own

    async def begin(self, home: MemosScope) -> None:
        """A new or an emptied scope: what failed before is not held against what will be written."""
        self.forget(home)
        self._unreconciled.pop(home, None)
        if self._redis:
            self._old_failures[home] = await self._failures(home)

    async def meet(self, home: MemosScope) -> None:
        """:meth:`begin`, but for a scope that is known already."""
        if self._redis and home not in self._old_failures:
            await self.begin(home)

    def forget(self, home: MemosScope) -> None:
        """What was written last may be gone, and shall be."""
        self._last.pop(home, None)

    def wrote(self, home: MemosScope, written: Written | None = None) -> None:
        """Something was written: the scheduler may be at work on it, and readiness is about it."""
        self._unreconciled[home] = object()
        if written is not None and written.added:
            self._last[home] = written

    # -- the scheduler ----------------------------------------------------------------------------------

    async def idle(self, timeout_s: float, homes: Sequence[MemosScope] | None = None) -> bool:
        """Wait until no task waits or runs, for these users or for all that were written to; whether that came."""
        with anyio.move_on_after(timeout_s):
            pause = _FIRST_PAUSE_S
            while True:
                before = dict(self._unreconciled)
                asked = tuple(before if homes is None else homes)
                if not asked or not await self._busy(asked):
                    self._reconcile(asked, before)
                    return True
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        return False

    async def _busy(self, homes: Sequence[MemosScope]) -> int:
        """Tasks under way. The local queue counts none while it hands one over, so none is looked at twice."""
        busy = await self._native.busy(homes)
        if busy or self._redis or self._unreconciled.keys().isdisjoint(homes):
            return busy
        await anyio.sleep(_SECOND_LOOK_S)
        return await self._native.busy(homes)

    def _reconcile(self, homes: Sequence[MemosScope], before: Mapping[MemosScope, object]) -> None:
        """Nothing is under way for them, but what was written since they were asked about."""
        for home in homes:
            if home in before and self._unreconciled.get(home) is before[home]:
                del self._unreconciled[home]

    # -- the answer -------------------------------------------------------------------------------------

    async def ask(self, home: MemosScope) -> BackendReadiness:
        """The scope's state now."""
        before = dict(self._unreconciled)
        busy = await self._busy((home,))
        if busy:
            whose = "" if self._redis else ", of all users of this server"
            return BackendReadiness(
                state="pending",
                pending_count=busy if self._redis else None,
                detail=f"{busy} tasks under way{whose}",
            )
        if self._redis:
            failed = await self._failures(home) - self._old_failures.get(home, frozenset())
            if failed:
                return BackendReadiness(state="failed", detail=f"{len(failed)} tasks of the scheduler failed")
        self._reconcile((home,), before)
        return await self._findable(home)

    async def wait(self, home: MemosScope, timeout_s: float) -> BackendReadiness:
        """Ask until the answer is ``ready``, or stays ``unknown`` or ``failed``; at most ``timeout_s`` seconds."""
        answer = BackendReadiness(state="pending", detail="no answer yet")
        started = anyio.current_time()
        with anyio.move_on_after(timeout_s):
            pause, doubts = _FIRST_PAUSE_S, 0
            while doubts < _DOUBTS:
                answer = await self.ask(home)
                if answer.state == "ready":
                    break
                # For a moment neither the raw memory nor its successor is there; a busy server may find nothing.
                doubts += answer.state in ("unknown", "failed")
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        return answer.model_copy(update={"waited_ms": (anyio.current_time() - started) * 1000})

    async def look_up(self, home: MemosScope, written: Written) -> tuple[Status, tuple[str, ...]]:
        """Whether a search finds all that was just written: the status of its receipt, and what that should say.

        Raises:
            BackendProtocolError: some of it is not even stored.
        """
        found: dict[str, Item] = {}
        try:
            for memory in written.added:
                if memory.native_id not in found:
                    found |= await self._native.found(memory.text, home, session_id=written.session_id)
            lost = [memory.native_id for memory in written.added if memory.native_id not in found]
            # MemOS answers with ids even where its database is gone.
            stored = (await self._native.listing(home, lost[0])).by_id if lost else {}
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

    async def _findable(self, home: MemosScope) -> BackendReadiness:
        """Idle: now what was written last must be found, as it was or as what MemOS made of it."""
        written = self._last.get(home)
        if written is None:
            return await self._anything(home)
        found = await self._native.found(written.added[0].text, home, session_id=written.session_id)
        if any(written.is_in(item) for item in found.values()):
            return _ready("what was written last is found", found)
        stored = await self._native.listing(home)
        if not any(written.is_in(item) for item in stored.items):
            why = "nothing of what was written last is stored: MemOS kept nothing of it, merged it or lost it"
            return BackendReadiness(state="unknown", detail=why)
        if not found:
            return BackendReadiness(state="failed", detail=_LOST)
        why = f"what was written last is stored, and not among the first {len(found)} found"
        return BackendReadiness(state="unknown", detail=why)

    async def _anything(self, home: MemosScope) -> BackendReadiness:
        """Nothing was written through this adapter: whether any memory that there is can be found."""
        stored = await self._native.listing(home)
        if not stored.by_id:
            return BackendReadiness(state="ready", detail="nothing is stored")
        found = await self._native.found(str(stored.items[0].get("memory")), home)
        return (
            _ready("memories are found", found) if found else BackendReadiness(state="failed", detail=_LOST)
        )

    async def _failures(self, home: MemosScope) -> frozenset[str]:
        return frozenset(
            task for task, state in (await self._native.tasks(home)).items() if state == "failed"
        )


def _ready(why: str, found: Mapping[str, Item]) -> BackendReadiness:
    raw = sum(unextracted(item) for item in found.values())
    return BackendReadiness(state="ready", detail=f"{why}; {_RAW} in {raw} of {len(found)}" if raw else why)
