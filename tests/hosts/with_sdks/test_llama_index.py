"""A slot as a memory block of LlamaIndex, in its real agent and chat engine with a scripted model."""

import json
from collections.abc import AsyncIterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, ModelTurn, person
from host_support import Living
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ChatResponse,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonSerializer
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from stage import NOTHING_WRONG, LongModel, Said, play

from memory.hosts.llama_index import SlotMemoryBlock
from memory.hosts.table import HOSTS

# LlamaIndex uses its own deprecated names and pydantic's.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SHORT = {"token_limit": 800, "token_flush_size": 200}  # one answer of 600 words is longer


class Scripted(MockFunctionCallingLLM):
    """The suite's model as a function-calling model of LlamaIndex."""

    script: Any = None

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        prompt, after_tool = str([message.blocks for message in messages]), messages[-1].role == "tool"
        of_system = [message for message in messages if message.role == "system"]
        assert "<memory-context" not in str(of_system)

        async def answer() -> AsyncIterator[ChatResponse]:
            message = _message(await self.script.acall(prompt, after_tool=after_tool))
            yield ChatResponse(message=message, delta=message.content or "")

        return answer()

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        prompt = str([message.blocks for message in messages])
        return ChatResponse(message=_message(self.script.call(prompt)))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.chat(messages)


def _message(turn: ModelTurn) -> ChatMessage:
    blocks: list[Any] = [ThinkingBlock(content=turn.thought), TextBlock(text=turn.text)]
    if turn.calls_tool:
        blocks.append(ToolCallBlock(tool_call_id="call-1", tool_name="clock", tool_kwargs={}))
    return ChatMessage(role="assistant", blocks=blocks)


def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


class Kind(BaseMemoryBlock[list[ChatMessage]]):
    """What an agent without our memory has: a block that says something in a turn."""

    async def _aget(self, messages: Any = None, **block_kwargs: Any) -> list[ChatMessage]:
        asked = bool(messages) and messages[-1].role == "user"
        return [ChatMessage(role="user", content="You are kind.")] if asked else []

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Nothing."""


# Every kind of part without words.
PARTS = [
    ImageBlock(image=PICTURE.encode(), image_mimetype="image/png"),
    AudioBlock(audio=b"x", format="wav"),
    VideoBlock(video=b"x", video_mimetype="video/mp4"),
    DocumentBlock(data=b"x", document_mimetype="application/pdf"),
]


class Agents(HostUnderTest):
    """One agent; a memory of LlamaIndex for each conversation, a block for each person."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory = memory
        self._llm = Scripted(script=model)
        self._blocks: dict[str, SlotMemoryBlock] = {}
        self._memories: dict[str, Memory] = {}
        self._directory = TemporaryDirectory(ignore_cleanup_errors=True)
        self.agent = FunctionAgent(tools=[clock], llm=self._llm, system_prompt="Be kind.")

    def memory(self, conversation: str, who: str = "ada") -> Memory:
        if conversation not in self._memories:
            blocks: list[Any] = [Kind(name="kind")]
            if self._memory:
                blocks = [self._blocks.setdefault(who, SlotMemoryBlock(self._memory, user_id=person(who)))]
            # In memory, two tasks that ask first open a connection each, and one of them is
            # never closed; a file without a pool closes each after its use.
            url = f"sqlite+aiosqlite:///{self._directory.name}/{len(self._memories)}.db"
            self._memories[conversation] = Memory.from_defaults(
                session_id=conversation,
                memory_blocks=blocks,
                async_engine=create_async_engine(url, poolclass=NullPool),
                **SHORT,
            )
        return self._memories[conversation]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = said
        if picture:
            given = ChatMessage(role="user", blocks=[TextBlock(text=said), *PARTS])
        return str(await self.agent.run(given, memory=self.memory(conversation, who)))

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        handler = self.agent.run(said, memory=self.memory(conversation))
        async for _ in handler.stream_events():
            pass
        return str(await handler)

    async def resend(self, said: list[Said]) -> str:
        """To a memory and a block of this request's own."""
        self._memories, self._blocks = {}, {}
        history = [
            ChatMessage(role=message.role, content=message.text, additional_kwargs={"id": message.id})
            for message in said[:-1]
        ]
        await self.memory("one").aset(history)
        return await self.ask(said[-1].text)

    async def leave(self, said: str) -> None:
        handler = self.agent.run(said, memory=self.memory("one"))
        async for _ in handler.stream_events():
            break
        await handler.cancel_run()

    async def ask_through_helper(self, said: str, task: str) -> str:
        helper = FunctionAgent(llm=Scripted(script=HostModel()))

        async def clock() -> str:
            """Ask the helper for the time."""
            return str(await helper.run(task))

        script = self._llm.script
        script.uses_tool = True
        agent = FunctionAgent(tools=[clock], llm=self._llm)
        return str(await agent.run(said, memory=self.memory("one")))

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        """By LlamaIndex' own state as JSON, in which a memory is not."""

        async def clock(ctx: Context) -> str:
            """Tell the time."""
            asks = InputRequiredEvent(prefix="May I look?")
            await ctx.wait_for_event(HumanResponseEvent, waiter_id="may-i", waiter_event=asks)
            return TOOL_RESULT

        clock.__annotations__["ctx"] = Context  # not its name: LlamaIndex looks for the class
        self._llm.script.uses_tool = True
        before = FunctionAgent(tools=[clock], llm=self._llm)
        context = Context(before)
        waits = before.run(said, ctx=context, memory=self.memory("one"))
        async for event in waits.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        state = json.dumps(context.to_dict(serializer=JsonSerializer()))
        await waits.cancel_run()
        yield "waits", ""
        self._blocks = {}  # another process has others
        after = FunctionAgent(tools=[clock], llm=self._llm)
        restored = Context.from_dict(after, json.loads(state), serializer=JsonSerializer())
        goes_on = after.run(ctx=restored, memory=self.memory("one"))
        await goes_on.ctx.store.set("memory", self.memory("one"))
        goes_on.ctx.send_event(HumanResponseEvent(response="yes"))
        await goes_on
        yield "answered", ""

    async def summarise(self) -> None:
        last = await self.memory("one").aget_all()
        summary = ChatMessage(role="assistant", content="The user said some sentences.")
        await self.memory("one").aset([summary, *last[-2:]])

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        memory = self.memory(conversation)
        engine = SimpleChatEngine(self._llm, memory, prefix_messages=[])
        answer = str(engine.chat(said))
        memory.get()
        return answer

    async def kept(self, conversation: str) -> str:
        return str(await self.memory(conversation).aget_all())

    async def bind_again(self) -> None:
        blocks = [SlotMemoryBlock(self._memory), SlotMemoryBlock(self._memory)]
        Memory.from_defaults(memory_blocks=blocks)

    async def aclose(self) -> None:
        for memory in self._memories.values():
            await memory.sql_store._async_engine.dispose()
        self._directory.cleanup()


