"""A slot as LangChain middleware and as nodes of a graph, on the real packages with a scripted chat model."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, ModelTurn, person
from host_support import Living
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel
from stage import Said

from memory import MemoryScope
from memory.hosts.langchain import MemoryMiddleware
from memory.hosts.table import HOSTS


class Scripted(BaseChatModel):
    """The suite's model as a chat model of LangChain."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return _result(self.script.call(**_asked(messages)))

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return _result(await self.script.acall(**_asked(messages)))

    def _stream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        turn = self.script.call(**_asked(messages))
        for word in turn.text.split(" "):
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=f"{word} " if word == "Answer" else word)
            )


def _asked(messages: list[BaseMessage]) -> dict[str, Any]:
    shown = "\n".join(str(message.content) for message in messages)
    return {"prompt": shown, "after_tool": isinstance(messages[-1], ToolMessage)}


def _result(turn: ModelTurn) -> ChatResult:
    calls = [{"name": "clock", "args": {}, "id": "call-1"}] if turn.calls_tool else []
    content: list[Any] = [{"type": "reasoning", "reasoning": turn.thought}]
    content += [{"type": "text", "text": turn.text}] if turn.text else []
    message = AIMessage(content=content, tool_calls=calls)
    return ChatResult(generations=[ChatGeneration(message=message)])


def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


@dataclass
class User:
    name: str


def scope_of(runtime: Any) -> MemoryScope:
    return person(runtime.context.name)


# Every kind of part without words.
PARTS = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    {"type": "image", "url": "https://x.example/a.png"},
    {"type": "audio", "base64": "eA==", "mime_type": "audio/wav"},
    {"type": "video", "url": "https://x.example/a.mp4"},
    {"type": "file", "base64": "eA==", "mime_type": "application/pdf"},
    {"type": "hologram", "data": "x"},
]


