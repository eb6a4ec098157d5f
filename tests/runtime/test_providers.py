"""The models an agent may choose, each through its real SDK against a server on the loopback."""

from contextlib import asynccontextmanager
from importlib.metadata import entry_points

import pytest
from model_server import ModelServer, call, chat, delta, events, message, message_events, text

from memory import BackendError, BackendUnavailable, ConfigError, Message
from memory.contract.errors import (
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    PluginLoadError,
    PluginNotFound,
)
from memory.runtime import CompletionOptions, Provider, ToolCall, ToolDefinition
from memory.runtime.providers import GROUP, create_provider
from memory.runtime.providers.scripted import ScriptedProvider
from memory.testing import LoopbackAnswer, ScriptedLLM

SAID = (Message(role="user", content="Which tea?"),)
SEARCH = ToolDefinition(name="search", description="d", input_schema={"type": "object", "properties": {}})
CALLED = (
    Message(role="user", content="Which tea?"),
    Message(role="assistant", tool_calls=({"id": "c1", "name": "search", "arguments": {"query": "tea"}},)),
    Message(role="tool", tool_call_id="c1", content="oolong"),
)
KINDS = ("openai", "openai_compatible", "anthropic")


def provider(kind, url, **options):
    given = {"model": "m", "base_url": url, "api_key": "sk-planted", "max_retries": 0, "timeout_s": 20}
    return create_provider(kind, {**given, **options})


@asynccontextmanager
async def opened(kind, url):
    model = provider(kind, url)
    yield model
    await model.aclose()


async def pieces(of, said=SAID, **options):
    return [chunk async for chunk in of.stream(said, CompletionOptions(**options))]


def test_the_four_are_entry_points():
    assert {*KINDS, "scripted"} <= set(entry_points(group=GROUP).names)


@pytest.mark.parametrize("kind", [*KINDS, "scripted"])
def test_each_is_a_provider_by_its_name(kind):
    made = provider(kind, "http://127.0.0.1:1") if kind in KINDS else create_provider(kind, {})
    assert isinstance(made, Provider)
    assert made.id == kind


def test_mistakes_of_the_configuration_name_the_fix(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PluginNotFound, match="anthropic"):
        create_provider("antropic", {})
    with pytest.raises(ConfigError, match=r"run\.roles\.user\.modle: .* model\?"):
        create_provider("openai", {"modle": "x"}, "run.roles.user")
    with pytest.raises(ConfigError, match="base_url: is required"):
        create_provider("openai_compatible", {"model": "x"})
    for kind in ("openai", "anthropic"):
        with pytest.raises(ConfigError, match="API_KEY"):
            create_provider(kind, {"model": "x"})
    create_provider(
        "openai", {"model": "x", "base_url": "http://127.0.0.1:9/v1"}
    )  # another server needs no key


def test_a_missing_sdk_names_the_pip_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(PluginLoadError, match=r"pip install 'memslot\[openai\]'"):
        create_provider("openai_compatible", {"model": "x", "base_url": "http://127.0.0.1:1"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (LoopbackAnswer(401, {"error": {"message": "sk-planted oolong", "type": "auth"}}), BackendAuthError),
        (LoopbackAnswer(429, {"error": {"message": "slow"}}, {"retry-after": "3"}), BackendRateLimited),
        (LoopbackAnswer(503, "down"), BackendUnavailable),
        (None, BackendUnavailable),
        (LoopbackAnswer(200, b"<html>", {"content-type": "application/json"}), BackendProtocolError),
        (LoopbackAnswer(200, {"choices": []}), BackendProtocolError),
        (LoopbackAnswer(200, [1]), BackendProtocolError),
    ],
)
async def test_failures_are_ours_and_tell_no_secret(kind, answer, error):
    with ModelServer(answer, answer) as server:
        model = provider(kind, server.url)
        with pytest.raises(error) as caught:
            await model.complete(SAID)
        with pytest.raises(BackendError):
            await pieces(model)
        await model.aclose()
    error_text = f"{caught.value} {caught.value.diagnostics}"
    assert caught.value.backend_name == kind
    assert "sk-planted" not in error_text
    assert "oolong" not in error_text


@pytest.mark.parametrize("kind", KINDS)
async def test_available_says_whether_the_server_answers(kind):
    with ModelServer() as server:
        model = provider(kind, server.url)
        assert await model.available()
        with server.down():
            assert not await model.available()
        await model.aclose()
        await model.aclose()


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "end_turn"), ("odd", "end_turn")],
)
async def test_openai_says_why_it_stopped(finish, stop):
    with ModelServer(chat("Oolong.", finish=finish)) as server:
        async with opened("openai_compatible", server.url) as model:
            result = await model.complete(SAID)
    assert (result.content, result.stop_reason, result.model) == ("Oolong.", stop, "m-1")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)


async def test_openai_is_sent_the_whole_conversation():
    options = CompletionOptions(
        system_prompt="Be terse.",
        tools=(SEARCH,),
        max_tokens=5,
        temperature=0,
        seed=3,
        stop_sequences=("END",),
    )
    with ModelServer(chat("ok"), chat("ok")) as server:
        async with opened("openai_compatible", server.url) as model:
            await model.complete(CALLED, options)
        body = server.body
        async with opened("openai", server.url) as model:
            await model.complete(CALLED, options)
        assert server.body["max_completion_tokens"] == 5
        assert "max_tokens" not in server.body
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["messages"][2]["tool_calls"] == [call("search", '{"query": "tea"}')]
    assert body["messages"][3]["tool_call_id"] == "c1"
    assert (body["max_tokens"], body["temperature"], body["stop"]) == (5, 0, ["END"])
    assert body["seed"] == 3
    assert body["tools"][0]["function"]["parameters"] == SEARCH.input_schema


