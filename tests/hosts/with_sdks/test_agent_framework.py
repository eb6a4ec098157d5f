"""A slot as a context provider of Microsoft's Agent Framework, in a real agent with a scripted client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from host_support import Hosted

from memory.hosts._table import HOSTS
from memory.hosts.agent_framework import SlotContextProvider
from memory.testing import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, ModelTurn, person


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """The suite's model as a chat client."""

    def __init__(self, script: HostModel) -> None:
        super().__init__()
        self.script = script

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
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


class Agents(HostUnderTest):
    """An agent for each person, and sessions by conversation."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._agents: dict[str, Agent] = {}
        self._sessions: dict[str, Any] = {}

    def agent(self, who: str = "ada") -> Agent:
        if who not in self._agents:
            providers = [SlotContextProvider(self._memory, scope=person(who))] if self._memory else []
            self._agents[who] = Agent(Scripted(self._model), tools=[clock], context_providers=providers)
        return self._agents[who]

    def session(self, conversation: str) -> Any:
        if conversation not in self._sessions:
            self._sessions[conversation] = self.agent().create_session()
        return self._sessions[conversation]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = said
        if picture:
            image = Content.from_uri(f"data:image/png;base64,{PICTURE}", media_type="image/png")
            given = Message("user", [Content.from_text(said), image])
        return (await self.agent(who).run(given, session=self.session(conversation))).text

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        stream = self.agent().run(said, session=self.session(conversation), stream=True)
        return "".join([update.text async for update in stream])

    async def kept(self, conversation: str) -> str:
        return str(self.session(conversation).to_dict())

    async def bind_again(self) -> None:
        providers = [SlotContextProvider(self._memory, source_id=name) for name in ("memslot", "again")]
        await Agent(Scripted(self._model), context_providers=providers).run("Hello.")


class TestAgentFramework(Hosted):
    cannot = HOSTS["agent-framework"].cannot

    def host(self, memory: Any, model: HostModel) -> Agents:
        return Agents(memory, model)
