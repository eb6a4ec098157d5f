"""The notebook of rolling_summary for one scope, and how it is summarised."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Protocol

import anyio
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter

from conditions._storage import Saved, ScopeTables, event_in, said
from memory import BackendError, MemoryScope, MemslotError, TokenCounter
from memory.adapter import BackendProtocolError, StoreError

Sources = Mapping[str, tuple[str, ...]]  # line of the memory -> ids of its events
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A message that is not summarised yet. ``seq`` is the row of its event."""

    seq: int
    event_id: str
    session_id: str
    timestamp: datetime
    role: str
    name: str | None
    text: str

    def render(self) -> str:
        name = f" [{self.name.replace('[', '(').replace(']', ')')}]" if self.name else ""
        return f"[{self.timestamp:%Y-%m-%d %H:%M}] {self.role.upper()}{name}: {self.text}"


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


@dataclass(frozen=True)
class Progress:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", defer_build=True)

    done: Annotated[int, Field(ge=0)] = 0  # row of the last event that is summarised or archived raw
    consolidations: Annotated[int, Field(ge=0)] = 0
    raw_archived: Annotated[int, Field(ge=0)] = 0  # messages in the history, unsummarised
    last_error: str = ""  # of the messages archived raw; without user text
    last_derived_at: AwareDatetime | None = None
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)


_PROGRESS = TypeAdapter(Progress)


@dataclass
class Pages:
    """The stored state of a scope.

    Attributes:
        unreadable: numbers of damaged rows among the pending ones.
        earlier: the number of pending messages before the latest session's.
        last: row of the last event that was read.
    """

    version: str
    progress: Progress
    memory: str
    pending: list[Line]
    unreadable: list[int]
    earlier: int = 0
    last: int = 0

    def add(self, line: Line) -> None:
        if self.pending and line.session_id != self.pending[-1].session_id:
            self.earlier = len(self.pending)
        self.pending.append(line)

    def first(self, due: int, window: int, counter: TokenCounter) -> int:
        """The number of the first ``due`` messages that fit ``window`` tokens with the memory.

        Events stay whole, and at least one counts.
        """
        room = window - counter.count(self.memory)
        fits = 0
        for line in self.pending[:due]:
            room -= counter.count(line.render() + "\n")
            if room < 0:
                break
            fits += 1
        last = self.pending[max(fits, 1) - 1].seq
        if fits < due and fits and self.pending[fits].seq == last != self.pending[0].seq:
            return next(at for at, line in enumerate(self.pending) if line.seq == last)
        return sum(line.seq <= last for line in self.pending)


