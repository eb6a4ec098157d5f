"""AG-UI front ends, which send all messages with every run, by the adapters of two real SDKs."""

import importlib.util
from typing import Any

import pytest
from host_model import HostModel

pytest.importorskip("ag_ui", reason="ag-ui-protocol is not installed here")

from ag_ui.core import AssistantMessage, RunAgentInput, UserMessage


def pydantic_ai(stage: Any) -> Any:
    from pydantic_ai.ui.ag_ui import AGUIAdapter
    from test_pydantic_ai import User

    def answer(given: RunAgentInput) -> Any:
        return AGUIAdapter(stage.host.agent, given).run_stream(deps=User("ada"))

    return answer


def agent_framework(stage: Any) -> Any:
    from agent_framework.ag_ui import AgentFrameworkAgent

    agent = AgentFrameworkAgent(stage.host.made())
    return lambda given: agent.run(given.model_dump(by_alias=True))


class FrontEnd:
    """A chat in a browser: it keeps the messages under its own ids, and sends all of them each time."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self.messages: list[Any] = []

    async def run(self) -> str:
        """Send the messages, and return the answer that the agent's events bring."""
        given = RunAgentInput(
            thread_id="chat-1",
            run_id=f"run-{len(self.messages)}",
            messages=self.messages,
            tools=[],
            context=[],
            state={},
            forwarded_props={},
        )
        deltas = [event.delta async for event in self._agent(given) if event.type == "TEXT_MESSAGE_CONTENT"]
        return "".join(deltas)

    async def say(self, said: str) -> str:
        self.messages.append(UserMessage(id=f"m{len(self.messages)}", content=said))
        answer = await self.run()
        self.messages.append(AssistantMessage(id=f"m{len(self.messages)}", content=answer))
        return answer


@pytest.mark.parametrize(
    ("adapter", "module", "suite"),
    [
        (pydantic_ai, "pydantic_ai", "TestPydanticAI"),
        (agent_framework, "agent_framework_ag_ui", "TestAgentFramework"),
    ],
)
async def test_each_turn_of_an_ag_ui_front_end_is_stored_once(adapter, module, suite):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed here")
    tests = importlib.import_module(f"test_{adapter.__name__}")
    async with getattr(tests, suite)().on_stage(HostModel()) as stage:
        front_end, seen = FrontEnd(adapter(stage)), []
        for said in ("I like oolong tea.", "ok", "ok", "Which tea do I like?"):
            seen += [said, await front_end.say(said)]
        assert seen[1::2] == [f"Answer {at}." for at in range(1, 5)]
        assert await stage.recorded() == seen
        assert stage.turns.status()["not_recorded"] == 0
