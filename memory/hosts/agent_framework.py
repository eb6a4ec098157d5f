"""Microsoft Agent Framework: a memory as a ``ContextProvider``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from memory import ConfigError, MemoryScope, Message
from memory.hosts._shared import spoken, tested
from memory.runtime import HostTurns, TurnMemory

with tested("agent-framework"):
    from agent_framework import ContextProvider

_CALLS = ("function_call", "function_approval_request")


class SlotContextProvider(ContextProvider):  # type: ignore[misc]
    """Recalls before each run of an agent, and records after it.

        agent = Agent(client, context_providers=[SlotContextProvider(memory)])

    The section is an instruction of one run; it is in no history.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        scope: in place of the slot's own; one provider serves one person.
        source_id: names the provider.

    Raises:
        ScopeError: there is no scope.
    """

    def __init__(
        self, memory: TurnMemory, *, scope: MemoryScope | None = None, source_id: str = "memslot"
    ) -> None:
        super().__init__(source_id)
        self._turns = HostTurns(memory, "agent-framework", memory.slot.scope_or_default(scope))

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Add what the memory has for what was just said.

        Raises:
            ConfigError: the agent has a second memory.
        """
        if [
            context_provider
            for context_provider in agent.context_providers or ()
            if isinstance(context_provider, type(self))
        ] not in ([self], []):
            raise ConfigError("this agent has a memory already; one agent takes one SlotContextProvider")
        said = "\n".join(item.content for item in _spoken(context.input_messages) if item.role == "user")
        turn = state["turn"] = uuid.uuid4().hex
        recall = await self._turns.recall(turn, said, session_id=_session(session, context))
        if recall.section:
            context.extend_instructions(self.source_id, recall.section)

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        answered = context.response.messages if context.response else ()
        messages = [*_spoken(context.input_messages), *_spoken(answered)]
        turn = state.pop("turn", None) or uuid.uuid4().hex
        if messages:
            await self._turns.record(turn, session_id=_session(session, context), messages=messages)


def _session(session: Any, context: Any) -> str:
    return str(context.session_id or getattr(session, "session_id", None) or "agent-framework")


def _spoken(messages: Iterable[Any]) -> list[Message]:
    """What was said in words; neither the traffic of tools nor what is said beside a call of one."""
    return spoken(
        (str(getattr(message.role, "value", message.role)), message.text or "")
        for message in messages
        if not any(content.type in _CALLS for content in message.contents)
    )
