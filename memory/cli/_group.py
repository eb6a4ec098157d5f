"""The end of every command: its result, or one line about the error, and an exit code.

=====  ==============================================================================================
  0    done
  1    a backend, a check or a run failed, or memslot itself has a bug
  2    the command line, the configuration, the input or the plugin cannot be used; nothing was started
 130   interrupted
=====  ==============================================================================================
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from memory import (
    CapabilityNotSupported,
    ConfigError,
    InputError,
    IsolationError,
    MemslotError,
    PluginError,
    ScopeError,
)
from memory.cli._anchors import with_section
from memory.plugins.console import complain, usage_line
from memory.plugins.installed import command_names, load_command

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
# The help groups commands by purpose. Other distributions' commands are in the last section.
_SECTIONS = {
    "Use": ("setup", "example", "chat", "import", "export", "serve", "journal"),
    "Check": ("doctor", "view"),
    "Measure": ("run", "report"),
    "Extend": ("tools",),
}
FORMER_NAMES = {
    "backends": "doctor",
    "bench": "run",
    "compare": "run",
    "config": "tools config",
    "conform": "tools conform",
    "data": "tools data",
    "demo": "run demo",
    "failures": "report --failures",
    "hosts": "tools hosts",
    "init": "setup",
    "mcp": "tools mcp",
    "new-plugin": "tools new-plugin",
    "scripted-llm": "tools scripted-llm",
    "signet": "tools signet",
    "stigmem": "tools stigmem",
    "verify": "report --verify",
}
"""The commands of earlier versions -> the commands that replace them."""
_TOOLS = frozenset(name for name, now in FORMER_NAMES.items() if now == f"tools {name}")
_INPUT = (ConfigError, InputError, ScopeError, PluginError, CapabilityNotSupported)


class CommandGroup(TyperGroup):
    """The root of all commands, plugins' included. It turns an error into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """memslot's own commands first, in the order they were added."""
        own = super().list_commands(ctx)
        return own + [name for name in command_names() if name not in {*own, *_TOOLS}]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name. This imports a plugin's command; a broken one fails only when it runs."""
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name not in _TOOLS:
            command = _loaded(cmd_name)
        if command is None and cmd_name in FORMER_NAMES:
            now = InputError(f"memslot {cmd_name}: is now 'memslot {FORMER_NAMES[cmd_name]}'")
            return _failing(cmd_name, now)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List every command by purpose, with its complete first sentence."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {name: made.get_short_help_str(limit=200) for name, made in found.items() if not made.hidden}
        placed = {name for names in _SECTIONS.values() for name in names}
        others = [name for name in shown if name not in placed]
        for title, names in _SECTIONS.items():
            last = title == list(_SECTIONS)[-1]
            rows = [(name, shown[name]) for name in (*names, *(others if last else ())) if name in shown]
            with formatter.section(title):
                formatter.write_dl(rows)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        # --debug may stand anywhere, because users append it to a line that failed.
        debug = "--debug" in given
        given = [argument for argument in given if argument != "--debug"]
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            extra = {"obj": {"debug": debug}, **extra, "standalone_mode": False}
            code = super().main(given, prog_name or "memslot", *rest, **extra)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            code = _explain(_single(error), debug)
        sys.exit(code if isinstance(code, int) else 0)


class ToolGroup(TyperGroup):
    """``memslot tools``: rarely needed commands of this and other rooms."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *(name for name in command_names() if name in _TOOLS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or (_loaded(cmd_name) if cmd_name in _TOOLS else None)


def _loaded(name: str) -> Any:
    """The command of an entry point, or None. A broken entry point gives a command that fails when it runs."""
    try:
        command = load_command(name)
    except PluginError as error:
        return _failing(name, error, f"broken: {error}")
    if command is not None:
        command.name = name
    return command


def tracebacks(context: typer.Context) -> Callable[[Exception], None] | None:
    """The callback for an error that became a line of a result. With ``--debug``, it prints the traceback."""
    return traceback.print_exception if context.obj["debug"] else None


def _failing(name: str, error: MemslotError, help_text: str = "") -> Any:
    """A command that raises this error when it runs. The help lists it only if it has a help text."""

    def fail() -> None:
        raise error

    return TyperCommand(
        name,
        callback=fail,
        help=help_text,
        hidden=not help_text,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        rich_markup_mode=None,
    )


def _single(error: Exception) -> Exception:
    """The only error in a task group's exception group; any other error unchanged."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _explain(error: Exception, debug: bool) -> int:
    """Print an error in one line, without user text or secrets; for a group without a command, its help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # a class of click, or of typer's copy of click
        typer.echo(error.format_message())  # type: ignore[attr-defined]
        return 0
    if debug:
        traceback.print_exception(error)
    line, code = _line_and_code(error)
    complain(f"error: {with_section(line)}")
    return code


def _line_and_code(error: Exception) -> tuple[str, int]:
    if (usage := usage_line(error, "memslot")) is not None:
        return usage, UNUSABLE
    if isinstance(error, MemslotError):
        unusable = isinstance(error, _INPUT) and not isinstance(error, IsolationError)
        return str(error), UNUSABLE if unusable else FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", UNUSABLE
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{error.strerror}; what was being written is incomplete", FAILED
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"unexpected {type(error).__name__} in {place}; add --debug for the traceback", FAILED
