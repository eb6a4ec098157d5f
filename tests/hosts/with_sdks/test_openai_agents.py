"""A slot as hooks and input filter of the OpenAI Agents SDK, with its own scripted model."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    Runner,
    RunState,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.memory import SQLiteSession
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, person
from host_support import Living, closed_loop
from openai.types.responses import ResponseReasoningItem
from openai.types.responses.response_reasoning_item import Summary
from stage import Said

from memory.hosts.openai_agents import MemoryHooks
from memory.hosts.table import HOSTS


@pytest.fixture(autouse=True)
def _nothing_is_sent_anywhere() -> Iterator[None]:
    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


@function_tool
def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


# Every kind of part without words.
PARTS = [
    {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
    {"type": "input_file", "file_id": "file-1"},
    {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}},
]


class App(HostUnderTest):
    """One agent for everybody, with the SDK's sessions."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._script = memory, model
        self._model = ScriptedModel([])
        self._task: dict[str, str] = {}  # of a helper that is the tool
        self._sessions: dict[str, SQLiteSession] = {}
        self._hooks: dict[tuple[str, str], MemoryHooks] = {}
        self.agent = Agent("bot", instructions="Be kind.", model=self._model, tools=[clock])

    async def _answer(self, call: Any) -> ModelStep:
        after_tool = any(item.get("type") == "function_call_output" for item in call.input)
        assert "<memory-context" not in str(call.system_instructions)
        turn = await self._script.acall(f"{call.system_instructions} {call.input}", after_tool=after_tool)
        thought = ResponseReasoningItem(
            id="rs", type="reasoning", summary=[Summary(text=turn.thought, type="summary_text")]
        )
        output = [thought, assistant_message(turn.text, item_id=f"message-{len(self._script.shown)}")]
        if turn.calls_tool:
            output.append(function_call("clock", self._task, call_id=f"call-{len(self._script.shown)}"))
        return ModelStep(output=output)

    def _given(self, conversation: str, who: str = "ada") -> dict[str, Any]:
        self._model.extend([ModelStep.respond(self._answer)] * 2)
        session = self._sessions.setdefault(conversation, SQLiteSession(conversation))
        if not self._memory:
            return {"session": session}
        hooks = self._hooks.setdefault(
            (conversation, who), MemoryHooks(self._memory, session_id=conversation, user_id=person(who))
        )
        return {"session": session, **hooks}

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = said
        if picture:
            given = [{"role": "user", "content": [{"type": "input_text", "text": said}, *PARTS]}]
        return str((await Runner.run(self.agent, given, **self._given(conversation, who))).final_output)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        result = Runner.run_streamed(self.agent, said, **self._given(conversation))
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        with closed_loop():
            return str(Runner.run_sync(self.agent, said, **self._given(conversation)).final_output)

    async def resend(self, said: list[Said]) -> str:
        given = {**self._given("one"), "session": None}
        items = [
            {"role": message.role, "content": message.text} | ({"id": message.id} if message.id else {})
            for message in said
        ]
        return str((await Runner.run(self.agent, items, **given)).final_output)

    async def leave(self, said: str) -> None:
        result = Runner.run_streamed(self.agent, said, **self._given("one"))
        async for _ in result.stream_events():
            result.cancel()

    async def ask_through_helper(self, said: str, task: str) -> str:
        """The helper runs with the hooks of the agent whose tool it is."""
        given = self._given("one")
        self._task, model = {"input": task}, scripted(assistant_message("It is noon."))
        helper = Agent("helper", model=model)
        arguments = {name: given[name] for name in ("hooks", "run_config")}
        self._script.uses_tool = True
        self.agent.tools = [helper.as_tool("clock", "Ask the helper.", **arguments)]
        answer = str((await Runner.run(self.agent, said, **given)).final_output)
        assert task in str(model.calls)
        return answer

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        @function_tool(needs_approval=True, name_override="clock")
        def asks() -> str:
            """Tell the time."""
            return TOOL_RESULT

        self._script.uses_tool = True
        self.agent.tools = [asks]
        waits = await Runner.run(self.agent, said, **{**self._given("one"), "session": None})
        yield "waits", ""
        self._hooks.clear()  # another process has others
        state = await RunState.from_json(self.agent, json.loads(json.dumps(waits.to_state().to_json())))
        state.approve(state.get_interruptions()[0])
        await Runner.run(self.agent, state, **{**self._given("one"), "session": None})
        yield "answered", ""

    async def summarise(self) -> None:
        session = self._sessions["one"]
        last = (await session.get_items())[-2:]
        await session.clear_session()
        await session.add_items([{"role": "user", "content": "Summary: some sentences."}, *last])

    async def kept(self, conversation: str) -> str:
        return str(await self._sessions[conversation].get_items())

    async def bind_again(self) -> None:
        hooks = MemoryHooks(self._memory, session_id="one")
        MemoryHooks(self._memory, session_id="one", base=hooks["run_config"])

    async def aclose(self) -> None:
        for session in self._sessions.values():
            session.close()


