"""The hooks of one machine hand their writes over, so that none pays for the start of the HTTP client. A hook puts
a file into a directory of its user. Whoever gets the directory's lock starts a sender, which holds the lock, sends
what lies there, answers each hook by a file of its own, and ends when nothing came for a while. Nothing here is
imported that a hook has no use for."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

# The commands that are handed over. Those that read answer with what they read, so they ask themselves.
WRITES = frozenset({"checkout", "done", "ping", "blocked", "handoff", "decide", "escalate"})
SENDER = "memory.stigmem.commands._sender"
JOB, RESULT, LOCK = ".job", ".result", "lock"

_DEFAULT_WAIT_S = 5.0
_START_S = 30.0  # longer than the write's own wait: the sender may have many to send
_PAUSE_S = 0.02
_MAX_STARTS = 3  # then a hook takes the senders for broken, and sends by itself


def hand_over(arguments: list[str]) -> bool:
    """Have a write sent by these arguments of ``memslot stigmem``, and print what became of it. False where it is
    no write of a hook, or cannot be handed over here; nothing was sent or printed then."""
    url = os.environ.get("STIGMEM_URL", "").strip()
    if not (url and arguments and arguments[0] in WRITES) or {"--process", "--help", "-"} & {*arguments}:
        return False
    try:
        import fcntl  # noqa: F401 (there is none on Windows)

        _open_standard_streams()
        directory = _directory(url)
        name = f"{time.time_ns():020d}-{os.urandom(8).hex()}"
        job = os.path.join(directory, name + JOB)
        write_whole(job, json.dumps({"arguments": arguments}))
    except (ImportError, OSError, ValueError):
        return False
    until = time.monotonic() + _wait_of(arguments) + _START_S
    started = 0
    while (result := _take(os.path.join(directory, name + RESULT))) is None:
        try:
            started += _see_to_a_sender(directory)
        except OSError:
            started = _MAX_STARTS + 1
        if started > _MAX_STARTS:
            with suppress(OSError):
                os.unlink(job)
                return False
        if time.monotonic() > until:
            result = {"stderr": "warning: stigmem: handed over, and not known to be sent\n"}
            break
        time.sleep(_PAUSE_S)
    _print(str(result.get("stdout", "")), str(result.get("stderr", "")))
    return True


def write_whole(path: str, content: str) -> None:
    """Write a file of this user's alone, which nobody sees before it is whole."""
    unfinished = f"{path}.new"
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.encode())
    os.rename(unfinished, path)


def _directory(url: str) -> str:
    """Where the hooks with this node, key and source meet. The key is in no file: the sender has it from us."""
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
    """Where a hook was started with closed streams, files of ours would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def _see_to_a_sender(directory: str) -> bool:
    """Start a sender, unless one holds the lock; it inherits the lock, which ends with it."""
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


def _take(path: str) -> dict[str, Any] | None:
    """What the sender answered, once."""
    try:
        with open(path, encoding="utf-8") as file:
            answer: dict[str, Any] = json.load(file)
        os.unlink(path)
        return answer
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {"stderr": "warning: stigmem: the sender's answer cannot be read\n"}


def _wait_of(arguments: list[str]) -> float:
    """The command's ``--wait``; one that is no number, the command refuses."""
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--wait":
            try:
                return min(max(float(value or arguments[number + 1]), 0.0), 86_400.0)
            except (ValueError, IndexError):
                break
    return _DEFAULT_WAIT_S


def _print(stdout: str, stderr: str) -> None:
    """Onto streams that may be full, or without a reader; that breaks no hook."""
    try:
        os.write(1, stdout.encode())
    except OSError as error:
        if error.errno != errno.EPIPE:
            stderr += f"warning: the result cannot be written: {error.strerror}\n"
    with suppress(OSError):
        os.write(2, stderr.encode())
