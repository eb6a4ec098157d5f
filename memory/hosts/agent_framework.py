"""Microsoft Agent Framework: a ``ContextProvider`` over a memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from memory import ConfigError, MemoryScope
from memory.hosts._shared import conversation, tested
from memory.hosts._tools import DESCRIPTIONS, ModelTools
from memory.runtime import HostTurns, OpenMemory, UserOf, tool_running

with tested("agent-framework"):
    from agent_framework import ContextProvider, FunctionTool, Message, function_middleware

_APPROVAL = "function_approval_request"
_CALLS = ("function_call", _APPROVAL)


class SlotContextProvider(ContextProvider):  # type: ignore[misc]
    """Recalls before each run of an agent, and records after it.

        agent = Agent(client, context_providers=[SlotContextProvider(memory)])

    A turn is the last user message of a run's input and the messages after it, because a front end may send
    the whole conversation each time. The section is a separate message before that input, and in no history.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets the run's
            ``SessionContext``.
        tools: whether the model may search the memory and store facts.
    """

    def __init__(
        self,
        memory: OpenMemory,
        *,
        user_id: UserOf | None = None,
        source_id: str = "memslot",
        tools: bool = False,
    ) -> None:
        super().__init__(source_id)
        self._turns = HostTurns(memory, "agent-framework", user_id)
        self._answers = ModelTools(self._turns) if tools else None

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Add the memories for the user's last message.

        Raises:
            ConfigError: the agent has a second memory.
            ScopeError: the function of ``user_id`` names no user.
        """
        if [
            context_provider
            for context_provider in agent.context_providers or ()
            if isinstance(context_provider, type(self))
        ] not in ([self], []):
            raise ConfigError("this agent has a memory already; one agent takes one SlotContextProvider")
        scope, session_id = self._turns.scope_of(context), _session(session, context)
        context.extend_middleware(self.source_id, _mark_tool)
        if self._answers is not None:
            context.extend_tools(self.source_id, _tools(self._answers, scope, session_id))
        if begun := _last_turn(context.input_messages):
            state.update(turn=_name(begun[0], context.input_messages), said=begun[0].text)
        elif "turn" not in state:
            state.update(turn=uuid.uuid4().hex, said="")
        recall = await self._turns.recall(state["turn"], state["said"], session_id=session_id, scope=scope)
        if recall.section:
            context.extend_messages(self.source_id, [Message("user", [recall.section])])

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Record the turn, unless it waits for an approval. A later run has that answer."""
        answered = list(context.response.messages) if context.response else []
        if any(_calls(message, _APPROVAL) for message in answered):
            return
        turn, said = state.pop("turn", None) or uuid.uuid4().hex, state.pop("said", "")
        # After an approval, the run's input holds no question. The state has kept it.
        asked = _last_turn(context.input_messages) or [Message("user", [said])]
        messages, parts = conversation([*asked, *answered], _role, lambda message: message.contents, _calls)
        if messages:
            await self._turns.record(
                turn,
                session_id=_session(session, context),
                scope=self._turns.scope_of(context),
                messages=messages,
                left_out=parts,
            )


@function_middleware  # type: ignore[untyped-decorator]
async def _mark_tool(context: Any, run: Any) -> None:
    """Mark that a tool is running, so that nothing is recorded for agents inside it."""
    with tool_running():
        await run()


def _tools(answers: ModelTools, scope: MemoryScope, session_id: str) -> list[Any]:
    return [
        FunctionTool(name=name, description=DESCRIPTIONS[name], func=made, approval_mode="never_require")
        for name, made in answers.functions(scope, session_id).items()
    ]


def _session(session: Any, context: Any) -> str:
    return str(context.session_id or getattr(session, "session_id", None) or "agent-framework")


def _role(message: Any) -> str:
    return str(getattr(message.role, "value", message.role))


def _name(asked: Any, messages: Sequence[Any]) -> str:
    """Return a turn's name: its message's id, unless another message has the same one."""
    alone = [message.message_id for message in messages].count(asked.message_id) == 1
    return str(asked.message_id) if asked.message_id and alone else uuid.uuid4().hex


def _last_turn(messages: Sequence[Any]) -> list[Any]:
    """Return the user's last message with words, and the messages after it."""
    users = [at for at, message in enumerate(messages) if _role(message) == "user" and message.text.strip()]
    return list(messages[users[-1] :]) if users else []


def _calls(message: Any, *kinds: str) -> bool:
    """Whether a message calls a tool, or holds content of the given kinds."""
    return any(content.type in (kinds or _CALLS) for content in message.contents)
