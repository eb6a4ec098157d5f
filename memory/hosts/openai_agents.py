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
from memory.hosts._registry import tested
from memory.runtime import HostTurns, TurnMemory

with tested("openai-agents"):
    from agents import RunConfig, RunHooks
    from agents.run import CallModelData, ModelInputData


class MemoryHooks(RunHooks):  # type: ignore[misc]
    """The memory of one person's conversation, for any number of its runs.

        turns = MemoryHooks(memory, session_id="chat-1")
        await Runner.run(agent, "Which tea do I like?", hooks=turns, run_config=turns.run_config())

    The section is added to the instructions of every model call of a run, and to nothing the SDK keeps. For hooks
    of your own subclass this, and call ``super().on_agent_end(...)``.

    Args:
        memory: whoever opened it closes it, after the last run.
        session_id: the conversation; that of the SDK's ``Session``, where there is one.
        scope: in place of the slot's own.

    Raises:
        ScopeError: there is no scope.
    """

    def __init__(self, memory: TurnMemory, *, session_id: str, scope: MemoryScope | None = None) -> None:
        self._turns = HostTurns(memory, "openai-agents", memory.slot.scope_or_default(scope))
        self._session_id = session_id

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
        """What the memory has for the last user message of a model's input."""
        said = _last_user_text(items)
        turn = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
        return (await self._turns.recall(turn, said, session_id=self._session_id)).section

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Record what was said and answered; an answer that is no text as JSON, or as Python prints it."""
        self._turns.end(self._session_id)
        said = _last_user_text(context.turn_input)
        if said.strip():
            answer = output if isinstance(output, str) else _printed(output)
            await self._turns.record(
                uuid.uuid4().hex, session_id=self._session_id, user=said, assistant=answer
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
    content = users[-1].get("content") if users else None
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content or () if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _printed(output: Any) -> str:
    dump = getattr(output, "model_dump_json", None)
    return str(dump()) if callable(dump) else str(output)
