"""Commands that other distributions add to ``memslot``: entry points of the group ``memslot.commands``, which name
a :class:`typer.Typer` or a plain click command. One is imported when it is run or listed, so that one which is
broken or slow costs the others nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from memory.contract.errors import PluginLoadError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "memslot.commands"


def command_names() -> list[str]:
    """Names on offer; imports nothing."""
    return sorted({point.name for point in _found()})


def load_command(name: str) -> Any | None:
    """The click command behind a name, or None where no distribution offers one; PluginLoadError where two do."""
    points = [point for point in _found() if point.name == name]
    if not points:
        return None
    if len(points) > 1:
        raise PluginLoadError(
            f"memslot {name}: offered by {' and '.join(map(_owner, points))}; uninstall one of them"
        )
    point = points[0]
    try:
        command: Any = point.load()
        if not isinstance(command, typer.Typer):
            if hasattr(command, "invoke") and hasattr(command, "make_context"):
                return command
            raise TypeError("not a typer app and not a command")
        command._add_completion = False  # the options for it are memslot's
        if not sys.stdout.isatty():
            command.rich_markup_mode = None
        return get_command(command)
    except (Exception, SystemExit) as error:
        raise PluginLoadError(
            f"memslot {name}: {point.value} of {_owner(point)} failed to load ({type(error).__name__})"
        ) from error


def _found() -> Iterable[EntryPoint]:
    from memory.plugins.installed import entry_points

    return entry_points(group=GROUP)


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown distribution"
