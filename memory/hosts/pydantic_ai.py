"""pydantic-ai: a memory as a capability of an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, UserPromptPart

from memory import MemoryScope
from memory.runtime import TurnMemory


@dataclass
class MemoryCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """Recalls at the first model call of a run, and records when the run has ended.

        agent = Agent(model, capabilities=[MemoryCapability(memory)])

    The section stands below the user's prompt in what is sent, and is no part of the message history.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        scope: in place of the slot's own.
        session_id: in place of the run's ``conversation_id``.
    """

    memory: TurnMemory
    scope: MemoryScope | None = None
    session_id: str | None = None
    _section: str | None = None

    async def for_run(self, ctx: Any) -> MemoryCapability:
        """An instance for one run, which remembers the section from call to call."""
        session_id = self.session_id or ctx.conversation_id or ctx.run_id
        return replace(self, session_id=session_id, _section=None)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Add the section to this request alone."""
        if self._section is None:
            recall = await self.memory.recall(
                _text(ctx.prompt), session_id=str(self.session_id), scope=self.scope
            )
            self._section = recall.section
        messages = list(request_context.messages)
        for at in range(len(messages) - 1, -1, -1):
            message = messages[at]
            if isinstance(message, ModelRequest) and any(
                isinstance(part, UserPromptPart) for part in message.parts
            ):
                if self._section:
                    messages[at] = replace(message, parts=[*message.parts, UserPromptPart(self._section)])
                break
        return replace(request_context, messages=messages)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        """Record the prompt and the answer; an answer that is no text as pydantic-ai would print it."""
        asked, answer = _text(ctx.prompt), result.output
        if asked.strip():
            await self.memory.record_turn(
                session_id=str(self.session_id),
                scope=self.scope,
                user=asked,
                assistant=answer if isinstance(answer, str) else repr(answer),
                event_id=f"pydantic-ai:{ctx.run_id}",
                turn_id=ctx.run_id,
                agent_id="pydantic-ai",
            )
        return result


def _text(prompt: Any) -> str:
    """The words of a prompt, without pictures and files."""
    if isinstance(prompt, str):
        return prompt
    parts = [part if isinstance(part, str) else getattr(part, "content", None) for part in prompt or ()]
    return "\n".join(part for part in parts if isinstance(part, str))
