"""What the commands of ``memslot stigmem`` share: the two ways to fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from memory import ConfigError, MemslotError

__all__ = ["AsProcess", "attempt", "from_stdin"]

AsProcess = Annotated[
    bool, typer.Option("--process", help="Exit with 2 without STIGMEM_URL, and with 1 where the node fails.")
]

_LONGEST_STDIN = 1 << 20

T = TypeVar("T")


def attempt(process: bool, call: Callable[[], Awaitable[T]]) -> T | None:
    """Run ``call``; in middleware without ``STIGMEM_URL``, do nothing.

    A failure is the command's own in a process; in middleware it is one line on stderr, and None.

    Raises:
        MemslotError: in a process.
    """
    if not (process or os.environ.get("STIGMEM_URL", "").strip()):
        return None  # before anything is imported: hooks run after every step of an agent
    import anyio

    try:
        return anyio.run(call)
    except Exception as error:
        problem: Exception = error
        if isinstance(problem, ModuleNotFoundError) and problem.name == "httpx":
            problem = ConfigError("httpx is not installed; run: pip install 'memslot[stigmem]'")
        if process:
            raise problem from error.__cause__
        line = str(problem) if isinstance(problem, MemslotError) else f"unexpected {type(problem).__name__}"
        typer.echo(f"warning: {' '.join(line.split())}", err=True)
        return None


def from_stdin(text: str) -> str:
    """``text``, or what stands on stdin where it is ``-``; the limits of the write apply to both."""
    return sys.stdin.read(_LONGEST_STDIN).strip() if text == "-" else text
