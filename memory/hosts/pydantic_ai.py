"""pydantic-ai: a memory as a capability of an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from memory import MemoryScope
from memory.hosts._shared import tested
from memory.runtime import HostTurns, TurnMemory, answer_text

with tested("pydantic-ai"):
    from pydantic_ai import DeferredToolRequests
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelRequest, UserPromptPart


@dataclass
class MemoryCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """Recalls at the first model call of a run, and records when the run has ended.

        agent = Agent(model, capabilities=[MemoryCapability(memory)])

    The section stands below the user's prompt in what is sent, and is no part of the message history.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        scope: in place of the slot's own, or a function of the ``RunContext``, whose ``deps`` may say who speaks.
        session_id: in place of the run's ``conversation_id``.
    """

    memory: TurnMemory
    scope: MemoryScope | Callable[[Any], MemoryScope] | None = None
    session_id: str | None = None
    _turns: HostTurns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.id is None:  # type: ignore[has-type]
            self.id = "memslot"  # which pydantic-ai lets stand once on an agent
        self._turns = HostTurns(self.memory, "pydantic-ai", None if callable(self.scope) else self.scope)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        recall = await self._turns.recall(ctx.run_id, _said(ctx), **self._where(ctx))
        messages = list(request_context.messages)
        for at in range(len(messages) - 1, -1, -1):
            message = messages[at]
            if isinstance(message, ModelRequest) and any(
                isinstance(part, UserPromptPart) for part in message.parts
            ):
                if recall.section:
                    messages[at] = replace(message, parts=[*message.parts, UserPromptPart(recall.section)])
                break
        return replace(request_context, messages=messages)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        """Record the prompt and the answer, unless the run waits for what its tools are to answer."""
        if not isinstance(result.output, DeferredToolRequests) and (said := _said(ctx)).strip():
            answer = answer_text(result.output)
            await self._turns.record(ctx.run_id, user=said, assistant=answer, **self._where(ctx))
        return result

    def _where(self, ctx: Any) -> dict[str, Any]:
        return {
            "session_id": str(self.session_id or ctx.conversation_id or ctx.run_id),
            "scope": self.scope(ctx) if callable(self.scope) else None,
        }


def _said(ctx: Any) -> str:
    """What the user said: the prompt, or, in a run that goes on with a history, the last one in it."""
    if ctx.prompt is not None:
        return _text(ctx.prompt)
    parts = [part for message in ctx.messages for part in message.parts if isinstance(part, UserPromptPart)]
    return _text(parts[-1].content) if parts else ""


def _text(prompt: Any) -> str:
    """The words of a prompt, without pictures and files."""
    if isinstance(prompt, str):
        return prompt
    parts = [part if isinstance(part, str) else getattr(part, "content", None) for part in prompt or ()]
    return "\n".join(part for part in parts if isinstance(part, str))
