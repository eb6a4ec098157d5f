"""Failed writes to graphs, as far as this process knows."""

from __future__ import annotations

import asyncio

from memory import BackendError, BackendReadiness, InputError

_REMEMBERED = 1000


class Writes:
    """Why the last write to a graph failed, and which events may be stored in part."""

    def __init__(self) -> None:
        self._doubts: dict[str, dict[str, None]] = {}  # by graph, ids of events, oldest first
        self._failed: dict[str, str] = {}

    def failed(self, group_id: str, event_id: str, error: BaseException) -> None:
        """A write ended with this error, or was given up."""
        if isinstance(error, InputError):
            return
        if not (isinstance(error, BackendError) and error.sent is False):
            self.doubt(group_id, event_id)
        reason = str(error) if isinstance(error, BackendError) else type(error).__name__
        if isinstance(error, asyncio.CancelledError):
            reason = "it was given up before Graphiti had finished"
        self._failed[group_id] = reason

    def doubt(self, group_id: str, event_id: str) -> None:
        """Some of the event may be stored."""
        doubts = self._doubts.setdefault(group_id, {})
        doubts[event_id] = None
        if len(doubts) > _REMEMBERED:
            del doubts[next(iter(doubts))]

    def doubts(self, group_id: str) -> tuple[str, ...]:
        """Events of which some may be stored."""
        return tuple(self._doubts.get(group_id, ()))

    def may_be_stored(self, group_id: str, event_id: str) -> bool:
        return event_id in self._doubts.get(group_id, ())

    def looked_up(self, group_id: str, event_id: str, found: tuple[str, ...], complete: bool) -> None:
        """A look-up found these parts of an event."""
        if found and complete:
            self.stored(group_id, event_id)
        elif not found:
            self._doubts.get(group_id, {}).pop(event_id, None)

    def stored(self, group_id: str, event_id: str) -> None:
        """An event is stored whole."""
        self._doubts.get(group_id, {}).pop(event_id, None)
        self._failed.pop(group_id, None)

    def judged(self, group_id: str) -> BackendReadiness | None:
        """Readiness after a failed write; None where none is known."""
        reason = self._failed.get(group_id, "an event was not finished")
        if self._doubts.get(group_id):
            detail = f"the last write failed: {reason}; part of it is stored, so repeat it"
            return BackendReadiness(state="unknown", detail=detail)
        if group_id in self._failed:
            detail = f"the last write failed: {reason}; nothing of it is stored, so repeat it"
            return BackendReadiness(state="failed", detail=detail)
        return None

    def erased(self, group_id: str) -> None:
        """A reset emptied the graph."""
        self._doubts.pop(group_id, None)
        self._failed.pop(group_id, None)

    def warnings(self) -> list[str]:
        """For health."""
        return sorted({f"the last write failed: {reason}" for reason in self._failed.values()})
