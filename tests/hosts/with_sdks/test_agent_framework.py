"""A slot as a context provider of Microsoft's Agent Framework, in a real agent with a scripted client."""

from collections.abc import AsyncIterator
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, ModelTurn
from host_support import Living
from stage import Said

from memory.hosts.agent_framework import SlotContextProvider
from memory.hosts.table import HOSTS


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """The suite's model as a chat client."""

    def __init__(self, script: HostModel) -> None:
        super().__init__()
        self.script = script

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        assert "<memory-context" not in str(options.get("instructions"))
        prompt = f"{[message.text for message in messages]} {options.get('instructions')}"
        after_tool = any(content.type == "function_result" for content in messages[-1].contents)

        async def answer() -> ChatResponse:
            turn = await self.script.acall(prompt, after_tool=after_tool)
            return ChatResponse(messages=[Message("assistant", _contents(turn))])

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            turn = await self.script.acall(prompt, after_tool=after_tool)
            for content in _contents(turn):
                yield ChatResponseUpdate(role="assistant", contents=[content])

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates) if stream else answer()


def _contents(turn: ModelTurn) -> list[Any]:
    contents = [Content.from_text_reasoning(text=turn.thought), Content.from_text(turn.text)]
    if turn.calls_tool:
        contents.append(Content.from_function_call(call_id="call-1", name="clock", arguments={}))
    return contents


@tool(approval_mode="never_require")
def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


# Every kind of part without words.
PARTS = [
    Content.from_uri(f"data:image/png;base64,{PICTURE}", media_type="image/png"),
    Content.from_uri("https://x.example/a.wav", media_type="audio/wav"),
    Content.from_uri("https://x.example/a.pdf", media_type="application/pdf"),
    Content.from_hosted_file("file-1"),
]


class Agents(HostUnderTest):
    """One agent for everybody, and sessions by conversation."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._sessions: dict[str, Any] = {}
        self._people: dict[str, str] = {}
        self._asked: list[str] = []  # ids of messages
        self._agent = self.made(clock)

    def made(self, *tools: Any, **more: Any) -> Agent:
        providers = [SlotContextProvider(self._memory, user_id=self._who)] if self._memory else []
        return Agent(Scripted(self._model), tools=list(tools), context_providers=providers, **more)

    def _who(self, context: Any) -> str:
        return str(self._people.get(context.session_id, "ada"))

    def session(self, conversation: str, who: str = "ada") -> Any:
        if conversation not in self._sessions:
            self._sessions[conversation] = self._agent.create_session()
        self._people[self._sessions[conversation].session_id] = who
        return self._sessions[conversation]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        self._asked.append(f"m{len(self._asked)}")
        given = Message("user", [Content.from_text(said)], message_id=self._asked[-1])
        if picture:
            given.contents += PARTS
        return str((await self._agent.run(given, session=self.session(conversation, who))).text)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        stream = self._agent.run(said, session=self.session(conversation), stream=True)
        return "".join([update.text async for update in stream])

    async def resend(self, said: list[Said]) -> str:
        """As AG-UI does: the whole list, with the ids of the messages, in a run of its own."""
        listed = [Message(message.role, [message.text], message_id=message.id or None) for message in said]
        return str((await self._agent.run(listed, session=AgentSession(session_id="front-end"))).text)

    async def edit(self, said: str) -> None:
        """Under the id of the last message, as front ends do."""
        message = Message("user", [said], message_id=self._asked[-1])
        await self._agent.run(message, session=self.session("one"))

    async def regenerate(self) -> None:
        await self.edit("Which tea?")

    async def summarise(self) -> None:
        """As a compaction does in the history that a session keeps."""
        (kept,) = [state for state in self.session("one").state.values() if "messages" in state]
        kept["messages"][:-2] = [Message("assistant", ["The user said some sentences."])]

    async def leave(self, said: str) -> None:
        async for _ in self._agent.run(said, session=self.session("one"), stream=True):
            break

    async def ask_through_helper(self, said: str, task: str) -> str:
        ours = SlotContextProvider(self._memory, user_id="ada")
        helper = Agent(Scripted(HostModel()), context_providers=[ours])

        @tool(name="clock", approval_mode="never_require")
        async def ask_helper() -> str:
            """Ask the helper for the time."""
            return str((await helper.run(task)).text)

        self._model.uses_tool = True
        done = await self.made(ask_helper).run(said, session=self.session("one"))
        return str(done.messages[-1].text)

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        @tool(name="clock", approval_mode="always_require")
        def asks() -> str:
            """Tell the time."""
            return TOOL_RESULT

        self._model.uses_tool = True
        session = self.session("one")
        waits = await self.made(asks).run(said, session=session)
        yield "waits", waits.text
        restored = AgentSession.from_dict(session.to_dict())
        request = waits.user_input_requests[0]
        approval = Message("user", [request.to_function_approval_response(approved=True)])
        yield "answered", (await self.made(asks).run(approval, session=restored)).text

    async def kept(self, conversation: str) -> str:
        return str(self.session(conversation).to_dict())

    async def bind_again(self) -> None:
        providers = [SlotContextProvider(self._memory, source_id=name) for name in ("memslot", "again")]
        await Agent(Scripted(self._model), context_providers=providers).run("Hello.")


class TestAgentFramework(Living):
    parts = len(PARTS)
    takes_any_role = True
    name = "agent-framework"
    cannot = HOSTS["agent-framework"].cannot

    def host(self, memory: Any, model: HostModel) -> Agents:
        return Agents(memory, model)


class Calls(FunctionInvocationLayer, BaseChatClient):
    """Calls one tool, and answers with what it said."""

    def __init__(self, name: str, arguments: dict[str, str]) -> None:
        super().__init__()
        self._call = Content.from_function_call(call_id="call-1", name=name, arguments=arguments)

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def answer() -> ChatResponse:
            told = [part for part in messages[-1].contents if part.type == "function_result"]
            said = Content.from_text(str(told[0].result)) if told else self._call
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


async def test_the_model_searches_and_keeps_facts_of_the_person_who_asks():
    async with TestAgentFramework().on_stage() as stage:
        ours = SlotContextProvider(stage.memory, user_id=lambda context: context.session_id, tools=True)

        async def asked(who: str, name: str, **given: str) -> str:
            agent = Agent(Calls(name, given), context_providers=[ours])
            return str((await agent.run("Go on.", session=AgentSession(session_id=who))).text)

        assert await asked("ada", "memory_store", content="Ada likes oolong.") == "committed"
        assert "Ada likes oolong." in await asked("ada", "memory_search", query="oolong")
        assert "Ada likes oolong." not in await asked("bob", "memory_search", query="oolong")
