"""A slot as a Strands memory store, in a real agent with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from host_support import Hosted
from strands import Agent, tool
from strands.memory import MemoryManager
from strands.memory.types import AddMessagesContext
from strands.models.model import Model

from memory.hosts._table import HOSTS
from memory.hosts.strands import SlotStore
from memory.testing import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, person


class Scripted(Model):
    """The suite's model as a model of Strands."""

    def __init__(self, script: HostModel) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": "scripted"}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        after_tool = any("toolResult" in block for block in messages[-1]["content"])
        turn = await self.script.acall(json.dumps(messages, default=str), after_tool=after_tool)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"reasoningContent": {"text": turn.thought}}}}
        yield {"contentBlockStop": {}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": turn.text}}}
        yield {"contentBlockStop": {}}
        if turn.calls_tool:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "clock", "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn.calls_tool else "end_turn"}}


@tool
def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


class Agents(HostUnderTest):
    """An agent for each person's conversation."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._agents: dict[tuple[str, str], tuple[Agent, MemoryManager | None]] = {}

    def store(self, conversation: str, who: str) -> SlotStore:
        return SlotStore(self._memory, session_id=conversation, scope=person(who))

    def agent(self, conversation: str, who: str = "ada") -> Agent:
        if (conversation, who) not in self._agents:
            manager = MemoryManager(stores=[self.store(conversation, who)]) if self._memory else None
            agent = Agent(Scripted(self._model), tools=[clock], memory_manager=manager, callback_handler=None)
            self._agents[conversation, who] = agent, manager
        return self._agents[conversation, who][0]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = said
        if picture:
            image = {"image": {"format": "png", "source": {"bytes": PICTURE.encode()}}}
            given = [{"text": said}, image]
        return str(await self.agent(conversation, who).invoke_async(given))

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        events = [event async for event in self.agent(conversation).stream_async(said)]
        return str(events[-1])

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        return str(self.agent(conversation)(said))

    async def kept(self, conversation: str) -> str:
        return json.dumps(self.agent(conversation).messages)

    async def flush(self) -> None:
        for _, manager in self._agents.values():
            if manager is not None:
                await manager.flush()

    async def bind_again(self) -> None:
        MemoryManager(stores=[self.store("one", "ada"), self.store("one", "ada")])


class TestStrands(Hosted):
    cannot = HOSTS["strands"].cannot

    def host(self, memory: Any, model: HostModel) -> Agents:
        return Agents(memory, model)


async def test_a_batch_that_is_sent_again_is_recorded_once() -> None:
    async with TestStrands().on_stage(HostModel()) as stage:
        store = stage.host.store("one", "ada")
        said = [
            {"role": "user", "content": [{"text": "ok"}]},
            {"role": "assistant", "content": [{"text": "fine"}]},
        ]
        for numbers in ([0, 1], [0, 1], [2, 3]):
            await store.add_messages(said, AddMessagesContext(sequence_numbers=numbers))
        assert await stage.recorded() == ["ok", "fine"] * 2


async def test_one_that_is_not_writable_records_nothing() -> None:
    async with TestStrands().on_stage(HostModel()) as stage:
        store = SlotStore(stage.memory, session_id="one", writable=False)
        manager = MemoryManager(stores=[store])
        agent = Agent(Scripted(HostModel()), memory_manager=manager, callback_handler=None)
        await agent.invoke_async("I like oolong tea.")
        await manager.flush()
        assert await stage.recorded() == []
