"""The session loop: the contract's order, and a session that lives on whatever model, tool, memory or client do."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from slot_support import Obedient, forever
from turn_support import ADA

from memory import BackendUnavailable, ContextBudget, InputError, MemorySlot, Message
from memory.runtime import (
    AgentSession,
    Attachment,
    Channel,
    Checkpoint,
    CommandLine,
    CompletionChunk,
    CompletionResult,
    SessionSettings,
    ToolCall,
    ToolRegistry,
    TurnMemory,
    TurnPolicy,
    UserTurn,
    memory_tools,
    run_session,
)
from memory.runtime.providers.scripted import ScriptedProvider

SEARCH = ToolCall(id="c1", name="memory_search", arguments={"query": "tea"})


@pytest.fixture
def backend():
    obedient = Obedient()
    obedient.names_sessions = True
    return obedient


@pytest.fixture
async def memory(backend):
    policy = TurnPolicy(exclude_session=True, recall_s=20)
    async with MemorySlot(backend, scope=ADA) as slot, TurnMemory(slot, policy) as opened:
        yield opened


def session(memory, *lines, tools=True, **options):
    registry = ToolRegistry(memory_tools(memory.slot)) if tools else None
    return AgentSession(ScriptedProvider(lines), memory, registry, **options)


def asked(of):
    assert isinstance(of.provider, ScriptedProvider)
    return of.provider.requests


async def say(of, text, **options):
    return (await of.turn(UserTurn(content=text), **options)).output


async def test_a_turn_goes_in_the_contracts_order(memory, backend):
    earlier = session(memory, "Noted.")
    await say(earlier, "I like oolong tea.")
    await earlier.end()
    settings = SessionSettings(identity="You are Ada's agent.", soul="Be terse.")
    now = session(memory, SEARCH, "Oolong.", settings=settings)
    report = await now.turn(UserTurn(content="Which tea?"))
    assert (report.output.content, report.rounds, report.recorded) == ("Oolong.", 2, True)
    (first, options), (second, _) = asked(now)
    places = [
        options.system_prompt.index(part) for part in ("Ada's agent", "Be terse.", "I like oolong tea.")
    ]
    assert places == sorted(places)
    assert [message.role for message in first] == ["user"]
    assert [message.role for message in second] == ["user", "assistant", "tool"]
    assert "I like oolong tea." in second[2].content
    assert [tool.name for tool in options.tools] == ["memory_search", "memory_store"]
    await now.end()
    said = [[message.content for message in row.messages] for row in backend.rows]
    assert said == [["I like oolong tea.", "Noted."], ["Which tea?", "Oolong."]]


class Library:
    name, description, run_before_generation = "library", "d", True
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}

    async def execute(self, input, context):
        return f"a book on {input['query']}"


async def test_research_runs_before_the_model_and_beside_recall(memory):
    now = AgentSession(ScriptedProvider(["Yes."]), memory, ToolRegistry([Library()]))
    report = await now.turn(UserTurn(content="tea"))
    assert "Result of library:\na book on tea" in (asked(now)[0][1].system_prompt or "")
    assert [result.content for result in report.research] == ["a book on tea"]


async def test_the_loop_keeps_the_conversation_and_the_memory_leaves_it_out(memory):
    now = session(memory, "One.", "Two.", "Three.")
    for text in ("first", "second"):
        await say(now, text)
        await now.end()
    await say(now, "third")
    messages, options = asked(now)[2]
    assert [message.content for message in messages] == ["first", "One.", "second", "Two.", "third"]
    assert "<memory-context" not in (options.system_prompt or "")


async def test_a_write_delays_no_token(memory, backend):
    gate = anyio.Event()
    backend.next_write = [gate.wait]
    now, pieces = session(memory, "First answer.", "Second answer."), []

    async def emit(output):
        pieces.append(output.content)

    await say(now, "hello", emit=emit)
    assert (await say(now, "again", emit=emit)).content == "Second answer."
    assert "".join(pieces) == "First answer.Second answer."
    assert backend.rows == []
    gate.set()
    assert await now.end()


async def test_a_memory_that_is_down_costs_no_turn(memory, backend):
    backend.always = ConnectionRefusedError("down")
    now = session(memory, "Hello.")
    report = await now.turn(UserTurn(content="hi"))
    assert report.output.content == "Hello."
    assert isinstance(report.recall.failure, BackendUnavailable)
    backend.always = None


@pytest.mark.parametrize(
    "line",
    [
        BackendUnavailable("model is down"),
        ValueError("planted"),
        "",
        "   ",
        CompletionResult(stop_reason="tool_use"),
    ],
)
async def test_a_model_that_gives_no_answer_ends_no_session(memory, backend, line):
    now = session(memory, line, "Better.")
    output = await say(now, "hi")
    assert output.error
    assert "planted" not in output.error
    assert (await say(now, "again")).content == "Better."
    assert [message.content for message in asked(now)[1][0]] == ["hi", "again"]
    await now.end()
    assert [row.messages[0].content for row in backend.rows] == ["hi", "again"]


async def test_a_model_that_only_calls_tools_is_stopped(memory):
    settings = SessionSettings(max_tool_rounds=3)
    now = session(memory, *[SEARCH] * 5, settings=settings)
    output = await say(now, "tea?")
    assert "3 times" in (output.error or "")
    assert len(asked(now)) == 3
    many = CompletionResult(
        tool_calls=tuple(ToolCall(id=str(n), name="memory_search") for n in range(20)), stop_reason="tool_use"
    )
    now = session(memory, many, "Done.")
    output = await say(now, "tea?")
    assert output.content == "Done."
    assert sum("too many" in result.content for result in output.tool_results) == 4
    assert len([message for message in asked(now)[1][0] if message.role == "tool"]) == 20


async def test_a_call_that_was_cut_off_leaves_no_open_call(memory):
    cut = CompletionResult(content="Let me", tool_calls=(SEARCH,), stop_reason="max_tokens")
    now = session(memory, cut, "Fine.")
    assert (await say(now, "tea?")).content == "Let me"
    await say(now, "well?")
    assert all(not message.tool_calls for message in asked(now)[1][0])


async def test_what_does_not_fit_is_summarised_and_recalled(memory):
    long = "oolong " * 100
    now = session(memory, "ok", "They like oolong.", "fine", settings=SessionSettings(window_tokens=250))
    await say(now, long)
    await now.end()
    await say(now, "and now?" + " more" * 100)
    messages, options = asked(now)[-1]
    assert messages[0].content == "(Summary of our conversation so far: They like oolong.)"
    assert long.strip() in (options.system_prompt or "").replace(
        "\n", " "
    )  # it is no part of this session any more
    await now.end()


async def test_without_a_summary_the_oldest_turns_go(memory):
    lines = ["ok", BackendUnavailable("down"), "fine"]
    now = session(memory, *lines, tools=False, settings=SessionSettings(window_tokens=100))
    await say(now, "word " * 60)
    assert (await say(now, "again " * 20)).content == "fine"
    assert [message.role for message in asked(now)[-1][0]] == ["user"]


async def test_without_a_window_all_of_it_is_shown(memory):
    now = session(memory, "ok", "fine", settings=SessionSettings(window_tokens=None))
    long = "oolong " * 3000
    await say(now, long)
    await say(now, "and now?")
    assert [message.content for message in asked(now)[-1][0]] == [long, "ok", "and now?"]


async def test_a_session_is_resumed_from_its_checkpoint(memory):
    first = session(memory, "Hello Ada.")
    await say(first, "I am Ada.")
    kept = Checkpoint.model_validate_json(first.checkpoint().model_dump_json())
    second = session(memory, "Ada.", checkpoint=kept)
    assert second.session_key == first.session_key
    await say(second, "Who am I?")
    assert [message.content for message in asked(second)[0][0]] == ["I am Ada.", "Hello Ada.", "Who am I?"]
    with pytest.raises(InputError):
        session(memory, checkpoint=Checkpoint(session_key="s", history=({"role": "nobody"},)))


async def test_a_session_opens_with_what_is_known(memory):
    earlier = session(memory, "ok")
    await say(earlier, "I am Ada.")
    await earlier.end()
    now = session(memory, "Hi.")
    assert "I am Ada." in (await now.start()).section
    with_text = UserTurn(content="see", attachments=(Attachment(name="a.txt", content="tea list"),))
    await now.turn(with_text)
    assert "[a.txt]\ntea list" in asked(now)[0][0][0].content


async def test_what_the_start_recalled_stands_in_the_first_prompt_beside_what_the_turn_did(
    memory, monkeypatch
):
    earlier = session(memory, "ok", "ok")
    for text in ("I am Ada.", "My bike is red."):
        await say(earlier, text)
    await earlier.end()
    everything = memory.recall

    async def by_word(user, **fields):
        recall = await everything(user, **fields)
        fits = [n for n, entry in enumerate(recall.result.entries) if user.strip("?") in entry.text]
        result = recall.result.model_copy(update={"included": tuple(fits), "formatted_context": ""})
        result = result.model_copy(update={"formatted_context": memory.slot.format_context(result)})
        return replace(recall, section=result.formatted_context, result=result)

    monkeypatch.setattr(memory, "recall", by_word)
    now = session(memory, "Red.", "Yes.")
    await now.start("a")  # in both
    await say(now, "bike?")
    await say(now, "bike?")
    first, second = (options.system_prompt or "" for _, options in asked(now))
    assert (first.count("My bike is red."), first.count("I am Ada.")) == (1, 1), "each once"
    assert (second.count("My bike is red."), second.count("I am Ada.")) == (1, 0), (
        "the start's, in the first prompt"
    )
    memory.slot.delivery.budget = ContextBudget(max_items=1)
    small = session(memory, "Red.")
    await small.start("a")
    await say(small, "bike?")
    assert (asked(small)[0][1].system_prompt or "").count("\n- ") == 1, "one budget"


class Lines(CommandLine):
    def __init__(self, *lines):
        self.out = io.StringIO()
        left = list(lines)

        def read():
            if not left:
                raise EOFError
            return left.pop(0)

        super().__init__(read, self.out)


async def test_a_command_line_session_runs_to_its_end(memory, backend):
    channel, closed = Lines("\n", "hi there\n", "bye\n"), []
    assert isinstance(channel, Channel)
    channel.on_close(lambda: closed.append(1))
    with anyio.fail_after(30):
        await run_session(session(memory, "Hello, you.", BackendUnavailable("down")), channel)
    assert channel.out.getvalue() == "Hello, you.\n[the model gave no answer: down]\n"
    assert closed == [1]
    assert len(backend.rows) == 2


async def test_a_closed_pipe_ends_the_session_and_keeps_the_turn(memory, backend):
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    lines = ["hi\n"]
    channel = CommandLine(lambda: lines.pop(0), Broken())
    with anyio.fail_after(30):
        await run_session(session(memory, "Hello."), channel)
    assert [row.messages[0].content for row in backend.rows] == ["hi"]


class Endless(ScriptedProvider):
    """Says its first lines, and never comes to the end of the last one."""

    async def stream(self, messages, options=None):
        if self._lines:
            async for chunk in super().stream(messages, options):
                yield chunk
        while not self._lines:
            yield CompletionChunk(text="and again ")
            await anyio.sleep(0.001)


async def test_a_model_that_never_ends_its_answer_is_cut_off(memory, backend):
    talk = AgentSession(Endless(), memory, settings=SessionSettings(turn_s=1))
    shown = []

    async def emit(output):
        shown.append(output.content)

    with anyio.fail_after(30):
        report = await talk.turn(UserTurn(content="My bike is red."), emit)
    assert report.output.error == "the answer did not end within 1 s"
    assert shown
    await memory.drain(20)
    assert [[message.content for message in row.messages] for row in backend.rows] == [["My bike is red."]]
    talk.provider, talk.settings = ScriptedProvider(["Here."]), SessionSettings()
    assert (await talk.turn(UserTurn(content="Still there?"), emit)).output.content == "Here."


async def test_a_model_that_hangs_is_given_up_with_the_turn(memory):
    class Hanging(ScriptedProvider):
        async def complete(self, messages, options=None):
            await forever()
            raise AssertionError

    now = AgentSession(Hanging(), memory)
    with anyio.move_on_after(0.02) as limit:
        await say(now, "hi")
    assert limit.cancelled_caught
    assert now.history == []


class Forgetting(ScriptedProvider):
    """While it gives an answer for the first time, or sums up, the memory is reset."""

    memory: TurnMemory
    when = "answered"
    turn: anyio.CancelScope

    async def complete(self, messages, options=None):
        sums_up = "Summarise" in messages[-1].content
        if self.when and sums_up == (self.when == "summarised"):
            await self.memory.slot.reset_scope(ADA)
            if self.when == "stopped":
                self.turn.cancel()
                await forever()
            self.when = ""
        return await super().complete(messages, options)


@pytest.mark.parametrize("when", ["answered", "failed", "stopped", "summarised"])
async def test_what_was_said_before_a_reset_does_not_come_back_with_the_turn_in_work(memory, backend, when):
    model = Forgetting([BackendUnavailable("down") if when == "failed" else "Understood."])
    talk = AgentSession(model, memory)
    talk.history = [Message(role="user", content="My bike is red. " * 20)]
    model.memory, model.when = memory, when
    if when == "summarised":
        talk.settings = SessionSettings(window_tokens=30)
    turn = UserTurn(content="My boat is blue.")
    with anyio.CancelScope() as model.turn:
        report = await talk.turn(turn)
        assert not report.recorded
    if when == "stopped":
        talk.checkpoint()
    assert (talk.history, talk.last) == ([], None)
    assert await memory.drain(20)
    assert backend.rows == []
    talk.provider = ScriptedProvider(["Yes."])
    assert (await talk.turn(UserTurn(content="Still there?"))).recorded
