"""Faults on demand, for the scripted LLM: what real endpoints do on a bad day."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["Fault", "FaultKind", "Faults"]

FaultKind = Literal[
    "401", "403", "429", "500", "timeout", "reset", "truncated", "bad_json", "empty", "invalid_body"
]
"""HTTP errors; ``timeout`` answers late; ``reset`` and ``truncated`` break the connection before and within
the body; ``bad_json`` and ``empty`` are 200 answers whose content is not JSON or is blank; ``invalid_body`` a
200 answer that is no JSON at all."""

_KINDS = get_args(FaultKind)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as it was ordered.

    Attributes:
        kind: what happens.
        endpoint: only there, such as ``chat/completions`` or ``embeddings``; None is everywhere.
        delay_s: seconds before ``timeout`` answers.
        retry_after_s: seconds in the ``retry-after`` header of ``429``.
    """

    kind: FaultKind
    endpoint: str | None = None
    delay_s: float = 30.0
    retry_after_s: float = 0.01


class Faults:
    """The faults still to happen and, in ``fired``, those that did: one that never fired proves nothing."""

    def __init__(self) -> None:
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
        if kind not in _KINDS:
            raise ValueError(f"unknown fault {kind!r}; use one of {', '.join(_KINDS)}")
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
                if fault.endpoint in (None, endpoint):
                    if times is not None:
                        self._due[index : index + 1] = [(fault, times - 1)] if times > 1 else []
                    self.fired.append(fault)
                    return fault
        return None
