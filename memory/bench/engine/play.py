"""One persona's game under one provider: sessions that are played and written, test sessions that are not.

Everything that happened stands in the cell's journal before what follows is begun, and all that is known of a cell
is read from there, so that a cell that was killed goes on where it stopped, in the middle of a session too.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from memory.bench.data.timeline import Beat, Script, Session, Timeline
from memory.bench.engine.context import Dealings, Played, PlayerSettings, Stopped, Table
from memory.bench.engine.conversation import Conversation, turn_event
from memory.bench.engine.probe_session import ask_probes
from memory.bench.engine.roles import Exchange
from memory.bench.engine.test_session import Told, play_test
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope


class Player:
    """Takes one persona through its timeline.

    Args:
        table: slot, roles and journal.
        timeline: what the persona goes through.
        scope: its own; as in the journal, where there is one.
        settings: how.
    """

    def __init__(
        self, table: Table, timeline: Timeline, scope: MemoryScope, settings: PlayerSettings
    ) -> None:
        self._table, self._slot, self._timeline, self._scope = table, table.slot, timeline, scope
        self._dealings = Dealings(table, scope, settings)
        self.played = Played()
        self._written: set[str] = set()
        self._turns: dict[str, deque[dict[str, Any]]] = {}
        self._told: list[Told] = []
        self._doubtful = self._clock_lost = False
        self._last: MemoryEvent | None = None

    async def play(self) -> None:
        """Go through the timeline, from where the journal ends.

        Raises:
            MemslotError: the cell cannot go on; what was done stands in the journal.
        """
        for row in self._table.journal.lines():
            self.played.add(row)
            self._doubtful = self._clock_lost = True
            if row["kind"] == "written":
                self._written.add(row["event"])
            elif row["kind"] == "turn":
                self._turns.setdefault(row["session"], deque()).append(row)
        if self._doubtful:
            self._note("resumed")
        with self._table.timed("setup"):
            # A process that was killed in a test session has left nobody to switch back.
            await self._slot.set_mode(AdapterMode(read_only=False, reason="accumulation"))
            await self._slot.setup_scope(self._scope)
        played = self.played
        if played.sessions + played.tests + played.asked == self._timeline.steps:
            return  # all of it, and what was said may be forgotten already
        tests = self._timeline.tests
        asked = sorted({probe.after for probe in self._timeline.probes})
        for number, session in enumerate([None, *self._timeline.sessions]):
            if session is not None:
                await self._session(number, session)
            while played.tests < len(tests) and tests[played.tests].after == number:
                await self._remind()
                test = tests[played.tests]
                row = await play_test(self._dealings, self._timeline.persona_id, test, self._told)
                self._note("test", **row)
                self._table.progress(played)
            if number in asked[played.asked :]:
                await self._remind()
                probes = self._timeline.probes_after(number)
                row = await ask_probes(self._dealings, self._timeline.persona_id, number, probes)
                self._note("probes", **row)
                self._table.progress(played)

    def _note(self, kind: str, **row: Any) -> None:
        if spent := self._table.spent():
            row["models"] = {role: dict(counts) for role, counts in spent.items()}
        self._table.check()
        try:
            self._table.journal.add(kind, **row)
        except OSError as error:
            raise Stopped.full(self._table.journal.path.name, error) from error
        self.played.add({"kind": kind, **row})

    # -- accumulation -----------------------------------------------------------------------------------

    async def _session(self, number: int, session: Session) -> None:
        done = number <= self.played.sessions
        for turn in session.turns:
            await self._deliver(number, turn.event(self._scope, session.session_id))
        if session.script is not None:
            await self._played_session(number, session.session_id, session.script)
        if not done:
            self._note("session", session=session.session_id)
            self._table.progress(self.played)

    async def _remind(self) -> None:
        """A provider that recalls nothing keeps no more of the past than its last event, and not on disk."""
        if self._clock_lost and self._last is not None and not self._slot.traits.recalls_writes:
            await self._slot.record_event(self._last)
        self._clock_lost = False

    async def _played_session(self, number: int, session_id: str, script: Script) -> None:
        persona_id = self._timeline.persona_id
        turns, noted = self._turns.pop(session_id, deque()), number <= self.played.sessions
        earlier: list[Exchange] = []
        conversation: Conversation | None = None
        for beat in script.beats:
            exchanges: list[Exchange] = []
            while True:
                row, event = None, None
                if turns or noted:
                    row = turns.popleft() if turns and turns[0]["beat"] == beat.beat_id else None
                elif (user := await self._dealings.say(script, beat, exchanges)) is not None:
                    await self._remind()
                    conversation = conversation or Conversation(
                        self._dealings, persona_id, session_id, script, earlier
                    )
                    row, event = await self._turn(conversation, script, beat, exchanges, user)
                if row is None:
                    break
                said = Exchange(row["user"], row["reply"])
                earlier.append(said)
                exchanges.append(said.shown())
                await self._deliver(
                    number,
                    event
                    or turn_event(
                        persona_id, self._scope, session_id, script, row["n"], beat.attribute, said
                    ),
                )
                if beat.truth is None or row["fit"]:
                    break

    async def _turn(
        self, conversation: Conversation, script: Script, beat: Beat, exchanges: list[Exchange], user: str
    ) -> tuple[dict[str, Any], MemoryEvent]:
        """One turn, noted before it is written."""
        said = await conversation.turn(user, beat.attribute)
        error, trace, fit = self._dealings.outcome(said.recall), said.recall.trace, None
        if beat.truth is not None:
            now = [*exchanges, Exchange(user, said.reply).shown()]
            fit = (await self._dealings.judge(script, beat, now)).fit
        row = {
            "session": said.event.session_id,
            "n": conversation.turns,
            "beat": beat.beat_id,
            "user": user,
            "reply": said.reply,
            "fit": fit,
            "tokens": trace.token_count if trace else None,
            "asked": self._slot.token_counter.count(user),
            "error": error,
            "warnings": self._table.clean(trace.warnings) if trace else [],
        }
        self._note("turn", **row)
        return row, said.event

    async def _deliver(self, number: int, event: MemoryEvent) -> None:
        """Write an event that is not known to be written, and note what became of it."""
        if event.event_id not in self._written:
            with self._table.timed("write"):
                receipt = await self._sent(event)
            self._doubtful = False
            if receipt.status == "skipped_read_only":
                raise Stopped(
                    "a write was skipped because the slot is read-only; the timeline would have a gap"
                )
            self._written.add(event.event_id)
            self._note(
                "written",
                event=event.event_id,
                status=receipt.status,
                native=len(receipt.native_ids),
                tokens=sum(self._slot.token_counter.count(message.content) for message in event.messages),
                llm=[receipt.trace.llm_calls, receipt.trace.llm_tokens] if receipt.trace else [None, None],
                warnings=self._table.clean(receipt.warnings),
            )
        self._remember(number, event)

    def _remember(self, number: int, event: MemoryEvent) -> None:
        self._last = event
        self._told.append((number, event.event_id, event.messages[0].content.casefold()))

    async def _sent(self, event: MemoryEvent) -> WriteReceipt:
        # The first event after a crash may have been sent, and only its receipt be missing.
        if self._doubtful and self._slot.can_look_up and self._slot.traits.recalls_writes:
            found = await self._slot.find_event(event)
            if found is not None:
                return WriteReceipt(event_id=event.event_id, status="committed", native_ids=found)
        return await self._slot.record_event(event)
