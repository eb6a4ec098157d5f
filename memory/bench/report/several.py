"""Several experiments on one page, in a directory of their own that names them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from memory.bench.engine.files import write_whole
from memory.bench.report.report import write_report
from memory.bench.report.results import Results
from memory.contract.errors import ConfigError

SEVERAL_FILE = "several.json"


def parts_of(directories: Sequence[Path]) -> list[Path]:
    """Each experiment once, those that a directory names in its place.

    Raises:
        ConfigError: what names them is damaged.
    """
    found: dict[Path, Path] = {}
    for directory in directories:
        for part in _named(directory):
            found.setdefault(part.resolve(), part)
    return list(found.values())


def _named(directory: Path) -> list[Path]:
    file = directory / SEVERAL_FILE
    if not file.exists():
        return [directory]
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return [directory / name for name in content["experiments"]]
    except (OSError, ValueError, TypeError, KeyError):
        raise ConfigError(f"{file} is damaged; compare the experiments again") from None


def write_several(directory: Path, parts: Sequence[Path]) -> tuple[Path, Results]:
    """Write the page of several experiments, and which they are; returns its path and what it shows.

    Raises:
        ConfigError: an experiment cannot be read.
    """
    page, results = write_report(directory, parts)
    names = [Path(os.path.relpath(part.absolute(), directory.absolute())).as_posix() for part in parts]
    content = {"format_version": 1, "experiments": names}
    write_whole(directory / SEVERAL_FILE, json.dumps(content, indent=2) + "\n")
    return page, results