class Agent(HostUnderTest):
    """``create_agent`` with the middleware and a checkpointer."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._saver = InMemorySaver()
        self.agent = self.made()

    def made(self) -> Any:
        return create_agent(
            Scripted(script=self._model),
            [clock],
            middleware=[MemoryMiddleware(self._memory, user_id=scope_of)] if self._memory else [],
            checkpointer=self._saver,
            context_schema=User,
        )

    def given(self, said: str, conversation: str, who: str = "ada", picture: bool = False) -> dict[str, Any]:
        content: Any = said
        if picture:
            content = [{"type": "text", "text": said}, *PARTS]
        return {
            "input": {"messages": [{"role": "user", "content": content}]},
            "config": {"configurable": {"thread_id": conversation}},
            "context": User(who),
        }

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        done = await self.agent.ainvoke(**self.given(said, conversation, who, picture))
        return str(done["messages"][-1].text)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        words = [
            chunk.text
            async for chunk, _ in self.agent.astream(**self.given(said, conversation), stream_mode="messages")
        ]
        return "".join(words)

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        return str(self.agent.invoke(**self.given(said, conversation))["messages"][-1].text)

    async def edit(self, said: str) -> None:
        """Under the id of the last question, as front ends do."""
        config: Any = {"configurable": {"thread_id": "one"}}
        messages = (await self.agent.aget_state(config)).values["messages"]
        asked = [message for message in messages if isinstance(message, HumanMessage)][-1]
        edited = {"messages": [HumanMessage(said, id=asked.id)]}
        await self.agent.ainvoke(**{**self.given(said, "one"), "input": edited})

    async def regenerate(self) -> None:
        """From the checkpoint before the answer."""
        config: Any = {"configurable": {"thread_id": "one"}}
        states = [state async for state in self.agent.aget_state_history(config)]
        before = next(state for state in states if {"model", "answer"} & set(state.next))
        await self.agent.ainvoke(None, before.config, context=User("ada"))

    async def resend(self, said: list[Said]) -> str:
        self._saver = InMemorySaver()
        agent = self.made()
        made = {"user": HumanMessage, "assistant": AIMessage}
        messages = [
            made[message.role](message.text, id=message.id or None)
            if message.role in made
            else ChatMessage(message.text, role=message.role, id=message.id or None)
            for message in said
        ]
        given = {**self.given("", "one"), "input": {"messages": messages}}
        return str((await agent.ainvoke(**given))["messages"][-1].text)

    async def leave(self, said: str) -> None:
        async for _ in self.agent.astream(**self.given(said, "one"), stream_mode="messages"):
            break

    async def ask_through_helper(self, said: str, task: str) -> str:
        ours, helped = MemoryMiddleware(self._memory, user_id=scope_of), HostModel()
        helper = create_agent(Scripted(script=helped), middleware=[ours], context_schema=User)

        async def ask_helper() -> str:
            """Ask the helper."""
            done = await helper.ainvoke({"messages": [HumanMessage(task)]}, context=User("ada"))
            return str(done["messages"][-1].text)

        self._model.uses_tool = True
        tool = StructuredTool.from_function(coroutine=ask_helper, name="clock")
        agent = create_agent(Scripted(script=self._model), [tool], middleware=[ours], context_schema=User)
        done = await agent.ainvoke(**self.given(said, "one"))
        assert len(helped.shown) == 1
        return str(done["messages"][-1].text)

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        self._model.uses_tool = True
        given = self.given(said, "one")
        for at in ("waits", "answered"):  # each with an agent and a middleware of its own
            agent = create_agent(
                Scripted(script=self._model),
                [clock],
                middleware=[
                    MemoryMiddleware(self._memory, user_id=scope_of),
                    HumanInTheLoopMiddleware(interrupt_on={"clock": True}),
                ],
                checkpointer=self._saver,
                context_schema=User,
            )
            await agent.ainvoke(**given)
            yield at, ""
            given["input"] = Command(resume={"decisions": [{"type": "approve"}]})

    async def summarise(self) -> None:
        """By a middleware that summarises at the next turn, and keeps the last message."""
        summary = SummarizationMiddleware(
            Scripted(script=HostModel()), trigger=("messages", 3), keep=("messages", 1)
        )
        ours = MemoryMiddleware(self._memory, user_id=scope_of)
        self.agent = create_agent(
            Scripted(script=self._model),
            [clock],
            middleware=[ours, summary],
            checkpointer=self._saver,
            context_schema=User,
        )

    async def kept(self, conversation: str) -> str:
        config: Any = {"configurable": {"thread_id": conversation}}
        return str([checkpoint async for checkpoint in self._saver.alist(config)])

    async def bind_again(self) -> None:
        again = [MemoryMiddleware(self._memory), MemoryMiddleware(self._memory)]
        create_agent(Scripted(script=self._model), middleware=again)


class TestMiddleware(Living):
    parts = len(PARTS)
    takes_any_role = True
    keeps_ids_apart = False
    name = "langchain"
    cannot = HOSTS["langchain"].cannot

    def host(self, memory: Any, model: HostModel) -> Agent:
        return Agent(memory, model)


class Reminds(AgentMiddleware):
    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage("Be brief.")]}


@pytest.mark.parametrize("other", ["summarises", "reminds", "redacts"])
async def test_what_other_middleware_makes_of_the_messages_is_not_what_was_said(other):
    model = HostModel()
    model.uses_tool = True
    middleware: Any = {
        "summarises": SummarizationMiddleware(
            Scripted(script=HostModel()), trigger=("messages", 3), keep=("messages", 1)
        ),
        "reminds": Reminds(),
        "redacts": PIIMiddleware("email", strategy="redact"),
    }[other]
    async with TestMiddleware().on_stage(model) as stage:
        ours = MemoryMiddleware(stage.memory, user_id=scope_of)
        chat = Scripted(script=model)
        stage.host.agent = create_agent(chat, [clock], middleware=[ours, middleware], context_schema=User)
        await stage.host.ask("I am ada@example.org.")
        said = "I am [REDACTED_EMAIL]." if other == "redacts" else "I am ada@example.org."
        assert await stage.recorded() == [said, "Answer 1."]
        assert stage.store.operations.count("search") == 1


class Tea(BaseModel):
    name: str


class Fills(Scripted):
    """Answers by the tool that LangChain makes of a schema."""

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        call = {"name": "Tea", "args": {"name": "oolong"}, "id": "call-1"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])


async def test_an_answer_that_is_no_text_is_recorded_as_json():
    async with TestMiddleware().on_stage() as stage:
        ours = MemoryMiddleware(stage.memory, user_id=scope_of)
        stage.host.agent = create_agent(
            Fills(script=None), middleware=[ours], response_format=ToolStrategy(Tea), context_schema=User
        )
        await stage.host.ask("Which tea?")
        assert await stage.recorded() == ["Which tea?", '{"name":"oolong"}']


async def test_a_run_that_is_resumed_after_a_failure_is_recalled_for_and_recorded_once():
    model = HostModel()
    async with TestMiddleware().on_stage(model) as stage:
        given = stage.host.given("I like oolong tea.", "one")
        model.fails = 1
        with pytest.raises(Exception, match="model is down"):
            await stage.host.agent.ainvoke(**given)
        await stage.host.agent.ainvoke(**{**given, "input": None})
        assert await stage.recorded() == ["I like oolong tea.", "Answer 1."]
        assert stage.store.operations.count("search") == 1


class Calls(Scripted):
    """Calls one tool, and answers with what it said."""

    call: Any

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(str(messages[-1].content)))])
        message = AIMessage("", tool_calls=[{**self.call, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


async def test_the_model_searches_and_keeps_facts_of_the_person_who_asks():
    async with TestMiddleware().on_stage() as stage:
        ours = MemoryMiddleware(stage.memory, user_id=lambda runtime: runtime.context.name, tools=True)

        async def asked(who: str, name: str, **args: str) -> str:
            model = Calls(script=None, call={"name": name, "args": args})
            agent = create_agent(model, middleware=[ours], context_schema=User)
            done = await agent.ainvoke({"messages": [HumanMessage("Go on.")]}, context=User(who))
            return str(done["messages"][-1].text)

        assert await asked("ada", "memory_store", content="Ada likes oolong.") == "committed"
        assert "Ada likes oolong." in await asked("ada", "memory_search", query="oolong")
        assert "Ada likes oolong." not in await asked("bob", "memory_search", query="oolong")


async def test_a_history_with_ids_twice_and_messages_of_unknown_kinds_loses_no_words():
    async with TestMiddleware().on_stage() as stage:
        ours = MemoryMiddleware(stage.memory, user_id=person("ada"))
        messages: list[Any] = [
            HumanMessage("One.", id="m"),
            AIMessage("Answer one.", id="m"),
            ChatMessage("from a plugin", role="plugin"),
            HumanMessage([{"type": "text", "text": "Two."}, {"type": "hologram", "data": "x"}]),
        ]
        state = {"messages": messages, **ours.before_agent({"messages": messages}, None)}
        state["messages"] = [*messages, ChatMessage("-", role="x"), AIMessage("Answer two.", id="m")]
        await ours.aafter_agent(state, None)
        assert await stage.recorded() == ["Two.", "Answer two."]
        assert stage.troubles == [("left_out", "a turn is recorded without 1 hologram, 1 x message")]
