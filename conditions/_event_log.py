"""An append-only file of events, one JSON object a line, for conditions that are to outlive the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from memory import BackendUnavailable, MemoryEvent, MemoryScope
from memory.adapter import BackendProtocolError, IdAlphabet, IsolationError, ScopeEncoder

__all__ = ["EventLog", "append_text", "file_names", "replace_file"]

# Case-insensitive file systems: capitals are escaped. Directories: no dots, so never "..".
_FILE_NAMES = IdAlphabet(safe="-_", escape="%", separator="+", max_length=200)


def file_names() -> ScopeEncoder:
    """Scopes as file names: no two share one, on any file system."""
    return ScopeEncoder(_FILE_NAMES)


class EventLog:
    """The events of one scope in one file, for one process at a time.

    An event is one ``write`` of one line. If the last line was torn by a crash, it is dropped at :meth:`load`;
    damage anywhere else is an error, because it cannot have come from a crash of ours.
    """

    def __init__(self, path: Path, scope: MemoryScope) -> None:
        self.path = path
        self._scope = scope

    def load(self) -> list[MemoryEvent]:
        """All events, in the order they were appended; none where there is no file.

        Raises:
            BackendProtocolError: a line other than the last is not an event.
            IsolationError: an event belongs to another scope.
        """
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.path, len(whole))
        return list(self._parse(whole))

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
        """
        append_text(self.path, event.model_dump_json() + "\n")

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise BackendUnavailable(f"{path.name} cannot be written ({error.strerror})", sent=False) from error


def append_text(path: Path, text: str) -> None:
    """Append to a file, or leave it as it was where that fails (a full disk takes half a line).

    Raises:
        BackendUnavailable: it could not be written.
    """
    with _writing(path):
        size = path.stat().st_size if path.exists() else 0
        try:
            with open(path, "a", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError:
            if path.exists():
                os.truncate(path, size)
            raise


def replace_file(path: Path, text: str) -> None:
    """Write a file so that after a crash either the old or the new content is there, whole.

    Raises:
        BackendUnavailable: it could not be written.
    """
    with _writing(path):
        unfinished = path.with_name(path.name + ".new")
        with open(unfinished, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
