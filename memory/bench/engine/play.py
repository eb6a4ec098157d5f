"""Plays one persona's timeline with one provider.

The cell's journal records each step before the next one begins. A killed cell continues from its journal,
even in the middle of a session.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from memory.bench.data.timeline import Beat, Script, Session, TestSession, Timeline
from memory.bench.engine.context import (
    ACCUMULATION,
    CellContext,
    CellState,
    Conversation,
    Readiness,
    turn_event,
)
from memory.bench.engine.files import HarnessFailed, Stopped
from memory.bench.engine.probe_session import ProbeSession
from memory.bench.engine.roles import Exchange
from memory.bench.engine.test_session import TestSessionRun
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot
from memory.storage.insert import FILE_NAME

Way = Literal["copy", "fresh reader", "told again"]
"""How a test opens the memory."""
_BESIDE = {"outbox", "journal", "partitions", "host store", "mirror"}
"""Groups of tables that memslot keeps beside a memory. Other groups belong to a memory."""
_BESIDE_DATA = re.compile(r"(-wal|-shm|-journal|\.lock|\.tmp|\.part)\Z")


class Openings:
    """Opens the memory of a cell: for its sessions, and for each test in its state before any test.

    A test must not teach the memory, so each test opens it anew:

    - as a copy of the store, if files hold all of the memory
    - by a fresh reader of the same store, if a server or a path outside the cell holds it
    - as a new memory that gets all events again, if it lives only in its process

    Args:
        build: makes a slot on a directory.
        store: the memory's directory.
    """

    def __init__(self, build: Callable[[Path], MemorySlot], store: Path) -> None:
        self._build, self._store = build, store
        self._copy = store.with_name(f"{store.name}-test")
        self.slot = build(store)

    async def __aenter__(self) -> Self:
        self._drop_copy()  # left by a process that was killed in a test
        await self.slot.__aenter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.slot.aclose()
        self._drop_copy()

    def _drop_copy(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)

    def way(self) -> Way:
        """How tests open the memory, as far as its files and its declared store tell.

        memslot's own rows beside a server are not a memory. A copy of them would send waiting events twice.
        """
        files = (
            each for each in self._store.rglob("*") if each.is_file() and not _BESIDE_DATA.search(each.name)
        )
        if any(not each.name.startswith(FILE_NAME) for each in files) or self._keeps_rows():
            return "copy"
        return "fresh reader" if self.slot.traits.store else "told again"

    def _keeps_rows(self) -> bool:
        """Whether the memory has its own tables in memslot's store."""
        file = self._store / FILE_NAME
        if not file.exists():
            return False
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            groups = {what for (what,) in database.execute("SELECT what FROM versions")}
        return bool(groups - _BESIDE)

    @asynccontextmanager
    async def aside(self, scope: MemoryScope) -> AsyncIterator[Way]:
        """A context for tests. Afterwards, sessions continue with ``slot``, which may be a new one."""
        way = self.way()
        if way != "told again":
            await self.slot.aclose()
        yield way
        if self.slot.closed:
            self.slot = self._build(self._store)
            await self.slot.__aenter__()
            await self.slot.setup_scope(scope)

    @asynccontextmanager
    async def reader(
        self, way: Way, scope: MemoryScope, told: Sequence[MemoryEvent]
    ) -> AsyncIterator[MemorySlot]:
        """The memory in its state before any test, open for one test."""
        place = self._store if way == "fresh reader" else self._copy
        if way == "copy":
            self._copy_store()
        async with self._build(place) as slot:
            await slot.setup_scope(scope)
            if way == "told again":
                for event in told if slot.traits.recalls_writes else told[-1:]:
                    await slot.record_event(event)
            yield slot
        if way != "fresh reader":
            self._drop_copy()

    def _copy_store(self) -> None:
        try:
            shutil.copytree(self._store, self._copy, ignore=_special_files)
        except OSError as error:  # shutil.Error is one, without a reason
            why = error.strerror or "its files cannot be read"
            raise HarnessFailed(
                f"the store cannot be copied for a test ({why}); make room and resume"
            ) from error


def _special_files(directory: str, names: list[str]) -> list[str]:
    """Sockets and pipes, which hold no data."""
    place = Path(directory)
    modes = {name: (place / name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)]


_PROBES_AT_A_TIME = 50  # noted together; after a crash so many are asked again


