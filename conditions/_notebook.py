"""What rolling_summary keeps of a scope: a long-term memory, a history log, and messages not yet summarised.

With a directory, the three are files a person can read: MEMORY.md (may be edited between runs), HISTORY.md
(append-only, for searching), events.jsonl (everything that was recorded), and state.json, which says how much of
it has been summarised. state.json is written last, so that after a crash some messages are summarised twice,
and none is lost.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import anyio
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter

from conditions._event_log import EventLog, append_text, replace_file, unfinished
from conditions._events import Known, said
from memory import BackendError, MemoryEvent, MemoryScope, TokenCounter
from memory.adapter import BackendProtocolError

_GAP = "\n\n"
_BLANK_LINES = re.compile(r"\n\s*\n")
_FILES = ("MEMORY.md", "HISTORY.md", "state.json", "events.jsonl")


@dataclass(frozen=True, slots=True)
class Line:
    """One message waiting to be summarised."""

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
    """The part of a notebook that state.json holds.

    Attributes:
        consolidated: messages worked off so far, summarised or archived raw.
        consolidations: how often the memory was rewritten.
        failures: failed attempts in a row.
        raw_archived: messages that went into the history unsummarised.
        last_error, retry_after_s: what the last failed attempt died of, without user text, and how long the
            endpoint asked to be left alone.
        last_derived_at: when the memory was last rewritten.
        memory_chars: length of the memory as it was last written; a person may have changed it since.
        sources: line of the memory -> where it comes from, if known.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    consolidated: Annotated[int, Field(ge=0)] = 0
    consolidations: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0
    raw_archived: Annotated[int, Field(ge=0)] = 0
    last_error: str = ""
    retry_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    last_derived_at: AwareDatetime | None = None
    memory_chars: Annotated[int, Field(ge=0)] = 0
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)


@cache
def _state() -> TypeAdapter[Progress]:
    return TypeAdapter(Progress)


