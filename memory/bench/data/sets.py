"""Data sets by name: memslot's own, and those of plugins.

A plugin registers a :class:`DataSet` in the entry-point group ``memslot.datasets``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from memory.bench.data.timeline import TimelineSet
from memory.contract.errors import ConfigError, PluginLoadError
from memory.plugins.installed import entry_points
from memory.runtime._transcripts import first_item

GROUP = "memslot.datasets"


class Load(Protocol):
    def __call__(self, path: Path, *, limit_questions: int | None = None) -> TimelineSet:
        """The timelines of a file or directory. ConfigError names the fault and its position."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A kind of data, with its reader.

    Attributes:
        name: the value of ``timeline:``.
        summary: one line about it.
        load: reads a path; ``limit_questions`` applies to each conversation, or to the file.
        is_file: whether a path holds this kind of data, by the first JSON value of the file. The value is
            None for a directory or a CSV file.
    """

    name: str
    summary: str
    load: Load
    is_file: Callable[[Path, Any], bool] = lambda path, first: False


def _lazy(module: str, name: str) -> Load:
    def load(path: Path, *, limit_questions: int | None = None) -> TimelineSet:
        found: TimelineSet = getattr(import_module(f"memory.bench.data.{module}"), name)(
            path, limit_questions=limit_questions
        )
        return found

    return load


def _holds(*names: str) -> Callable[[Path, Any], bool]:
    return lambda path, first: isinstance(first, dict) and set(names) <= first.keys()


def _of_membench(path: Path, first: Any) -> bool:
    """Whether a value is a case of MemBench, or groups of cases."""
    for _ in range(5):
        if isinstance(first, dict) and "message_list" in first:
            return True
        inner = first if isinstance(first, list) else [*first.values()] if isinstance(first, dict) else []
        first = inner[0] if inner else None
    return False


_BUILT_IN = (
    DataSet(
        "locomo",
        "long two-person conversations",
        _lazy("locomo", "load_locomo"),
        _holds("conversation", "qa"),
    ),
    DataSet(
        "longmemeval",
        "questions, each with a history of its own",
        _lazy("longmemeval", "load_longmemeval"),
        lambda path, first: (
            _holds("haystack_sessions")(path, first)
            or (isinstance(first, dict) and len(first) == 1 and _holds_questions(first))
        ),
    ),
    DataSet(
        "personamem",
        "which of four replies suits a person",
        _lazy("personamem", "load_personamem"),
        lambda path, first: path.suffix == ".csv" or (path.is_dir() and any(path.glob("questions_*.csv"))),
    ),
    DataSet("membench", "factual and reflective memory", _lazy("membench", "load_membench"), _of_membench),
    DataSet(
        "prefeval",
        "preferences that a reply must follow",
        _lazy("prefeval", "load_prefeval"),
        _holds("preference", "question"),
    ),
    DataSet(
        "mempabench",
        "MemPABench's layout, a directory for each user",
        _lazy("mempabench", "load_mempabench"),
        lambda path, first: path.is_dir() and any(path.glob("*/acc_*.y*ml")),
    ),
    DataSet("own", "your own conversations, and questions about them", _lazy("own", "load_own")),
)


def _holds_questions(first: Mapping[str, Any]) -> bool:
    (inner,) = first.values()
    return isinstance(inner, list) and bool(inner) and _holds("haystack_sessions")(Path(), inner[0])


def data_sets() -> dict[str, DataSet]:
    """Every data set by name. A plugin cannot replace one of memslot's."""
    found = {item.name: item for item in _BUILT_IN}
    for point in entry_points(GROUP):
        if point.name not in found:
            found[point.name] = DataSet(point.name, "of a plugin", _of_plugin(point))
    return found


def _of_plugin(point: Any) -> Load:
    def load(path: Path, *, limit_questions: int | None = None) -> TimelineSet:
        try:
            plugin = point.load()
        except Exception as error:
            raise PluginLoadError(
                f"the data set {point.name} cannot be loaded: {type(error).__name__}"
            ) from error
        if not isinstance(plugin, DataSet):
            raise PluginLoadError(f"the data set {point.name} is no memory.bench.data.sets.DataSet")
        return plugin.load(path, limit_questions=limit_questions)

    return load


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
    first = None if source.is_dir() or source.suffix == ".csv" else first_item(source)
    known = (item.name for item in _BUILT_IN if item.is_file(source, first))
    return next(islice(known, 1), "own")
