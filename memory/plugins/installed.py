"""The entry points of the installed distributions, read once for each ``sys.path``: that takes ten milliseconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory.contract.errors import PluginLoadError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

# Each entry point names a :class:`typer.Typer` or a click command. A command is imported only when it is run
# or listed, so a broken or slow command does not affect the others.
GROUP = "memslot.commands"


def entry_points(group: str) -> EntryPoints:
    found: EntryPoints = _entry_points(tuple(sys.path)).select(group=group)
    return found


@lru_cache(maxsize=1)
def _entry_points(_: object) -> Any:
    """The entry points of all groups, because reading one group takes as long."""
    from importlib import metadata  # imported late, for commands that list nothing

    return metadata.entry_points()


def command_names() -> list[str]:
    """The names of all commands. Imports nothing."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load_command(name: str) -> Any | None:
    """The click command of a name, or None if no distribution offers it.

    Raises:
        PluginLoadError: two distributions offer the name, or the command fails to load.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        return None
    if len(points) > 1:
        owners = " and ".join(map(_owner, points))
        raise PluginLoadError(f"memslot {name}: offered by {owners}; uninstall one of them")
    import typer
    from typer.main import get_command

    point = points[0]
    try:
        command: Any = point.load()
        if not isinstance(command, typer.Typer):
            if hasattr(command, "invoke") and hasattr(command, "make_context"):
                return command
            raise TypeError("not a typer app and not a command")
        command._add_completion = False  # memslot itself offers the completion options
        if not sys.stdout.isatty():
            command.rich_markup_mode = None
        return get_command(command)
    except BaseException as error:  # an import may raise anything, even KeyboardInterrupt
        failed = f"{point.value} of {_owner(point)} failed to load ({type(error).__name__})"
        raise PluginLoadError(f"memslot {name}: {failed}") from error


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown distribution"


@contextmanager
def prints_on_stderr() -> Iterator[None]:
    """Send all output of the body to stderr, even C code's writes to file descriptor 1. For commands."""
    kept: int | None = None
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):  # a process without standard streams
        pass
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            os.dup2(kept, 1)
            os.close(kept)
