"""A slot as a Strands memory store, in a real agent with a scripted model."""

import json
from collections.abc import AsyncIterator
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

from host_model import PICTURE, TOOL_RESULT, HostModel, HostUnderTest, person
from host_support import Living
from pydantic import BaseModel
from stage import Said
from strands import Agent, ToolContext, tool
from strands.memory import MemoryManager
from strands.memory.types import AddMessagesContext
from strands.models.model import Model
from strands.session import FileSessionManager

from memory.hosts.strands import SlotStore
from memory.hosts.table import HOSTS

CANNOT = dict(HOSTS["strands"].cannot)
if not find_spec("strands.middleware"):
    CANNOT["the_task_of_a_helper_is_not_recorded"] = "Strands tells from 1.62 that a tool is running"


class Scripted(Model):
    """The suite's model as a model of Strands."""

    def __init__(self, script: HostModel) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": "scripted"}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        after_tool = any("toolResult" in block for block in messages[-1]["content"])
        turn = await self.script.acall(json.dumps(messages, default=str), after_tool=after_tool)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"reasoningContent": {"text": turn.thought}}}}
        yield {"contentBlockStop": {}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": turn.text}}}
        yield {"contentBlockStop": {}}
        if turn.calls_tool:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "clock", "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn.calls_tool else "end_turn"}}


@tool
def clock() -> str:
    """Tell the time."""
    return TOOL_RESULT


# Every kind of part without words.
PARTS = [
    {"image": {"format": "png", "source": {"bytes": PICTURE.encode()}}},
    {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"x"}}},
    {"video": {"format": "mp4", "source": {"bytes": b"x"}}},
]


class Agents(HostUnderTest):
    """An agent for each person's conversation."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._agents: dict[tuple[str, str], Agent] = {}
        self._managers: list[MemoryManager | None] = []

    def store(self, conversation: str, who: str) -> SlotStore:
        return SlotStore(self._memory, session_id=conversation, user_id=person(who))

    def _made(
        self, conversation: str, who: str, messages: list[Any] | None, *tools: Any, **more: Any
    ) -> tuple[Agent, Any]:
        manager = MemoryManager(stores=[self.store(conversation, who)]) if self._memory else None
        made = Agent(
            Scripted(self._model),
            tools=list(tools or [clock]),
            messages=messages,
            memory_manager=manager,
            callback_handler=None,
            **more,
        )
        self._managers.append(manager)
        return made, manager

    def agent(self, conversation: str, who: str = "ada") -> Agent:
        if (conversation, who) not in self._agents:
            self._agents[conversation, who] = self._made(conversation, who, [])[0]
        return self._agents[conversation, who]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        given: Any = said
        if picture:
            given = [{"text": said}, *PARTS]
        return str(await self.agent(conversation, who).invoke_async(given))

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        events = [event async for event in self.agent(conversation).stream_async(said)]
        return str(events[-1])

    async def resend(self, said: list[Said]) -> str:
        """To an agent of this request's own."""
        messages: list[Any] = [
            {"role": message.role, "content": [{"text": message.text}], "id": message.id} for message in said
        ]
        begun = next(at for at in range(len(said) - 1, -1, -1) if said[at].role == "user")
        agent, _ = self._made("one", "ada", messages[:begun])
        return str(await agent.invoke_async(messages[begun:])).strip()

    async def leave(self, said: str) -> None:
        async for _ in self.agent("one").stream_async(said):
            break

    async def ask_through_helper(self, said: str, task: str) -> str:
        helper, _ = self._made("helped", "ada", [])  # with the same memory
        helper.model = Scripted(HostModel())

        @tool(name="clock")
        async def ask_helper() -> str:
            """Ask the helper for the time."""
            return str(await helper.invoke_async(task))

        self._model.uses_tool = True
        agent, _ = self._made("helped", "ada", [], ask_helper)
        return str(await agent.invoke_async(said)).strip()

    async def approve(self, said: str) -> AsyncIterator[tuple[str, str]]:
        """With Strands' own session of files, from which another agent goes on."""

        @tool(name="clock", context=True)
        def asks(tool_context: ToolContext) -> str:
            """Tell the time."""
            tool_context.interrupt("may-i", reason="May I look?")
            return TOOL_RESULT

        self._model.uses_tool = True
        with TemporaryDirectory() as directory:
            sessions = [FileSessionManager(session_id="one", storage_dir=directory) for _ in range(2)]
            before, _ = self._made("one", "ada", [], asks, session_manager=sessions[0])
            waits = await before.invoke_async(said)
            yield "waits", ""
            after, _ = self._made("one", "ada", None, asks, session_manager=sessions[1])
            response = {"interruptId": waits.interrupts[0].id, "response": "yes"}
            await after.invoke_async([{"interruptResponse": response}])
            yield "answered", ""

    async def summarise(self) -> None:
        kept = self.agent("one").messages
        kept[:-2] = [{"role": "user", "content": [{"text": "Summary: some sentences."}]}]

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        return str(self.agent(conversation)(said))

    async def kept(self, conversation: str) -> str:
        return json.dumps(self.agent(conversation).messages)

    async def flush(self) -> None:
        for manager in self._managers:
            if manager is not None:
                await manager.flush()

    async def aclose(self) -> None:
        await self.flush()  # as the page says, before the end

    async def bind_again(self) -> None:
        MemoryManager(stores=[self.store("one", "ada"), self.store("one", "ada")])


class TestStrands(Living):
    takes_any_role = True
    name = "strands"
    parts = len(PARTS)
    cannot = CANNOT

    def host(self, memory: Any, model: HostModel) -> Agents:
        return Agents(memory, model)


async def test_a_batch_that_is_sent_again_is_recorded_once():
    async with TestStrands().on_stage(HostModel()) as stage:
        store = stage.host.store("one", "ada")
        said = [
            {"role": "user", "content": [{"text": "ok"}]},
            {"role": "assistant", "content": [{"text": "fine"}]},
        ]
        for numbers in ([0, 1], [0, 1], [2, 3]):
            await store.add_messages(said, AddMessagesContext(sequence_numbers=numbers))
        assert await stage.recorded() == ["ok", "fine"] * 2


async def test_one_that_is_not_writable_records_nothing():
    async with TestStrands().on_stage(HostModel()) as stage:
        store = SlotStore(stage.memory, session_id="one", writable=False)
        manager = MemoryManager(stores=[store])
        agent = Agent(Scripted(HostModel()), memory_manager=manager, callback_handler=None)
        await agent.invoke_async("I like oolong tea.")
        await manager.flush()
        assert await stage.recorded() == []


class Person(BaseModel):
    """A person."""

    name: str


class Fills(Scripted):
    """Answers by the tool that Strands makes of a schema."""

    async def stream(
        self, messages: Any, tool_specs: Any = None, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        if not any(spec["name"] == "Person" for spec in tool_specs or ()):
            async for event in super().stream(messages, tool_specs, *args, **kwargs):
                yield event
            return
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {"toolUse": {"name": "Person", "toolUseId": "call-1"}}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"name": "Ada"}'}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


async def test_a_structured_output_is_recorded_as_json():
    async with TestStrands().on_stage(HostModel()) as stage:
        agent = stage.host.agent("one")
        agent.model = Fills(stage.model)
        await agent.invoke_async("I am Ada.", structured_output_model=Person)
        await agent.invoke_async("Sentence 2.")
        assert await stage.recorded() == ["I am Ada.", '{"name":"Ada"}', "Sentence 2.", "Answer 1."]
