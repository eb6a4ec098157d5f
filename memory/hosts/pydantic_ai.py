"""pydantic-ai: a capability for an agent, over a memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from memory.hosts._shared import left_out, tested, words
from memory.hosts._tools import ARGUMENTS, DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text, tool_running

with tested("pydantic-ai"):
    from pydantic_ai import DeferredToolRequests, FunctionToolset, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelRequest, UserPromptPart


@dataclass
class MemoryCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """Recalls at the first model call of a run, and records the turn after the run ends.

        agent = Agent(model, capabilities=[MemoryCapability(memory)])

    The model sees the section below the user's prompt. The message history does not contain it.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets the
            ``RunContext``.
        session_id: replaces the run's ``conversation_id``.
        tools: whether the model may search the memory and store facts.
    """

    memory: OpenMemory
    session_id: str | None = None
    user_id: UserOf | None = None
    tools: bool = False
    _turns: HostTurns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.id is None:  # type: ignore[has-type]
            self.id = "memslot"  # pydantic-ai allows an id once per agent
        self._turns = HostTurns(self.memory, "pydantic-ai", self.user_id)

    def get_toolset(self) -> Any:
        """Return the model's tools; None without ``tools``."""
        if not self.tools:
            return None
        answers = ModelTools(self._turns)

        def made(name: str) -> Tool[Any]:
            async def ask(ctx: Any, **given: str) -> str:
                return await answers.answer(name, given[ARGUMENTS[name]], **self._where(ctx))

            return Tool.from_schema(ask, name, DESCRIPTIONS[name], schema(name), takes_ctx=True)

        return FunctionToolset([made(name) for name in DESCRIPTIONS])

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        recall = await self._turns.recall(ctx.run_id, words(_prompt(ctx)), **self._where(ctx))
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

    async def wrap_tool_execute(self, ctx: Any, *, args: Any, handler: Any, **tool: Any) -> Any:
        """Mark that a tool is running, so that nothing is recorded for agents inside it."""
        with tool_running():
            return await handler(args)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        """Record the prompt and the answer, unless the run waits for results of deferred tools."""
        prompt = _prompt(ctx)
        if not isinstance(result.output, DeferredToolRequests) and words(prompt).strip():
            await self._turns.record(
                ctx.run_id,
                user=words(prompt),
                assistant=answer_text(result.output),
                left_out=left_out(prompt),
                **self._where(ctx),
            )
        return result

    def _where(self, ctx: Any) -> dict[str, Any]:
        return {
            "session_id": str(self.session_id or ctx.conversation_id or ctx.run_id),
            "scope": self._turns.scope_of(ctx),
        }


def _prompt(ctx: Any) -> Any:
    """Return the user's prompt. A run without one continues a history, whose last prompt it is."""
    if ctx.prompt is not None:
        return ctx.prompt
    parts = [part for message in ctx.messages for part in message.parts if isinstance(part, UserPromptPart)]
    return parts[-1].content if parts else ""
