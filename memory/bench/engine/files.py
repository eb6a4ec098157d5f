"""The files of an experiment: written whole, appended, owned by one process, hashed; and why a cell ends."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
"""Of a role's model: another attempt, now or when the run is taken up again, may have one."""


class Stopped(MemslotError):
    """The cell cannot go on, for the provider's sake: what it did not get to is failed."""


class HarnessFailed(MemslotError):
    """The cell cannot go on, and the provider has no part in it: what it did not get to is missing."""

    @classmethod
    def full(cls, file: str, error: OSError) -> HarnessFailed:
        return cls(f"{file} cannot be written ({error.strerror}); make room and resume")


class Interrupted(HarnessFailed):
    """The cell stops, and nothing is wrong with it: it can be taken up again."""


class CeilingReached(Interrupted):
    """The models' calls or tokens have reached their limit; the run stops, and can be resumed with a higher one."""


RecordT = TypeVar("RecordT", bound=BaseModel)
METER_FILE = "calls.log"
OTHERWISE_FILE = "otherwise.jsonl"  # records of the requests that were answered otherwise then
_HASHED = (METER_FILE, OTHERWISE_FILE, "journal.jsonl", "results.jsonl",
           "texts.jsonl", "times.jsonl", "traces.jsonl")  # fmt: skip


def new_id(label: str, at: datetime) -> str:
    """A fresh id that reads well and is safe as a file name and in native ids."""
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-")[:80] or "run"
    return f"{readable}-{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def make_directory(path: Path, place: str = "output") -> None:
    """Make a new directory, with its parents; ``place`` is the setting that names it, for messages."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{place}: {path} exists already; choose another directory") from None
    except OSError as error:
        raise ConfigError(f"{place}: {path} cannot be made ({error.strerror}); choose another") from None


@contextmanager
def exclusively(directory: Path, what: str = "experiment") -> Iterator[None]:
    """Work in the directory of an experiment or a cell alone; ConfigError where another process does."""
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
    """SHA-256, hex, of the files that figures of a directory come from."""
    hashes = {}
    for name in _HASHED:
        path = directory / name
        if path.exists():
            with open(path, "rb") as file:
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file of an experiment, whole or not at all: then HarnessFailed."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise HarnessFailed.full(path.name, error) from error


def write_record(record: BaseModel, path: Path) -> None:
    write_whole(path, record.model_dump_json(indent=2) + "\n")


def read_record(model: type[RecordT], file: Path) -> RecordT:
    """Read a record; ConfigError if it is missing or damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; give the directory of a run") from None
    except (OSError, ValueError):
        raise ConfigError(f"{file} cannot be read, or is not JSON; it is damaged") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{file} is damaged: it is no object")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{file} is damaged: {first_problem(error)}") from None


def json_lines(rows: Iterable[object]) -> bytes:
    return b"".join(to_json(row) + b"\n" for row in rows)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; none where there is no file. ConfigError names a damaged line."""
    return list(each_line(file))


def each_line(file: Path) -> Iterator[dict[str, Any]]:
    """The same one after another: all rows of a large file take ten times its size."""
    if not file.exists():
        return
    try:
        # Not splitlines(): texts may hold other line separators than JSON lines have.
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
    """Cut off a last line that a crash has left without its end, so that what is appended begins a line."""
    data = path.read_bytes() if path.is_file() else b""
    if (end := data.rfind(b"\n") + 1) < len(data):
        os.truncate(path, end)


class AppendedLines:
    """A file to which JSON objects are appended, one a line, whole or not at all; the first one makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_torn_line(path)

    def append(self, row: Mapping[str, Any]) -> None:
        append_bytes(self.path, to_json(row) + b"\n")


class CellJournal(AppendedLines):
    """The append-only journal of one cell: what has happened, in order, so that it is not done twice. A line is on
    its way to the disk before what follows it is begun; a last line torn by a crash is dropped at once."""

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines; ConfigError if a line other than the last is damaged."""
        try:
            yield from each_line(self.path)
        except ConfigError as error:
            raise ConfigError(f"{error}; start the cell again in a new run") from None

    def add(self, kind: str, **row: Any) -> None:
        self.append({"kind": kind, **row})

    def without_texts(self) -> None:
        """Write the file again without the words of users and replies."""
        texts = ("user", "reply", "texts", "texts_again")
        kept = ({name: row[name] for name in row if name not in texts} for row in self.lines())
        write_whole(self.path, json_lines(kept))


class TraceFile(AppendedLines):
    """The sink of a cell's traces; a cell that goes on appends. Calls of the second time leave none."""

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
        # Spliced, because to build the row and dump it again costs more than all else a line costs.
        line = f'{trace.model_dump_json()[:-1]},"probe_id":{json.dumps(self._probe_id)}}}\n'.encode()
        try:
            append_bytes(self.path, line)
        except OSError as error:
            self._lost = error

    def check(self) -> None:
        """Refuse to go on where a trace is lost: what it tells could never be checked."""
        if self._lost:
            raise HarnessFailed.full(self.path.name, self._lost) from self._lost

    def asking_again(self, again: bool) -> None:
        """Leave no traces while the requests are put a second time, so that they count nowhere."""
        self._paused = again

    def mark_probe(self, probe_id: str | None) -> None:
        """Traces of the calls that follow name the probe."""
        self._probe_id = probe_id


_UNSTABLE = re.compile(r"(-wal|-shm|-journal|\.lock|\.tmp|\.part)\Z")


class StoreFingerprint:
    """Hashes the files below a directory. It reads a file again only if its time or size changed."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[int, int, int], bytes]] = {}

    def __call__(self) -> dict[str, bytes] | None:
        """Hashes by path; None without any file. Logs and locks beside databases are left out."""
        found = {}

        def unreadable(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        for directory, _, names in os.walk(self._store, onerror=unreadable):
            for path in (os.path.join(directory, name) for name in names if not _UNSTABLE.search(name)):
                if stat.S_ISREG((now := os.stat(path)).st_mode):
                    stamp = (now.st_ino, now.st_size, now.st_mtime_ns)
                    if path not in self._known or self._known[path][0] != stamp:
                        self._known[path] = (stamp, hashlib.sha256(Path(path).read_bytes()).digest())
                    found[path] = self._known[path][1]
        return found or None
