"""What conditions keep on disk: a directory with one owner, in it an append-only file of each scope's events."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from memory import BackendUnavailable, MemoryEvent, MemoryScope
from memory.adapter import BackendProtocolError, FileLock, IdAlphabet, IsolationError, ScopeEncoder

# Case-insensitive file systems: capitals are escaped. Directories: no dots, so never "..".
_FILE_NAMES = IdAlphabet(safe="-_", escape="%", separator="+", max_length=200)


class OwnedDirectory:
    """A condition's ``path``, which one condition at a time may read and write.

    Args:
        root: the directory; made when it is taken.
        owner: the condition's name, for errors.
    """

    def __init__(self, root: Path, owner: str) -> None:
        self._root = root
        self._names = ScopeEncoder(_FILE_NAMES)
        self._lock = FileLock(
            root / f".{owner}.lock",
            what=f"the directory of memory.conditions.{owner}.path",
            instead="choose another path",
        )

    def name(self, scope: MemoryScope) -> str:
        """A file name of the scope's own, on any file system."""
        return self._names.encode(scope)["id"]

    def at(self, scope: MemoryScope, suffix: str = "") -> Path:
        """The scope's own file or directory."""
        return self._root / f"{self.name(scope)}{suffix}"

    def take(self) -> None:
        """Become its owner; once more, where it was removed meanwhile. Idempotent.

        Raises:
            BackendUnavailable: someone else is, in this process or another, or it cannot be made.
        """
        if not self._lock.held:
            with _writing(self._root):
                self._root.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()

    def restore(self) -> None:
        """Let others have it. Idempotent."""
        self._lock.release(remove=True)


class EventLog:
    """The events of one scope in one file, for the owner of its directory.

    An event is one ``write`` of one line, the first makes the file whole. If the last line was torn by a crash, it
    is dropped at :meth:`load`; damage anywhere else is an error, because it cannot have come from a crash of ours,
    and so is a file that someone else changed since.

    Attributes:
        path: the file.
        torn: whether :meth:`load` dropped a line that was not whole.
    """

    def __init__(self, path: Path, scope: MemoryScope) -> None:
        self.path = path
        self.torn = False
        self._scope = scope
        self._left_as: tuple[int, ...] | None = None

    def load(self) -> list[MemoryEvent]:
        """All events, in the order they were appended; none where there is no file.

        Raises:
            BackendProtocolError: the file is empty, or a line other than the last is not an event.
            IsolationError: an event belongs to another scope.
        """
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        events = list(self._parse(data[:end]))
        tail = data[end:]
        if not events or (tail and (not tail.startswith(b"{") or b"\0" in tail)):
            raise BackendProtocolError(
                f"{self.path.name} holds no events; restore the file or reset the scope"
            )
        if tail:
            os.truncate(self.path, end)
            self.torn = True
        self._left_as = self._is_now()
        return events

    def _parse(self, data: bytes) -> Iterator[MemoryEvent]:
        for number, line in enumerate(data.splitlines(), start=1):
            try:
                event = MemoryEvent.model_validate_json(line)
            except ValidationError:
                raise BackendProtocolError(
                    f"{self.path.name}, line {number}, is not a recorded event; restore the file or reset the scope"
                ) from None
            if event.scope != self._scope:
                raise IsolationError(f"{self.path.name}, line {number}, belongs to another scope")
            yield event

    def append(self, event: MemoryEvent) -> None:
        """Add one event.

        Raises:
            BackendUnavailable: it could not be written; the file is as it was.
            BackendProtocolError: someone else changed the file; nothing is written.
        """
        problem = self.problem()
        if problem:
            raise BackendProtocolError(problem, sent=False)
        line = event.model_dump_json() + "\n"
        before = self._left_as
        try:
            if before is None:
                replace_file(self.path, line)
            else:
                append_text(self.path, line)
        except BackendUnavailable:
            now = self._is_now()
            if before and now and before[:2] == now[:2]:  # what went in of the line was taken out again
                self._left_as = now
            raise
        self._left_as = self._is_now()

    def problem(self) -> str | None:
        """What became of the file since it was last read or written here, if anything did."""
        if self._is_now() == self._left_as:
            return None
        return (
            f"{self.path.name} was changed or removed by someone else since it was read; "
            "restore it and open the memory again, or reset the scope"
        )

    def warnings(self) -> list[str]:
        """What is not as it should be, for health."""
        problem = self.problem()
        torn = f"the last line of {self.path.name} was not whole and was dropped; it was never confirmed"
        return [*([problem] if problem else []), *([torn] if self.torn else [])]

    def _is_now(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def remove(self) -> None:
        """Delete the file, and what a crash may have left beside it."""
        for path in (self.path, unfinished(self.path)):
            path.unlink(missing_ok=True)
        self._left_as = None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendUnavailable(f"{path.name} cannot be written ({error.strerror})", sent=False) from error


def append_text(path: Path, text: str) -> None:
    """Append to a file, or leave it as it was where that fails (a full disk takes half a line).

    Raises:
        BackendUnavailable: it could not be written.
    """
    with _writing(path):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            data = text.encode()
            size = os.fstat(file).st_size
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)


def unfinished(path: Path) -> Path:
    """Where the new content of a file stands until it is whole."""
    return path.with_name(path.name + ".new")


def replace_file(path: Path, text: str) -> None:
    """Write a file so that after a crash either the old or the new content is there, whole. Makes its directory.

    Raises:
        BackendUnavailable: it could not be written.
    """
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(unfinished(path), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished(path), path)
