"""A circuit breaker for a failing memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from memory.contract.errors import BackendError, BackendRejected, BackendTimeout, BackendUnavailable

log = logging.getLogger("memslot.runtime")


class CircuitOpen(BackendUnavailable):
    """The circuit is open after repeated failures, so nothing was sent."""

    sent = False


class SetUpTimedOut(BackendTimeout):
    """A new scope was not set up in time. Its set-up continues, and other scopes may work."""


class Circuit:
    """Counts consecutive failures. While open, it refuses attempts; after a pause, it lets one through."""

    def __init__(self, what: str, open_after: int, pause_s: float) -> None:
        self._what = what
        self._open_after = open_after
        self._pause_s = pause_s
        self._failures = 0
        self._until = 0.0
        self._trying = False

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """``half-open`` means that the pause is over and the next attempt decides."""
        if self._failures < self._open_after:
            return "closed"
        return "open" if self.left_s > 0 else "half-open"

    @property
    def left_s(self) -> float:
        """Seconds until the next attempt may begin; 0 if it may begin now."""
        return max(0.0, self._until - time.monotonic()) if self._failures >= self._open_after else 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Run one attempt and note its outcome. A cancelled attempt changes no count.

        Raises:
            CircuitOpen: the circuit refuses the attempt.
        """
        state = self.state
        if state == "open" or (state == "half-open" and self._trying):
            raise CircuitOpen(f"{self._what} is left alone after {self._failures} failures in a row")
        trial = self._trying = state == "half-open"
        try:
            yield
        except Exception as error:
            # A rejected or malformed request does not predict the outcome of the next one.
            if isinstance(error, BackendError) and not isinstance(error, (BackendRejected, SetUpTimedOut)):
                self._failures += 1
                if self._failures >= self._open_after:
                    if not self._until or self.left_s <= 0:
                        log.warning("%s is left alone for %g s: %s", self._what, self._pause_s, error)
                    self._until = time.monotonic() + self._pause_s
            raise
        else:
            if self._failures >= self._open_after:
                log.warning("%s works again", self._what)
            self._failures = 0
        finally:
            if trial:
                self._trying = False
