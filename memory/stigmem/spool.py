"""A spool through which the hooks of one user share a sender, because starting an HTTP client is slow.

A hook inserts an entry into an outbox in a directory of its user. The first hook that gets the directory's
lock starts a sender. The sender holds the lock, sends the entries, writes the outcome into each, and ends
after some idle time. A hook reads its outcome and removes its entry. Imports are minimal, to keep hooks fast.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from memory.storage import insert

# Only these commands are handed over. Other commands print the node's answer, so they ask the node themselves.
WRITES = frozenset({"checkout", "done", "ping", "blocked", "handoff", "decide", "escalate"})
SENDER = "memory.stigmem.commands._sender"
KIND, LOCK = "stigmem", "lock"

_DEFAULT_WAIT_S = 5.0
_START_S = 30.0  # added to the write's own wait, because the sender may have many writes to send
_PAUSE_S = 0.02
_MAX_STARTS = 3  # after more starts, a hook assumes that senders are broken and sends by itself


def hand_over(arguments: list[str]) -> bool:
    """Hand a write of ``memslot tools stigmem`` over to the sender, and print its outcome.

    Returns:
        False if the arguments are not a hook's write or cannot be handed over. Nothing was sent or printed.
    """
    url = os.environ.get("STIGMEM_URL", "").strip()
    if not (url and arguments and arguments[0] in WRITES) or {"--process", "--help", "-"} & {*arguments}:
        return False
    try:
        import fcntl  # noqa: F401 (Windows has no such module)

        _open_standard_streams()
        directory = _directory(url)
        file = os.path.join(directory, insert.FILE_NAME)
        name = f"{time.time_ns():020d}-{os.urandom(8).hex()}"
        insert.create_file(Path(file))
        entry = _Entry(file, name)  # opens the file before a sender can take the entry
        insert.insert(file, KIND, name, json.dumps({"arguments": arguments}))
    except (ImportError, OSError, ValueError, sqlite3.Error):
        return False
    until = time.monotonic() + _wait_of(arguments) + _START_S
    started = 0
    while (result := entry.taken()) is None:
        try:
            started += _see_to_a_sender(directory)
        except OSError:
            started = _MAX_STARTS + 1
        if started > _MAX_STARTS and entry.withdrawn():
            return False
        if time.monotonic() > until:
            result = {"stderr": "warning: stigmem: handed over, and not known to be sent\n"}
            break
        time.sleep(_PAUSE_S)
    entry.close()
    _print(str(result.get("stdout", "")), str(result.get("stderr", "")))
    return True


class _Entry:
    """The entry of this hook in the outbox."""

    def __init__(self, file: str, name: str) -> None:
        self._db = sqlite3.connect(file, timeout=5.0, isolation_level=None)
        self._db.execute("PRAGMA secure_delete = ON")
        self._key = (KIND, name)

    def taken(self) -> dict[str, Any] | None:
        """Take the sender's answer; None before it has come."""
        try:
            row = self._db.execute(
                "SELECT outcome FROM outbox WHERE kind = ? AND key = ? AND state = 'sent'", self._key
            ).fetchone()
            if row is None:
                return None
            self._db.execute("DELETE FROM outbox WHERE kind = ? AND key = ?", self._key)
            answer: dict[str, Any] = json.loads(row[0])
            return answer
        except sqlite3.OperationalError:  # the file is locked, so try again
            return None
        except (sqlite3.Error, ValueError):
            return {"stderr": "warning: stigmem: the sender's answer cannot be read\n"}

    def withdrawn(self) -> bool:
        """Take the entry back. Returns False if a sender has begun to send it."""
        with suppress(sqlite3.Error):
            gone = "DELETE FROM outbox WHERE kind = ? AND key = ? AND state = 'waiting' AND sent = 0"
            return self._db.execute(gone, self._key).rowcount == 1
        return False

    def close(self) -> None:
        self._db.close()


def _directory(url: str) -> str:
    """Create the directory that hooks with the same node, key and source share.

    No file holds the key, because the sender inherits it from the environment.

    Raises:
        PermissionError: another user owns the directory or can access it.
    """
    import hashlib

    who = [url, *(os.environ.get(name, "") for name in ("STIGMEM_API_KEY", "STIGMEM_SOURCE_ENTITY"))]
    digest = hashlib.blake2b(json.dumps([*who, sys.executable, __file__]).encode(), digest_size=12)
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("TMPDIR") or "/tmp"
    path = os.path.join(base, f"memslot-{os.getuid()}")
    for part in (path, os.path.join(path, f"stigmem-{digest.hexdigest()}")):
        with suppress(FileExistsError):
            os.mkdir(part, 0o700)
        found = os.lstat(part)
        if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
            raise PermissionError(errno.EPERM, "is not a directory of this user alone", part)
        path = part
    return path


def _open_standard_streams() -> None:
    """Open missing standard streams. Otherwise, other files would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # this gets the lowest free number


def _see_to_a_sender(directory: str) -> bool:
    """Start a sender unless one holds the lock. The sender inherits the lock and holds it until it ends.

    Returns whether a sender was started.
    """
    import fcntl

    lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        import subprocess

        subprocess.Popen(
            [sys.executable, "-m", SENDER, directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(lock,), start_new_session=True,
        ).returncode = 0  # fmt: skip  # it outlives us, which is no reason for a warning
        return True
    finally:
        os.close(lock)


def _wait_of(arguments: list[str]) -> float:
    """Return the command's ``--wait``. The command itself refuses a value that is not a number."""
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--wait":
            try:
                return min(max(float(value or arguments[number + 1]), 0.0), 86_400.0)
            except (ValueError, IndexError):
                break
    return _DEFAULT_WAIT_S


def _print(stdout: str, stderr: str) -> None:
    """Print to the standard streams. A full stream or a missing reader does not fail the hook."""
    try:
        os.write(1, stdout.encode())
    except OSError as error:
        if error.errno != errno.EPIPE:
            stderr += f"warning: the result cannot be written: {error.strerror}\n"
    with suppress(OSError):
        os.write(2, stderr.encode())
