"""Read-only mode of an adapter without a slot (spec section 4.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property, wraps
from typing import Any

from memory.contract.errors import ReadOnlyError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import FeedbackReceipt, NativeMutationReceipt, WriteReceipt
from memory.slot.gate import InFlight

_Method = Callable[..., Awaitable[Any]]


def _skipped_event(event: MemoryEvent) -> WriteReceipt:
    return WriteReceipt(event_id=event.event_id, status="skipped_read_only")


def _refuse_reset(scope: object) -> None:
    raise ReadOnlyError("reset_scope is refused while the adapter is read-only; set_mode first")


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "record_event": _skipped_event,
    "record_events": lambda events: [_skipped_event(event) for event in events],
    "apply_feedback": lambda feedback: FeedbackReceipt(
        feedback_id=feedback.feedback_id, status="skipped_read_only"
    ),
    "native_mutation": lambda request: NativeMutationReceipt(status="skipped_read_only"),
    "reset_scope": _refuse_reset,
}
"""Name of a writing method -> its answer while the adapter is read-only."""


class GuardedWrites:
    """While the adapter is read-only, answers ``skipped_read_only`` to every write, and refuses a reset.

    Each writing method that a subclass defines or inherits is guarded when the class is created.
    """

    _read_only = False

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, answer in _ANSWERS.items():
            method = getattr(cls, name, None)
            if method is not None and not hasattr(method, "skips_read_only"):
                setattr(cls, name, _guarded(method, answer))

    @cached_property
    def _writing(self) -> InFlight:
        return InFlight()

    async def _switch(self, read_only: bool, finish: Callable[[], Awaitable[None]]) -> None:
        """Call ``finish``, wait for writes under way, and switch.

        Becomes read-only even if ``finish`` fails.
        """
        try:
            await finish()
            while read_only and not self._read_only and self._writing.count:
                await self._writing.ended()
                await finish()
        finally:
            self._read_only = self._read_only or read_only
        self._read_only = read_only


def _guarded(method: _Method, answer: Callable[[Any], Any]) -> _Method:
    @wraps(method)
    async def guarded(self: GuardedWrites, argument: Any) -> Any:
        if self._read_only:
            return answer(argument)
        with self._writing:
            return await method(self, argument)

    guarded.skips_read_only = True  # type: ignore[attr-defined]
    return guarded
