"""Turns made from the reports of coding agents' hooks.

Each hook runs as a separate process and only inserts one row per event into the outbox of ``data_dir``. The
rows of a session form a lane, in order of arrival, and this module groups them into turns.

If the host names its turns, prompts and answers are paired by name, otherwise by order. A user may type while
the agent works, so several prompts may come before the first answer. If answers are missing, an answer is
paired with all prompts before it, so that no prompt gets the answer to another.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, InstanceOf

from memory.contract._surviving import ends_the_task
from memory.contract.errors import BackendRejected, InputError, MemslotError, ScopeError
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import strip_context
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.runtime._said import said_by_user
from memory.slot.turns import event_from_turn
from memory.storage import insert
from memory.storage.entries import OUTBOX, Entry, Verdict
from memory.storage.leases import Lease
from memory.storage.outbox import Outbox
from memory.storage.store import SqliteStore

KIND = "hook"
Did = Literal["begin", "prompt", "answer", "stop", "end"]
HOLD_S = 20.0  # another plugin may block a stop; the agent then continues and stops again
UNANSWERED_S = 3600.0  # the agent may still work on the last prompts
_MAX_ROWS = 1000  # read from one session at a time


class Reported(BaseModel, frozen=True):
    """One event that a hook reported."""

    entry: InstanceOf[Entry]
    host: str
    session_id: str
    did: Did
    turn: str  # the hook's own name for the event
    at: float  # seconds since the epoch
    text: str = ""  # the prompt or the answer
    host_turn: str = ""  # the host's name for its turn; empty if it gives none
    completed: bool = True  # the host reports that the agent finished
    again: bool = False  # the agent stopped earlier in this turn, and another plugin made it continue

    @classmethod
    def of(cls, entry: Entry) -> Reported:
        """Read a row. Unpaired surrogates, which remain where a host cuts a text short, are replaced.

        Raises:
            ValueError, TypeError, RecursionError: the row does not have the format that hooks write.
        """
        given = json.loads(entry.payload)
        return cls(
            entry=entry, **json.loads(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
        )


@dataclass(slots=True)
class HookTurn:
    """A turn that is over."""

    prompts: list[Reported] = field(default_factory=list)  # usually one
    answer: Reported | None = None  # the last one; None if the agent gave none
    rows: list[Reported] = field(default_factory=list)  # the reports that form the turn

    @property
    def attempted(self) -> bool:
        """Whether an earlier attempt to record this turn may have reached the backend."""
        return any(row.entry.sent for row in self.rows)

    def event(self, scope: MemoryScope, not_said: Iterable[re.Pattern[str]]) -> MemoryEvent | None:
        """Convert the turn to an event; None if it holds no words. ``not_said``: see :func:`said_by_user`."""
        first = (self.prompts or self.rows)[0]
        answer = self.answer.text if self.answer is not None and self.answer.completed else ""
        words = [said_by_user(prompt.text, prompt.host, not_said) for prompt in self.prompts]
        spoken = [("user", text) for text in words] + [("assistant", answer)]
        messages = [Message(role=role, content=text) for role, text in spoken if strip_context(text).strip()]
        if not messages:
            return None
        return event_from_turn(
            first.session_id,
            scope,
            messages=messages,
            event_id=f"{first.host}:{first.turn}",
            turn_id=first.turn,
            timestamp=datetime.fromtimestamp(first.at, UTC),
            agent_id=first.host,
        )


def finished_turns(rows: Sequence[Reported], now: float, since: float = 0.0) -> list[HookTurn]:
    """Return the turns that are over in a session's waiting reports.

    A turn whose last report is older than ``since`` is over. Times are seconds since the epoch.
    """
    groups = list(_groups(rows))
    finished = [turn for group in groups[:-1] for turn in group.paired()]
    if groups and groups[-1].is_over(now, since):
        finished += groups[-1].paired()
    return finished


class _Group:
    """Reports that belong together. A group is balanced once it has as many answers as prompts."""

    def __init__(self) -> None:
        self.prompts: list[Reported] = []
        self.stops: list[Reported] = []
        self.rows: list[Reported] = []
        self.over = False  # the session ended
        self._answer: Reported | None = None  # Cursor reports the text before the stop

    @property
    def balanced(self) -> bool:
        return bool(self.stops) and len(self.stops) >= len(self.prompts)

    def add(self, row: Reported) -> None:
        self.rows.append(row)
        if row.did == "prompt":
            self.prompts.append(row)
        elif row.did == "answer":
            self._answer = row
        elif row.did == "stop":
            self._add_stop(row)
        elif row.did == "end":
            self.over = True

    def _add_stop(self, row: Reported) -> None:
        if not row.text and self._answer is not None:
            row = row.model_copy(update={"text": self._answer.text})
        self._answer = None
        earlier = [stop for stop in self.stops if stop.host_turn and stop.host_turn == row.host_turn]
        if earlier or (row.again and not row.host_turn and self.stops):
            self.stops[self.stops.index(earlier[0]) if earlier else -1] = row
        else:
            self.stops.append(row)

    def is_over(self, now: float, since: float) -> bool:
        last = self.rows[-1].at
        if self.over or last < since:
            return True
        wait_s = HOLD_S if self.balanced else UNANSWERED_S
        return now - last >= wait_s or now < last - UNANSWERED_S  # the clock was set back

    def paired(self) -> list[HookTurn]:
        turns = self._by_name() if any(prompt.host_turn for prompt in self.prompts) else self._by_order()
        if self.rows and not turns:
            turns = [HookTurn()]
        known = {row.turn for turn in turns for row in turn.rows}
        # The other rows join the last turn, so that all of them are removed with it.
        turns[-1].rows += [row for row in self.rows if row.turn not in known]
        return turns

    def _by_name(self) -> list[HookTurn]:
        answers = {stop.host_turn: stop for stop in self.stops}
        turns = []
        for prompt in self.prompts:
            answer = answers.pop(prompt.host_turn, None)
            turns.append(HookTurn([prompt], answer, [row for row in (prompt, answer) if row]))
        return turns + [HookTurn([], stop, [stop]) for stop in answers.values()]

    def _by_order(self) -> list[HookTurn]:
        prompts, stops = list(self.prompts), list(self.stops)
        if prompts and len(stops) > len(prompts):  # the last stop holds the last prompt's answer
            stops = [*stops[: len(prompts) - 1], stops[-1]]
        if len(stops) == len(prompts):
            pairs = zip(prompts, stops, strict=True)
            return [HookTurn([prompt], stop, [prompt, stop]) for prompt, stop in pairs]
        turns = []
        for stop in stops:
            before = [prompt for prompt in prompts if prompt.entry.seq < stop.entry.seq]
            prompts = prompts[len(before) :]
            turns.append(HookTurn(before, stop, [*before, stop]))
        return turns + [HookTurn([prompt], None, [prompt]) for prompt in prompts]


def _groups(rows: Sequence[Reported]) -> Iterator[_Group]:
    group = _Group()
    for row in rows:
        begins = row.did == "begin" or group.over or (row.did == "prompt" and group.balanced)
        if begins and group.rows:
            yield group
            group = _Group()
        group.add(row)
    if group.rows:
        yield group


class HookQueue(AbstractContextManager["HookQueue"]):
    """The reports of hooks that no memory has recorded yet.

    Args:
        data_dir: ``memory.data_dir``. Its SQLite file holds the rows, even if ``memory.state`` is a server.

    Raises:
        StoreError: the file cannot be used. Every method may raise this.
    """

    def __init__(self, data_dir: Path) -> None:
        self._store = SqliteStore(reports_file(data_dir), (OUTBOX,))
        self._outbox = Outbox(self._store, KIND)
        self._since = time.time()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._outbox.close()
        self._store.close()

    async def drain(
        self,
        record: Callable[[HookTurn], Awaitable[WriteReceipt | None]],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """Record every turn that is over, in the order of its session.

        A turn that is refused or unreadable is set aside, so that it does not block the others. If a turn
        cannot be recorded now, it waits, and so do the later turns of its session. Rows are removed after
        they are recorded.

        Args:
            record: writes one turn. It returns None if there was nothing to write.
            failed: called with the name of each turn that was not recorded, and the error.
        """
        for lane in await self._outbox.counts():
            async with self._outbox.leasing(lane) as lease:
                if lease is not None:  # else another process drains this session
                    await self._drain_lane(lease, record, failed)

    async def _drain_lane(
        self,
        lease: Lease,
        record: Callable[[HookTurn], Awaitable[WriteReceipt | None]],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        rows = []
        for entry in await self._outbox.waiting(lease.lane, limit=_MAX_ROWS):
            if not entry.due:
                return
            try:
                rows.append(Reported.of(entry))
            except (ValueError, TypeError, RecursionError) as error:
                failed(f"entry {entry.seq}", error)
                await self._note(lease, [entry], Verdict("aside", error=type(error).__name__))
        for turn in finished_turns(rows, time.time(), self._since):
            entries = [row.entry for row in turn.rows]
            name = f"entry {entries[0].seq}"
            # If this process dies now, the next one looks the turn up before it writes it.
            marked = await self._store.run(partial(self._mark_sent, lease, entries))
            if not marked:
                return  # another process has taken the session over
            try:
                receipt = await record(turn)
            except BaseException as error:
                if ends_the_task(error):
                    raise
                failed(name, error)
                known = isinstance(error, MemslotError)
                refused = not known or isinstance(error, (BackendRejected, InputError, ScopeError))
                why = str(error) if known else type(error).__name__
                state = "aside" if refused else "waiting"
                await self._note(lease, entries, Verdict(state, why, type(error).__name__))
                if not refused:
                    return
                continue
            if receipt is not None and receipt.status == "skipped_read_only":
                return
            state = "unknown" if receipt is not None and receipt.status == "unknown" else "recorded"
            await self._note(lease, entries, Verdict(state))
            if state == "unknown":
                return  # the next drain looks the turn up by its event id

    def _mark_sent(self, lease: Lease, entries: Sequence[Entry], db: Any) -> bool:
        return all(self._outbox.mark_sent(db, lease, entry.seq) for entry in entries)

    async def _note(self, lease: Lease, entries: Sequence[Entry], verdict: Verdict) -> None:
        made = [(entry, verdict) for entry in entries]
        await self._store.run(lambda db: self._outbox.note_all(db, lease, made))

    async def left(self) -> int:
        """Count the reports that wait."""
        return sum((await self._outbox.counts()).values())


def report_program() -> Path:
    """Return the path of the module that inserts reports. Hooks run a copy, which needs no other package."""
    return Path(insert.__file__)


def reports_file(data_dir: Path) -> Path:
    """Return the path of the file that hooks insert their reports into."""
    return data_dir / insert.FILE_NAME


def drop_reports(data_dir: Path) -> bool:
    """Remove the reports of hooks that were not recorded, and return whether there were any. Blocks."""
    with closing(SqliteStore(reports_file(data_dir), (OUTBOX,))) as store:
        if not store.begun:
            return False
        gone = store.call(lambda db: db.execute("DELETE FROM outbox WHERE kind = ?", (KIND,)).rowcount)
        store.fold()
    return bool(gone)
