"""Keeps shared loops alive: a failed item is logged and counted, and the loop goes on (DESIGN section 5)."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from types import TracebackType

from memory.contract._loops import loop_or_none
from memory.contract.errors import MemslotError


class Failures:
    """The failures of one shared loop.

    Args:
        loop: the loop's name, such as ``hooks``; it begins each line of the log.
        log: gets one line for each failure, without user text.

    Attributes:
        count: failed items so far.
        last: the last failure in words; None before the first.
    """

    def __init__(self, loop: str, log: logging.Logger) -> None:
        self.count = 0
        self.last: str | None = None
        self._loop = loop
        self._log = log

    def survived(self, item: str) -> _Survived:
        """Run one item: ``with failures.survived("request 5"): ...`` continues after the block if it fails.

        Every exception counts as a failure of the item, unless it ends the loop's task (:func:`ends_the_task`).
        """
        return _Survived(self, item)

    def note(self, item: str, error: BaseException) -> None:
        """Count a failure that was caught elsewhere, and log it."""
        self.count += 1
        self.last = f"{item} failed: {words_of(error)}"
        self._log.warning("%s: %s", self._loop, self.last)


class _Survived(AbstractContextManager["_Survived"]):
    def __init__(self, failures: Failures, item: str) -> None:
        self.error: BaseException | None = None  # what the item raised
        self._failures = failures
        self._item = item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        if error is None or ends_the_task(error):
            return False
        self.error = error
        self._failures.note(self._item, error)
        return True


def ends_the_task(error: BaseException) -> bool:
    """Whether an exception ends the running task, and is no failure of the task's current item.

    On asyncio, a ``CancelledError`` in a task without a pending cancellation comes from the item. Ctrl-C
    cancels the main task there. On trio, Ctrl-C raises ``KeyboardInterrupt`` in the running code.
    """
    if isinstance(error, Exception):
        return False
    loop = loop_or_none()
    if loop is None:
        return False
    if type(loop).__module__.startswith("trio"):
        return _ends_on_trio(error)
    task = sys.modules["asyncio"].current_task()
    return task is not None and task.cancelling() > 0


def _ends_on_trio(error: BaseException) -> bool:
    """:func:`ends_the_task` on trio. A nursery that is cancelled while tasks fail raises a group of both."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_ends_on_trio, error.exceptions))
    return type(error).__module__.startswith("trio") or isinstance(error, KeyboardInterrupt)


def words_of(error: BaseException) -> str:
    """An error in one sentence without user text: the message of a MemslotError, else the type."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return str(error) if isinstance(error, MemslotError) else type(error).__name__
