"""Common parts of the commands of ``memslot tools stigmem``: waiting for the node, and reading input."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from memory.stigmem.commands import strict

if TYPE_CHECKING:
    import anyio

Wait = Annotated[
    float,
    typer.Option(help="Longest wait for an answer of the node, seconds; what is not done by then is left."),
]

_LONGEST_WAIT_S = 86_400
_CLOSING_S = 1.0

T = TypeVar("T")
_limit: ContextVar[tuple[anyio.CancelScope, float]] = ContextVar("_limit")


def within(wait: float, call: Callable[[], Awaitable[T]], *, grace_s: float = 0.0) -> T:
    """Return the result of ``call``.

    Args:
        wait: seconds for the call.
        call: the work.
        grace_s: further seconds, for a call that keeps its own deadline.

    Raises:
        BackendTimeout: the call took longer.
    """
    from memory import BackendTimeout, ConfigError

    check_wait(wait)
    try:
        # The wait is only for the node, so these imports come before its start.
        import anyio
        import httpx  # noqa: F401

        import memory.stigmem.abi  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise ConfigError("httpx is not installed; run: pip install 'memslot[stigmem]'") from None
    late = f"stigmem: not finished within {wait:g} s"

    async def limited() -> T:
        with anyio.fail_after(wait + grace_s) as limit:
            _limit.set((limit, wait))
            return await call()

    try:
        with _alarm(wait + grace_s + _CLOSING_S, late):
            return anyio.run(limited)
    except TimeoutError:
        raise BackendTimeout(late, backend_name="stigmem") from None


def go_on_waiting(*_: object) -> None:
    """Restart the wait after an answer, because a slow node is not a hanging one."""
    import anyio

    limit, wait = _limit.get()
    limit.deadline = anyio.current_time() + wait
    if signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        signal.setitimer(signal.ITIMER_REAL, wait + _CLOSING_S)


def check_wait(wait: float) -> None:
    from memory import InputError

    if not 0 < wait <= _LONGEST_WAIT_S:  # also refuses NaN
        raise InputError(f"--wait: must be more than 0 and at most {_LONGEST_WAIT_S} seconds")


@contextmanager
def _alarm(seconds: float, line: str) -> Iterator[None]:
    """End the process if a cancellation hangs: name look-ups and reads from stdin cannot be cancelled."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        with suppress(OSError):
            os.write(2, f"{'error' if strict.get() else 'warning'}: {line}\n".encode())
        os._exit(1 if strict.get() else 0)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def from_stdin(text: str) -> str:
    """Return ``text``, or the content of stdin if ``text`` is ``-``.

    Raises:
        InputError: stdin is closed or is not UTF-8 text.
    """
    from memory import InputError

    if text != "-":
        return text
    if sys.stdin is None:
        raise InputError("stdin is closed; pipe the text in, or give it as the option's value")
    try:
        return sys.stdin.read(1 << 20).strip()
    except UnicodeDecodeError:
        raise InputError("stdin is not UTF-8 text") from None
