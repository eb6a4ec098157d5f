"""What rolling_summary keeps of a scope: a long-term memory, a history, and messages not yet summarised.

With a path, all of it is in one SQLite file of the scope, so that the memory and how far it reaches are written
together or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import anyio
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter

from conditions._storage import (
    Known,
    open_scope_file,
    parse_event,
    remove_scope_file,
    said,
    scope_file_exists,
    write,
)
from memory import BackendError, MemoryEvent, MemoryScope, MemslotError, TokenCounter
from memory.adapter import Durability, SqliteFile, SqliteLayout, StoreError

_BLANK_LINES = re.compile(r"\n\s*\n")
_LAYOUT = SqliteLayout(
    what="rolling summary",
    application_id=0x6D656D72,
    version=1,
    tables="""
CREATE TABLE events (seq INTEGER PRIMARY KEY, content TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE history (seq INTEGER PRIMARY KEY, content TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE summary (seq INTEGER PRIMARY KEY, content TEXT NOT NULL, digest BLOB NOT NULL);
""",
    full="the event was not kept",
)


@dataclass(frozen=True, slots=True)
class Line:
    event_id: str
    session_id: str
    timestamp: datetime
    role: str
    name: str | None
    text: str
    context: str | None

    def render(self) -> str:
        """``[2026-01-31 10:00] USER [Alice]: text``."""
        name = f" [{self.name.replace('[', '(').replace(']', ')')}]" if self.name else ""
        return f"[{self.timestamp:%Y-%m-%d %H:%M}] {self.role.upper()}{name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a line of the memory comes from, if the summariser can tell."""

    event_id: str
    context: str | None = None


Sources = Mapping[str, tuple[Source, ...]]
"""Line of the memory -> where it comes from. The same words may have been said in two contexts."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A summariser's answer: the new memory in place of the old, and one entry for the history."""

    memory: str
    history_entry: str
    sources: Sources = field(default_factory=dict)


class Summariser(Protocol):
    """Rewrites the long-term memory so that it covers further messages."""

    label: str
    """What it is, for health, traces and reports."""

    async def summarise(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        """The memory with ``lines`` worked in.

        Raises:
            BackendError: it failed; nothing has changed.
        """
        ...

    async def problem(self) -> str | None:
        """Why it would not work now, or None."""
        ...

    async def aclose(self) -> None: ...


@dataclass
class Progress:
    """How far a notebook has come.

    Attributes:
        consolidated: messages worked off so far, summarised or archived raw.
        consolidations: how often the memory was rewritten.
        failures: failed attempts in a row.
        raw_archived: messages that went into the history unsummarised.
        last_error, retry_after_s: what the last failed attempt died of, without user text, and how long the
            endpoint asked to be left alone.
        last_derived_at: when the memory was last rewritten.
        sources: line of the memory -> where it comes from, if known.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", defer_build=True)

    consolidated: Annotated[int, Field(ge=0)] = 0
    consolidations: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0
    raw_archived: Annotated[int, Field(ge=0)] = 0
    last_error: str = ""
    retry_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    last_derived_at: AwareDatetime | None = None
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)


_PROGRESS = TypeAdapter(Progress)


class Notebook:
    """The state of one scope. Holders of ``lock`` may change it; reading needs no lock.

    Args:
        scope: whose it is.
        counter: measures messages and memory.
        path: the scope's file, made with the first event; None keeps everything in this process.
        durability: what an acknowledged event survives.

    Attributes:
        memory: the long-term memory, the only thing ever retrieved.
        history: one entry per consolidation, and raw messages where summarising failed for good.
        pending: messages not yet worked into the memory, in order of arrival.
        costs: tokens of each of them.
        memory_tokens: of the memory.
        earlier: how many of them stand before the last run of messages of one session.
        last_user: where among them a user speaks last, or -1.
        progress: counters; changed by this class alone.
    """

    def __init__(
        self,
        scope: MemoryScope,
        counter: TokenCounter,
        path: Path | None = None,
        durability: Durability = "process",
    ) -> None:
        self.lock = anyio.Lock()
        self.memory = ""
        self.history: list[str] = []
        self.pending: list[Line] = []
        self.costs: list[int] = []
        self.earlier = 0
        self.last_user = -1
        self.progress = Progress()
        self._scope = scope
        self._counter = counter
        self._path = path
        self._durability = durability
        self._file: SqliteFile | None = None
        self.memory_tokens = 0
        self._pending_tokens = 0
        self._waiting: dict[str, int] = {}
        self._events: dict[str, Known] = {}

    @property
    def tokens(self) -> int:
        """Tokens of the memory and of what is pending: what a prompt holding both would cost."""
        return self.memory_tokens + self._pending_tokens

    def knows(self, event_id: str) -> bool:
        return event_id in self._events

    def waits(self, event_id: str) -> bool:
        return event_id in self._waiting

    def sources(self, event_ids: Iterable[str]) -> list[dict[str, Any]]:
        """What is known about events besides their words."""
        return [self._events[event_id].raw() for event_id in event_ids if event_id in self._events]

    async def add(self, event: MemoryEvent) -> None:
        """Keep an event, to be summarised later.

        Raises:
            StoreError, BackendUnavailable: it could not be kept.
        """
        await self._keep(("INSERT INTO events VALUES (NULL, ?, ?)", _sealed(event.model_dump_json())))
        self._take(event)

    def _take(self, event: MemoryEvent) -> None:
        for message in event.messages:
            line = Line(
                event.event_id,
                event.session_id,
                event.timestamp,
                message.role,
                message.name,
                said(message),
                event.context,
            )
            if self.pending and self.pending[-1].session_id != line.session_id:
                self.earlier = len(self.pending)
            if line.role == "user":
                self.last_user = len(self.pending)
            self.pending.append(line)
            self.costs.append(self._counter.count(line.render() + "\n"))
            self._pending_tokens += self.costs[-1]
        self._events[event.event_id] = Known.of(event)
        self._waiting[event.event_id] = len(event.messages)

    def load(self) -> None:
        """Take up what an earlier process left; nothing where there is no file. Blocks.

        Raises:
            StoreError: the file is not as it was left.
            IsolationError: the events belong to another scope.
        """
        if self._path is None or not scope_file_exists(self._path):
            return
        file = open_scope_file(self._path, _LAYOUT, self._durability)
        try:
            for event in _contents(file, "events"):
                self._take(parse_event(event, self._scope, self._path.name))
            self.history = _contents(file, "history")
            if summary := _contents(file, "summary"):
                progress, memory = summary
                self._set(_PROGRESS.validate_json(progress), memory)
        except BaseException as error:
            file.close()
            if isinstance(error, ValueError):
                raise StoreError(
                    f"{self._path.name} is not as it was written; restore it from a copy, or reset the scope"
                ) from None
            raise
        self._drop(self.progress.consolidated)
        self._file = file

    def problem(self) -> str | None:
        """What became of the file since it was opened here, if anything did."""
        try:
            if self._file is not None:
                self._file.check()
        except StoreError as error:
            return str(error)
        return None

    def warnings(self) -> list[str]:
        problem, lost = self.problem(), self._file.warnings() if self._file else []
        return [*([problem] if problem else []), *lost]

    async def commit(self, count: int, draft: Draft) -> None:
        """The first ``count`` pending messages are now covered by ``draft``; raises as :meth:`add`."""
        progress = self._advanced(count)
        progress.consolidations += 1
        progress.last_derived_at = datetime.now(UTC)
        known = {**self.progress.sources, **draft.sources}
        progress.sources = {line: known[line] for line in draft.memory.splitlines() if line in known}
        await self._save(progress, draft.history_entry, draft.memory.strip())
        self._drop(count)

    async def archive_raw(self, count: int) -> None:
        """Give up summarising the first ``count`` pending messages: they go into the history as they are. Raises as
        :meth:`add`.
        """
        progress = self._advanced(count)
        progress.raw_archived += count
        progress.last_error = self.progress.last_error
        lines = self.pending[:count]
        head = f"[{lines[0].timestamp:%Y-%m-%d %H:%M}] [RAW] {count} messages"
        await self._save(progress, "\n".join((head, *(line.render() for line in lines))), self.memory)
        self._drop(count)

    def note_failure(self, error: MemslotError) -> int:
        """Count a failed attempt, and return how many there have been in a row."""
        name, status = type(error).__name__, None
        self.progress.retry_after_s = 0.0
        if isinstance(error, BackendError):
            status = error.diagnostics.get("status")
            self.progress.retry_after_s = error.retry_after_s or 0.0
        self.progress.failures += 1
        self.progress.last_error = f"{name}, HTTP {status}" if status else name
        return self.progress.failures

    def clear(self) -> int | None:
        """Forget everything, the file included.

        Returns:
            The number of events; None where a file is gone that was never read.

        Raises:
            BackendUnavailable: the file cannot be deleted.
        """
        unread = self._path is not None and self._file is None and scope_file_exists(self._path)
        removed = None if unread else len(self._events)
        self.close()
        if self._path is not None:
            remove_scope_file(self._path)
        self._events.clear()
        self.history.clear()
        self._set(Progress(), "")
        self._drop(len(self.pending))
        return removed

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def is_empty(self) -> bool:
        left = self.memory or self.history or self.pending or self._events
        return not left and (self._path is None or not scope_file_exists(self._path))

    def _advanced(self, count: int) -> Progress:
        now = self.progress
        return replace(
            now, consolidated=now.consolidated + count, failures=0, last_error="", retry_after_s=0.0
        )

    async def _save(self, progress: Progress, history_entry: str, memory: str) -> None:
        entry = _BLANK_LINES.sub("\n", history_entry.strip())
        await self._keep(
            ("INSERT INTO history VALUES (NULL, ?, ?)", _sealed(entry)),
            (
                "INSERT OR REPLACE INTO summary VALUES (0, ?, ?)",
                _sealed(_PROGRESS.dump_json(progress).decode()),
            ),
            ("INSERT OR REPLACE INTO summary VALUES (1, ?, ?)", _sealed(memory)),
        )
        self.history.append(entry)
        self._set(progress, memory)

    async def _keep(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        if self._path is None:
            return
        if self._file is None:
            self._file = open_scope_file(self._path, _LAYOUT, self._durability)
        self._file.check()
        file = self._file

        def keep() -> None:
            with file.transaction():
                for statement, values in statements:
                    file.db.execute(statement, values)

        await write(partial(file.sync, keep), self._durability)

    def _set(self, progress: Progress, memory: str) -> None:
        self.progress = progress
        self.memory = memory
        self.memory_tokens = self._counter.count(memory)

    def _drop(self, count: int) -> None:
        self._pending_tokens -= sum(self.costs[:count])
        for line in self.pending[:count]:
            self._waiting[line.event_id] -= 1
            if not self._waiting[line.event_id]:
                del self._waiting[line.event_id]
        del self.pending[:count], self.costs[:count]
        self.earlier = max(0, self.earlier - count)
        self.last_user = max(-1, self.last_user - count)


def _sealed(content: str) -> tuple[str, bytes]:
    return content, _digest(content)


def _digest(content: str) -> bytes:
    return blake2b(content.encode(), digest_size=16).digest()


def _contents(file: SqliteFile, table: str) -> list[str]:
    """What a table holds, in order; ValueError where a row is not as it was written."""
    rows = file.sync(lambda: file.db.execute(f"SELECT content, digest FROM {table} ORDER BY seq").fetchall())
    if any(_digest(content) != digest for content, digest in rows):
        raise ValueError
    return [content for content, _ in rows]
