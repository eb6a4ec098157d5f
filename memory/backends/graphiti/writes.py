"""Failed writes to graphs, as far as this process knows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from memory import BackendError, BackendReadiness, InputError
from memory.adapter.stores import RecentKeys

_REMEMBERED = 1000


@dataclass
class _Failure:
    """The last failed write of a graph.

    Attributes:
        doubtful: some of it may be stored.
        followed: a later write was stored.
    """

    event_id: str
    reason: str
    doubtful: bool
    followed: bool = False


class Writes:
    """Failures by graph, each until an event is stored, and events that may or may not be stored."""

    def __init__(self) -> None:
        self._uncertain: RecentKeys[tuple[str, str]] = RecentKeys(_REMEMBERED)
        self._failures: dict[str, _Failure] = {}

    def failed(self, group_id: str, event_id: str, error: BaseException) -> None:
        """A write ended with this error, or was given up."""
        if isinstance(error, InputError):
            return
        doubtful = not (isinstance(error, BackendError) and error.sent is False)
        if doubtful:
            self._uncertain.add((group_id, event_id))
        reason = str(error) if isinstance(error, BackendError) else type(error).__name__
        if isinstance(error, asyncio.CancelledError):
            reason = "it was given up before Graphiti had finished"
        self._failures[group_id] = _Failure(event_id, reason, doubtful)

    def stored(self, group_id: str, event_id: str) -> None:
        """An event is stored whole."""
        self._uncertain.discard((group_id, event_id))
        failure = self._failures.get(group_id)
        if failure is None:
            return
        failure.followed = True
        if failure.event_id == event_id or not failure.doubtful:
            del self._failures[group_id]

    def incomplete(self, group_id: str, event_id: str) -> None:
        """A look-up found parts of an event."""
        self._uncertain.add((group_id, event_id))

    def may_be_stored(self, group_id: str, event_id: str) -> bool:
        """Whether an earlier attempt may have stored some of the event."""
        return (group_id, event_id) in self._uncertain

    def doubt(self, group_id: str) -> str | None:
        """The event of a failed write of which some may be stored, to be looked up."""
        failure = self._failures.get(group_id)
        return failure.event_id if failure is not None and failure.doubtful else None

    def settle(self, group_id: str, found: tuple[str, ...], complete: bool) -> None:
        """Take the result of a look-up of the doubtful event."""
        failure = self._failures.get(group_id)
        if failure is None:  # another write was stored meanwhile
            return
        failure.doubtful = bool(found) and not complete
        if (found and complete) or (failure.followed and not found):
            del self._failures[group_id]

    def judged(self, group_id: str) -> BackendReadiness | None:
        """Readiness after a failed write; None where none is known."""
        failure = self._failures.get(group_id)
        if failure is None:
            return None
        stored = "part of it is stored" if failure.doubtful else "nothing of it is stored"
        detail = f"the last write failed: {failure.reason}; {stored}, so repeat it"
        return BackendReadiness(state="unknown" if failure.doubtful else "failed", detail=detail)

    def erased(self, group_id: str) -> None:
        """A reset emptied the graph."""
        self._failures.pop(group_id, None)

    def warnings(self) -> list[str]:
        """For health."""
        return sorted({f"the last write failed: {each.reason}" for each in self._failures.values()})