class InTurn(Agents):
    """An agent and a chat engine in turn. A chat engine reads its memory only before the model answers.

    A long answer therefore leaves the short-term memory, with its question, before the block has read it.
    """

    _turns = 0

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        self._turns += 1
        if self._turns % 2:
            return await super().ask(said, conversation=conversation, who=who, picture=picture)
        engine = SimpleChatEngine(self._llm, self.memory(conversation, who), prefix_messages=[])
        return str(await engine.achat(said))

    async def flush(self) -> None:
        await self.memory("one").aget()


class TestLlamaIndex(Living):
    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [
        pytest.mark.anyio,
        pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key. memory"),
    ]
    name = "llama-index"
    parts = len(PARTS)
    cannot = HOSTS["llama-index"].cannot

    def host(self, memory: Any, model: HostModel) -> Agents:
        long = isinstance(model, LongModel) and not model.uses_tool
        return (InTurn if long else Agents)(memory, model)

    async def test_answers_longer_than_the_short_term_memory(self):
        async with self.on_stage(LongModel(1500)) as stage:
            assert await play(stage, 10) == NOTHING_WRONG
            memory = stage.host.memory("one")
            assert len(await memory.aget_all(status=MessageStatus.ARCHIVED)) > 16


class Says(MockFunctionCallingLLM):
    """Says one thing after the other."""

    says: list[ChatMessage]

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def answer() -> AsyncIterator[ChatResponse]:
            message = self.says.pop(0)
            yield ChatResponse(message=message, delta=message.content or "")

        return answer()


def said(text: str, **calls: Any) -> ChatMessage:
    blocks: list[Any] = [TextBlock(text=text)]
    blocks += [
        ToolCallBlock(tool_call_id="1", tool_name=name, tool_kwargs=given) for name, given in calls.items()
    ]
    return ChatMessage(role="assistant", blocks=blocks)


async def test_a_turn_that_is_handed_to_another_agent_stays_one():
    async with TestLlamaIndex().on_stage() as stage:
        first = Says(says=[said("Wait.", handoff={"to_agent": "last", "reason": "-"})])
        last = Says(says=[said("Noted.")])
        agents = [
            FunctionAgent(name="first", description="-", llm=first, can_handoff_to=["last"]),
            FunctionAgent(name="last", description="-", llm=last),
        ]
        workflow = AgentWorkflow(agents=agents, root_agent="first")
        await workflow.run("I like oolong tea.", memory=stage.host.memory("one"))
        assert await stage.recorded() == ["I like oolong tea.", "Noted."]
        assert stage.store.operations.count("search") == 1


async def test_of_a_react_agent_neither_thoughts_nor_tools_are_recorded():
    async with TestLlamaIndex().on_stage() as stage:
        steps = ["Thought: -\nAction: clock\nAction Input: {}\n", "Thought: -\nAnswer: Noted.\nAnswer: yes."]
        agent = ReActAgent(tools=[clock], llm=Says(says=[said(step) for step in steps]))
        await agent.run("I like oolong tea.", memory=stage.host.memory("one"))
        assert await stage.recorded() == ["I like oolong tea.", "Noted.\nAnswer: yes."]


async def test_the_model_searches_and_keeps_facts():
    async with TestLlamaIndex().on_stage() as stage:
        block = SlotMemoryBlock(
            stage.memory, user_id=lambda session_id: {"one": "ada"}.get(session_id, "bob")
        )
        search, store = block.tools("one")
        assert str(await store.acall(content="Ada likes oolong.")) == "committed"
        assert "Ada likes oolong." in str(await search.acall(query="oolong"))
        others, _ = block.tools("two")
        assert "Ada likes oolong." not in str(await others.acall(query="oolong"))


async def test_a_question_that_leaves_the_short_term_memory_keeps_its_answer():
    async with TestLlamaIndex().on_stage() as stage:
        block = SlotMemoryBlock(stage.memory)
        question = ChatMessage(role="user", content="Which tea?", additional_kwargs={"session_id": "one"})
        answer = ChatMessage(role="assistant", content="Oolong.")
        await block.aget([question], session_id="one")
        await block.aput([question], from_short_term_memory=True, session_id="one")
        await block.aget([answer], session_id="one")
        assert await stage.recorded() == ["Which tea?", "Oolong."]
