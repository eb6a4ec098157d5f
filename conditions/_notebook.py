"""What rolling_summary keeps of a scope: memory and how far it reaches are written together or not at all."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

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
from memory.adapter import BackendProtocolError, Durability, SqliteFile, SqliteLayout, StoreError

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
        """Why it would not work now, or None."""

    async def aclose(self) -> None: ...


@dataclass
class Progress:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", defer_build=True)

    consolidated: Annotated[int, Field(ge=0)] = 0  # messages worked off, summarised or archived raw
    consolidations: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0  # in a row
    raw_archived: Annotated[int, Field(ge=0)] = 0  # messages in the history, unsummarised
    last_error: str = ""  # without user text
    retry_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    last_derived_at: AwareDatetime | None = None
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)


_PROGRESS = TypeAdapter(Progress)


class Notebook:
    """The state of one scope. Holders of ``lock`` may change it; reading needs no lock."""

    def __init__(self, scope: MemoryScope, counter: TokenCounter, path: Path, durability: Durability) -> None:
        self.lock = anyio.Lock()
        self.memory = ""
        self.history: list[str] = []
        self.pending: list[Line] = []
        self.costs: list[int] = []
        self.earlier = 0  # of these, before the last run of messages of one session
        self.last_user = -1  # where among them a user speaks last
        self.progress = Progress()
        self.events: dict[str, Known] = {}
        self.waiting: dict[str, int] = {}  # how many messages of each event are pending
        self._scope = scope
        self._counter = counter
        self._path = path
        self._durability = durability
        self._file: SqliteFile | None = None
        self.memory_tokens = 0
        self._pending_tokens = 0
        self._rests_until = 0.0

    @property
    def tokens(self) -> int:
        return self.memory_tokens + self._pending_tokens

    async def add(self, event: MemoryEvent) -> None:
        await self._keep(("INSERT INTO events VALUES (NULL, ?, ?)", event.model_dump_json()))
        self._take(event)

    def _take(self, event: MemoryEvent) -> None:
        known = self.events[event.event_id] = Known.of(event)
        for message in event.messages:
            line = Line(known, message.role, message.name, said(message))
            if self.pending and self.pending[-1].of.session_id != known.session_id:
                self.earlier = len(self.pending)
            if line.role == "user":
                self.last_user = len(self.pending)
            self.pending.append(line)
            self.costs.append(self._counter.count(line.render() + "\n"))
            self._pending_tokens += self.costs[-1]
        self.waiting[event.event_id] = len(event.messages)

    def load(self) -> None:
        """Take up what an earlier process left; nothing where there is no file. Blocks."""
        if not scope_file_exists(self._path):
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
                changed = f"{self._path.name} is not as it was written"
                raise StoreError(f"{changed}; restore it from a copy, or reset the scope") from None
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
        known = {**self.progress.sources, **draft.sources}
        await self._save(
            count,
            draft.history_entry,
            draft.memory.strip(),
            consolidations=self.progress.consolidations + 1,
            last_derived_at=datetime.now(UTC),
            sources={line: known[line] for line in draft.memory.splitlines() if line in known},
        )

    async def archive_raw(self, count: int) -> None:
        """Give up summarising the first ``count`` pending messages: they go into the history as they are."""
        now, lines = self.progress, self.pending[:count]
        head = f"[{lines[0].of.timestamp:%Y-%m-%d %H:%M}] [RAW] {count} messages"
        entry = "\n".join((head, *(line.render() for line in lines)))
        changes = {"raw_archived": now.raw_archived + count, "last_error": now.last_error}
        await self._save(count, entry, self.memory, **changes)

    def note_failure(self, error: MemslotError) -> int:
        """Count a failed attempt, and return how many there have been in a row."""
        name, status = type(error).__name__, None
        self.progress.retry_after_s = 0.0
        if isinstance(error, BackendError):
            status = error.diagnostics.get("status")
            self.progress.retry_after_s = error.retry_after_s or 0.0
        self.progress.failures += 1
        why = (
            f": {error}" if isinstance(error, BackendProtocolError) else f", HTTP {status}" if status else ""
        )
        self.progress.last_error = name + why
        return self.progress.failures

    def note_slowness(self, pause_s: float) -> None:
        """A summary was given up at a write's deadline. It is no failure: a wait may have the time for it."""
        self.progress.last_error = "it took longer than a write may take"
        self._rests_until = time.monotonic() + pause_s

    def rest(self, pause_s: float) -> None:
        """After a failure: what failed is not asked again at once, and each time later."""
        pause_s = max(self.progress.retry_after_s, pause_s * 2 ** (self.progress.failures - 1))
        self._rests_until = time.monotonic() + pause_s

    @property
    def rests_s(self) -> float:
        """Seconds until a failed summary may be tried again."""
        return max(0.0, self._rests_until - time.monotonic())

    def clear(self) -> int | None:
        """How many events are gone; None where a file is that was never read."""
        unread = self._file is None and scope_file_exists(self._path)
        removed = None if unread else len(self.events)
        self.close()
        remove_scope_file(self._path)
        self.events.clear()
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
        left = self.memory or self.history or self.pending or self.events
        return not left and not scope_file_exists(self._path)

    async def _save(self, count: int, history_entry: str, memory: str, **changes: Any) -> None:
        """The first ``count`` pending messages are worked off, with these ``changes`` of the progress."""
        fresh: dict[str, Any] = {"failures": 0, "last_error": "", "retry_after_s": 0.0}
        consolidated = self.progress.consolidated + count
        progress = replace(self.progress, consolidated=consolidated, **fresh | changes)
        entry = re.sub(r"\n\s*\n", "\n", history_entry.strip())
        replacing = "INSERT OR REPLACE INTO summary VALUES"
        await self._keep(
            ("INSERT INTO history VALUES (NULL, ?, ?)", entry),
            (f"{replacing} (0, ?, ?)", _PROGRESS.dump_json(progress).decode()),
            (f"{replacing} (1, ?, ?)", memory),
        )
        self.history.append(entry)
        self._set(progress, memory)
        self._drop(count)

    async def _keep(self, *statements: tuple[str, str]) -> None:
        """Each of these with its content, and the content's digest."""
        if self._file is None:
            self._file = open_scope_file(self._path, _LAYOUT, self._durability)
        self._file.check()
        file = self._file

        def keep() -> None:
            with file.transaction():
                for statement, content in statements:
                    file.db.execute(statement, (content, _digest(content)))

        await write(partial(file.sync, keep), self._durability)

    def _set(self, progress: Progress, memory: str) -> None:
        self.progress = progress
        self.memory = memory
        self.memory_tokens = self._counter.count(memory)

    def _drop(self, count: int) -> None:
        self._pending_tokens -= sum(self.costs[:count])
        for line in self.pending[:count]:
            self.waiting[line.of.event_id] -= 1
            if not self.waiting[line.of.event_id]:
                del self.waiting[line.of.event_id]
        del self.pending[:count], self.costs[:count]
        self.earlier = max(0, self.earlier - count)
        self.last_user = max(-1, self.last_user - count)


