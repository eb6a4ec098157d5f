"""Watches an adapter: how long it blocks the event loop, its output, and its concurrent calls."""

from __future__ import annotations

import io
import logging
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from functools import wraps
from typing import Any

import anyio

_TICK_S = 0.005
_INSIDE: ContextVar[bool] = ContextVar("memslot_kit_inside", default=False)


class LoopWatch:
    """Measures how long an event loop is blocked, in turns of a second thread.

    A busy machine gives both threads fewer turns. Turns therefore compare fairly, and seconds do not.

    Attributes:
        worst_ms: the longest block: turns of the second thread times their usual length.
        share: the longest block as a share of all turns, from 0 to 1.
    """

    def __init__(self) -> None:
        self._missed = self._worst = self._turns = 0

    @property
    def worst_ms(self) -> float:
        return self._worst * _TICK_S * 1000

    @property
    def share(self) -> float:
        return self._worst / max(1, self._turns)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[LoopWatch]:
        stop = threading.Event()
        thread = threading.Thread(target=self._count, args=(stop,), name="memslot-loop-watch")
        thread.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._reset_count)
                yield self
                tasks.cancel_scope.cancel()
        finally:
            stop.set()
            thread.join()

    async def _reset_count(self) -> None:
        while True:
            self._missed = 0
            await anyio.sleep(_TICK_S / 5)

    def _count(self, stop: threading.Event) -> None:
        while not stop.wait(_TICK_S):
            self._turns += 1
            self._missed += 1
            self._worst = max(self._worst, self._missed)


@contextmanager
def watch_output() -> Iterator[dict[str, str]]:
    """Capture logs and output, also of native code. ``log``, ``stdout`` and ``stderr`` are filled on exit."""
    found: dict[str, str] = {}
    log, out, err = io.StringIO(), io.StringIO(), io.StringIO()
    handler, root = logging.StreamHandler(log), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with _descriptor(1) as first, _descriptor(2) as second, redirect_stdout(out), redirect_stderr(err):
            yield found
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    found["log"] = log.getvalue()
    found["stdout"], found["stderr"] = out.getvalue() + first[0], err.getvalue() + second[0]


@contextmanager
def _descriptor(number: int) -> Iterator[list[str]]:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    text: list[str] = []
    kept = os.dup(number)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)
        try:
            yield text
        finally:
            os.dup2(kept, number)
            os.close(kept)
            file.seek(0)
            text.append(file.read().decode("utf-8", "replace"))


class Concurrency:
    """Counts concurrent calls of an adapter, and slows each one down."""

    METHODS = (
        "setup_scope", "record_event", "record_events", "retrieve", "reset_scope", "health", "readiness",
        "provenance", "native_query", "native_mutation", "apply_feedback",
    )  # fmt: skip

    def __init__(self, adapter: Any, patch: Callable[[Any, str, Any], None]) -> None:
        self.peak = 0
        self.kinds: set[str] = set()
        self.together: list[str] = []  # the calls at the peak
        self._now: list[str] = []
        for name in self.METHODS:
            if hasattr(adapter, name):
                patch(adapter, name, self._counted(name, getattr(adapter, name)))

    def _counted(self, name: str, native: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(native)
        async def counted(*arguments: Any) -> Any:
            if _INSIDE.get():  # a method of the adapter called another
                return await native(*arguments)
            inside = _INSIDE.set(True)
            self.kinds.add(name)
            self._now.append(name)
            if len(self._now) > self.peak:
                self.peak, self.together = len(self._now), sorted(self._now)
            try:
                await anyio.sleep(0.002)
                return await native(*arguments)
            finally:
                _INSIDE.reset(inside)
                self._now.remove(name)

        return counted
