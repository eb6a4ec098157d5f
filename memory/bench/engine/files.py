"""The files of an experiment (written whole, appended, locked, hashed), and the errors that end a cell."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from memory.contract._model import first_problem
from memory.contract.errors import (
    BackendRateLimited,
    BackendTimeout,
    BackendUnavailable,
    ConfigError,
    MemslotError,
)
from memory.contract.receipts import Trace
from memory.plugins.redaction import Scrubber
from memory.storage.files import append_bytes, replace_file
from memory.storage.lock import FileLock

NO_ANSWER = (BackendUnavailable, BackendTimeout, BackendRateLimited)
"""Errors of a role's model after which another attempt, now or on resuming, may succeed."""


class Stopped(MemslotError):
    """The cell cannot go on because of the provider. Its remaining requests are failed."""


class HarnessFailed(MemslotError):
    """The cell cannot go on, and the provider is not the cause. Its remaining requests are missing."""

    @classmethod
    def full(cls, file: str, error: OSError) -> HarnessFailed:
        return cls(f"{file} cannot be written ({error.strerror}); make room and resume")


class Interrupted(HarnessFailed):
    """The cell stops without a fault, and can be resumed."""


RecordT = TypeVar("RecordT", bound=BaseModel)
OTHERWISE_FILE = "otherwise.jsonl"  # records that differ the second time
_HASHED = (OTHERWISE_FILE, "journal.jsonl", "results.jsonl",
           "texts.jsonl", "times.jsonl", "traces.jsonl")  # fmt: skip


def new_id(label: str, at: datetime) -> str:
    """A fresh, readable id that is safe in file names and native ids."""
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-")[:80] or "run"
    return f"{readable}-{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def make_directory(path: Path, place: str = "output") -> None:
    """Make a new directory with its parents. ``place`` names its setting in errors. Raises ConfigError."""
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{place}: {path} cannot be made ({error.strerror}); choose another") from None


@contextmanager
def exclusively(directory: Path, what: str = "experiment") -> Iterator[None]:
    """Hold the lock of an experiment's or a cell's directory. Raises ConfigError if another process does."""
    what = f"the {what} {directory.name}"
    lock = FileLock(directory / ".lock", what=what, instead="wait until it has ended")
    try:
        lock.acquire()
    except BackendUnavailable as error:
        raise ConfigError(str(error)) from None
    try:
        yield
    finally:
        lock.release()


def file_hashes(directory: Path) -> dict[str, str]:
    """SHA-256 (hex) of the files in a directory from which figures come."""
    hashes = {}
    for name in _HASHED:
        path = directory / name
        if path.exists():
            with open(path, "rb") as file:
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all. Raises HarnessFailed."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise HarnessFailed.full(path.name, error) from error


def write_record(record: BaseModel, path: Path) -> None:
    write_whole(path, record.model_dump_json(indent=2) + "\n")


def read_record(model: type[RecordT], file: Path) -> RecordT:
    """Read a record. Raises ConfigError if it is missing or damaged."""
    try:
        return model.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; give the directory of a run") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise ConfigError(f"{file} is damaged: {first_problem(error)}") from None


def json_lines(rows: Iterable[object]) -> bytes:
    return b"".join(to_json(row) + b"\n" for row in rows)


def each_line(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON lines file, one by one: all rows of a large file take ten times its size."""
    if not file.exists():
        return
    try:
        # Not splitlines(), because texts may hold other line separators.
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = from_json(line, allow_inf_nan=False) if line else {}
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"{file}, line {number}, is damaged")
        if line:
            yield row


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a crash left incomplete, so that the next row begins a new line."""
    data = path.read_bytes() if path.is_file() else b""
    if (end := data.rfind(b"\n") + 1) < len(data):
        os.truncate(path, end)


class AppendedLines:
    """A file of JSON lines. Each line is appended whole or not at all; the first one creates the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_torn_line(path)

    def append(self, row: Mapping[str, Any]) -> None:
        append_bytes(self.path, to_json(row) + b"\n")


class CellJournal(AppendedLines):
    """The append-only journal of one cell: what has happened, in order, so that nothing is done twice.

    Each line is written before the next step begins. A last line torn by a crash is dropped on opening.
    """

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines. Raises ConfigError if one is damaged."""
        try:
            yield from each_line(self.path)
        except ConfigError as error:
            raise ConfigError(f"{error}; start the cell again in a new run") from None

    def add(self, kind: str, **row: Any) -> None:
        self.append({"kind": kind, **row})

    def without_texts(self) -> None:
        """Rewrite the file without the words of users and replies."""
        texts = ("user", "reply", "texts", "texts_again")
        kept = ({name: row[name] for name in row if name not in texts} for row in self.lines())
        write_whole(self.path, json_lines(kept))


class Times(AppendedLines):
    """Milliseconds by phase, in a file of their own, because a resumed cell must reproduce everything else."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._spent: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, phase: str, ms: float) -> None:
        self._spent[phase].append(round(ms, 3))

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Measure what happens within."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, (time.perf_counter() - began) * 1000)

    def flush(self) -> None:
        if self._spent:
            with suppress(OSError):
                self.append(self._spent)
            self._spent.clear()


class TraceFile(AppendedLines):
    """Keeps a cell's traces; a resumed cell appends. Requests asked a second time leave no traces."""

    def __init__(self, path: Path, scrub: Scrubber) -> None:
        super().__init__(path)
        self._scrub = scrub
        self._probe_id: str | None = None
        self._lost: OSError | None = None
        self._paused = False

    def emit(self, trace: Trace) -> None:
        if self._lost or self._paused:
            return
        if trace.warnings:
            trace = trace.model_copy(update={"warnings": self._scrub(trace.warnings)})
        # Spliced as text, because building and dumping the row again would cost more than all the rest.
        line = f'{trace.model_dump_json()[:-1]},"probe_id":{json.dumps(self._probe_id)}}}\n'.encode()
        try:
            append_bytes(self.path, line)
        except OSError as error:
            self._lost = error

    def check(self) -> None:
        """Raises HarnessFailed if a trace was lost, because what it records could never be checked."""
        if self._lost:
            raise HarnessFailed.full(self.path.name, self._lost) from self._lost

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the traces within: requests that are asked a second time count nowhere."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @contextmanager
    def of_probe(self, probe_id: str) -> Iterator[None]:
        """Name the probe in the traces within, so that results and traces can be joined."""
        self._probe_id = probe_id
        try:
            yield
        finally:
            self._probe_id = None