def _digest(content: str) -> bytes:
    return blake2b(content.encode(), digest_size=16).digest()


def _contents(file: SqliteFile, table: str) -> list[str]:
    """What a table holds, in order; ValueError where a row is not as it was written."""
    rows = file.sync(lambda: file.db.execute(f"SELECT content, digest FROM {table} ORDER BY seq").fetchall())
    if any(_digest(content) != digest for content, digest in rows):
        raise ValueError
    return [content for content, _ in rows]


UpdatePolicy = Literal["after_accumulation_session", "token_threshold"]
_ROUNDS = 5
_ATTEMPTS = 3


@dataclass
class Consolidation:
    """Summarises notebooks; the caller holds the notebook's lock."""

    summariser: Summariser
    policy: UpdatePolicy
    window: int  # tokens that memory and messages may take together
    pause_s: float = 0.0  # after a failure; doubled with each further one
    read_only: bool = False

    async def due(self, notebook: Notebook) -> None:
        """Summarise what the policy says, unless a failed summary still rests."""
        if notebook.rests_s:
            return
        if self.policy == "after_accumulation_session":
            while due := notebook.earlier:
                if not await self.some(notebook, due):
                    return
        elif notebook.tokens >= self.window:
            for _ in range(_ROUNDS):
                excess = notebook.tokens - self.window // 2
                cut = _cut_freeing(notebook, excess) if excess > 0 else 0
                if not cut or not await self.some(notebook, cut):
                    return

    async def some(self, notebook: Notebook, due: int) -> bool:
        """Work off some of the first ``due`` messages; False if none was. After three failures in a row they
        go into the history as they are, as Nanobot did it."""
        count = _cut_within(notebook, due, self.window)
        lines = notebook.pending[:count]
        try:
            draft = await self.summariser.summarise(notebook.memory, notebook.progress.sources, lines)
            if self.read_only:  # the mode changed while the model was thinking
                return False
            await notebook.commit(count, draft)
        except MemslotError as error:
            failures = notebook.note_failure(error)
            notebook.rest(self.pause_s)
            if failures < _ATTEMPTS or self.read_only:
                return False
            try:
                await notebook.archive_raw(count)
            except MemslotError as unwritten:  # a full disk, say; the event is kept all the same
                notebook.note_failure(unwritten)
                return False
        return True


def _cut_freeing(notebook: Notebook, tokens: int) -> int:
    """How many messages to work off so that ``tokens`` become free, up to a message of the user: the last
    such place where there are too few, 0 where there is none."""
    cut = freed = 0
    for index, cost in enumerate(notebook.costs if notebook.last_user > 0 else ()):
        if index and notebook.pending[index].role == "user":
            cut = index
            if freed >= tokens:
                break
        freed += cost
    return cut


def _cut_within(notebook: Notebook, due: int, window: int) -> int:
    """How many of the first ``due`` messages fit ``window`` tokens together with the memory, at least one;
    where not all do, up to a message of the user, if there is one."""
    room = window - notebook.memory_tokens
    fits = 0
    for cost in islice(notebook.costs, due):
        room -= cost
        if room < 0:
            break
        fits += 1
    if fits == due:
        return due
    at_user = (cut for cut in range(fits, 0, -1) if notebook.pending[cut].role == "user")
    return next(at_user, max(fits, 1))
