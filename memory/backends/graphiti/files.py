"""What memslot notes beside an embedded graph. What was saved since the last checkpoint is in the database's
log alone, and a graph without it, or with half of it, is taken for what it was before."""

from __future__ import annotations

import json
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from memory.adapter import AppendLog, StoreError, replace_file

OWNERSHIP = (
    "choose another path; one process at a time owns an embedded graph, so let one serve the others, or set "
    "driver: falkordb or neo4j"
)
_CHUNK_BYTES = 1 << 20


class StateFile:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "state"

    def read(self) -> dict[str, Any]:
        """Empty where nothing was ever noted, ``open`` where it cannot be read."""
        try:
            state = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            return {"state": "open"}
        return state if isinstance(state, dict) and state else {"state": "open"}

    def write(self, state: str, **more: Any) -> dict[str, Any]:
        noted = {"state": state, **more}
        replace_file(self.path, json.dumps(noted), "process")
        return noted


class SaveLog:
    """For each save since the last checkpoint a record: length and checksum of ``wal``, the database's log."""

    def __init__(self, wal: Path, path: Path) -> None:
        self._wal = wal
        self._log = AppendLog(path)
        self._lost = path.with_name(f"{path.name}.missing")
        self.length = self._checksum = 0  # of the database's log, at the last save
        self._turn = threading.Lock()  # two event loops may share a server

    def begin(self) -> None:
        """What was noted is in the graph's own file by now."""
        self._log.remove()
        self.length = self._checksum = 0

    def record(self) -> None:
        """Before a save is acknowledged. What cannot be noted is kept all the same."""
        with self._turn, suppress(OSError, StoreError):
            with self._wal.open("rb") as file:
                file.seek(self.length)
                added = file.read()
            self.length += len(added)
            self._checksum = zlib.crc32(added, self._checksum)
            self._log.append(b"%d %d" % (self.length, self._checksum))

    def check(self) -> None:
        """What is torn off the log's end is counted. Missing, cut at a save's end or changed, it is damaged."""
        noted = [tuple(map(int, record.split())) for record in self._log.load()]
        content = self._wal.read_bytes() if self._wal.exists() else b""
        kept = sum(length <= len(content) for length, _ in noted)
        if any(zlib.crc32(content[:length]) != checksum for length, checksum in noted[:kept]):
            # Read by the database all the same, it may end the process.
            raise self._damaged("is not as it was written", "empty it and ")
        gone = len(noted) - kept
        if not gone:
            return
        if not content or (kept and len(content) == noted[kept - 1][0]):
            how = "cut" if content else "missing"
            raise self._damaged(f"is {how}; {gone} acknowledged saves are gone with it")
        self._lost.write_text(str(gone + self.lost))

    @property
    def lost(self) -> int:
        """Acknowledged saves that were torn off at some time, until somebody removes the note of it."""
        return int(self._lost.read_text()) if self._lost.exists() else 0

    def warnings(self) -> list[str]:
        if not (lost := self.lost):
            return []
        return [
            f"{self._wal.name}: {lost} acknowledged saves are gone with its torn end; restore the graph's files "
            f"from a copy, or remove {self._lost.name} to go on without them"
        ]

    def forget(self) -> None:
        self.begin()
        self._lost.unlink(missing_ok=True)

    def _damaged(self, what: str, first: str = "") -> StoreError:
        return StoreError(
            f"{self._wal.name} {what}; restore it from a copy, or {first}remove {self._log.path.name} and "
            f"{self._log.path.name}.count to go on with what the graph holds without it"
        )


def fingerprint(path: Path, unused: slice = slice(0)) -> dict[str, int]:
    """Of the whole file, some gigabytes a second: samples miss a change. ``unused`` bytes count as zeros."""
    with path.open("rb") as file:
        chunk = bytearray(file.read(_CHUNK_BYTES))
        chunk[unused] = bytes(len(chunk[unused]))
        size = found = 0
        while chunk:
            size, found = size + len(chunk), zlib.crc32(chunk, found)
            chunk = bytearray(file.read(_CHUNK_BYTES))
    return {"bytes": size, "crc32": found}
