"""How every command ends: with its result, or with one line that says what is wrong and an exit code.

=====  ==============================================================================================
  0    done
  1    a backend failed, a gate or a run failed, or memslot itself has a bug
  2    the command line, the configuration, the input or the plugin cannot be used; nothing was started
 130   interrupted
=====  ==============================================================================================
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from memory.errors import (
    CapabilityNotSupported,
    ConfigError,
    InputError,
    IsolationError,
    MemslotError,
    PluginError,
    ScopeError,
)

__all__ = ["CommandGroup", "FAILED", "INTERRUPTED", "UNUSABLE"]

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
_INPUT = (ConfigError, InputError, ScopeError, PluginError, CapabilityNotSupported)


class CommandGroup(TyperGroup):
    """The root command: turns whatever goes wrong below it into one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command line and end the process."""
        given = list(sys.argv[1:] if args is None else args)
        # Taken out here so that it may stand anywhere: it is added by hand to a line that failed.
        debug = "--debug" in given
        given = [argument for argument in given if argument != "--debug"]
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            code = _explain(_single(error), debug)
        sys.exit(code if isinstance(code, int) else 0)


def _single(error: Exception) -> Exception:
    """What a task group holds, where it holds one error."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _explain(error: Exception, debug: bool) -> int:
    """Say in one line what went wrong; user text and secrets never stand in it."""
    if debug:
        traceback.print_exception(error)
    line, code = _line_and_code(error)
    typer.echo(f"error: {' '.join(line.split())}", err=True)
    return code


def _line_and_code(error: Exception) -> tuple[str, int]:
    # typer carries a click of its own or shares one, by version; what both have in common is this method.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "memslot"
        return f"{usage().rstrip('.')}; see '{command} --help'", UNUSABLE
    if isinstance(error, MemslotError):
        unusable = isinstance(error, _INPUT) and not isinstance(error, IsolationError)
        return str(error), UNUSABLE if unusable else FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", UNUSABLE
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"unexpected {type(error).__name__} in {place}; add --debug for the traceback", FAILED
