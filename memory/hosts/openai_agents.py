"""OpenAI Agents SDK: a memory as ``RunHooks`` and an input filter of a run.

The SDK's ``Session`` is a conversation's raw history, item by item, and stays so: what a memory makes of many
conversations has no place in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from memory import ConfigError
from memory.hosts._shared import add_section, left_out, tested, words
from memory.hosts._tools import DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text

with tested("openai-agents"):
    from agents import FunctionTool, ItemHelpers, RunConfig, RunHooks
    from agents.run import CallModelData, ModelInputData

_MAX_RUNS = 100


class MemoryHooks(RunHooks):  # type: ignore[misc]
    """The memory of one person's conversation, for any number of its runs.

        turns = MemoryHooks(memory, session_id="chat-1")
        await Runner.run(agent, "Which tea do I like?", **turns)

    ``**turns`` gives a run its ``hooks`` and its ``run_config``. The section stands below the user's message in
    every model call of a run, and in nothing that the SDK keeps. For hooks of your own subclass this, and call
    ``super()`` in ``on_agent_start``, ``on_agent_end`` and ``on_tool_*``.

    Args:
        memory: whoever opened it closes it, after the last run.
        session_id: the conversation; that of the SDK's ``Session``, where there is one.
        user_id: the person within the memory's own scope, a whole scope, or a function of ``session_id``.
        records: False leaves it to :meth:`record`, for runs with guardrails: hooks are told of an answer before a
            guardrail stops it.
        base: a ``RunConfig`` of your own for ``**turns``; its filter is kept, and runs after this one.

    Raises:
        ConfigError: ``base`` has a memory already.
        ScopeError: the memory has no scope.
    """

    def __init__(
        self,
        memory: OpenMemory,
        *,
        session_id: str,
        user_id: UserOf | None = None,
        records: bool = True,
        base: Any = None,
    ) -> None:
        self._turns = HostTurns(memory, "openai-agents", user_id, session_id)
        self._session_id = session_id
        self._records = records
        self._said = ""
        # How many tools are at work, by the usage that an agent shares with the agents that are its tools.
        self._at_work: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._agents: set[int] = set()  # that a run began with, or was handed over to
        self._config = self.run_config(base)

    def keys(self) -> Iterator[str]:
        """The arguments of a run, for ``**turns``."""
        return iter(("hooks", "run_config"))

    def __getitem__(self, name: str) -> Any:
        return {"hooks": self, "run_config": self._config}[name]

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

    def tools(self) -> list[FunctionTool]:
        """A search in the memory and a way to keep a fact in it, for ``tools=`` of an agent."""
        answers = ModelTools(self._turns)
        return [self._tool(answers, name) for name in DESCRIPTIONS]

    def _tool(self, answers: ModelTools, name: str) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> str:
            return await answers.answer_json(name, arguments, None, self._session_id)

        return FunctionTool(name, DESCRIPTIONS[name], schema(name), invoke)

    async def section(self, agent: Any, items: Iterable[Any]) -> str:
        """The memories for the last user message of a model's input. A handed-over agent may have none,
        and an agent that is a tool has a task in its place: both get the memories of the turn."""
        said = _last_user_text(items)
        if said.strip() and (id(agent) in self._agents or not self._agents):
            self._said = said
        turn = hashlib.sha256(self._said.encode("utf-8", "surrogatepass")).hexdigest()
        return (await self._turns.recall(turn, self._said, session_id=self._session_id)).section

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Note that the agent answers the user, unless it works for a tool."""
        if not self._is_tool(context):
            if len(self._agents) >= _MAX_RUNS:  # a program that makes an agent for each run
                self._agents.clear()
            self._agents.add(id(agent))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._count(context, 1)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._count(context, -1)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Record what was said and answered; an answer that is no text as JSON."""
        if self._records and not self._is_tool(context):
            await self._record(context.turn_input, output)

    async def record(self, result: Any) -> None:
        """Record a run that has ended. A run that waits for an approval has not."""
        if result.final_output is not None:
            await self._record(ItemHelpers.input_to_new_input_list(result.input), result.final_output)

    async def _record(self, items: Sequence[Any], output: Any) -> None:
        said = _last_user_text(items) or self._said
        self._turns.end(self._session_id)
        if said.strip():
            await self._turns.record(
                uuid.uuid4().hex,
                session_id=self._session_id,
                user=said,
                assistant=answer_text(output),
                left_out=left_out(_last_user_content(items)),
            )

    def _is_tool(self, context: Any) -> bool:
        return id(context.usage) in self._at_work

    def _count(self, context: Any, change: int) -> None:
        usage = context.usage
        _, at_work = self._at_work.pop(id(usage), (usage, 0))
        if at_work + change > 0:
            self._at_work[id(usage)] = usage, at_work + change
        if len(self._at_work) > _MAX_RUNS:  # of runs that ended in the middle of a tool
            self._at_work.popitem(last=False)


@dataclasses.dataclass
class _Filter:
    hooks: MemoryHooks
    inner: Any

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        model_data = data.model_data
        section = await self.hooks.section(data.agent, model_data.input)
        if section:
            shown = _with_section(model_data.input, section)
            model_data = ModelInputData(input=shown, instructions=model_data.instructions)
        if self.inner is None:
            return model_data
        changed = self.inner(dataclasses.replace(data, model_data=model_data))
        return await changed if inspect.isawaitable(changed) else changed


def _with_section(items: Sequence[Any], section: str) -> list[Any]:
    """A copy in which the section stands below the last user message, or is a message of its own before all."""
    shown = list(items)
    for at in range(len(shown) - 1, -1, -1):
        if _is_user(shown[at]):
            content = add_section(shown[at].get("content"), section, kind="input_text")
            shown[at] = {**shown[at], "content": content}
            return shown
    return [{"role": "user", "content": section}, *shown]


def _is_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _last_user_content(items: Iterable[Any]) -> Any:
    users = [item for item in items if _is_user(item)]
    return users[-1].get("content") if users else ""


def _last_user_text(items: Iterable[Any]) -> str:
    """The words of the last user message, without pictures and files."""
    return words(_last_user_content(items))
