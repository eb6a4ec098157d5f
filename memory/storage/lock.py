"""Gives files one owner at a time: embedded databases and a control's files, which two owners would destroy.

Embedded databases often have no lock, one per process only, or one that comes after files were touched. This
lock comes first and also excludes owners in the same process. A killed owner's lock is freed by the system.
"""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path

from memory.contract.errors import BackendUnavailable

_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on a separate file, beside the files that it protects.

    Args:
        path: the lock file, created if needed and left behind; its directory must exist.
        what: the protected thing, for the error, such as ``the graph at /data/graph``.
        instead: the remedy, for the error, such as ``choose another path``.

    Garbage collection frees a lock that was not released. Two threads must not use a lock at once.
    """

    def __init__(self, path: Path, *, what: str, instead: str) -> None:
        self.path = path
        self._what = what
        self._instead = instead
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this owner holds the lock, and the file is still at its path."""
        return self._file is not None and _is_at(self._file, self.path)

    def acquire(self) -> None:
        """Take the lock without waiting, and again if its file was removed meanwhile. Idempotent.

        Raises:
            BackendUnavailable: another owner holds the lock, in this process or another.
            OSError: the file cannot be created.
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
        """The error of :meth:`acquire`, also for adapters that detect another user by other means."""
        return BackendUnavailable(
            f"{self._what} is open elsewhere{where}; close the other user, or {self._instead}", sent=False
        )

    def release(self, *, remove: bool = False) -> None:
        """Free the lock. With ``remove``, also delete its file, if it is still this lock's. Idempotent."""
        if self._file is not None:
            file, self._file = self._file, None
            _HELD.discard(self)
            if remove and _is_at(file, self.path):
                with suppress(OSError):  # Windows deletes no open file
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
        """Close the files in a forked child, which would otherwise keep its parent's locks alive."""
        for lock in list(_HELD):
            if lock._file is not None:
                os.close(lock._file)
                lock._file = None
        _HELD.clear()

    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is still at ``path``. If not, a second owner may lock a new file there."""
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
    except OSError:  # on Windows only the owner can read a locked file
        return ""
    if not owner.isdecimal():
        return ""
    return " in this process" if int(owner) == os.getpid() else f" in process {owner}"
