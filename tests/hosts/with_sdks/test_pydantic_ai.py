"""A slot as a pydantic-ai capability, in a real agent with a function for its model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from host_support import Hosted, closed_loop
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from memory import MemoryScope
from memory.hosts._table import HOSTS
from memory.hosts.pydantic_ai import MemoryCapability
from memory.testing import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, person


@dataclass
class User:
    name: str


def scope_of(ctx: Any) -> MemoryScope:
    return person(ctx.deps.name)


class Bot(HostUnderTest):
    """One agent for everybody; the program keeps the histories."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._histories: dict[str, list[Any]] = {}
        self.agent = Agent(
            FunctionModel(self._answer, stream_function=self._stream),
            capabilities=[MemoryCapability(memory, scope=scope_of)] if memory else [],
            deps_type=User,
        )

        @self.agent.tool_plain
        def clock() -> str:
            return TOOL_RESULT

    async def _turn(self, messages: Any) -> Any:
        after_tool = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        return await self._model.acall(str(messages), after_tool=after_tool)

    async def _answer(self, messages: Any, info: Any) -> ModelResponse:
        turn = await self._turn(messages)
        calls = [ToolCallPart("clock", {})] if turn.calls_tool else []
        return ModelResponse(parts=[ThinkingPart(turn.thought), TextPart(turn.text), *calls])

    async def _stream(self, messages: Any, info: Any) -> AsyncIterator[Any]:
        turn = await self._turn(messages)
        if turn.calls_tool:
            yield {0: DeltaToolCall(name="clock", json_args="{}")}
            return
        for word in turn.text.partition(" "):
            yield word

    def _given(self, conversation: str, who: str) -> dict[str, Any]:
        return {
            "deps": User(who),
            "conversation_id": conversation,
            "message_history": self._histories.get(conversation),
        }

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = [said, BinaryContent(PICTURE.encode(), media_type="image/png")] if picture else said
        result = await self.agent.run(given, **self._given(conversation, who))
        self._histories[conversation] = result.all_messages()
        return str(result.output)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        async with self.agent.run_stream(said, **self._given(conversation, "ada")) as result:
            words = [word async for word in result.stream_text(delta=True, debounce_by=None)]
        self._histories[conversation] = result.all_messages()
        return "".join(words)

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        with closed_loop():
            result = self.agent.run_sync(said, **self._given(conversation, "ada"))
        self._histories[conversation] = result.all_messages()
        return str(result.output)

    async def kept(self, conversation: str) -> str:
        return str(self._histories[conversation])

    async def bind_again(self) -> None:
        Agent(capabilities=[MemoryCapability(self._memory), MemoryCapability(self._memory)])


class TestPydanticAI(Hosted):
    cannot = HOSTS["pydantic-ai"].cannot

    def host(self, memory: Any, model: HostModel) -> Bot:
        return Bot(memory, model)


async def test_a_run_that_waits_for_an_approval_is_recorded_when_it_has_its_answer() -> None:
    model = HostModel()
    model.uses_tool = True
    async with TestPydanticAI().on_stage(model) as stage:
        agent = Agent(
            FunctionModel(stage.host._answer),
            output_type=[str, DeferredToolRequests],
            capabilities=[MemoryCapability(stage.memory, scope=person("ada"))],
        )

        @agent.tool_plain(requires_approval=True)
        def clock() -> str:
            return TOOL_RESULT

        asked = await agent.run("I like oolong tea.")
        assert await stage.recorded() == []
        approved = DeferredToolResults(approvals={call.tool_call_id: True for call in asked.output.approvals})
        await agent.run(message_history=asked.all_messages(), deferred_tool_results=approved)
        assert await stage.recorded() == ["I like oolong tea.", "Answer 1."]
