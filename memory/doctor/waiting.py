"""Saying what a long call is for, while it is under way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import anyio

from memory.doctor.report import Waiting

_FIRST_NOTICE_S = 2.0
_NEXT_NOTICE_S = 5.0


@dataclass(frozen=True)
class _Call:
    what: str
    limit_s: float
    since: float


class Patience:
    """Knows which call is under way, and tells of those that take their time: after 2 s, then every 5 s."""

    def __init__(self, report: Callable[[Waiting], None] | None) -> None:
        self.check = ""
        self.report = report
        self._call: _Call | None = None

    @contextmanager
    def waiting_for(self, what: str, limit_s: float) -> Iterator[None]:
        """Around one call, which ends after ``limit_s`` seconds by itself."""
        self._call = _Call(what, limit_s, anyio.current_time())
        try:
            yield
        finally:
            self._call = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Tell of long calls while the body runs. What the body or ``report`` raises comes out as it is."""
        problem: BaseException | None = None

        async def watch() -> None:
            nonlocal problem
            try:
                await self._watch()
            except Exception as error:
                problem = error
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                problem = error
            finally:
                tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _watch(self) -> None:
        reported: _Call | None = None
        reported_at = 0.0
        while self.report is not None:
            await anyio.sleep(_FIRST_NOTICE_S / 4)
            call, now = self._call, anyio.current_time()
            if call is None or now - call.since < _FIRST_NOTICE_S:
                continue
            if call is not reported or now - reported_at >= _NEXT_NOTICE_S:
                reported, reported_at = call, now
                elapsed_s = now - call.since
                self.report(
                    Waiting(check=self.check, what=call.what, elapsed_s=elapsed_s, limit_s=call.limit_s)
                )
