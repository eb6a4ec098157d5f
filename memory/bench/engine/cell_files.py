"""What a cell's traces go to, and what tells whether a test session left its store as it was."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from memory.bench.engine.errors import HarnessFailed
from memory.bench.engine.files import append_whole, drop_torn_line
from memory.contract.receipts import Trace
from memory.plugins.redaction import Scrubber

_UNSTABLE = re.compile(r"(-wal|-shm|-journal|\.lock|\.tmp|\.part)\Z")


class TraceFile:
    """The sink of a cell's traces; a cell that goes on appends."""

    def __init__(self, path: Path, scrub: Scrubber) -> None:
        self._path, self._scrub = path, scrub
        self._file: IO[bytes] | None = None
        self._probe_id: str | None = None
        self._lost: OSError | None = None

    def __enter__(self) -> TraceFile:
        drop_torn_line(self._path)
        self._file = open(self._path, "ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def emit(self, trace: Trace) -> None:
        """Append one trace, with the probe it belongs to."""
        if self._file is None or self._file.closed or self._lost:
            return
        if trace.warnings:
            trace = trace.model_copy(update={"warnings": self._scrub(trace.warnings)})
        # Spliced, because to build the row and dump it again costs more than all else a line costs.
        line = f'{trace.model_dump_json()[:-1]},"probe_id":{json.dumps(self._probe_id)}}}\n'.encode()
        try:
            append_whole(self._file, line)
        except OSError as error:
            self._lost = error

    def check(self) -> None:
        """Refuse to go on where a trace is lost: what it tells could never be checked.

        Raises:
            HarnessFailed: one could not be written.
        """
        if self._lost:
            raise HarnessFailed.full(self._path.name, self._lost) from self._lost

    def mark_probe(self, probe_id: str | None) -> None:
        """Traces of the calls that follow name the probe."""
        self._probe_id = probe_id


class StoreFingerprint:
    """What the files below a directory hold; a file is read again only where its time or size has changed."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[int, int, int], bytes]] = {}

    def __call__(self) -> dict[str, bytes] | None:
        """Hashes by path; None without any file. Logs and locks beside databases are left out."""
        found = {}
        for path, now in _files(self._store):
            stamp = (now.st_ino, now.st_size, now.st_mtime_ns)
            if path not in self._known or self._known[path][0] != stamp:
                self._known[path] = (stamp, hashlib.sha256(Path(path).read_bytes()).digest())
            found[path] = self._known[path][1]
        return found or None


def _files(place: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files below a directory that are neither log nor lock; none where there is no directory."""
    try:
        found = os.scandir(place)
    except FileNotFoundError:
        return
    with found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif not _UNSTABLE.search(entry.name) and stat.S_ISREG((now := entry.stat()).st_mode):
                yield entry.path, now