class Notebook:
    """One scope. Reading needs no lock; only the holder of ``lock`` may summarise.

    Other processes may use the scope. A summary is stored only if no other process has stored one meanwhile.
    """

    def __init__(
        self,
        scope: MemoryScope,
        tables: ScopeTables,
        summariser: Summariser,
        counter: TokenCounter,
        window: int,
        pause_s: float,
    ) -> None:
        self.lock = anyio.Lock()
        self._pages: Pages | None = None  # as read last
        self.held = False  # while read-only
        self.failures = 0  # in a row
        self.last_error = ""  # without user text
        self.archived = 0  # messages in the history without a summary, when last read
        self.unreadable: list[int] = []  # numbers of damaged rows, when last read
        self._scope = scope
        self._tables = tables
        self._summariser = summariser
        self._counter = counter
        self._window = window  # tokens that memory and messages may take together in one call
        self._pause_s = pause_s  # after a failure; doubled with each further failure
        self._rests_until = 0.0

    @property
    def rests_s(self) -> float:
        """Seconds until a failed summary may be tried again."""
        return max(0.0, self._rests_until - time.monotonic())

    async def read(self) -> Pages:
        """The stored state.

        Raises:
            StoreError: the stored progress is damaged.
        """
        saved = await self._tables.saved(self._scope)
        try:
            progress = _PROGRESS.validate_json(saved.progress)
        except ValueError:
            changed = "condition_scopes: a summary's progress is not as it was written"
            raise StoreError(f"{changed}; restore the store from a copy, or reset the scope") from None
        pages = self._pages
        if pages is None or pages.version != saved.version:
            pages = self._pages = Pages(saved.version, progress, saved.summary, [], [], last=progress.done)
        # While the version stays, events are only added. So a write reads its own event, not the whole session.
        for row in await self._tables.after(self._scope, pages.last):
            if row.seq <= pages.last:  # another task has read it meanwhile
                continue
            pages.last = row.seq
            if (event := event_in(row, self._scope)) is None:
                pages.unreadable.append(row.seq)
                continue
            of = (row.seq, event.event_id, event.session_id, event.timestamp)
            for message in event.messages:
                pages.add(Line(*of, message.role, message.name, said(message)))
        self.archived, self.unreadable = progress.raw_archived, pages.unreadable
        return pages

    async def summarise_earlier(self) -> Pages:
        """Summarise the sessions that are over, unless the pause after a failure still lasts."""
        pages = await self.read()
        while pages.earlier and not self.rests_s and await self.summarise(pages, pages.earlier):
            pages = await self.read()
        return pages

    async def summarise(self, pages: Pages, due: int) -> bool:
        """Summarise some of the first ``due`` messages. Returns False if none was done.

        After three failures in a row, they go into the history without a summary, as in Nanobot.
        """
        lines = pages.pending[: pages.first(due, self._window, self._counter)]
        now = pages.progress
        try:
            draft = await self._summariser.summarise(pages.memory, now.sources, lines)
            if self.held:  # the mode changed while the model was thinking
                return False
            memory, known = draft.memory.strip(), {**now.sources, **draft.sources}
            progress = replace(
                now,
                done=lines[-1].seq,
                consolidations=now.consolidations + 1,
                last_derived_at=datetime.now(UTC),
                sources={line: known[line] for line in memory.splitlines() if line in known},
            )
            await self._save(pages, progress, memory, draft.history_entry)
        except MemslotError as error:
            self._note(error)
            if self.failures < _ATTEMPTS or self.held:
                return False
            progress = replace(
                now,
                done=lines[-1].seq,
                raw_archived=now.raw_archived + len(lines),
                last_error=self.last_error,
            )
            head = f"[{lines[0].timestamp:%Y-%m-%d %H:%M}] [RAW] {len(lines)} messages"
            entry = "\n".join((head, *(line.render() for line in lines)))
            try:
                await self._save(pages, progress, pages.memory, entry)
            except MemslotError as unwritten:  # a full disk, for example; the events are stored anyway
                self._note(unwritten)
                return False
        return True

    async def _save(self, pages: Pages, progress: Progress, memory: str, entry: str) -> None:
        saved = Saved(pages.version, _PROGRESS.dump_json(progress).decode(), memory)
        await self._tables.save(self._scope, saved, re.sub(r"\n\s*\n", "\n", entry.strip()))
        self.failures, self.last_error, self._rests_until = 0, "", 0.0

    def _note(self, error: MemslotError) -> None:
        """Count a failed attempt. The next one comes after a pause."""
        self.failures += 1
        self.last_error = type(error).__name__
        retry_after_s = 0.0
        if isinstance(error, BackendError):
            retry_after_s = error.retry_after_s or 0.0
            status, reason = (error.diagnostics.get(name) for name in ("status", "reason"))
            if isinstance(error, BackendProtocolError):
                self.last_error += f": {error}"
            elif status:
                self.last_error += f", HTTP {status}"
            if reason:
                self.last_error += f": {reason}"
        self._rest(max(retry_after_s, self._pause_s * 2 ** (self.failures - 1)))

    def note_slowness(self) -> None:
        """Note that a write's deadline ended a summary. This is no failure, because a wait may have more time."""
        self.last_error = "it took longer than a write may take"
        self._rest(self._pause_s)

    def _rest(self, pause_s: float) -> None:
        self._rests_until = time.monotonic() + pause_s
