"""OpenAI Agents SDK: a memory as ``RunHooks`` and an input filter of a run.

The SDK's ``Session`` is a conversation's raw history, item by item, and stays so: what a memory makes of many
conversations has no place in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import uuid
from collections.abc import Iterable
from typing import Any

from memory import ConfigError, MemoryScope
from memory.hosts._shared import tested, words
from memory.runtime import HostTurns, TurnMemory, answer_text

with tested("openai-agents"):
    from agents import RunConfig, RunHooks
    from agents.run import CallModelData, ModelInputData


class MemoryHooks(RunHooks):  # type: ignore[misc]
    """The memory of one person's conversation, for any number of its runs.

        turns = MemoryHooks(memory, session_id="chat-1")
        await Runner.run(agent, "Which tea do I like?", hooks=turns, run_config=turns.run_config())

    The section is added to the instructions of every model call of a run, and to nothing the SDK keeps. For hooks
    of your own subclass this, and call ``super()`` in ``on_agent_start``, ``on_agent_end`` and ``on_tool_*``.

    Args:
        memory: whoever opened it closes it, after the last run.
        session_id: the conversation; that of the SDK's ``Session``, where there is one.
        scope: in place of the slot's own.
        records: False leaves it to :meth:`record`, for runs with guardrails: hooks are told of an answer before a
            guardrail stops it.

    Raises:
        ScopeError: there is no scope.
    """

    def __init__(
        self,
        memory: TurnMemory,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        records: bool = True,
    ) -> None:
        self._turns = HostTurns(memory, "openai-agents", memory.slot.scope_or_default(scope))
        self._session_id = session_id
        self._records = records
        self._said = ""
        self._tools = 0  # at work: model calls meanwhile are those of agents that are tools

    def run_config(self, base: Any = None) -> Any:
        """A ``RunConfig`` that shows the section; with ``base``, that one with its own filter kept, and run after.

        Raises:
            ConfigError: ``base`` has a memory already.
        """
        config = base or RunConfig()
        inner = config.call_model_input_filter
        if isinstance(inner, _Filter):
            raise ConfigError("this RunConfig has a memory already; one run takes one memory")
        return dataclasses.replace(config, call_model_input_filter=_Filter(self, inner))

    async def section(self, items: Iterable[Any]) -> str:
        """What the memory has for the last user message of a model's input; for one without any, as an agent may be
        handed over to, and for an agent that is a tool, for the turn's."""
        said = _last_user_text(items)
        if said.strip() and not self._tools:
            self._said = said
        turn = hashlib.sha256(self._said.encode("utf-8", "surrogatepass")).hexdigest()
        return (await self._turns.recall(turn, self._said, session_id=self._session_id)).section

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Begin anew, also after a run that ended in the middle of a tool."""
        self._tools = 0

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._tools += 1

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._tools = max(0, self._tools - 1)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Record what was said and answered; an answer that is no text as JSON."""
        if self._records:
            await self._record(_last_user_text(context.turn_input) or self._said, output)

    async def record(self, result: Any) -> None:
        """Record a run that has ended; one that waits for an approval has not."""
        if result.final_output is not None:
            await self._record(self._said, result.final_output)

    async def _record(self, said: str, output: Any) -> None:
        self._turns.end(self._session_id)
        if said.strip():
            await self._turns.record(
                uuid.uuid4().hex, session_id=self._session_id, user=said, assistant=answer_text(output)
            )


@dataclasses.dataclass
class _Filter:
    hooks: MemoryHooks
    inner: Any

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        model_data = data.model_data
        section = await self.hooks.section(model_data.input)
        if section:
            given = f"{model_data.instructions}\n\n" if model_data.instructions else ""
            model_data = ModelInputData(input=model_data.input, instructions=given + section)
        if self.inner is None:
            return model_data
        changed = self.inner(dataclasses.replace(data, model_data=model_data))
        return await changed if inspect.isawaitable(changed) else changed


def _last_user_text(items: Iterable[Any]) -> str:
    """The words of the last user message, without pictures and files."""
    users = [item for item in items if isinstance(item, dict) and item.get("role") == "user"]
    return words(users[-1].get("content")) if users else ""
