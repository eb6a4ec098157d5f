"""What conditions keep on disk: a directory with one owner, in it a file of each scope."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from sys import intern
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import ValidationError

from memory import BackendUnavailable, IsolationError, MemoryEvent, MemoryScope, Message
from memory.adapter import (
    AppendLog,
    Durability,
    FileLock,
    IdAlphabet,
    NativeWorker,
    ScopeEncoder,
    SqliteFile,
    SqliteLayout,
    StoreError,
)
from memory.adapter.stores import create_directory

T = TypeVar("T")


class OwnedDirectory:
    """A condition's ``path``, which one condition at a time may use."""

    def __init__(self, root: Path, owner: str) -> None:
        self.root = root
        # Case-insensitive file systems: capitals are escaped. No dots, so never "..".
        self._names = ScopeEncoder(IdAlphabet(safe="-_", escape="%", separator="+", max_length=200))
        self._lock = FileLock(
            root / f".{owner}.lock",
            what=f"the directory of memory.conditions.{owner}.path",
            instead="choose another path",
        )

    def file(self, scope: MemoryScope, suffix: str) -> Path:
        return self.root / f"{self._names.encode(scope)['id']}{suffix}"

    def take(self) -> None:
        """Become its owner; once more, where it was removed meanwhile. Idempotent."""
        if not self._lock.held:
            with _writing(self.root):
                create_directory(self.root)
                self._lock.acquire()

    def release(self) -> None:
        self._lock.release(remove=True)


async def write(call: Callable[[], T], durability: Durability) -> T:
    """A write that flushes the disk goes to its end on a thread; any other takes microseconds, here."""
    if durability == "process":
        return call()
    with anyio.CancelScope(shield=True):
        result = await anyio.to_thread.run_sync(call)
    return result


async def read_off_loop(read: Callable[[], T]) -> T:
    """On a thread: a long history takes seconds to parse."""
    worker = NativeWorker(name="memslot-history")
    try:
        return await worker.run(read)
    finally:
        await worker.aclose()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendUnavailable(
            f"{path.name} cannot be written ({error.strerror})",
            diagnostics={"exception": type(error).__name__, "errno": error.errno},
            sent=False,
        ) from error


class EventLog(AppendLog):
    def __init__(self, path: Path, scope: MemoryScope, durability: Durability) -> None:
        super().__init__(path, durability=durability)
        self._scope = scope

    def events(self) -> list[MemoryEvent]:
        return [parse_event(line, self._scope, self.path.name) for line in self.load()]

    def add(self, event: MemoryEvent) -> None:
        with _writing(self.path):
            self.append(event.model_dump_json().encode())


def parse_event(text: str | bytes, scope: MemoryScope, file: str) -> MemoryEvent:
    try:
        event = MemoryEvent.model_validate_json(text)
    except ValidationError:
        raise StoreError(
            f"{file} holds what is no event; restore it from a copy, or reset the scope"
        ) from None
    if event.scope != scope:
        raise IsolationError(f"{file} belongs to another scope")
    return event


def open_scope_file(path: Path, layout: SqliteLayout, durability: Durability) -> SqliteFile:
    """A new one is made beside its place and then renamed, so that a kill leaves it whole or not at all."""
    new, gone = (path.with_name(f"{path.name}.{suffix}") for suffix in ("new", "gone"))
    with _writing(path):
        if gone.exists():
            remove_scope_file(path)
        if not path.exists():
            if left := [file.name for file in SqliteFile.beside(path) if file.exists()]:
                raise StoreError(
                    f"{path.name} is missing beside {left[0]}; restore it from a copy, or reset the scope"
                )
            for left_over in (*SqliteFile.beside(new), new):
                left_over.unlink(missing_ok=True)
            SqliteFile(new, layout, durability).close()
            os.replace(new, path)
    return SqliteFile(path, layout, durability)


def scope_file_exists(path: Path) -> bool:
    """Whether there is anything of it, also of a removal that was interrupted."""
    files = (path, *SqliteFile.beside(path), path.with_name(f"{path.name}.gone"))
    return any(file.exists() for file in files)


def remove_scope_file(path: Path) -> None:
    """Whatever it holds. Interrupted after its first step, the next opening finishes it. Idempotent."""
    new, gone = (path.with_name(f"{path.name}.{suffix}") for suffix in ("new", "gone"))
    with _writing(path):
        with suppress(FileNotFoundError):
            os.replace(path, gone)
        # A log goes before what it belongs to: the next file of this name must not be taken for its own.
        for file in (*SqliteFile.beside(path), *SqliteFile.beside(new), new, gone):
            file.unlink(missing_ok=True)


def said(message: Message) -> str:
    """A message's text; its tool calls, where it has some, as JSON behind it."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    return "\n".join(part for part in (message.content, calls) if part.strip())


@dataclass(frozen=True, slots=True)
class Known:
    """Everything of an event but scope and words, in little memory: there may be hundreds of thousands."""

    event_id: str
    session_id: str
    turn_id: str
    agent_id: str
    timestamp: datetime
    cs_fields: dict[str, str] | None
    metadata: dict[str, Any] | None

    @classmethod
    def of(cls, event: MemoryEvent) -> Known:
        return cls(
            event.event_id,
            intern(str(event.session_id)),
            event.turn_id,
            intern(str(event.agent_id)),
            event.timestamp,
            event.cs_fields or None,
            event.metadata or None,
        )

    def raw(self) -> dict[str, Any]:
        return {
            "event_id": self.event_id,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "agent_id": self.agent_id,
            "timestamp": self.timestamp.isoformat(),
            **(self.cs_fields or {}),
            **({"metadata": self.metadata} if self.metadata else {}),
        }
