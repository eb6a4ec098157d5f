"""OpenAI Agents SDK: ``RunHooks`` and an input filter for runs, over a memory.

The SDK's ``Session`` is not used, because it holds the raw items of a single conversation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from memory import ConfigError
from memory.hosts._shared import add_section, left_out, tested, unknown, words
from memory.hosts._tools import DESCRIPTIONS, ModelTools
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text

with tested("openai-agents"):
    from agents import FunctionTool, ItemHelpers, RunConfig, RunHooks, function_tool
    from agents.run import CallModelData, ModelInputData

_MAX_RUNS = 100


class MemoryHooks(RunHooks):  # type: ignore[misc]
    """The memory of one person's conversation, for any number of its runs.

        turns = MemoryHooks(memory, session_id="chat-1")
        await Runner.run(agent, "Which tea do I like?", **turns)

    ``**turns`` gives a run its ``hooks`` and its ``run_config``. Every model call of a run sees the section
    below the user's message. The SDK does not keep it. To add your own hooks, subclass this and call
    ``super()`` in ``on_agent_start``, ``on_agent_end`` and ``on_tool_*``.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets ``session_id``.
        session_id: the conversation. If the run has an SDK ``Session``, use its id.
        records: whether hooks record. Use False and :meth:`record` for runs with guardrails, because hooks
            get an answer before a guardrail stops it.
        base: your own ``RunConfig`` for ``**turns``. Its filter runs after this one.

    Raises:
        ConfigError: ``base`` already has a memory.
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
        # How many tools are running, by the usage object that an agent shares with agents inside its tools.
        self._at_work: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._agents: set[int] = set()  # agents that began a run or took one over
        config = base or RunConfig()
        inner = config.call_model_input_filter
        if isinstance(inner, _Filter):
            raise ConfigError("this RunConfig has a memory already; one run takes one memory")
        self._config = dataclasses.replace(config, call_model_input_filter=_Filter(self, inner))

    def keys(self) -> Iterator[str]:
        """Yield the names of the run's arguments, for ``**turns``."""
        return iter(("hooks", "run_config"))

    def __getitem__(self, name: str) -> Any:
        return {"hooks": self, "run_config": self._config}[name]

    def tools(self) -> list[FunctionTool]:
        """Return the tools for an agent's ``tools=``: a search, and a way to store a fact."""
        functions = ModelTools(self._turns).functions(None, self._session_id)
        return [
            function_tool(made, name_override=name, description_override=DESCRIPTIONS[name])
            for name, made in functions.items()
        ]

    async def section(self, agent: Any, items: Sequence[Any]) -> str:
        """Return the memories for the last user message of a model's input.

        After a handover there may be no user message, and an agent inside a tool has a task in its place.
        Both get the memories of the turn.
        """
        said = _said(_last_turn(items))
        if said.strip() and (id(agent) in self._agents or not self._agents):
            self._said = said
        turn = hashlib.sha256(self._said.encode("utf-8", "surrogatepass")).hexdigest()
        return (await self._turns.recall(turn, self._said, session_id=self._session_id)).section

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Note that the agent answers the user, unless it runs inside a tool."""
        if not self._is_tool(context):
            if len(self._agents) >= _MAX_RUNS:  # a program that makes an agent for each run
                self._agents.clear()
            self._agents.add(id(agent))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._count(context, 1)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._count(context, -1)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Record the user's message and the answer. An answer that is not text becomes JSON."""
        if self._records and not self._is_tool(context):
            await self._record(context.turn_input, output)

    async def record(self, result: Any) -> None:
        """Record a run that has ended. A run that waits for an approval has not ended."""
        if result.final_output is not None:
            await self._record(ItemHelpers.input_to_new_input_list(result.input), result.final_output)

    async def _record(self, items: Sequence[Any], output: Any) -> None:
        turn = _last_turn(items)
        said = _said(turn) or self._said
        self._turns.end(self._session_id)
        if said.strip():
            parts = [kind for item in turn[:1] for kind in left_out(item.get("content"))]
            parts += left_out([item for item in turn if "role" not in item])
            await self._turns.record(
                uuid.uuid4().hex,
                session_id=self._session_id,
                user=said,
                assistant=answer_text(output),
                left_out=[*parts, *unknown(item["role"] for item in turn if "role" in item)],
            )

    def _is_tool(self, context: Any) -> bool:
        return id(context.usage) in self._at_work

    def _count(self, context: Any, change: int) -> None:
        usage = context.usage
        _, at_work = self._at_work.pop(id(usage), (usage, 0))
        if at_work + change > 0:
            self._at_work[id(usage)] = usage, at_work + change
        if len(self._at_work) > _MAX_RUNS:  # some runs end while a tool is still running
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
    """Return a copy with the section below the last user message, or as a separate first message."""
    users = [at for at, item in enumerate(items) if _is_user(item)]
    if not users:
        return [{"role": "user", "content": section}, *items]
    asked = items[users[-1]]
    content = add_section(asked.get("content"), section, kind="input_text")
    return [*items[: users[-1]], {**asked, "content": content}, *items[users[-1] + 1 :]]


def _is_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _last_turn(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the last user message and the items after it."""
    users = [at for at, item in enumerate(items) if _is_user(item)]
    return [item for item in items[users[-1] :] if isinstance(item, dict)] if users else []


def _said(turn: Sequence[dict[str, Any]]) -> str:
    """Return the words of a turn's user message, without pictures and files."""
    return words(turn[0].get("content")) if turn else ""
