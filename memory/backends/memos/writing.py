"""Sending an event: to the scope's cube, then to those that scopes share, and looked for in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory import BackendError, MemoryEvent
from memory.adapter import BackendProtocolError
from memory.backends.memos.canary import Canary
from memory.backends.memos.client import Native
from memory.backends.memos.ids import MemosScope
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.readiness import Readiness, Status, Written
from memory.backends.memos.translate import dropped_roles

__all__ = ["Stored", "Writing"]

_REPLACED = "these ids are of the raw memory; MemOS replaces it, under new ids, by what its model makes of it"
_NOTHING = "MemOS kept nothing of this event; it says the same of a model's answer that it cannot read"
_LEAST_CERTAIN: tuple[Status, ...] = ("unknown", "pending", "queued", "committed")


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an event, in one cube or in all."""

    status: Status
    native_ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Writing:
    """Stores events, in ``shared`` cubes each under the user of its own name, and tells readiness what was sent."""

    native: Native
    options: MemosOptions
    readiness: Readiness
    canary: Canary
    shared: Sequence[MemosScope]

    async def add(self, event: MemoryEvent, home: MemosScope) -> Stored:
        """Send it to cube after cube, up to one that fails; the status is the least certain of all.

        Raises:
            BackendError: the scope's own cube failed; the event was sent to no other.
        """
        own = await self._add_to(home, event, home)
        outcomes = [replace(own, warnings=dropped_roles(event) + own.warnings)]
        failed = False
        for place in self.shared:
            one = Stored("unknown", warnings=("not sent to it",))
            if not failed:
                try:
                    one = await self._add_to(place, event, home)
                except BackendError as error:
                    failed, what = True, "may or may not be" if error.ambiguous else "not"
                    one = Stored("unknown", warnings=(f"{what} stored there: {error}",))
            told = (f"cube {place.cube_id}: {warning}" for warning in one.warnings if warning != _REPLACED)
            outcomes.append(replace(one, warnings=tuple(told)))
        return Stored(
            min((one.status for one in outcomes), key=_LEAST_CERTAIN.index),
            tuple(native_id for one in outcomes for native_id in one.native_ids),
            tuple(warning for one in outcomes for warning in one.warnings),
        )

    async def _add_to(self, place: MemosScope, event: MemoryEvent, home: MemosScope) -> Stored:
        written = Written(event.event_id, event.session_id, place)
        self.readiness.wrote(home, written)  # even where the answer is lost
        try:
            return await self._added(written, event, home)
        except BackendError as error:
            if not error.ambiguous:
                self.readiness.refused(home, written)
            raise

    async def _added(self, written: Written, event: MemoryEvent, home: MemosScope) -> Stored:
        options = self.options
        memories = await self.native.add(event, home, written.place)
        written = replace(written, added=memories)
        self.readiness.wrote(home, written)
        ids = tuple(memory.native_id for memory in memories)
        queued = options.async_mode == "async"
        if not memories:
            if queued or options.mode == "fast":
                raise BackendProtocolError(
                    "add: MemOS answered 200 and stored nothing; see the server's log", sent=False
                )
            await self.canary.probe("add")
            return Stored("unknown", warnings=(_NOTHING,))
        if queued:
            return Stored("queued", ids, (_REPLACED,))
        if not options.verify_writes:
            return Stored("committed", ids)
        status, warnings = await self.readiness.look_up(written)
        return Stored(status, ids, warnings)
