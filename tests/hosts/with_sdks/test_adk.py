"""A slot as Google ADK's memory service, in a real runner with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types

from memory.hosts.adk import RecordingPlugin, SlotMemoryService

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
SHOWN: list[str] = []


class Scripted(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
        SHOWN.append(llm_request.model_dump_json())
        parts = [types.Part(text="Let me think.", thought=True), types.Part(text=f"Answer {len(SHOWN)}.")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


@pytest.fixture(autouse=True)
def nothing_shown() -> None:
    SHOWN.clear()


def runner(service: SlotMemoryService) -> Runner:
    bot = LlmAgent(name="bot", model=Scripted(), tools=[PreloadMemoryTool()])
    return Runner(
        app_name="app", agent=bot, session_service=InMemorySessionService(), memory_service=service,
        plugins=[RecordingPlugin(service)], auto_create_session=True,
    )  # fmt: skip


async def ask(runner: Runner, said: str, session_id: str, user_id: str = "ada") -> None:
    content = types.Content(role="user", parts=[types.Part(text=said)])
    async for _ in runner.run_async(user_id=user_id, session_id=session_id, new_message=content):
        pass


async def test_it_remembers_across_sessions_and_shows_it_for_one_turn_alone(told: Any) -> None:
    bot = runner(SlotMemoryService(told.memory))
    await ask(bot, "I like oolong tea.", "one")
    assert await told.texts() == ["I like oolong tea.", "Answer 1."]
    await ask(bot, "Which tea do I like?", "two")
    assert "I like oolong tea." in SHOWN[-1]
    await ask(bot, "Thanks.", "two")
    assert (await told.texts()).count("I like oolong tea.") == 1
    session = await bot.session_service.get_session(app_name="app", user_id="ada", session_id="two")
    assert "oolong" not in session.model_dump_json()


async def test_one_user_sees_nothing_of_another(told: Any) -> None:
    bot = runner(SlotMemoryService(told.memory))
    await ask(bot, "I like oolong tea.", "one", user_id="bob")
    assert await told.texts()
    await ask(bot, "Which tea do I like?", "two")
    assert "oolong" not in SHOWN[-1]


async def test_a_session_that_is_added_again_is_recorded_once(told: Any) -> None:
    service = SlotMemoryService(told.memory)
    bot = runner(service)
    await ask(bot, "I like oolong tea.", "one")
    session = await bot.session_service.get_session(app_name="app", user_id="ada", session_id="one")
    await service.add_session_to_memory(session)
    assert await told.texts() == ["I like oolong tea.", "Answer 1."]


async def test_a_failing_memory_costs_no_turn(told: Any) -> None:
    bot = runner(SlotMemoryService(told.memory))
    told.store.faults.add("500", times=None)
    await ask(bot, "I like oolong tea.", "one")
    assert len(SHOWN) == 1
    assert told.memory.status()["recalls_failed"] == 1
    told.store.faults.clear()
