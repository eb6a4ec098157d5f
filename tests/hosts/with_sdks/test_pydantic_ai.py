"""A slot as a pydantic-ai capability, in a real agent with a function for its model."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, person
from host_support import Living, closed_loop
from pydantic_ai import (
    Agent,
    AudioUrl,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    DocumentUrl,
    ImageUrl,
    VideoUrl,
)
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from stage import Said

from memory import MemoryScope
from memory.hosts.pydantic_ai import MemoryCapability
from memory.hosts.table import HOSTS


@dataclass
class User:
    name: str


def scope_of(ctx: Any) -> MemoryScope:
    return person(ctx.deps.name)


# Every kind of part without words.
PARTS = [
    BinaryContent(PICTURE.encode(), media_type="image/png"),
    ImageUrl("https://x.example/a.png"),
    AudioUrl("https://x.example/a.wav"),
    VideoUrl("https://x.example/a.mp4"),
    DocumentUrl("https://x.example/a.pdf"),
]


class Bot(HostUnderTest):
    """One agent for everybody; the program keeps the histories."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._histories: dict[str, list[Any]] = {}
        self.agent = Agent(
            FunctionModel(self._answer, stream_function=self._stream),
            capabilities=[MemoryCapability(memory, user_id=scope_of)] if memory else [],
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
        given: Any = [said, *PARTS] if picture else said
        result = await self.agent.run(given, **self._given(conversation, who))
        self._histories[conversation] = result.all_messages()
        return str(result.output)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        async with self.agent.run_stream(said, **self._given(conversation, "ada")) as result:
            words = [word async for word in result.stream_text(delta=True, debounce_by=None)]
        self._histories[conversation] = result.all_messages()
        return "".join(words)

    async def resend(self, said: list[Said]) -> str:
        """To an agent with the history that the front end sent."""
        self._histories["one"] = [
            ModelRequest(parts=[UserPromptPart(message.text)], run_id=message.id or None)
            if message.role == "user"
            else ModelResponse(parts=[TextPart(message.text)], run_id=message.id or None)
            for message in said[:-1]
        ]
        return await self.ask(said[-1].text)

    async def leave(self, said: str) -> None:
        async with self.agent.run_stream(said, **self._given("one", "ada")) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                break

    async def ask_through_helper(self, said: str, task: str) -> str:
        ours = MemoryCapability(self._memory, user_id=person("ada"))
        helper = Agent(FunctionModel(Bot(None, HostModel())._answer), capabilities=[ours])
        agent: Agent[User] = Agent(
            FunctionModel(self._answer),
            capabilities=[MemoryCapability(self._memory, user_id=scope_of)],
            deps_type=User,
        )

        @agent.tool_plain
        async def clock() -> str:
            return str((await helper.run(task)).output)

        self._model.uses_tool = True
        return str((await agent.run(said, **self._given("one", "ada"))).output)

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        self._model.uses_tool = True
        asked, approved = None, None
        for at in ("waits", "answered"):
            agent: Agent[User, Any] = Agent(
                FunctionModel(self._answer),
                output_type=[str, DeferredToolRequests],
                capabilities=[MemoryCapability(self._memory, user_id=scope_of)],
                deps_type=User,
            )

            @agent.tool_plain(requires_approval=True)
            def clock() -> str:
                return TOOL_RESULT

            if asked is None:
                asked = await agent.run(said, **self._given("one", "ada"))
            else:
                calls = {call.tool_call_id: True for call in asked.output.approvals}
                approved = DeferredToolResults(approvals=calls)
                history = ModelMessagesTypeAdapter.validate_json(asked.all_messages_json())
                given = {**self._given("one", "ada"), "message_history": history}
                await agent.run(deferred_tool_results=approved, **given)
            yield at, ""

    async def summarise(self) -> None:
        summary = ModelRequest(parts=[UserPromptPart("Summary: some sentences.")])
        self._histories["one"][:-2] = [summary]

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        with closed_loop():
            result = self.agent.run_sync(said, **self._given(conversation, "ada"))
        self._histories[conversation] = result.all_messages()
        return str(result.output)

    async def kept(self, conversation: str) -> str:
        return str(self._histories[conversation])

    async def bind_again(self) -> None:
        Agent(capabilities=[MemoryCapability(self._memory), MemoryCapability(self._memory)])


class TestPydanticAI(Living):
    name = "pydantic-ai"
    parts = len(PARTS)
    cannot = HOSTS["pydantic-ai"].cannot

    def host(self, memory: Any, model: HostModel) -> Bot:
        return Bot(memory, model)


async def test_the_model_searches_and_keeps_facts_of_the_person_who_asks():
    async with TestPydanticAI().on_stage(HostModel()) as stage:
        ours = MemoryCapability(stage.memory, user_id=lambda ctx: ctx.deps.name, tools=True)

        async def asked(who: str, name: str, **args: str) -> str:
            def answer(messages: Any, info: Any) -> ModelResponse:
                told = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
                return ModelResponse(
                    parts=[TextPart(str(told[0].content)) if told else ToolCallPart(name, args)]
                )

            agent = Agent(FunctionModel(answer), capabilities=[ours], deps_type=User)
            return str((await agent.run("Go on.", deps=User(who))).output)

        assert await asked("ada", "memory_store", content="Ada likes oolong.") == "committed"
        assert "Ada likes oolong." in await asked("ada", "memory_search", query="oolong")
        assert "Ada likes oolong." not in await asked("bob", "memory_search", query="oolong")
