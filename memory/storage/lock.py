"""One owner at a time for files that two would destroy: embedded databases, and what a control keeps on disk. Locks
of embedded databases are often per process, taken after files were touched, or missing. This one is taken first,
excludes owners of one process too, and is freed by the operating system when its owner is killed."""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path

from memory.contract.errors import BackendUnavailable

_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on a file of its own, beside what it protects.

    Args:
        path: the lock file, made when needed and left behind; its directory must exist.
        what: what it protects, for the error, such as ``the graph at /data/graph``.
        instead: what another owner may do, for the error, such as ``choose another path``.

    One that is forgotten is given back when it is collected. Not to be used from two threads at once.
    """

    def __init__(self, path: Path, *, what: str, instead: str) -> None:
        self.path = path
        self._what = what
        self._instead = instead
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this owner has it, and its file is still where it was."""
        return self._file is not None and _is_at(self._file, self.path)

    def acquire(self) -> None:
        """Take it, without waiting; once more, where its file was removed meanwhile. Idempotent.

        Raises:
            BackendUnavailable: another owner has it, in this process or another.
            OSError: the file cannot be made.
        """
        if not self.held:
            self.release()
        while self._file is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if not _locked(file, self.path):
                    raise self.refusal(_owner(file))
                if _is_at(file, self.path):
                    _write(file, str(os.getpid()).encode())
                    self._file = file
                    _HELD.add(self)
            finally:
                if self._file is None:
                    os.close(file)

    def refusal(self, where: str = "") -> BackendUnavailable:
        """The error of :meth:`acquire`, also for adapters that see by other means that it is in use."""
        return BackendUnavailable(
            f"{self._what} is open elsewhere{where}; close the other user, or {self._instead}", sent=False
        )

    def release(self, *, remove: bool = False) -> None:
        """Give it back; with ``remove`` its file goes as well, unless it is another's by now. Idempotent."""
        if self._file is not None:
            file, self._file = self._file, None
            _HELD.discard(self)
            if remove and _is_at(file, self.path):
                with suppress(OSError):  # Windows keeps what is open
                    self.path.unlink()
            _write(file, b"")
            os.close(file)

    def __del__(self) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    def _locked(file: int, path: Path) -> bool:
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _locked(file: int, path: Path) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # a file system without locks
            raise OSError(error.errno, error.strerror, str(path)) from error
        return True

    def _leave_to_the_parent() -> None:
        """A forked child shares the open file: while it lived, the lock would outlive its owner."""
        for lock in list(_HELD):
            if lock._file is not None:
                os.close(lock._file)
                lock._file = None
        _HELD.clear()

    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file still has that name. Without this check, removing it would let a second owner in."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write(file: int, text: bytes) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    os.ftruncate(file, 0)
    os.write(file, text)


def _owner(file: int) -> str:
    try:
        owner = os.read(file, 20).decode("ascii", "replace")
    except OSError:  # Windows keeps a locked file to its owner
        return ""
    if not owner.isdecimal():
        return ""
    return " in this process" if int(owner) == os.getpid() else f" in process {owner}"
