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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import anyio

from conditions._event_log import EventLog, append_text, replace_file
from conditions._events import about, said
from memory import BackendError, MemoryEvent, MemoryScope, TokenCounter
from memory.adapter import BackendProtocolError

__all__ = ["Draft", "Line", "Notebook", "Source", "Sources", "Summariser"]

_GAP = "\n\n"
_BLANK_LINES = re.compile(r"\n\s*\n")
_FILES = ("MEMORY.md", "MEMORY.md.new", "HISTORY.md", "state.json", "state.json.new", "events.jsonl")


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
        sources: line of the memory -> where it comes from, if known.
    """

    consolidated: int = 0
    consolidations: int = 0
    failures: int = 0
    raw_archived: int = 0
    last_error: str = ""
    retry_after_s: float = 0.0
    last_derived_at: datetime | None = None
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)

    def dumps(self) -> str:
        fields = asdict(self)
        fields["last_derived_at"] = self.last_derived_at.isoformat() if self.last_derived_at else None
        return json.dumps(fields, ensure_ascii=False, indent=1)

    @classmethod
    def loads(cls, text: str) -> Progress:
        fields: dict[str, Any] = json.loads(text)
        moment = fields["last_derived_at"]
        fields["last_derived_at"] = datetime.fromisoformat(moment) if moment else None
        fields["sources"] = {
            line: tuple(Source(**source) for source in known) for line, known in fields["sources"].items()
        }
        return cls(**fields)


class Notebook:
    """The state of one scope. Holders of ``lock`` may change it; reading needs no lock.

    Attributes:
        memory: the long-term memory, the only thing ever retrieved.
        history: one entry per consolidation, and raw messages where summarising failed for good.
        pending: messages not yet worked into the memory, in order of arrival.
        pending_tokens: their tokens.
        progress: counters; changed by this class alone.
    """

    def __init__(self, scope: MemoryScope, counter: TokenCounter, directory: Path | None) -> None:
        self.lock = anyio.Lock()
        self.memory = ""
        self.history: list[str] = []
        self.pending: list[Line] = []
        self.pending_tokens = 0
        self._counter = counter
        self._directory = directory
        self._log = EventLog(directory / "events.jsonl", scope) if directory else None
        self._events: dict[str, dict[str, Any]] = {}
        self.progress = Progress()

    @property
    def tokens(self) -> int:
        """Tokens of the memory and of what is pending: what a prompt holding both would cost."""
        return self._counter.count(self.memory) + self.pending_tokens

    def costs(self, lines: list[Line]) -> Iterator[int]:
        """Tokens of each line."""
        return (self._counter.count(line.render() + "\n") for line in lines)

    def knows(self, event_id: str) -> bool:
        """Whether the event was recorded, summarised or not."""
        return event_id in self._events

    def sources(self, event_ids: Iterable[str]) -> list[dict[str, Any]]:
        """What is known about events besides their words."""
        return [self._events[event_id] for event_id in event_ids if event_id in self._events]

    def add(self, event: MemoryEvent) -> None:
        """Keep an event, to be summarised later."""
        if self._log is not None:
            self._log.append(event)
        self._take(event)

    def _take(self, event: MemoryEvent) -> None:
        what = (event.event_id, event.session_id, event.timestamp)
        lines = [
            Line(*what, message.role, message.name, said(message), event.context)
            for message in event.messages
        ]
        self._events[event.event_id] = about(event)
        self.pending += lines
        self.pending_tokens += sum(self.costs(lines))

    def load(self) -> None:
        """Take up what an earlier process left; nothing where there is no directory.

        Raises:
            BackendProtocolError: a file is damaged.
            IsolationError: the events belong to another scope.
        """
        if self._directory is None or self._log is None:
            return
        for event in self._log.load():
            if not self.knows(event.event_id):
                self._take(event)
        state = _read(self._directory / "state.json")
        if state:
            try:
                self.progress = Progress.loads(state)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise BackendProtocolError("state.json is damaged; restore it or reset the scope") from None
        self.memory = _read(self._directory / "MEMORY.md").strip()
        self.history = [entry for entry in _read(self._directory / "HISTORY.md").split(_GAP) if entry.strip()]
        if self.progress.consolidated > len(self.pending):
            raise BackendProtocolError(
                "events.jsonl lacks events that state.json counts; restore it or reset"
            )
        self._drop(self.progress.consolidated)

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

    def clear(self) -> int:
        """Forget everything, files included; returns the number of events."""
        removed = len(self._events)
        for file in self._files():
            file.unlink(missing_ok=True)
        if self._directory is not None:
            with contextlib.suppress(OSError):  # there is none, or someone keeps files of their own in it
                self._directory.rmdir()
        self._events.clear()
        self.progress = Progress()
        self.memory = ""
        self.history.clear()
        self._drop(len(self.pending))
        return removed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left, in memory and on disk."""
        left = self.memory or self.history or self.pending or self._events
        return not left and not any(file.exists() for file in self._files())

    def _files(self) -> list[Path]:
        return [self._directory / name for name in _FILES] if self._directory else []

    def _advanced(self, count: int) -> Progress:
        now = self.progress
        return Progress(
            consolidated=now.consolidated + count,
            consolidations=now.consolidations,
            raw_archived=now.raw_archived,
            last_derived_at=now.last_derived_at,
            sources=now.sources,
        )

    def _save(self, progress: Progress, history_entry: str, memory: str) -> None:
        entry = _BLANK_LINES.sub("\n", history_entry.strip())
        if self._directory is not None:
            append_text(self._directory / "HISTORY.md", entry + _GAP)
            replace_file(self._directory / "MEMORY.md", memory + "\n")
            replace_file(self._directory / "state.json", progress.dumps())
        self.history.append(entry)
        self.memory = memory
        self.progress = progress

    def _drop(self, count: int) -> None:
        self.pending_tokens -= sum(self.costs(self.pending[:count]))
        del self.pending[:count]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig") if path.exists() else ""
    except UnicodeDecodeError:
        raise BackendProtocolError(f"{path.name} is not UTF-8 text; convert it or reset the scope") from None
