"""Faults on demand for the servers in tests. Each server plays the kinds of :data:`FaultKind` that it can."""

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
"""A fault of one request.

The server does not carry these out: a status, whose error repeats the request and holds :data:`FAKE_KEY`;
``redirect``, to another host; ``refused``, no connection; ``reset``, a connection that breaks.
It carries ``slow`` out after ``delay_s``.

The server carries these out: ``late``, answered after ``delay_s``; ``lost``, the connection breaks before the
answer; ``truncated``, it breaks within the answer; ``unreadable``, a success that nobody can parse. A language
model also knows ``bad_content``, content that is not the requested JSON, and ``empty``, blank content.
"""
FAKE_KEY = "sk-fake-not-a-real-key-0123456789"
"""Each error answer holds this key beside the user's text, so that tests can look for leaks of both."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One ordered fault."""

    kind: FaultKind
    endpoint: str | None = None  # an endpoint, a native operation or a pattern with ``*``; None means any
    delay_s: float = 30.0  # for ``slow`` and ``late``
    retry_after_s: float = 0.01  # what ``429`` asks the client to wait


class Faults:
    """The ordered faults. ``fired`` lists those that happened: a fault that never fired proves nothing.

    Args:
        kinds: the faults that the server can play.
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
        """Let the next ``times`` requests fail (None: all), at one endpoint or at any.

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
        """Cancel all ordered faults. ``fired`` stays."""
        with self._lock:
            self._due.clear()

    def take(self, endpoint: str) -> Fault | None:
        """Take the fault that is due at ``endpoint``, and list it as fired."""
        with self._lock:
            for index, (fault, times) in enumerate(self._due):
                if fault.endpoint is None or fnmatchcase(endpoint, fault.endpoint):
                    if times is not None:
                        self._due[index : index + 1] = [(fault, times - 1)] if times > 1 else []
                    self.fired.append(fault)
                    return fault
        return None
