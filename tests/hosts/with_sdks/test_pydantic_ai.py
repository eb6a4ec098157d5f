"""A slot as a pydantic-ai capability, in a real agent with a function for its model."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from memory import MemoryScope
from memory.hosts.pydantic_ai import MemoryCapability


class Bot:
    """An agent that calls a tool once in every run, and what its model was shown."""

    def __init__(self, told: Any, **options: Any) -> None:
        self.shown: list[str] = []
        self.agent = Agent(
            FunctionModel(self._answer), capabilities=[MemoryCapability(told.memory, **options)]
        )

        @self.agent.tool_plain
        def clock() -> str:
            return "noon"

    def _answer(self, messages: Any, info: Any) -> ModelResponse:
        self.shown.append(str(messages))
        if len(self.shown) % 2:
            return ModelResponse(parts=[ToolCallPart("clock", {})])
        return ModelResponse(parts=[TextPart(f"Answer {len(self.shown)}.")])


async def test_it_remembers_across_conversations_and_leaves_the_history_alone(told: Any) -> None:
    bot = Bot(told)
    await bot.agent.run("I like oolong tea.", conversation_id="one")
    assert await told.texts() == ["I like oolong tea.", "Answer 2."]
    result = await bot.agent.run("Which tea do I like?", conversation_id="two")
    for shown in bot.shown[2:]:  # before the tool and after it
        assert shown.count("<memory-context") == 1
        assert "I like oolong tea." in shown
    assert "<memory-context" not in str(result.all_messages())
    await bot.agent.run("Thanks.", conversation_id="two", message_history=result.all_messages())
    assert bot.shown[-1].count("<memory-context") <= 1
    texts = await told.texts()
    assert texts.count("I like oolong tea.") == 1
    assert not [text for text in texts if "<memory-context" in text]
    labels = {row.labels["session_id"] for row in told.store.rows.values()}
    assert labels == {"one", "two"}


async def test_runs_at_a_time_do_not_mix(told: Any) -> None:
    import anyio

    bob = MemoryScope(run_id="app", persona_id="bob")
    ada_bot, bob_bot = Bot(told), Bot(told, scope=bob)
    await ada_bot.agent.run("I like oolong tea.")
    await told.texts()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ada_bot.agent.run, "Which tea do I like?")
        tasks.start_soon(bob_bot.agent.run, "Which tea do I like?")
    assert "oolong" in ada_bot.shown[-1]
    assert "oolong" not in bob_bot.shown[-1]


async def test_a_failing_memory_costs_no_turn(told: Any) -> None:
    told.store.faults.add("500", times=None)
    result = await Bot(told).agent.run("I like oolong tea.")
    assert result.output == "Answer 2."
    assert told.memory.status()["recalls_failed"] == 1
    told.store.faults.clear()
