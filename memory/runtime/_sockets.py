"""Unix sockets that only this user can open, and the right to listen at one."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from memory.contract.errors import BackendUnavailable, ConfigError
from memory.storage.insert import create_directory
from memory.storage.lock import FileLock

MAX_PATH = 100  # bytes of a socket's path; macOS allows 103
BACKLOG = 1024  # connections that wait while the loop is busy
_OURS: set[int] = set()  # descriptors that a forked child must not keep open


def socket_in(directory: Path, name: str) -> Path:
    """Return a path for a socket: in ``directory``, or in the user's home if that path is too long.

    A shared temporary directory is unsafe, because another user could create the path first.

    Raises:
        ConfigError: both paths are too long.
    """
    path = directory.absolute() / name
    if len(os.fsencode(path)) <= MAX_PATH:
        return path
    short = Path.home() / ".memslot" / f"{sha256(os.fsencode(path)).hexdigest()[:16]}.sock"
    if len(os.fsencode(short)) <= MAX_PATH:
        return short
    raise ConfigError(f"memory.data_dir: {directory} is too long a path for a socket; choose a shorter one")


class SocketOwner(AbstractContextManager["SocketOwner"]):
    """The right to listen at a socket's path. One process at a time holds it, until that process ends.

    Args:
        path: the socket's path. Its directory is created for this user alone.
        what: what the socket serves, for messages.
    """

    def __init__(self, path: Path, *, what: str) -> None:
        self.path = path
        lock = path.with_name(f"{path.name}.lock")
        self._lock = FileLock(lock, what=what, instead="leave it to that process")
        self._descriptor: int | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> bool:
        """Become the owner, unless another process is. Returns whether this process is the owner.

        Raises:
            OSError: the lock file cannot be created.
        """
        create_directory(self.path.parent)
        try:
            self._lock.acquire()
        except BackendUnavailable:
            return False
        return True

    def listen(self) -> socket.socket:
        """Listen at the path, for this user alone. A forked child closes its copy of the socket at once.

        Raises:
            BackendUnavailable: the path exists and is not a socket.
            OSError: the socket cannot be created.
        """
        if self.path.exists() and not stat.S_ISSOCK(self.path.lstat().st_mode):
            raise BackendUnavailable(
                f"{self.path}: is no socket, and has a socket's path; remove it", sent=False
            )
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self.path))  # safe before chmod: only this user may enter the directory
            self.path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        self._descriptor = listener.fileno()
        keep_from_children(self._descriptor)
        return listener

    def close(self) -> None:
        """Release the path for another process. Idempotent. Close the listening socket first."""
        if self._descriptor is not None:
            let_go(self._descriptor)
            self._descriptor = None
            self.path.unlink(missing_ok=True)
        self._lock.release()


def connected_to(path: Path) -> socket.socket:
    """Connect to a socket without waiting.

    Raises:
        BlockingIOError: too many connections wait at the socket.
        OSError: no process listens at the socket.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def keep_from_children(descriptor: int) -> None:
    """Close a descriptor in every child that is forked before :func:`let_go`.

    If a child held the socket open, the other end could not notice that the parent has died.
    """
    if descriptor >= 0:
        _OURS.add(descriptor)


def let_go(descriptor: int) -> None:
    """Stop tracking a descriptor, because this process is about to close it."""
    _OURS.discard(descriptor)


def _drop_in_child() -> None:
    # The descriptor's number stays in use, because an object inherited from the parent may close it again.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in _OURS:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _OURS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)
