"""The notebook of rolling_summary for one scope. Its memory and progress change in one transaction."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Protocol

import anyio
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter

from conditions._storage import Known, Saved, ScopeTables, said
from memory import BackendError, MemoryEvent, MemoryScope, MemslotError, TokenCounter
from memory.adapter import BackendProtocolError, StoreError


@dataclass(frozen=True, slots=True)
class Line:
    of: Known  # the event
    role: str
    name: str | None
    text: str

    def render(self) -> str:
        name = f" [{self.name.replace('[', '(').replace(']', ')')}]" if self.name else ""
        return f"[{self.of.timestamp:%Y-%m-%d %H:%M}] {self.role.upper()}{name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Source:
    event_id: str
    context: str | None = None


Sources = Mapping[str, tuple[Source, ...]]  # by line; the same words may have been said in two contexts


@dataclass(frozen=True, slots=True)
class Draft:
    memory: str
    history_entry: str
    sources: Sources = field(default_factory=dict)


class Summariser(Protocol):
    label: str

    async def summarise(self, memory: str, sources: Sources, lines: list[Line]) -> Draft: ...

    async def problem(self) -> str | None:
        """Why the summariser does not work now, or None."""

    async def aclose(self) -> None: ...


@dataclass
class Progress:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", defer_build=True)

    consolidated: Annotated[int, Field(ge=0)] = 0  # messages done, summarised or archived raw
    consolidations: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0  # in a row
    raw_archived: Annotated[int, Field(ge=0)] = 0  # messages in the history, unsummarised
    last_error: str = ""  # without user text
    retry_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    last_derived_at: AwareDatetime | None = None
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)


_PROGRESS = TypeAdapter(Progress)


class Notebook:
    """The state of one scope. Only the holder of ``lock`` may change it; reading needs no lock.

    Other processes may also use the scope. A change is made only if no other process has made one meanwhile.

    Args:
        scope: the scope.
        counter: measures messages and the memory.
        tables: the storage of the state.
    """

    def __init__(self, scope: MemoryScope, counter: TokenCounter, tables: ScopeTables) -> None:
        self.lock = anyio.Lock()
        self._scope = scope
        self._counter = counter
        self._tables = tables
        self._rests_until = 0.0
        self._clear()

    def _clear(self) -> None:
        self.version = ""
        self.unreadable: list[int] = []  # row numbers
        self.memory = ""
        self.history: list[str] = []
        self.pending: list[Line] = []
        self.earlier = 0  # number of pending messages before the latest session's
        self.progress = Progress()
        self.events: dict[str, Known] = {}
        self.waiting: dict[str, int] = {}  # how many messages of each event are pending

    async def add(self, event: MemoryEvent) -> bool:
        """Store an event. Returns False if its id is known."""
        while event.event_id not in self.events:
            before = self.version
            changed = await self._tables.add_if(before, event)
            if changed is not None and self.version == before:
                self.version = changed
                self._take(event)
                return True
            await self.refresh()  # another process or a reader has changed the state meanwhile
            if changed is not None:
                return True
        return False

    def _take(self, event: MemoryEvent) -> None:
        known = self.events[event.event_id] = Known.of(event)
        for message in event.messages:
            if self.pending and self.pending[-1].of.session_id != known.session_id:
                self.earlier = len(self.pending)
            self.pending.append(Line(known, message.role, message.name, said(message)))
        self.waiting[event.event_id] = len(event.messages)

    def within(self, due: int, window: int) -> int:
        """The number of the first ``due`` messages that fit ``window`` tokens with the memory; at least one.

        If not all fit, the cut is before a message of the user, if there is one.
        """
        room = window - self._counter.count(self.memory)
        fits = 0
        for line in self.pending[:due]:
            room -= self._counter.count(line.render() + "\n")
            if room < 0:
                break
            fits += 1
        if fits == due:
            return due
        at_user = (cut for cut in range(fits, 0, -1) if self.pending[cut].role == "user")
        return next(at_user, max(fits, 1))

    async def refresh(self) -> None:
        """Read the scope again if another process has changed it.

        Raises:
            StoreError: the stored progress is damaged.
        """
        if await self._tables.version(self._scope) == self.version:
            return
        saved, rows = await self._tables.load(self._scope)
        try:
            progress = _PROGRESS.validate_json(saved.progress)
        except ValueError:
            changed = "condition_scopes: a summary's progress is not as it was written"
            raise StoreError(f"{changed}; restore the store from a copy, or reset the scope") from None
        self._clear()
        worked_off, readable = progress.consolidated, 0
        for row, event in rows:
            if event is None:
                self.unreadable.append(row.seq)
            else:
                self._take(event)
                readable += min(worked_off, row.messages)
            worked_off -= min(worked_off, row.messages)
        self.history = saved.history
        self._set(progress, saved.summary)
        self._drop(readable)
        self.version = saved.version

    async def commit(self, version: str, count: int, draft: Draft) -> None:
        """Store a summary of the first ``count`` pending messages, unless another process was faster.

        Args:
            version: the notebook's version when the summary was begun.
        """
        known = {**self.progress.sources, **draft.sources}
        await self._save(
            version,
            count,
            draft.history_entry,
            draft.memory.strip(),
            consolidations=self.progress.consolidations + 1,
            last_derived_at=datetime.now(UTC),
            sources={line: known[line] for line in draft.memory.splitlines() if line in known},
        )

    async def archive_raw(self, version: str, count: int) -> None:
        """Put the first ``count`` pending messages into the history without a summary."""
        now, lines = self.progress, self.pending[:count]
        head = f"[{lines[0].of.timestamp:%Y-%m-%d %H:%M}] [RAW] {count} messages"
        entry = "\n".join((head, *(line.render() for line in lines)))
        changes = {"raw_archived": now.raw_archived + count, "last_error": now.last_error}
        await self._save(version, count, entry, self.memory, **changes)

    def note_failure(self, error: MemslotError) -> int:
        """Count a failed attempt, and return the number of failures in a row."""
        name, status = type(error).__name__, None
        self.progress.retry_after_s = 0.0
        if isinstance(error, BackendError):
            status = error.diagnostics.get("status")
            self.progress.retry_after_s = error.retry_after_s or 0.0
        self.progress.failures += 1
        why = (
            f": {error}" if isinstance(error, BackendProtocolError) else f", HTTP {status}" if status else ""
        )
        reason = error.diagnostics.get("reason") if isinstance(error, BackendError) else None
        self.progress.last_error = name + why + (f": {reason}" if reason else "")
        return self.progress.failures

    def note_slowness(self, pause_s: float) -> None:
        """Note that a write's deadline ended a summary.

        This is no failure, because a wait may have more time.
        """
        self.progress.last_error = "it took longer than a write may take"
        self._rests_until = time.monotonic() + pause_s

    def rest(self, pause_s: float) -> None:
        """Try the failed summary again only after a pause, which doubles with each failure in a row."""
        pause_s = max(self.progress.retry_after_s, pause_s * 2 ** (self.progress.failures - 1))
        self._rests_until = time.monotonic() + pause_s

    @property
    def rests_s(self) -> float:
        """Seconds until a failed summary may be tried again."""
        return max(0.0, self._rests_until - time.monotonic())

    async def clear(self) -> int:
        """Delete everything in the scope. Returns the number of its events."""
        removed = await self._tables.clear(self._scope)
        self._clear()
        return removed

    async def is_empty(self) -> bool:
        return not await self._tables.version(self._scope)

    async def _save(self, version: str, count: int, history_entry: str, memory: str, **changes: Any) -> None:
        """Store that the first ``count`` pending messages are done, and the ``changes`` of the progress."""
        fresh: dict[str, Any] = {"failures": 0, "last_error": "", "retry_after_s": 0.0}
        consolidated = self.progress.consolidated + count
        progress = replace(self.progress, consolidated=consolidated, **fresh | changes)
        entry = re.sub(r"\n\s*\n", "\n", history_entry.strip())
        saved = Saved(version, _PROGRESS.dump_json(progress).decode(), memory, [entry])
        changed = await self._tables.save(self._scope, saved)
        if changed is None or self.version != version:
            await self.refresh()
            return
        self.version = changed
        self.history.append(entry)
        self._set(progress, memory)
        self._drop(count)

    def _set(self, progress: Progress, memory: str) -> None:
        self.progress = progress
        self.memory = memory

    def _drop(self, count: int) -> None:
        for line in self.pending[:count]:
            self.waiting[line.of.event_id] -= 1
            if not self.waiting[line.of.event_id]:
                del self.waiting[line.of.event_id]
        del self.pending[:count]
        self.earlier = max(0, self.earlier - count)


_ATTEMPTS = 3


@dataclass
class Consolidation:
    """Summarises notebooks; the caller holds the notebook's lock."""

    summariser: Summariser
    window: int  # tokens that memory and messages may take together in one call
    pause_s: float = 0.0  # after a failure; doubled with each further failure
    read_only: bool = False

    async def due(self, notebook: Notebook) -> None:
        """Summarise the sessions that are over, unless the pause after a failure still lasts."""
        while not notebook.rests_s and (due := notebook.earlier):
            if not await self.some(notebook, due):
                return

    async def some(self, notebook: Notebook, due: int) -> bool:
        """Summarise some of the first ``due`` messages. Returns False if none was done.

        After three failures in a row, they go into the history without a summary, as in Nanobot.
        """
        count = notebook.within(due, self.window)
        version, lines = notebook.version, notebook.pending[:count]
        try:
            draft = await self.summariser.summarise(notebook.memory, notebook.progress.sources, lines)
            if self.read_only:  # the mode changed while the model was thinking
                return False
            await notebook.commit(version, count, draft)
        except MemslotError as error:
            failures = notebook.note_failure(error)
            notebook.rest(self.pause_s)
            if failures < _ATTEMPTS or self.read_only:
                return False
            try:
                await notebook.archive_raw(version, count)
            except MemslotError as unwritten:  # a full disk, for example; the events are stored anyway
                notebook.note_failure(unwritten)
                return False
        return True
