"""Watches an adapter: its output, and its concurrent calls."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from functools import wraps
from typing import Any

import anyio

_INSIDE: ContextVar[bool] = ContextVar("memslot_kit_inside", default=False)


@contextmanager
def watch_output() -> Iterator[dict[str, str]]:
    """Capture logs and Python's output. ``log``, ``stdout`` and ``stderr`` are filled on exit."""
    found: dict[str, str] = {}
    log, out, err = io.StringIO(), io.StringIO(), io.StringIO()
    handler, root = logging.StreamHandler(log), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield found
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    found |= {"log": log.getvalue(), "stdout": out.getvalue(), "stderr": err.getvalue()}


class Concurrency:
    """Counts concurrent calls of an adapter, and slows each one down."""

    METHODS = (
        "setup_scope", "record_event", "record_events", "retrieve", "reset_scope", "health", "readiness",
        "provenance", "native_query", "native_mutation", "apply_feedback",
    )  # fmt: skip

    def __init__(self, adapter: Any, patch: Callable[[Any, str, Any], None]) -> None:
        self.peak = 0
        self.peak_of: Counter[str] = Counter()  # for each scope label
        self.kinds: set[str] = set()
        self.together: list[str] = []  # the calls at the peak
        self._now: list[str] = []
        self._now_of: Counter[str] = Counter()
        for name in self.METHODS:
            if hasattr(adapter, name):
                patch(adapter, name, self._counted(name, getattr(adapter, name)))

    def _counted(self, name: str, native: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(native)
        async def counted(*arguments: Any) -> Any:
            if _INSIDE.get():  # a method of the adapter called another
                return await native(*arguments)
            inside = _INSIDE.set(True)
            about = next(iter(arguments), None)
            first = next(iter(about), None) if isinstance(about, (list, tuple)) else about
            scope = str(getattr(getattr(first, "scope", first), "label", ""))
            self.kinds.add(name)
            self._now.append(name)
            self._now_of[scope] += 1
            if len(self._now) > self.peak:
                self.peak, self.together = len(self._now), sorted(self._now)
            self.peak_of[scope] = max(self.peak_of[scope], self._now_of[scope])
            try:
                await anyio.sleep(0.002)
                return await native(*arguments)
            finally:
                _INSIDE.reset(inside)
                self._now.remove(name)
                self._now_of[scope] -= 1

        return counted
