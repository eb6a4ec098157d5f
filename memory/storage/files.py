"""Files that are written whole or not at all, and directories that are complete or not there."""

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


def beside(path: Path, suffix: str) -> Path:
    """A file that belongs to another, such as ``events.jsonl.count``."""
    return path.with_name(f"{path.name}.{suffix}")


def replace_file(path: Path, content: str | bytes, durability: Durability = "machine") -> None:
    """Write a file, a text as UTF-8, so that after a crash either the old or the new content is there, whole.

    The new content stands in ``<name>.new`` until it is whole. The directory is made. A file that exists keeps its
    permissions; a new one is for this user alone.

    Raises:
        OSError: it could not be written; the old content is still there.
    """
    create_directory(path.parent)
    unfinished = beside(path, "new")
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
    """Append to a file, or leave it as it was where that fails (a full disk takes half a line); its size before."""
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
    """A file, or the names in a directory, onto the disk; where the system cannot, nothing."""
    try:
        file = os.open(path, os.O_RDONLY)
    except PermissionError:  # a directory, on Windows
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a directory, on some network drives
            raise
    finally:
        os.close(file)


@contextmanager
def staged_directory(directory: Path) -> Iterator[Path]:
    """Make a directory: one to fill, which takes its place at the end of the body, on the disk, or is gone.

    Raises:
        OSError: it cannot be made, or another took its place meanwhile.
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
    """Delete a directory, if there is one; it is gone from its place before the first of its files is."""
    going = directory.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        directory.rename(going)
    except FileNotFoundError:
        return
    flush(directory.parent)
    shutil.rmtree(going)


def sweep_directories(parent: Path) -> None:
    """Delete what was interrupted in ``parent`` while it was made or deleted; for the owner of all in it."""
    for pattern in (".new-*", ".gone-*"):
        for left in parent.glob(pattern):
            shutil.rmtree(left)
