"""A slot as Google ADK's memory service, in a real runner with a scripted model."""

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types
from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest
from host_support import Living
from stage import Said

from memory.hosts.adk import RecordingPlugin, SlotMemoryService
from memory.hosts.table import HOSTS

IGNORED = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Scripted(BaseLlm):
    """The suite's model as a model of ADK."""

    model: str = "scripted"
    script: Any = None

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
        parts = [part for content in llm_request.contents for part in content.parts]
        after_tool = any(part.function_response for part in parts)
        turn = await self.script.acall(llm_request.model_dump_json(), after_tool=after_tool)
        said = [types.Part(text=turn.text)]
        if turn.calls_tool:
            said.append(types.Part(function_call=types.FunctionCall(name="clock", args={})))
        if stream and turn.text:
            first = types.Part(text=turn.text.partition(" ")[0])
            yield LlmResponse(content=types.Content(role="model", parts=[first]), partial=True)
        parts = [types.Part(text=turn.thought, thought=True), *said]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


# Every kind of part without words.
PARTS = [
    types.Part(inline_data=types.Blob(data=PICTURE.encode(), mime_type="image/png")),
    types.Part(inline_data=types.Blob(data=b"x", mime_type="audio/wav")),
    types.Part(file_data=types.FileData(file_uri="https://x.example/a.mp4", mime_type="video/mp4")),
    types.Part(file_data=types.FileData(file_uri="https://x.example/a", mime_type="application/pdf")),
]


class App(HostUnderTest):
    """One runner for everybody."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self.service = SlotMemoryService(memory) if memory else None
        self.sessions = InMemorySessionService()
        self._bot = LlmAgent(
            name="bot",
            model=Scripted(script=model),
            tools=[PreloadMemoryTool(), clock] if memory else [clock],
        )
        self.runner = self.made([RecordingPlugin(self.service)] if self.service else [])

    def made(self, plugins: list[Any]) -> Runner:
        return Runner(
            app_name="app", agent=self._bot, session_service=self.sessions, memory_service=self.service,
            plugins=plugins, auto_create_session=True,
        )  # fmt: skip

    async def ask(
        self,
        said: str,
        *,
        conversation: str = "one",
        who: str = "ada",
        picture: bool = False,
        mode: StreamingMode = StreamingMode.NONE,
    ) -> str:
        parts = [types.Part(text=said)]
        if picture:
            parts += PARTS
        answer = ""
        async for event in self.runner.run_async(
            user_id=who,
            session_id=conversation,
            new_message=types.Content(role="user", parts=parts),
            run_config=RunConfig(streaming_mode=mode),
        ):
            for part in event.content.parts if event.content else ():
                answer = part.text or answer
        return answer

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        return await self.ask(said, conversation=conversation, mode=StreamingMode.SSE)

    async def resend(self, said: list[Said]) -> str:
        """To a session of this request's own, which has the events so far."""
        self._requests = getattr(self, "_requests", 0) + 1
        name = f"request-{self._requests}"
        session = await self.sessions.create_session(app_name="app", user_id="ada", session_id=name)
        for message in said[:-1]:
            content = types.Content(role=message.role, parts=[types.Part(text=message.text)])
            author = "user" if message.role == "user" else "bot"
            await self.sessions.append_event(session, Event(id=message.id, author=author, content=content))
        return await self.ask(said[-1].text, conversation=name)

    async def leave(self, said: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=said)])
        async for _ in self.runner.run_async(user_id="ada", session_id="one", new_message=content):
            break

    async def ask_through_helper(self, said: str, task: str) -> str:
        self._bot.model.script.uses_tool = True
        helper = LlmAgent(name="clock", model=Scripted(script=HostModel()))
        self._bot.tools = [PreloadMemoryTool(), AgentTool(helper)]
        return await self.ask(said)

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        self._bot.model.script.uses_tool = True
        self._bot.tools = [PreloadMemoryTool(), FunctionTool(clock, require_confirmation=True)]
        await self.ask(said)
        yield "waits", ""
        session = await self.sessions.get_session(app_name="app", user_id="ada", session_id="one")
        call = session.events[-2].get_function_calls()[0]
        approval = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
        content = types.Content(role="user", parts=[types.Part(function_response=approval)])
        runner = self.made([RecordingPlugin(self.service)])
        async for _ in runner.run_async(user_id="ada", session_id="one", new_message=content):
            pass
        yield "answered", ""

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        content = types.Content(role="user", parts=[types.Part(text=said)])
        events = self.runner.run(user_id="ada", session_id=conversation, new_message=content)
        return str([event.content for event in events][-1])

    async def kept(self, conversation: str) -> str:
        session = await self.sessions.get_session(app_name="app", user_id="ada", session_id=conversation)
        return str(session.model_dump_json()) if session else ""

    async def bind_again(self) -> None:
        self.made([RecordingPlugin(self.service), RecordingPlugin(self.service)])


