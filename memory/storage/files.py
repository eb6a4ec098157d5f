"""Files that are written completely or not at all, and directories that are complete or absent."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.storage.insert import create_directory
from memory.storage.shared_file import Durability


def replace_file(path: Path, content: str | bytes, durability: Durability = "machine") -> None:
    """Write a file so that a crash leaves either the complete old or the complete new content. Text is UTF-8.

    A missing directory is created. An existing file keeps its permissions; a new one is for this user only.
    An OSError leaves the old content.
    """
    create_directory(path.parent)
    unfinished = path.with_name(f"{path.name}.new")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            if path.exists():
                os.chmod(unfinished, path.stat().st_mode)
            file.write(content.encode() if isinstance(content, str) else content)
            if durability == "machine":
                file.flush()
                os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    if durability == "machine":
        flush(path.parent)


def append_bytes(path: Path, data: bytes, durability: Durability = "process") -> int:
    """Append to a file and return its size before. A failure, such as a full disk, leaves it unchanged."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(file).st_size
        try:
            while data:
                data = data[os.write(file, data) :]
            if durability == "machine":
                os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
    return size


def flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk. Does nothing if the system cannot."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a directory, on some network drives
            raise
    finally:
        os.close(file)


@contextmanager
def staged_directory(directory: Path) -> Iterator[Path]:
    """Yield a new directory to fill. It becomes ``directory`` after the body, or vanishes after an error.

    Raises:
        OSError: it cannot be created, or something else took its place meanwhile.
    """
    making = directory.with_name(f".new-{uuid.uuid4().hex}")
    making.mkdir(mode=0o700)
    try:
        yield making
        for path in (*making.rglob("*"), making):
            flush(path)
        making.rename(directory)
        flush(directory.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def remove_directory(directory: Path) -> None:
    """Delete a directory if it exists. A rename removes it from its place before any file is deleted."""
    going = directory.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        directory.rename(going)
    except FileNotFoundError:
        return
    flush(directory.parent)
    shutil.rmtree(going)


def sweep_directories(parent: Path) -> None:
    """Delete what interrupted calls left in ``parent``. Only the owner of all its contents may call this."""
    for pattern in (".new-*", ".gone-*"):
        for left in parent.glob(pattern):
            shutil.rmtree(left)
