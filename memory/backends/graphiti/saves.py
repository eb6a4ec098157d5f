"""What Kuzu's log held after each save that was acknowledged, so that one that is missing or cut is noticed.

Kuzu keeps what was saved since the last checkpoint in ``graph.kuzu.wal`` alone, and takes a graph without it, or
with half of it, for what it was before.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path

from memory.adapter import AppendLog, StoreError


class SaveLog:
    """One record for each save since the last checkpoint: the log's length in bytes, and its checksum.

    Args:
        wal: Kuzu's log.
        path: the records.
    """

    def __init__(self, wal: Path, path: Path) -> None:
        self._wal = wal
        self._log = AppendLog(path)
        self._lost = path.with_name(f"{path.name}.missing")
        self._now = (0, 0)

    def begin(self) -> None:
        """What was noted is in the graph's own file by now."""
        self._log.remove()
        self._now = (0, 0)

    def note(self) -> None:
        """To be called after each save, before it is acknowledged. What cannot be noted is kept all the same."""
        size, checksum = self._now
        with suppress(OSError, StoreError):
            with self._wal.open("rb") as file:
                file.seek(size)
                added = file.read()
            self._now = size + len(added), zlib.crc32(added, checksum)
            self._log.append(b"%d %d" % self._now)

    def check(self) -> None:
        """Compare Kuzu's log with what was noted, before Kuzu opens it. What is torn off at its end is counted.

        Raises:
            StoreError: it is missing, cut at the end of a save, or changed.
        """
        noted = [tuple(map(int, record.split())) for record in self._log.load()]
        content = self._wal.read_bytes() if self._wal.exists() else b""
        kept = sum(length <= len(content) for length, _ in noted)
        if any(zlib.crc32(content[:length]) != checksum for length, checksum in noted[:kept]):
            raise self._damaged("is not as it was written")
        gone = len(noted) - kept
        if not gone:
            return
        if not content or (kept and len(content) == noted[kept - 1][0]):
            raise self._damaged(
                f"is {'cut' if content else 'missing'}; {gone} acknowledged saves are gone with it"
            )
        self._lost.write_text(str(gone + self.lost))

    @property
    def length(self) -> int:
        """Bytes of Kuzu's log at the last save."""
        return self._now[0]

    @property
    def lost(self) -> int:
        """Acknowledged saves that were torn off at some time, until somebody removes the note of it."""
        return int(self._lost.read_text()) if self._lost.exists() else 0

    def warnings(self) -> list[str]:
        """What is not as it should be, for health."""
        if not (lost := self.lost):
            return []
        return [
            f"{self._wal.name}: {lost} acknowledged saves are gone with its torn end; restore the graph's files "
            f"from a copy, or remove {self._lost.name} to go on without them"
        ]

    def forget(self) -> None:
        """Nothing of it matters any more: the graph was reset."""
        self.begin()
        self._lost.unlink(missing_ok=True)

    def _damaged(self, what: str) -> StoreError:
        return StoreError(
            f"{self._wal.name} {what}; restore it from a copy, or remove {self._log.path.name} and "
            f"{self._log.path.name}.count to go on with what the graph holds without it"
        )
