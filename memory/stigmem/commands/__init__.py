"""``memslot tools stigmem``: the Stigmem adapter ABI (Spec-19) for agents with shell hooks.

Hooks run after every step of an agent, so this module imports only what a hook without a node needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperGroup

strict: ContextVar[bool] = ContextVar("strict", default=True)  # whether the running command may fail


class HookGroup(TyperGroup):
    """Commands for agents' hooks. An error is one line on stderr, with exit code 0.

    With ``--process``, errors are those of other commands.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if not self.commands:
            from typer.main import get_group

            from memory.stigmem.commands._abi import app

            self.commands = get_group(app).commands

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        strict.set("--process" in args)
        given = [argument for argument in args if argument != "--process"] or ["--help"]
        if not (strict.get() or "--help" in given or os.environ.get("STIGMEM_URL", "").strip()):
            raise typer.Exit(0)
        with _ending():
            return super().make_context(info_name, given, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _ending():
            return super().invoke(ctx)


@contextmanager
def _ending() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if strict.get():
            raise
        if not isinstance(error, BrokenPipeError):
            from memory.plugins.console import complain

            with suppress(OSError):
                complain(f"warning: {failure_line(error)}", warning=True)
        raise typer.Exit(0) from None
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # otherwise the interpreter's last flush would fail and change the exit code
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def failure_line(error: Exception) -> str:
    from memory import MemslotError
    from memory.plugins.console import usage_line

    if (usage := usage_line(error, "memslot tools stigmem")) is not None:
        return usage
    if isinstance(error, OSError) and error.filename is None:
        return f"the result cannot be written: {error.strerror}"
    return str(error) if isinstance(error, MemslotError) else f"unexpected {type(error).__name__}"


commands = HookGroup(
    name="stigmem",
    help="Tell a Stigmem node what an agent does, and the reverse. For hooks: does nothing "
    "without STIGMEM_URL, and exits with 0 whatever happens. With --process, which may stand anywhere, it exits "
    "with 2 without a URL or on bad input, and with 1 where the node fails. Reads STIGMEM_URL, STIGMEM_API_KEY and "
    "STIGMEM_SOURCE_ENTITY.",
    rich_markup_mode=None,
)