class CellPlayer:
    """Takes one persona through its timeline."""

    def __init__(self, context: CellContext, openings: Openings, timeline: Timeline) -> None:
        self._context, self._openings, self._timeline = context, openings, timeline
        self._scope, self._settings = context.scope, context.settings
        self.state = CellState()
        self._written: set[str] = set()
        self._turns: dict[str, deque[dict[str, Any]]] = {}
        self._uncertain = self._forgotten = False
        self._told: list[MemoryEvent] = []  # all events, in order

    @property
    def _slot(self) -> MemorySlot:
        return self._context.slot

    async def play(self) -> None:
        """Play the timeline from the end of the journal. If it raises, the journal holds all steps done."""
        self._read_journal()
        # A memory that lives only in its process has lost what an earlier process told it.
        self._forgotten = bool(self._written) and self._openings.way() == "told again"
        try:
            await self._play()
        except Exception:
            if spent := self._context.take_usage():  # a failed step has costs, too
                with suppress(HarnessFailed):
                    self._note("failed", models=spent)
            raise

    async def _play(self) -> None:
        with self._context.times.of("setup"):
            # A process that was killed in a test session has not switched back.
            await self._slot.set_mode(ACCUMULATION)
            await self._slot.setup_scope(self._scope)
        with suppress(MemslotError):
            self.state.native_scope = dict(self._slot.native_scope(self._scope))
        state = self.state
        if state.steps == self._timeline.steps:
            return  # completed; texts may be removed already
        points = sorted({probe.after for probe in self._timeline.probes})
        for number, session in enumerate([None, *self._timeline.sessions]):
            if session is not None:
                await self._session(number, session)
            if tests := [test for test in self._timeline.tests[state.tests :] if test.after == number]:
                await self._test(tests)
            if number in points[state.probes :]:
                await self._ask(number)

    async def _test(self, tests: Sequence[TestSession]) -> None:
        """The test sessions of one point."""
        async with self._examined() as (way, readiness):
            for test in tests:
                async with self._as_it_stood(way) as context:
                    run = TestSessionRun(context, test)
                    await run.play(readiness)
                self._note("test", **run.row(), way=way)
                self._context.progress(self.state)

    @asynccontextmanager
    async def _examined(self) -> AsyncIterator[tuple[Way, Readiness]]:
        """A context for tests, each of which meets the memory in its present state."""
        readiness = await self._context.ready()
        async with AsyncExitStack() as stack:
            with self._context.times.of("open"):
                way = await stack.enter_async_context(self._openings.aside(self._scope))
            yield way, readiness
            with self._context.times.of("open"):
                await stack.aclose()
        self._context.slot = self._openings.slot

    @asynccontextmanager
    async def _as_it_stood(self, way: Way) -> AsyncIterator[CellContext]:
        """The context of one test, with the memory in its state before any test."""
        async with AsyncExitStack() as stack:
            with self._context.times.of("reader"):
                opened = self._openings.reader(way, self._scope, self._told)
                slot = await stack.enter_async_context(opened)
            yield replace(self._context, slot=slot)
            with self._context.times.of("reader"):
                await stack.aclose()

    def _read_journal(self) -> None:
        for row in self._context.journal.lines():
            self.state.add(row)
            self._uncertain = True
            if row["kind"] == "written":
                self._written.add(row["event"])
            elif row["kind"] == "turn":
                self._turns.setdefault(row["session"], deque()).append(row)
        if self._uncertain:
            self._note("resumed")

    def _note(self, kind: str, **row: Any) -> None:
        if spent := row.pop("models", None) or self._context.take_usage():
            row["models"] = {role: dict(counts) for role, counts in spent.items()}
        self._context.traces.check()
        try:
            self._context.journal.add(kind, **row)
        except OSError as error:
            raise HarnessFailed.full(self._context.journal.path.name, error) from error
        self.state.add({"kind": kind, **row})

    async def _ask(self, number: int) -> None:
        async with self._examined() as (way, readiness):
            await self._ask_at(number, way, readiness)
        self._context.progress(self.state)

    async def _ask_at(self, number: int, way: Way, readiness: Readiness) -> None:
        """Ask the probes of one point, some at a time. After a crash, only the missing probes are asked."""
        answered = {record.probe_id for record in self.state.records}
        probes = [item for item in self._timeline.probes_after(number) if item.probe_id not in answered]
        for start in range(0, max(1, len(probes)), _PROBES_AT_A_TIME):
            some = probes[start : start + _PROBES_AT_A_TIME]
            last = start + _PROBES_AT_A_TIME >= len(probes)
            if not some:  # the crash came after the last answer
                self._note("probes_ended")
                break
            async with self._as_it_stood(way) as context:
                run = ProbeSession(context, some)
                try:
                    await run.play(readiness)
                except MemslotError:
                    if run.records:
                        self._note("probes", **run.row(), way=way, last=False)
                    raise
            self._note("probes", **run.row(), way=way, last=last)

    async def _session(self, number: int, session: Session) -> None:
        noted = number <= self.state.sessions
        labels = self._settings.labels
        turns = [turn.event(self._scope, session.session_id, labels=labels) for turn in session.turns]
        await self._deliver_all(turns)
        if session.script is not None:
            await self._play_script(session.session_id, session.script, noted=noted)
        if not noted:
            self._note("session", session=session.session_id)
            self._context.progress(self.state)

    async def _play_script(self, session_id: str, script: Script, *, noted: bool) -> None:
        turns = self._turns.pop(session_id, deque())
        earlier: list[Exchange] = []
        conversation: Conversation | None = None
        for beat in script.beats:
            exchanges: list[Exchange] = []
            while True:
                row = None
                if turns or noted:
                    row = turns.popleft() if turns and turns[0]["beat"] == beat.beat_id else None
                elif (user := await self._context.say(script, beat, exchanges)) is not None:
                    conversation = conversation or Conversation(self._context, session_id, script, earlier)
                    row = await self._turn(conversation, session_id, script, beat, exchanges, user)
                if row is None:
                    break
                said = Exchange(row["user"], row["reply"])
                earlier.append(said)
                exchanges.append(said.shown())
                label = beat.attribute if self._settings.labels else None
                await self._deliver_all([turn_event(self._scope, session_id, script, row["n"], label, said)])
                if beat.truth is None or row["fit"]:
                    break

    async def _turn(
        self,
        conversation: Conversation,
        session_id: str,
        script: Script,
        beat: Beat,
        exchanges: list[Exchange],
        user: str,
    ) -> dict[str, Any]:
        """Play one turn, and note it before its event is written. Returns the journal's line."""
        reply, recall = await conversation.turn(user)
        error, trace, fit = self._context.outcome(recall), recall.trace, None
        if beat.truth is not None:
            now = [*exchanges, Exchange(user, reply).shown()]
            fit = (await self._context.judge(script, beat, now)).fit
        row = {
            "session": session_id,
            "n": conversation.turns,
            "beat": beat.beat_id,
            "user": user,
            "reply": reply,
            "fit": fit,
            "tokens": trace.token_count if trace else None,
            "asked": self._slot.delivery.token_counter.count(user),
            "error": error,
            "warnings": self._context.clean(trace.warnings) if trace else [],
        }
        self._note("turn", **row)
        return row

    async def _deliver_all(self, events: Sequence[MemoryEvent]) -> None:
        """Write the events without a noted receipt, and note each receipt."""
        if self._settings.event_context == "text":
            events = [_with_context(event) for event in events]
        new = [event for event in events if event.event_id not in self._written]
        if self._forgotten:
            for event in (event for event in events if event.event_id in self._written):
                await self._slot.record_event(event)
        for event in new:
            with self._context.times.of("write"):
                receipt = await self._sent(event)
            self._uncertain = False
            self._note_written(event, receipt)
        self._told += events

    def _note_written(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        if receipt.status == "skipped_read_only":
            raise Stopped("a write was skipped because the slot is read-only; the timeline would have a gap")
        self._written.add(event.event_id)
        self._note(
            "written",
            event=event.event_id,
            status=receipt.status,
            native=len(receipt.native_ids),
            messages=len(event.messages),
            tokens=sum(
                self._slot.delivery.token_counter.count(message.content) for message in event.messages
            ),
            warnings=self._context.clean(receipt.warnings),
        )

    async def _sent(self, event: MemoryEvent) -> WriteReceipt:
        # After a crash, the first event may have been written although its receipt is missing.
        if self._uncertain and self._slot.delivery.can_look_up and self._slot.traits.recalls_writes:
            found = await self._slot.delivery.find_event(event)
            if found is not None:
                return WriteReceipt(event_id=event.event_id, status="committed", native_ids=found)
        return await self._slot.record_event(event)


def _with_context(event: MemoryEvent) -> MemoryEvent:
    """The event with its context before the text of each message."""
    before = f"[{event.context}] " if event.context is not None else ""
    said = (each.model_copy(update={"content": f"{before}{each.content}"}) for each in event.messages)
    return event.model_copy(update={"messages": tuple(said)})