class Notebook:
    """The state of one scope. Holders of ``lock`` may change it; reading needs no lock.

    Attributes:
        memory: the long-term memory, the only thing ever retrieved.
        history: one entry per consolidation, and raw messages where summarising failed for good.
        pending: messages not yet worked into the memory, in order of arrival.
        costs: tokens of each of them.
        earlier: how many of them stand before the last run of messages of one session.
        last_user: where among them a user speaks last, or -1.
        progress: counters; changed by this class alone.
        log: the events on disk, where there is a directory.
    """

    def __init__(self, scope: MemoryScope, counter: TokenCounter, directory: Path | None) -> None:
        self.lock = anyio.Lock()
        self.memory = ""
        self.history: list[str] = []
        self.pending: list[Line] = []
        self.costs: list[int] = []
        self.earlier = 0
        self.last_user = -1
        self.progress = Progress()
        self.log = EventLog(directory / "events.jsonl", scope) if directory else None
        self._counter = counter
        self._directory = directory
        self._memory_tokens = 0
        self._pending_tokens = 0
        self._waiting: dict[str, int] = {}
        self._events: dict[str, Known] = {}

    @property
    def tokens(self) -> int:
        """Tokens of the memory and of what is pending: what a prompt holding both would cost."""
        return self._memory_tokens + self._pending_tokens

    @property
    def memory_tokens(self) -> int:
        """Tokens of the memory alone."""
        return self._memory_tokens

    def knows(self, event_id: str) -> bool:
        """Whether the event was recorded, summarised or not."""
        return event_id in self._events

    def waits(self, event_id: str) -> bool:
        """Whether a message of the event is pending."""
        return event_id in self._waiting

    def sources(self, event_ids: Iterable[str]) -> list[dict[str, Any]]:
        """What is known about events besides their words."""
        return [self._events[event_id].raw() for event_id in event_ids if event_id in self._events]

    def add(self, event: MemoryEvent) -> None:
        """Keep an event, to be summarised later."""
        if self.log is not None:
            self.log.append(event)
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
        """Take up what an earlier process left; nothing where there is no directory.

        Raises:
            BackendProtocolError: a file is damaged, empty or missing.
            IsolationError: the events belong to another scope.
        """
        if self._directory is None or self.log is None:
            return
        for event in self.log.load():
            if not self.knows(event.event_id):
                self._take(event)
        progress = self._load_progress(self._directory / "state.json")
        memory = _read(self._directory / "MEMORY.md").strip()
        if progress.memory_chars and not memory:
            raise BackendProtocolError("MEMORY.md is empty or missing; restore it or reset the scope")
        history = _read(self._directory / "HISTORY.md")
        if progress.consolidated and not history.strip():
            raise BackendProtocolError("HISTORY.md is empty or missing; restore it or reset the scope")
        if history and not history.endswith(_GAP):  # a line of ours that was torn, or a person's own
            append_text(self._directory / "HISTORY.md", _GAP)
        self.history = [entry for entry in history.split(_GAP) if entry.strip()]
        if progress.consolidated > len(self.pending):
            raise BackendProtocolError(
                "events.jsonl lacks events that state.json counts; restore it or reset the scope"
            )
        self._set(progress, memory)
        self._drop(progress.consolidated)

    def _load_progress(self, path: Path) -> Progress:
        if not path.exists():
            return Progress()
        try:
            text = _read(path)
            progress = _state().validate_json(text)
            if set(json.loads(text)) == {one.name for one in fields(Progress)}:
                return progress
        except ValueError:
            pass
        raise BackendProtocolError("state.json is damaged; restore it or reset the scope")

    def problem(self) -> str | None:
        """What became of the files since they were last read or written here, if anything did."""
        if self._directory is None or self.log is None:
            return None
        for name in _FILES[:3] if self.progress.consolidations else ():
            if not (self._directory / name).exists():
                return f"{name} was removed since it was written; restore it, or reset the scope"
        return self.log.problem()

    def warnings(self) -> list[str]:
        """What is not as it should be, for health."""
        problem = self.problem()
        told = self.log.warnings() if self.log else []
        return [problem, *told] if problem and problem not in told else told

    def commit(self, count: int, draft: Draft) -> None:
        """The first ``count`` pending messages are now covered by ``draft``."""
        progress = self._advanced(count)
        progress.consolidations += 1
        progress.last_derived_at = datetime.now(UTC)
        known = {**self.progress.sources, **draft.sources}
        progress.sources = {line: known[line] for line in draft.memory.splitlines() if line in known}
        self._save(progress, draft.history_entry, draft.memory)
        self._drop(count)

    def archive_raw(self, count: int) -> None:
        """Give up summarising the first ``count`` pending messages: they go into the history as they are."""
        progress = self._advanced(count)
        progress.raw_archived += count
        progress.last_error = self.progress.last_error
        lines = self.pending[:count]
        head = f"[{lines[0].timestamp:%Y-%m-%d %H:%M}] [RAW] {count} messages"
        self._save(progress, "\n".join((head, *(line.render() for line in lines))), self.memory)
        self._drop(count)

    def note_failure(self, error: BackendError) -> int:
        """Count a failed attempt, and return how many there have been in a row."""
        status = error.diagnostics.get("status")
        name = type(error).__name__
        self.progress.failures += 1
        self.progress.last_error = f"{name}, HTTP {status}" if status else name
        self.progress.retry_after_s = error.retry_after_s or 0.0
        return self.progress.failures

    def clear(self) -> int | None:
        """Forget everything, files included.

        Returns:
            The number of events; None where files are gone that were never read.
        """
        removed = len(self._events) or (None if self._directory and self._directory.exists() else 0)
        for file in self._files():
            file.unlink(missing_ok=True)
        if self._directory is not None:
            with contextlib.suppress(OSError):  # there is none, or someone keeps files of their own in it
                self._directory.rmdir()
        self._events.clear()
        self.history.clear()
        self._set(Progress(), "")
        self._drop(len(self.pending))
        return removed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left, in memory and on disk."""
        left = self.memory or self.history or self.pending or self._events
        return not left and not any(file.exists() for file in self._files())

    def _files(self) -> list[Path]:
        if self._directory is None:
            return []
        kept = [self._directory / name for name in _FILES]
        return [*kept, *map(unfinished, kept)]

    def _advanced(self, count: int) -> Progress:
        now = self.progress
        return replace(
            now, consolidated=now.consolidated + count, failures=0, last_error="", retry_after_s=0.0
        )

    def _save(self, progress: Progress, history_entry: str, memory: str) -> None:
        entry = _BLANK_LINES.sub("\n", history_entry.strip())
        progress.memory_chars = len(memory.strip())
        if self._directory is not None and self.log is not None:
            if problem := self.log.problem():  # the files may be another's by now
                raise BackendProtocolError(problem, sent=False)
            append_text(self._directory / "HISTORY.md", entry + _GAP)
            replace_file(self._directory / "MEMORY.md", memory + "\n")
            state = _state().dump_json(progress, indent=1).decode()
            replace_file(self._directory / "state.json", state)
        self.history.append(entry)
        self._set(progress, memory)

    def _set(self, progress: Progress, memory: str) -> None:
        self.progress = progress
        self.memory = memory
        self._memory_tokens = self._counter.count(memory)

    def _drop(self, count: int) -> None:
        self._pending_tokens -= sum(self.costs[:count])
        for line in self.pending[:count]:
            self._waiting[line.event_id] -= 1
            if not self._waiting[line.event_id]:
                del self._waiting[line.event_id]
        del self.pending[:count], self.costs[:count]
        self.earlier = max(0, self.earlier - count)
        self.last_user = max(-1, self.last_user - count)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    except UnicodeDecodeError:
        raise BackendProtocolError(f"{path.name} is not UTF-8 text; convert it or reset the scope") from None
    if "\0" in text:
        raise BackendProtocolError(f"{path.name} is damaged; restore it or reset the scope")
    return text