class TestOpenAIAgents(Living):
    parts = len(PARTS)
    takes_any_role = True
    name = "openai-agents"
    cannot = HOSTS["openai-agents"].cannot

    def host(self, memory: Any, model: HostModel) -> App:
        return App(memory, model)


def scripted(*outputs: Any) -> ScriptedModel:
    return ScriptedModel([ModelStep(output=[output]) for output in outputs])


async def test_an_agent_that_is_handed_over_to_or_is_a_tool_takes_part_in_the_turn():
    """Also one that is shown nothing of the history; the turn is recalled for and recorded once."""
    async with TestOpenAIAgents().on_stage() as stage:
        helper = Agent("helper", model=scripted(assistant_message("It is noon.")))
        last = Agent("last", model=scripted(assistant_message("Noted.")))
        first = Agent(
            "first",
            model=scripted(
                function_call("ask", {"input": "The time?"}, call_id="call-1"),
                function_call("transfer_to_last", {}, call_id="call-2"),
            ),
            tools=[helper.as_tool("ask", "Ask the helper.")],
            handoffs=[handoff(last, input_filter=lambda data: data.clone(input_history=()))],
        )
        turns = MemoryHooks(stage.memory, session_id="one", user_id=person("ada"))
        await Runner.run(first, "I like oolong tea.", **turns)
        assert await stage.recorded() == ["I like oolong tea.", "Noted."]
        assert stage.store.operations.count("search") == 1


async def test_what_a_guardrail_stops_is_not_recorded_where_the_program_records():
    async with TestOpenAIAgents().on_stage() as stage:
        turns = MemoryHooks(stage.memory, session_id="one", user_id=person("ada"), records=False)

        def guard(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
            return GuardrailFunctionOutput(None, tripwire_triggered=output == "Bad.")

        model = scripted(assistant_message("Bad."), assistant_message("Good."))
        agent = Agent("bot", model=model, output_guardrails=[OutputGuardrail(guard)])
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await Runner.run(agent, "One.", **turns)
        await turns.record(await Runner.run(agent, "Two.", **turns))
        assert await stage.recorded() == ["Two.", "Good."]


async def test_the_model_searches_and_keeps_facts():
    async with TestOpenAIAgents().on_stage() as stage:
        turns = MemoryHooks(stage.memory, session_id="one", user_id="bob")  # not the memory's own person
        shown: list[Any] = []

        async def last(call: Any) -> ModelStep:
            shown.append(call.input)
            return ModelStep(output=[assistant_message("Noted.")])

        model = ScriptedModel(
            [
                ModelStep(
                    output=[function_call("memory_store", {"content": "Ada likes oolong."}, call_id="c1")]
                ),
                ModelStep(output=[function_call("memory_search", {"query": "oolong"}, call_id="c2")]),
                ModelStep.respond(last),
            ]
        )
        agent = Agent("bot", model=model, tools=turns.tools())
        await Runner.run(agent, "Go on.", **turns)
        assert [item["output"] for item in shown[0] if "output" in item] == [
            "committed",
            '["Ada likes oolong."]',
        ]
        assert {row.space for row in stage.store.rows.values()} == {
            next(iter(stage.store.rows.values())).space
        }
