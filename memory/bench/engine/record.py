"""The files a played cell keeps: lines of JSON, and the journal it resumes from."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pydantic_core import to_json

from memory.bench.engine.run_manifest import write_atomic
from memory.contract.errors import ConfigError

JOURNAL_VERSION = 1
"""Counts up when a journal of before could not be continued."""


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a crash has left without its end, so that what is appended begins a line."""
    data = path.read_bytes() if path.exists() else b""
    if (end := data.rfind(b"\n") + 1) < len(data):
        os.truncate(path, end)


def json_lines(rows: Iterable[object]) -> bytes:
    """One JSON object a line."""
    return b"".join(to_json(row) + b"\n" for row in rows)


class AppendedLines:
    """A file to which JSON objects are appended, one a line and one ``write``.

    Args:
        path: the file; made when the first line is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            OSError: it could not be written whole.
        """
        if self._file is None:
            drop_torn_line(self.path)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        line = to_json(row) + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


class PlayJournal(AppendedLines):
    """The append-only journal of one cell: what has happened, in order, so that it is not done twice.

    A line is on its way to the disk before what follows it is begun. A last line torn by a crash is dropped when it
    is read.
    """

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is there.

        Raises:
            ConfigError: a line other than the last is damaged.
        """
        if not self.path.exists():
            return
        drop_torn_line(self.path)
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise ConfigError(
                    f"{self.path.name}, line {number}, is damaged; start the cell again in a new run"
                )
            yield row

    def add(self, kind: str, **row: Any) -> None:
        """Append one line.

        Raises:
            OSError: it could not be written whole.
        """
        self.append({"kind": kind, **row})

    def without_texts(self) -> None:
        """Write the file anew without what was said, once it is needed no more.

        Raises:
            OSError: it cannot be written.
        """
        self.close()
        kept = (
            {name: value for name, value in row.items() if name not in ("user", "reply", "texts")}
            for row in self.lines()
        )
        write_atomic(self.path, json_lines(kept))
