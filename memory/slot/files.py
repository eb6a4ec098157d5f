"""Files of memslot's own: one written whole or not at all, one appended to that knows its count, and directories
that are complete or not there. A log without its count would read as empty and healthy wherever it was cut from
outside; so beside it stands ``<name>.count``, with a digest for each record, each computed over the one before
it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from memory.contract.errors import StoreError
from memory.storage.files import append_bytes, beside, flush
from memory.storage.store import Durability

_DIGEST_BYTES = 16
_NOTE = re.compile(rb"^(\d+) of \d+$", re.MULTILINE)


class Losses:
    """Acknowledged things that are gone from a file, noted in ``<name>.lost`` until somebody acknowledges that."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = beside(path, "lost")
        self._store = path.name
        self._what = what
        self.read()

    def read(self) -> None:
        # Emptied or damaged, it still says that something is gone.
        notes = self.path.read_bytes() if self.path.exists() else None
        self.count = 0 if notes is None else max(1, sum(map(int, _NOTE.findall(notes))))

    def add(self, gone: int, known: int) -> None:
        """``gone`` of ``known`` are gone. Repeated, as by a process that died over it, it counts once."""
        note = b"%d of %d\n" % (gone, known)
        if not self.path.exists() or not self.path.read_bytes().endswith(note):
            append_bytes(self.path, note, "machine")
        self.read()

    def acknowledge(self) -> None:
        self.path.unlink(missing_ok=True)
        self.count = 0

    def warnings(self) -> list[str]:
        if not self.count:
            return []
        return [
            f"{self._store}: {self.count} acknowledged {self._what} are gone with its torn end; restore it from a "
            f"copy, or remove {self.path.name} to go on without them"
        ]


class AppendLog:
    """Records, each one line of a file of a single owner, appended and never changed.

    Beside ``path`` stand ``<name>.count``, ``<name>.lost`` (while acknowledged records are missing and nobody has
    acknowledged that) and for moments ``<name>.gone``.

    Args:
        path: the file; its directory is made with the first record.
        durability: what :meth:`append` flushes before it returns.

    Attributes:
        torn: whether :meth:`load` dropped a record at the end that was not whole.
        losses: acknowledged records that were dropped at some time.
    """

    def __init__(self, path: Path, *, durability: Durability = "process") -> None:
        self.path = path
        self.durability = durability
        self.torn = False
        self.losses = Losses(path, "records")
        self._count_file = beside(path, "count")
        self._gone = beside(path, "gone")
        self._digest = b""
        self._left_as: tuple[int, ...] | None = None

    @property
    def lost(self) -> int:
        """Acknowledged records that are gone, which nobody has acknowledged as lost."""
        return self.losses.count

    def load(self) -> list[bytes]:
        """All records in order, without their line ends; none where there never was a file.

        A record torn at the end, as a killed process leaves it, is dropped.

        Raises:
            StoreError: the file, or its count, is missing, emptied, cut at the end of a line, changed, or ends in
                zeros. Nothing was touched.
            OSError: it cannot be read.
        """
        self._finish_removal()
        data = self.path.read_bytes() if self.path.exists() else None
        known = self._read_count(data)
        if data is None:
            if known:
                raise self._damaged(f"is missing; it held {len(known)} records")
            return []
        end = data.rfind(b"\n") + 1
        records, tail = data[:end].split(b"\n")[:-1], data[end:]
        if b"\0" in tail:
            raise self._damaged("ends in zeros, as a power cut leaves a file")
        digests = list(_digests(records))
        for number, (digest, counted) in enumerate(zip(digests, known, strict=False), start=1):
            if digest != counted:
                raise self._damaged(f"record {number} of {len(known)} is not as it was written")
        gone = max(0, len(known) - len(records))
        if gone and not tail:
            raise self._damaged(f"holds {len(records)} of {len(known)} records; it was cut")
        if tail:
            if gone:
                self.losses.add(gone, len(known))
                # Before the log: a count that knows more than a log with a whole end is damage.
                os.truncate(self._count_file, len(records) * _DIGEST_BYTES)
            os.truncate(self.path, end)
            self.torn = True
        if missing := b"".join(digests[len(known) :]):
            os.truncate(self._count_file, len(known) * _DIGEST_BYTES)
            append_bytes(self._count_file, missing, self.durability)
        self.losses.read()
        self._digest = digests[-1] if digests else b""
        self._left_as = self._is_now()
        return records

    def append(self, *records: bytes) -> None:
        """Add records, all or none, in one write.

        Raises:
            StoreError: someone else changed the file since; nothing is written.
            OSError: they could not be written; the file is as it was.
            ValueError: a record has a line break in it.
        """
        if problem := self.problem():
            raise StoreError(problem)
        if any(b"\n" in record for record in records):
            raise ValueError("a record is one line; it must not hold a line break")
        digests = list(_digests(records, self._digest))
        if self._left_as is None:
            self._begin()
        try:
            size = append_bytes(self.path, b"".join(record + b"\n" for record in records), self.durability)
            try:
                append_bytes(self._count_file, b"".join(digests))
            except OSError:
                os.truncate(self.path, size)
                raise
        finally:
            self._left_as = self._is_now()
        self._digest = digests[-1] if digests else self._digest

    def problem(self) -> str | None:
        """What became of the file since it was last read or written here, if anything did."""
        if self._is_now() == self._left_as:
            return None
        return (
            f"{self.path.name} was changed or removed by someone else since it was read; "
            "restore it and open the memory again, or reset the scope"
        )

    def warnings(self) -> list[str]:
        """What is not as it should be, for health; ``degraded`` as long as there is one."""
        found = [problem] if (problem := self.problem()) else []
        if self.torn and not self.losses.count:
            what = f"the last record of {self.path.name} was not whole"
            found.append(f"{what} and was dropped; it was never acknowledged")
        return [*found, *self.losses.warnings()]

    def remove(self) -> None:
        """Delete the log and what belongs to it. Interrupted, it is finished by the next :meth:`load`. Idempotent.

        Raises:
            OSError: it cannot be deleted.
        """
        if self.path.exists():
            os.replace(self.path, self._gone)
            if self.durability == "machine":
                flush(self.path.parent)
        else:
            self._count_file.unlink(missing_ok=True)
        self._finish_removal()
        beside(self.path, "new").unlink(missing_ok=True)
        self.losses.acknowledge()
        self.torn, self._digest, self._left_as = False, b"", None

    def _begin(self) -> None:
        # The count first: a log without one is damaged, an empty count without a log is none.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for path in (self._count_file, self.path):
            append_bytes(path, b"", self.durability)
        if self.durability == "machine":
            flush(self.path.parent)

    def _finish_removal(self) -> None:
        if self._gone.exists():
            if not self.path.exists():
                self._count_file.unlink(missing_ok=True)
            self._gone.unlink()

    def _read_count(self, data: bytes | None) -> list[bytes]:
        if not self._count_file.exists():
            if data:
                raise self._damaged(f"{self._count_file.name} is missing beside it")
            return []
        found = self._count_file.read_bytes()
        whole = len(found) - len(found) % _DIGEST_BYTES
        return [found[start : start + _DIGEST_BYTES] for start in range(0, whole, _DIGEST_BYTES)]

    def _is_now(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self.path.name}: {what}; restore it from a copy, or reset the scope")


def _digests(records: Iterable[bytes], before: bytes = b"") -> Iterable[bytes]:
    for record in records:
        before = blake2b(record, key=before, digest_size=_DIGEST_BYTES).digest()
        yield before
