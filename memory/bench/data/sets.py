"""Data sets by name: memslot's own, and those of plugins.

A plugin registers its reader, a :class:`Load`, in the entry-point group ``memslot.datasets``.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol

from memory.bench.data.timeline import TimelineSet
from memory.contract.errors import ConfigError, PluginLoadError
from memory.plugins.installed import entry_points
from memory.runtime._transcripts import first_item

GROUP = "memslot.datasets"
_OWN = ("locomo", "longmemeval", "personamem", "membench", "prefeval", "mempabench", "own")
_FIELDS = {  # by which a row of a published data set is known
    "locomo": {"conversation", "qa"},
    "longmemeval": {"haystack_sessions"},
    "membench": {"message_list"},
    "prefeval": {"preference", "question"},
}
_DEEPEST = 5  # lists and objects that may lie around a row


class Load(Protocol):
    def __call__(self, path: Path, *, limit_questions: int | None = None) -> TimelineSet:
        """The timelines of a file or directory. ``limit_questions`` applies to each conversation, or to the file.

        Raises:
            ConfigError: names the fault and its position.
        """


def data_sets() -> dict[str, Load]:
    """The reader of every data set by name. A plugin cannot replace one of memslot's."""
    own = {name: EntryPoint(name, f"memory.bench.data.{name}:load_{name}", GROUP) for name in _OWN}
    points = {point.name: point for point in entry_points(GROUP)}
    return {name: partial(_load, point) for name, point in (own | points | own).items()}


def _load(point: EntryPoint, path: Path, *, limit_questions: int | None = None) -> TimelineSet:
    try:
        load: Load = point.load()
        if not callable(load):
            raise TypeError
    except Exception as error:
        raise PluginLoadError(
            f"the data set {point.name} cannot be loaded: {type(error).__name__}"
        ) from error
    return load(path, limit_questions=limit_questions)


def kind_of_file(path: Path) -> str:
    """The data set of a file or directory; ``own`` if no published data set matches.

    Raises:
        ConfigError: it does not exist, or cannot be read.
    """
    source = path.expanduser()
    if not source.exists():
        raise ConfigError(
            f"bench.data: {source} does not exist; give the path of a data set or of conversations"
        )
    if source.suffix == ".csv":
        return "personamem"
    if source.is_dir():
        return "mempabench" if any(source.glob("*/acc_*.yaml")) else "own"
    row: Any = first_item(source)
    for _ in range(_DEEPEST):
        if isinstance(row, dict):
            for name, fields in _FIELDS.items():
                if fields <= row.keys():
                    return name
            row = [*row.values()]
        if not isinstance(row, list) or not row:
            break
        row = row[0]
    return "own"
