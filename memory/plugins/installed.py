"""What is installed, read again only once that has changed: to read it takes some ten milliseconds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoints
from os import stat

_State = tuple[tuple[str, int | None], ...]


def entry_points(group: str) -> EntryPoints:
    """As :func:`importlib.metadata.entry_points`."""
    return _entry_points(group, _state())


def packages_distributions() -> Mapping[str, list[str]]:
    """As :func:`importlib.metadata.packages_distributions`; not to be changed."""
    return _packages_distributions(_state())


@lru_cache(maxsize=16)
def _entry_points(group: str, _: _State) -> EntryPoints:
    return metadata.entry_points(group=group)


@lru_cache(maxsize=1)
def _packages_distributions(_: _State) -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _state() -> _State:
    """Another one after a distribution was installed or removed, as its directory has then changed."""
    return tuple((directory, _changed_ns(directory)) for directory in sys.path)


def _changed_ns(directory: str) -> int | None:
    try:
        return stat(directory or ".").st_mtime_ns
    except OSError:
        return None
