"""Unix sockets of this user alone, and which of several processes listens at one."""

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

MAX_PATH = 100  # bytes of a socket's path; macOS takes 103
BACKLOG = 1024  # connections that wait while the loop is busy
_OURS: set[int] = set()  # descriptors that no forked child may keep alive


def socket_in(directory: Path, name: str) -> Path:
    """A place for a socket: in a directory of ours, or in the user's home where that path is too long.

    A shared temporary directory is never used: another user could be there first.

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
    """The right to listen at a socket's path: of several processes exactly one has it, until it ends.

    Args:
        path: of the socket. Its directory is created for this user alone.
        what: what is served there, for messages.
    """

    def __init__(self, path: Path, *, what: str) -> None:
        self.path = path
        lock = path.with_name(f"{path.name}.lock")
        self._lock = FileLock(lock, what=what, instead="leave it to that process")
        self._descriptor: int | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> bool:
        """Become the owner, unless another process is.

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
        """A socket that listens at the path, for this user alone. A forked child closes its copy at once.

        Raises:
            BackendUnavailable: something that is no socket has the path.
            OSError: the socket cannot be created.
        """
        if self.path.exists() and not stat.S_ISSOCK(self.path.lstat().st_mode):
            raise BackendUnavailable(
                f"{self.path}: is no socket, and has a socket's path; remove it", sent=False
            )
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self.path))  # in a directory that nobody else may enter
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
        """Let another process own the path. The caller closes the listening socket first. Idempotent."""
        if self._descriptor is not None:
            let_go(self._descriptor)
            self._descriptor = None
            self.path.unlink(missing_ok=True)
        self._lock.release()


def connected_to(path: Path) -> socket.socket:
    """A connection to a socket; it is made at once or not at all.

    Raises:
        BlockingIOError: too many connections wait there.
        OSError: nobody listens there.
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
    """Close a descriptor in every process that is forked from now on, until :func:`let_go`.

    While a forked child holds a socket of its parent, nobody at its other end can tell that the parent is dead.
    """
    if descriptor >= 0:
        _OURS.add(descriptor)


def let_go(descriptor: int) -> None:
    """The descriptor is about to be closed here."""
    _OURS.discard(descriptor)


def _drop_in_child() -> None:
    # The number stays taken: an object of the parent's may close it once more, and must then close nothing else.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in _OURS:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _OURS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)
