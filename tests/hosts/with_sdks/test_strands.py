"""A slot as a Strands memory store, in a real agent with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.memory import MemoryManager
from strands.memory.types import AddMessagesContext
from strands.models.model import Model

from memory.hosts.strands import SlotStore


class Scripted(Model):
    """Says what it was asked for the how-manieth time, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": "scripted"}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.shown.append(json.dumps(messages))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": f"Answer {len(self.shown)}."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent(told: Any, model: Model, session_id: str, **options: Any) -> tuple[Agent, MemoryManager]:
    manager = MemoryManager(stores=[SlotStore(told.memory, session_id=session_id, **options)])
    return Agent(model=model, memory_manager=manager, callback_handler=None), manager


async def test_it_remembers_across_agents_and_injects_for_one_call_alone(told: Any) -> None:
    model = Scripted()
    first, manager = agent(told, model, "one")
    await first.invoke_async("I like oolong tea.")
    await manager.flush()
    assert await told.texts() == ["I like oolong tea.", "Answer 1."]
    second, manager = agent(told, model, "two")
    await second.invoke_async("Which tea do I like?")
    assert "I like oolong tea." in model.shown[-1]
    assert "oolong" not in json.dumps(second.messages)
    await manager.flush()
    assert [text for text in await told.texts() if "oolong" in text] == ["I like oolong tea."]


async def test_a_batch_that_is_sent_again_is_recorded_once(told: Any) -> None:
    store = SlotStore(told.memory, session_id="one")
    said = [
        {"role": "user", "content": [{"text": "ok"}]},
        {"role": "assistant", "content": [{"text": "fine"}]},
    ]
    for numbers in ([0, 1], [0, 1], [2, 3]):
        await store.add_messages(said, AddMessagesContext(sequence_numbers=numbers))
    assert await told.texts() == ["ok", "fine"] * 2


async def test_a_failing_memory_costs_no_turn(told: Any) -> None:
    model = Scripted()
    bot, _ = agent(told, model, "one")
    told.store.faults.add("500", times=None)
    result = await bot.invoke_async("I like oolong tea.")
    assert "Answer 1." in str(result)
    assert told.memory.status()["recalls_failed"] == 1
    told.store.faults.clear()


async def test_one_that_is_not_writable_records_nothing(told: Any) -> None:
    bot, manager = agent(told, Scripted(), "one", writable=False)
    await bot.invoke_async("I like oolong tea.")
    await manager.flush()
    assert await told.texts() == []