@pytest.mark.parametrize(
    ("arguments", "read", "problem"),
    [
        ('{"query": "tea"}', {"query": "tea"}, False),
        ("", {}, False),
        ("{", {}, True),
        ("[1]", {}, True),
        ('{"n": NaN}', {}, True),
        ('{"n": "\\ud800"}', {"n": "?"}, False),
        ("[" * 10_000, {}, True),
    ],
)
async def test_a_call_with_nonsense_is_read_or_says_so(arguments, read, problem):
    with ModelServer(chat(None, [call("search", arguments)], "stop")) as server:
        async with opened("openai", server.url) as model:
            result = await model.complete(SAID)
    assert result.stop_reason == "tool_use"
    assert result.tool_calls[0].arguments == read
    assert (result.tool_calls[0].problem is not None) == problem


async def test_openai_streams_text_and_calls():
    first = {"index": 0, **call("search", '{"que')}
    second = {"index": 0, "function": {"arguments": 'ry": "tea"}'}}
    used = delta() | {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    stream = [
        delta(role="assistant", content="Let me "),
        delta(content="see."),
        delta(tool_calls=[first]),
        delta(tool_calls=[second]),
        delta("tool_calls"),
        used,
        "[DONE]",
    ]
    with ModelServer(events(stream)) as server:
        async with opened("openai", server.url) as model:
            chunks = await pieces(model)
        assert server.body["stream_options"] == {"include_usage": True}
    assert [chunk.text for chunk in chunks[:-1]] == ["Let me ", "see."]
    result = chunks[-1].result
    assert (result.content, result.stop_reason) == ("Let me see.", "tool_use")
    assert result.tool_calls[0] == ToolCall(id="c1", name="search", arguments={"query": "tea"})
    assert result.usage.input_tokens == 7


async def test_a_stream_that_breaks_off_is_no_answer():
    for kind, stream in (
        ("openai", [delta(content="Ool"), delta("stop")]),
        ("anthropic", message_events("Ool")[:-1]),
    ):
        got = []
        with ModelServer(events(stream, cut=True)) as server:
            async with opened(kind, server.url) as model:
                with pytest.raises(BackendError):
                    got.extend([chunk async for chunk in model.stream(SAID)])
        assert not got


async def test_the_scripted_endpoint_answers_the_real_sdk():
    recalled = '<memory-context backend="x">\n- My favourite tea is oolong.\n</memory-context>'
    with ScriptedLLM() as llm:
        async with opened("openai_compatible", llm.base_url) as model:
            result = await model.complete(
                (Message(role="user", content="Which is my favourite tea?"),),
                CompletionOptions(system_prompt=recalled),
            )
    assert "oolong" in result.content


@pytest.mark.parametrize(
    ("given", "stop"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "end_turn"),
    ],
)
async def test_anthropic_says_why_it_stopped(given, stop):
    with ModelServer(LoopbackAnswer(200, message(text("Oolong."), stop=given))) as server:
        async with opened("anthropic", server.url) as model:
            result = await model.complete(SAID)
    assert (result.content, result.stop_reason, result.model) == ("Oolong.", stop, "m-1")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)


async def test_anthropic_is_sent_turns_that_alternate():
    used = {"type": "tool_use", "id": "c2", "name": "search", "input": {"query": "x"}}
    said = (*CALLED, Message(role="user", content="Well?"))
    options = CompletionOptions(
        system_prompt="Be terse.", tools=(SEARCH,), max_tokens=5, temperature=0.5, stop_sequences=("END",)
    )
    with ModelServer(LoopbackAnswer(200, message(text("Hm."), used, stop="tool_use"))) as server:
        async with opened("anthropic", server.url) as model:
            result = await model.complete(said, options)
        body = server.body
    assert result.stop_reason == "tool_use"
    assert result.tool_calls == (ToolCall(id="c2", name="search", arguments={"query": "x"}),)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]
    assert (body["system"], body["max_tokens"], body["temperature"]) == ("Be terse.", 5, 0.5)
    assert (body["stop_sequences"], body["tools"][0]["input_schema"]) == (["END"], SEARCH.input_schema)


async def test_anthropic_streams_text():
    with ModelServer(events(message_events("Ool", "ong."))) as server:
        async with opened("anthropic", server.url) as model:
            chunks = await pieces(model)
    assert [chunk.text for chunk in chunks[:-1]] == ["Ool", "ong."]
    assert (chunks[-1].result.content, chunks[-1].result.stop_reason) == ("Oolong.", "end_turn")


async def test_scripted_says_its_lines_and_then_what_memory_knows():
    model = ScriptedProvider(["Hello there.", ToolCall(id="1", name="search"), ValueError("no")])
    assert (await model.complete(SAID)).content == "Hello there."
    assert (await model.complete(SAID)).stop_reason == "tool_use"
    with pytest.raises(ValueError, match="no"):
        await model.complete(SAID)
    assert (await model.complete(SAID)).content == "I do not know."
    assert len(model.requests) == 4
