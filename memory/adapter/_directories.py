"""Directories that are complete or not there: made beside their place and moved there, moved away before they are
deleted. So one that lacks a file was damaged from outside, and is never taken for a new one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.slot.files import flush


@contextmanager
def staged_directory(directory: Path) -> Iterator[Path]:
    """Make a directory: one to fill, which takes its place at the end of the body, on the disk, or is gone.

    Raises:
        OSError: it cannot be made, or another took its place meanwhile.
    """
    making = directory.with_name(f".new-{uuid.uuid4().hex}")
    making.mkdir()
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
