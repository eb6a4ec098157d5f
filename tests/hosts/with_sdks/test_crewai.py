"""A slot in a real crew, by its LLM hooks and task callback, with a scripted model."""

import json
import warnings
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
from host_model import TOOL_RESULT, HostModel, HostUnderTest, person
from host_support import Living

from memory.hosts.table import HOSTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from crewai import Agent, Crew, Process, Task
    from crewai.llms.base_llm import BaseLLM
    from crewai.tools import tool

    from memory.hosts.crewai import CrewMemory

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def _quiet_crewai(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")


class Scripted(BaseLLM):
    """The suite's model as a model of CrewAI."""

    script: Any = None

    def call(self, messages: Any, tools: Any = None, callbacks: Any = None, **kwargs: Any) -> Any:
        prompt = json.dumps(messages, default=str)
        turn = self.script.call(prompt, after_tool=TOOL_RESULT in prompt)
        if turn.calls_tool:
            return f"Thought: {turn.thought} {turn.text}\nAction: clock\nAction Input: {{}}\n"
        return f"Thought: {turn.thought}\nFinal Answer: {turn.text}"

    async def acall(self, messages: Any, tools: Any = None, callbacks: Any = None, **kwargs: Any) -> Any:
        return self.call(messages, tools, callbacks, **kwargs)

    def supports_function_calling(self) -> bool:
        return False


@tool("clock")
def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


class Crews(HostUnderTest):
    """A crew of one agent for each person's conversation."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._crews: dict[tuple[str, str], tuple[Crew, ExitStack]] = {}
        self._kept: dict[str, list[str]] = {}

    def crew(self, conversation: str, who: str) -> Crew:
        if (conversation, who) not in self._crews:
            llm = Scripted(model="scripted", script=self._model)
            agent = Agent(role="Helper", goal="Help.", backstory="Kind.", llm=llm, tools=[clock])
            task = Task(description="{said}", expected_output="An answer.", agent=agent)
            crew = Crew(agents=[agent], tasks=[task], tracing=False)
            bound = ExitStack()
            if self._memory:
                bound.enter_context(
                    CrewMemory(crew, self._memory, session_id=conversation, user_id=person(who))
                )
            self._crews[conversation, who] = crew, bound
        return self._crews[conversation, who][0]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        output = await self.crew(conversation, who).kickoff_async(inputs={"said": said})
        return self._keep(conversation, output)

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        return self._keep(conversation, self.crew(conversation, "ada").kickoff(inputs={"said": said}))

    async def ask_through_helper(self, said: str, task: str) -> str:
        helper = Agent(
            role="Teller", goal="Tell.", backstory="-", llm=Scripted(model="scripted", script=HostModel())
        )

        @tool("clock")
        def ask_helper() -> str:
            """Ask the helper for the time."""
            return f"{helper.kickoff(task).raw} {TOOL_RESULT}"

        self._model.uses_tool = True
        self.crew("one", "ada").agents[0].tools = [ask_helper]
        return await self.ask(said)

    def _keep(self, conversation: str, output: Any) -> str:
        self._kept.setdefault(conversation, []).append(str(output.model_dump()))
        return str(output.raw)

    async def kept(self, conversation: str) -> str:
        return "".join(self._kept[conversation])

    async def bind_again(self) -> None:
        CrewMemory(self.crew("one", "ada"), self._memory, session_id="two")

    async def aclose(self) -> None:
        for _, bound in self._crews.values():
            bound.close()


class TestCrewAI(Living):
    name = "crewai"
    cannot = HOSTS["crewai"].cannot

    def host(self, memory: Any, model: HostModel) -> Crews:
        return Crews(memory, model)


async def test_a_copy_of_the_crew_is_recalled_for_as_well():
    """``kickoff_for_each`` makes one for each input."""
    async with TestCrewAI().on_stage() as stage:
        crew = stage.host.crew("one", "ada")
        await crew.kickoff_for_each_async(inputs=[{"said": "One."}, {"said": "Two."}])
        assert sorted(await stage.recorded()) == ["Answer 1.", "Answer 2.", "One.", "Two."]
        assert stage.store.operations.count("search") == 2


async def test_a_task_that_is_handed_on_is_no_turn():
    class Delegates(Scripted):
        def call(self, messages: Any, tools: Any = None, callbacks: Any = None, **kwargs: Any) -> Any:
            if self.script.shown:
                return super().call(messages, tools, callbacks, **kwargs)
            self.script.call("")
            given = json.dumps({"coworker": "Helper", "task": "Tell the time.", "context": "-"})
            return f"Thought: -\nAction: delegate_work_to_coworker\nAction Input: {given}\n"

    async with TestCrewAI().on_stage() as stage:
        crew = stage.host.crew("one", "ada")
        crew.process = Process.hierarchical
        crew.manager_llm = Delegates(model="scripted", script=stage.model)
        await crew.kickoff_async(inputs={"said": "I like oolong tea."})
        assert await stage.recorded() == ["I like oolong tea.", "Answer 3."]
        assert stage.store.operations.count("search") == 1


async def test_the_model_searches_and_keeps_facts():
    async with TestCrewAI().on_stage() as stage:
        agent = Agent(
            role="Helper", goal="-", backstory="-", llm=Scripted(model="scripted", script=stage.model)
        )
        crew = Crew(
            agents=[agent], tasks=[Task(description="-", expected_output="-", agent=agent)], tracing=False
        )
        with CrewMemory(crew, stage.memory, session_id="one", user_id="bob", tools=True):
            tools = {tool.name: tool for tool in agent.tools}

            def play() -> list[str]:
                stored = tools["memory_store"].run(content="Ada likes oolong.")
                return [stored, tools["memory_search"].run(query="oolong")]

            assert await anyio.to_thread.run_sync(play) == ["committed", '["Ada likes oolong."]']
        assert ["bob" in row.space for row in stage.store.rows.values()] == [True]
        assert agent.tools == []
