"""What is installed, read again only once that has changed: to read it takes some ten milliseconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import lru_cache
from os import stat
from typing import TYPE_CHECKING, Any

from memory.contract.errors import PluginLoadError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

# Names a :class:`typer.Typer` or a plain click command. A command is imported when it is run or listed, so a broken
# or slow command costs the others nothing.
GROUP = "memslot.commands"


def entry_points(group: str) -> EntryPoints:
    found: EntryPoints = _entry_points(_state()).select(group=group)
    return found


def packages_distributions() -> Mapping[str, list[str]]:
    """As :func:`importlib.metadata.packages_distributions`; not to be changed."""
    return _packages_distributions(_state())


@lru_cache(maxsize=1)
def _entry_points(_: object) -> Any:
    """Of all groups: to read one takes as long."""
    from importlib import metadata  # a command that lists nothing starts without it

    return metadata.entry_points()


@lru_cache(maxsize=1)
def _packages_distributions(_: object) -> Mapping[str, list[str]]:
    from importlib import metadata

    return metadata.packages_distributions()


def _state() -> tuple[tuple[str, int | None], ...]:
    """Another one after a distribution was installed or removed, as its directory has then changed."""
    return tuple((directory, _changed_ns(directory)) for directory in sys.path)


def _changed_ns(directory: str) -> int | None:
    try:
        return stat(directory or ".").st_mtime_ns
    except OSError:
        return None


def command_names() -> list[str]:
    """Names on offer; imports nothing."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load_command(name: str) -> Any | None:
    """The click command behind a name, or None where no distribution offers one; PluginLoadError where two do."""
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
        command._add_completion = False  # the options for it are memslot's
        if not sys.stdout.isatty():
            command.rich_markup_mode = None
        return get_command(command)
    except BaseException as error:  # a command may raise what it likes at import, also KeyboardInterrupt
        failed = f"{point.value} of {_owner(point)} failed to load ({type(error).__name__})"
        raise PluginLoadError(f"memslot {name}: {failed}") from error


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown distribution"


@contextmanager
def prints_on_stderr() -> Iterator[None]:
    """Send what is printed meanwhile to stderr, also what C code writes to file descriptor 1. For commands."""
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
