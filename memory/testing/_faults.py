"""Faults on demand, for the servers that tests run against: what real ones do on a bad day.

Their one vocabulary is :data:`FaultKind`; each server plays those of them that it can.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

FaultKind = Literal[
    "401", "403", "404", "409", "422", "429", "500", "503", "redirect",
    "refused", "reset", "slow",
    "late", "lost", "truncated", "unreadable", "bad_content", "empty",
]  # fmt: skip
"""What goes wrong with one request.

Not carried out: a status, whose error repeats what was sent and holds :data:`FAKE_KEY`; ``redirect`` to another
host; ``refused``, no connection; ``reset``, one that breaks. ``slow``: carried out after ``delay_s``.

Carried out: ``late``, answered after ``delay_s``; ``lost``, the connection breaks instead of the answer, and
``truncated``, within it; ``unreadable``, a success that nobody can read. Of a language model, a success whose
content is not the JSON that was asked for (``bad_content``), or blank (``empty``).
"""
FAKE_KEY = "sk-fake-not-a-real-key-0123456789"
"""Every error answer holds it next to the user's text, so that tests can look for leaks of both."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as it was ordered."""

    kind: FaultKind
    endpoint: str | None = None  # or native operation, or a pattern with ``*``; None is everywhere
    delay_s: float = 30.0  # of slowness
    retry_after_s: float = 0.01  # what ``429`` asks the client to wait


class Faults:
    """Faults that are due, and in ``fired`` the faults that happened. A fault that never fired proves nothing.

    Args:
        kinds: what the server can do wrong.
    """

    def __init__(self, kinds: Sequence[FaultKind]) -> None:
        self.kinds = tuple(kinds)
        self.fired: list[Fault] = []
        self._due: list[tuple[Fault, int | None]] = []
        self._lock = threading.Lock()

    def add(
        self,
        kind: FaultKind,
        *,
        times: int | None = 1,
        endpoint: str | None = None,
        delay_s: float = 30.0,
        retry_after_s: float = 0.01,
    ) -> None:
        """Let the next ``times`` requests (None: all) fail, of one endpoint or any. First come, first served.

        Raises:
            ValueError: the kind is unknown, or ``times`` is below 1.
        """
        if kind not in self.kinds:
            raise ValueError(f"unknown fault {kind!r}; use one of {', '.join(self.kinds)}")
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; use 1 or more, or None for all")
        with self._lock:
            self._due.append((Fault(kind, endpoint, delay_s, retry_after_s), times))

    def clear(self) -> None:
        """No more faults; ``fired`` is kept."""
        with self._lock:
            self._due.clear()

    def take(self, endpoint: str) -> Fault | None:
        """The fault for a request to ``endpoint``, counted as fired."""
        with self._lock:
            for index, (fault, times) in enumerate(self._due):
                if fault.endpoint is None or fnmatchcase(endpoint, fault.endpoint):
                    if times is not None:
                        self._due[index : index + 1] = [(fault, times - 1)] if times > 1 else []
                    self.fired.append(fault)
                    return fault
        return None
