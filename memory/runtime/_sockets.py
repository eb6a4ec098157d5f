"""Unix sockets of this user alone, and which of several processes listens at one."""

from __future__ import annotations

import errno
import os
import socket
import stat
import weakref
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketListener

from memory.contract.errors import BackendUnavailable, ConfigError
from memory.storage.insert import create_directory
from memory.storage.lock import FileLock

MAX_PATH = 100  # bytes of a socket's path; macOS takes 103
BACKLOG = 1024  # connections that wait while the loop is busy
_LISTENING: weakref.WeakSet[socket.socket] = weakref.WeakSet()


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
        self._lock = FileLock(
            path.with_name(f"{path.name}.lock"), what=what, instead="leave it to that process"
        )
        self._listener: socket.socket | None = None

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

    def listener(self) -> socket.socket:
        """A socket that listens at the path, for this user alone. A forked child closes its copy at once.

        Raises:
            OSError: something that is no socket has the path, or the socket cannot be created.
        """
        self._make_room()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self.path))  # in a directory that nobody else may enter
            self.path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return self._kept(listener)

    async def listen(self) -> SocketListener:
        """As :meth:`listener`, for anyio."""
        self._make_room()
        listener = await anyio.create_unix_listener(self.path, mode=0o600, backlog=BACKLOG)
        self._kept(listener.extra(SocketAttribute.raw_socket))
        return listener

    def _make_room(self) -> None:
        if self.path.exists() and not stat.S_ISSOCK(self.path.lstat().st_mode):
            why = "what has the path of the socket is no socket; remove it"
            raise FileExistsError(errno.EEXIST, why, str(self.path))
        self.path.unlink(missing_ok=True)

    def _kept(self, listener: socket.socket) -> socket.socket:
        _LISTENING.add(listener)
        self._listener = listener
        return listener

    def close(self) -> None:
        """Stop listening, and let another process own the path. Idempotent."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self.path.unlink(missing_ok=True)
        self._lock.release()


def _close_in_child() -> None:
    """While a forked child held the socket, nobody could tell that the owner is dead."""
    for listener in list(_LISTENING):
        listener.close()
    _LISTENING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
