"""Tools: whatever a model calls, with whatever arguments, has an answer that the loop can go on with."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from slot_support import Obedient
from turn_support import ADA, BOB

from memory import AdapterMode, CapabilityNotSupported, ConfigError, MemorySlot
from memory.adapter import Operation
from memory.runtime import MemoryItems, ToolCall, ToolContext, ToolRegistry, memory_tools
from memory.testing import FakeBackend

QUERY = {"type": "object", "properties": {"query": {"type": "string", "maxLength": 5}}, "required": ["query"]}


class Echo:
    description = "d"
    run_before_generation = False

    def __init__(self, name="echo", schema=QUERY, answer=None):
        self.name, self.input_schema, self.answer = name, schema, answer
        self.called: list[Mapping[str, Any]] = []

    async def execute(self, input, context):
        self.called.append(input)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer == "hang":
            await anyio.sleep_forever()
        return self.answer


@pytest.fixture
async def slot():
    async with MemorySlot(FakeBackend(), scope=ADA) as opened:
        yield opened


def context(slot, scope=ADA):
    return ToolContext("s", "/p", MemoryItems(slot, scope))


async def called(slot, tool, arguments, **options):
    call = ToolCall(id="1", name=tool.name, arguments=arguments)
    return await ToolRegistry([tool], **options).execute(call, context(slot))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("hi", "hi"),
        ({"a": [1]}, '{"a": [1]}'),
        (None, "null"),
        ("", "(nothing)"),
        ("\ud800", "?"),
        ({1}, '"{1}"'),
    ],
)
async def test_what_a_tool_returns_is_text(slot, answer, text):
    result = await called(slot, Echo(answer=answer), {"query": "x"})
    assert (result.content, result.is_error) == (text, False)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": 1}, {"query": "too long"}, {"query": None}, {"query": ["x"]}, {"other": "secret"}],
)
async def test_wrong_input_goes_back_to_the_model_and_not_to_the_tool(slot, arguments):
    tool = Echo()
    result = await called(slot, tool, arguments)
    assert result.is_error
    assert result.content.startswith("error: ")
    assert "too long" not in result.content
    assert tool.called == []


async def test_errors_delays_and_unknown_names_are_results(slot):
    broken = await called(slot, Echo(answer=RuntimeError("planted")), {"query": "x"})
    assert broken.content == "error: it failed (RuntimeError)"
    hung = await called(slot, Echo(answer="hang"), {"query": "x"}, timeout_s=0.02)
    assert "did not end" in hung.content
    registry = ToolRegistry([Echo()])
    nobody = await registry.execute(ToolCall(id="1", name="rm -rf"), context(slot))
    assert "there are: echo" in nobody.content
    unread = ToolCall(id="1", name="echo", problem="the arguments are no JSON; send an object")
    assert "no JSON" in (await registry.execute(unread, context(slot))).content


async def test_long_results_are_cut_and_say_so(slot):
    result = await called(slot, Echo(answer="x" * 1000), {"query": "x"}, longest=10)
    assert result.content == "x" * 10 + "\n[cut; it was 1000 characters long]"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (Echo("no spaces"), "letters, digits"),
        (Echo(""), "letters, digits"),
        (Echo(schema={"type": "nonsense"}), "JSON Schema"),
        (Echo(schema={"type": "string"}), "type object"),
    ],
)
async def test_a_tool_that_cannot_be_offered_is_refused(tool, said):
    with pytest.raises(ConfigError, match=said):
        ToolRegistry([tool])
    with pytest.raises(ConfigError, match="another tool"):
        ToolRegistry([Echo(), Echo()])


async def use(slot, tool, scope=ADA, **arguments):
    registry = ToolRegistry(memory_tools(slot))
    result = await registry.execute(ToolCall(id="1", name=tool, arguments=arguments), context(slot, scope))
    if result.is_error:
        return result.content
    return [] if result.content == "no memories were found" else json.loads(result.content)


async def test_a_memory_lives_from_storing_to_forgetting(slot):
    stored = await use(slot, "memory_store", content="the tea is oolong")
    found = await use(slot, "memory_search", query="tea", limit=3)
    assert [(row["id"], row["content"]) for row in found] == [(stored["id"], "the tea is oolong")]
    assert (await use(slot, "memory_get", id=stored["id"]))["content"] == "the tea is oolong"
    assert (await use(slot, "memory_modify", id=stored["id"], content="the tea is sencha"))[
        "status"
    ] == "committed"
    assert (await use(slot, "memory_get", id=stored["id"]))["content"] == "the tea is sencha"
    assert (await use(slot, "memory_forget", id=stored["id"]))["status"] == "committed"
    assert "no memory of this id" in await use(slot, "memory_get", id=stored["id"])
    assert "BackendRejected" in await use(slot, "memory_forget", id=stored["id"])


async def test_another_scope_has_none_of_it(slot):
    stored = await use(slot, "memory_store", content="the tea is oolong")
    assert await use(slot, "memory_search", scope=BOB, query="tea") == []
    assert "there is no memory" in await use(slot, "memory_get", scope=BOB, id=stored["id"])
    for tool, more in (("memory_modify", {"content": "x"}), ("memory_forget", {})):
        assert str(await use(slot, tool, scope=BOB, id=stored["id"], **more)).startswith("error: ")
    assert (await use(slot, "memory_get", id=stored["id"]))["content"] == "the tea is oolong"


async def test_a_tool_is_offered_only_where_the_backend_has_it(slot):
    async with MemorySlot(Obedient(), scope=ADA) as plain:
        assert [tool.name for tool in memory_tools(plain)] == ["memory_search", "memory_store"]
    assert len(memory_tools(slot)) == 5


@pytest.mark.parametrize(
    ("declared", "offered"),
    [
        ({"delete": Operation(native_id=True)}, ["forget"]),
        ({"update": Operation(required={"text": str}, native_id=True)}, ["modify"]),
        ({"update": Operation(required={"metadata": dict[str, Any]}, native_id=True)}, []),  # of another kind
        ({"delete": Operation()}, []),  # of no one record
        ({}, []),
        (None, ["modify", "forget"]),
    ],
)
async def test_changes_are_offered_as_the_backend_declares_them(declared, offered):
    backend = FakeBackend()
    backend.traits = replace(backend.traits, native_mutations=declared)
    async with MemorySlot(backend, scope=ADA) as declaring:
        names = [tool.name.removeprefix("memory_") for tool in memory_tools(declaring)]
        assert [name for name in names if name in ("modify", "forget")] == offered
        if "modify" not in offered:
            with pytest.raises(CapabilityNotSupported, match="cannot update a single memory"):
                await MemoryItems(declaring, ADA).modify("x", "sencha")


async def test_read_only_stores_and_changes_nothing(slot):
    stored = await use(slot, "memory_store", content="tea")
    await slot.set_mode(AdapterMode(read_only=True))
    assert (await use(slot, "memory_store", content="x"))["status"] == "skipped_read_only"
    assert (await use(slot, "memory_forget", id=stored["id"]))["status"] == "skipped_read_only"


@pytest.mark.parametrize(
    "arguments",
    [{"query": ""}, {"query": "x" * 20_001}, {"query": "x", "limit": 0}, {"query": "x", "limit": True},
     {"query": "x", "scope": "bob"}, {"query": "x", "filters": {"persona_id": "*"}}, {"query": " "}],
)  # fmt: skip
async def test_hostile_arguments_are_refused(slot, arguments):
    assert str(await use(slot, "memory_search", **arguments)).startswith("error: ")
