"""Gives files one owner at a time: embedded databases and a control's files, which two owners would destroy.

The lock also excludes owners in the same process. The system frees the lock of a killed owner.
"""

from __future__ import annotations

import fcntl
import os
import weakref
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
            OSError: the file cannot be created, or its file system has no locks.
        """
        if not self.held:
            self.release()
        while self._file is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, self.path):
                    os.truncate(file, 0)
                    os.pwrite(file, str(os.getpid()).encode(), 0)
                    self._file = file
                    _HELD.add(self)
            except BlockingIOError:
                raise self.refusal(_owner(file)) from None
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
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
                self.path.unlink()
            os.truncate(file, 0)
            os.close(file)

    def __del__(self) -> None:
        self.release()


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


def _owner(file: int) -> str:
    owner = os.pread(file, 20, 0).decode("ascii", "replace")
    if not owner.isdecimal():
        return ""
    return " in this process" if int(owner) == os.getpid() else f" in process {owner}"