class TestADK(Living):
    parts = len(PARTS)
    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio, IGNORED]
    name = "adk"
    cannot = HOSTS["adk"].cannot

    def host(self, memory: Any, model: HostModel) -> App:
        return App(memory, model)


@IGNORED
async def test_a_session_that_is_added_again_is_recorded_once():
    async with TestADK().on_stage(HostModel()) as stage:
        await stage.host.ask("I like oolong tea.")
        session = await stage.host.sessions.get_session(app_name="app", user_id="ada", session_id="one")
        await stage.host.service.add_session_to_memory(session)
        assert await stage.recorded() == ["I like oolong tea.", "Answer 1."]


@IGNORED
async def test_an_imported_session_whose_events_share_an_id_loses_no_turn():
    async with TestADK().on_stage(HostModel()) as stage:
        sessions = stage.host.sessions
        session = await sessions.create_session(app_name="app", user_id="ada", session_id="old")
        said = ["Sentence 1.", "Answer 1.", "Sentence 2.", "Answer 2."]
        for at, text in enumerate(said):
            content = types.Content(role="user", parts=[types.Part(text=text)])
            author = ("user", "plugin")[at % 2]
            await sessions.append_event(session, Event(id="m", author=author, content=content))
        await stage.host.service.add_session_to_memory(session)
        assert await stage.recorded() == said


@IGNORED
async def test_entries_are_stored_and_found():
    async with TestADK().on_stage(HostModel()) as stage:
        service: Any = stage.host.service
        ada = {"app_name": "app", "user_id": "ada"}
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text="Ada likes oolong.")]))
        await service.add_memory(**ada, memories=[entry])
        (found,) = (await service.search_memory(**ada, query="oolong")).memories
        assert found.content.parts[0].text == "Ada likes oolong."


class Calls(Scripted):
    """Calls one tool, and answers with what it said."""

    call: Any = None

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
        parts = [part for content in llm_request.contents for part in content.parts]
        told = [part.function_response for part in parts if part.function_response]
        said = types.Part(function_call=types.FunctionCall(**self.call))
        if told:
            said = types.Part(text=str(told[-1].response))
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


@IGNORED
async def test_the_model_searches_and_keeps_facts_of_the_person_who_asks():
    async with TestADK().on_stage(HostModel()) as stage:
        stage.host._bot.tools = stage.host.service.tools()

        async def asked(who: str, name: str, **args: str) -> str:
            stage.host._bot.model = Calls(call={"name": name, "args": args})
            return str(await stage.host.ask("Go on.", who=who, conversation=f"{who} {name}"))

        assert "committed" in await asked("ada", "memory_store", content="Ada likes oolong.")
        assert "Ada likes oolong." in await asked("ada", "memory_search", query="oolong")
        assert "Ada likes oolong." not in await asked("bob", "memory_search", query="oolong")
