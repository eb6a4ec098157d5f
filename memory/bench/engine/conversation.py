"""A session between the user and the assistant, asked on the same path as by any host, tested or not. Only what
becomes of a turn is the player's: it is noted before it is written, so that a cell that was killed goes on where
it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from memory.bench.data.timeline import Probe, Script
from memory.bench.engine.context import SessionDriver, role_calls
from memory.bench.engine.models import load_prompt
from memory.bench.engine.roles import Exchange
from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.scope import MemoryScope
from memory.runtime._channel import Attachment, SessionSettings, UserTurn
from memory.runtime._loop import AgentSession
from memory.runtime._policy import Recall
from memory.slot.turns import TurnFields, event_from_turn


@dataclass(frozen=True, slots=True)
class Said:
    """One turn; ``event`` is what the loop hands to the memory."""

    reply: str  # empty where the assistant said nothing
    recall: Recall
    event: MemoryEvent


class Conversation:
    """A session of the assistant's: with what was said in it before, where it is taken up again, and with a probe
    that the memory is asked about in place of the script. ``turns`` before its first one count for ids and
    times."""

    def __init__(
        self,
        driver: SessionDriver,
        session_id: str,
        script: Script,
        earlier: Sequence[Exchange] = (),
        turns: int | None = None,
        probe: Probe | None = None,
    ) -> None:
        self._driver, self._script = driver, script
        self.turns = len(earlier) if turns is None else turns
        self._memory = driver.memory(probe or script)
        identity = load_prompt("assistant").text.format(
            context=script.context or "usual", now=script.start.isoformat(" ", "minutes")[:16]
        )
        self._session = AgentSession(
            driver.context.roles.assistant,
            self._memory,
            scope=driver.scope,
            settings=SessionSettings(identity=identity, window_tokens=None),
            session_key=session_id,
        )
        self._session.history = [said for exchange in earlier for said in _messages(exchange)]

    async def recall(self, user: str) -> Recall:
        """What the memory gives for what the user says, where no reply is wanted."""
        session_id = self._session.session_id
        recall = await self._memory.recall(user, session_id=session_id, scope=self._driver.scope)
        self._driver.context.add_time("retrieve", recall.took_ms)
        return recall

    async def turn(self, user: str, attribute: str | None = None, answers: str = "") -> Said:
        """One turn, which may state an attribute; MemslotError where the assistant failed, or nothing was said.
        ``answers``, to choose from, are shown to the assistant, and no part of the question to the memory."""
        self.turns += 1
        session_id = self._session.session_id
        self._memory.turn_fields = _fields(
            self._driver.scope, session_id, self._script, self.turns, attribute
        )
        options = (Attachment(name="answers", content=answers),) if answers else ()
        report = await self._session.turn(UserTurn(content=user, attachments=options))
        self._driver.context.add_time("retrieve", report.recall.took_ms)
        self._driver.context.add_time("answer", report.took_ms - report.before_model_ms)
        if report.failure is not None:
            with role_calls("assistant"):
                raise report.failure
        if not report.recorded:
            raise InputError(f"{session_id}: turn {self.turns} says nothing but recalled context")
        return Said(report.output.content, report.recall, self._memory.event)


def turn_event(
    scope: MemoryScope, session_id: str, script: Script, number: int, attribute: str | None, said: Exchange
) -> MemoryEvent:
    """The event of a turn that was said before, as the loop handed it over."""
    fields = _fields(scope, session_id, script, number, attribute)
    fields["messages"] = _messages(said)
    return event_from_turn(session_id, scope, **fields)


def _fields(
    scope: MemoryScope, session_id: str, script: Script, number: int, attribute: str | None
) -> TurnFields:
    turn_id = f"{session_id}.{number}"
    return TurnFields(
        event_id=f"{scope.persona_id}:{turn_id}",
        turn_id=turn_id,
        timestamp=script.start + timedelta(minutes=number - 1),
        scenario=script.scenario,
        context=script.context,
        attribute=attribute,
    )


def _messages(exchange: Exchange) -> list[Message]:
    said = [Message(role="user", content=exchange.user)]
    return [*said, Message(role="assistant", content=exchange.reply)] if exchange.reply.strip() else said
