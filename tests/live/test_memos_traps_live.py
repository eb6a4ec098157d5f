"""What MemOS does behind its answers, on a real server whose language model we can break."""

import os
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import pytest
from test_memos_live import config

from memory import (
    BackendUnavailable,
    ConfigError,
    MemoryScope,
    Message,
    RetrieveRequest,
    SupportsReadiness,
    open_memory,
)

T = TypeVar("T")
FINE = {"async_mode": "sync", "mode": "fine"}
FAST = {"async_mode": "sync", "mode": "fast"}
ASYNC = {}


def new_scope(persona_id="ada"):
    return MemoryScope(run_id=os.urandom(6).hex(), persona_id=persona_id)


@asynccontextmanager
async def opened(rig, scope=None, **block):
    async with open_memory(config(rig.url, **block), scope=scope or new_scope()) as memory:
        yield memory


async def ask(memory, query, **more):
    more = {"scope": memory.scope, "session_id": "s", **more}
    return await memory.retrieve(RetrieveRequest(query=query, **more))


async def ready(memory, timeout_s=30):
    assert memory.scope is not None
    state = await able(memory, SupportsReadiness).wait_until_ready(memory.scope, timeout_s)
    return state.state, state.detail


def able(memory, protocol):
    capability = memory.capability(protocol)
    assert capability is not None
    return capability


def texts(result):
    return [entry.text for entry in result.entries]


async def test_memories_keep_their_groups_and_exact_types(memos_rig_process):
    def use(number):
        call = {"id": f"t{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        return [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=f"number {number} is free", tool_call_id=f"t{number}"),
        ]

    five = [message for number in range(5) for message in use(number)]
    async with opened(memos_rig_process, **FINE) as memory:
        await memory.after_turn(session_id="s", user="I like oolong tea. I live in Berlin.")
        await memory.after_turn(session_id="s", user="Please book my table.", messages=use(7))
        await memory.after_turn(session_id="s", user="Compare my five flights.", messages=five)
        result = await ask(memory, "oolong tea, my table, my five flights")
        section = result.formatted_context
    groups = {entry.group for entry in result.entries}
    assert {
        "text_mem UserMemory",
        "pref_mem PreferenceMemory",
        "tool_mem ToolTrajectoryMemory",
        "skill_mem SkillMemory",
    } <= groups
    kinds = {
        group: {
            item["metadata"]["memory_type"] for bucket in result.raw[group] for item in bucket["memories"]
        }
        for group in ("text_mem", "pref_mem", "tool_mem", "skill_mem")
    }
    assert kinds["pref_mem"] == {"PreferenceMemory"}
    assert kinds["tool_mem"] == {"ToolTrajectoryMemory"}
    assert kinds["skill_mem"] == {"SkillMemory"}
    for group in groups - {"pref_note"}:
        assert section.count(f"[{group}]") == 1


async def test_memory_outlives_the_slot_and_a_reset_spares_the_bystander(memos_rig_process):
    ada, bob = new_scope(), new_scope("bob")
    async with opened(memos_rig_process, ada) as memory:
        await memory.setup_scope(bob)
        await memory.after_turn(session_id="s", user="My parrot is called Kiwi.")
        await memory.after_turn(session_id="s", user="My parrot is called Mango.", scope=bob)
        await ready(memory)
    async with opened(memos_rig_process, ada) as memory:
        await memory.setup_scope(bob)
        assert "Kiwi" in await memory.before_turn("What is the parrot called?", session_id="2")
        receipt = await memory.reset_scope(ada)
        assert (receipt.verified, receipt.removed) == (True, 1)
        assert await memory.before_turn("What is the parrot called?", session_id="2") == ""
        assert "Mango" in await memory.before_turn("What is the parrot called?", session_id="2", scope=bob)
        await memory.reset_scope(bob)
    cubes = {memory.native_scope(scope)["cube_id"] for scope in (ada, bob)}
    left = memos_rig_process.rows("SELECT user_name FROM memos.memories")
    assert cubes.isdisjoint(cube for (cube,) in left)


@pytest.mark.parametrize("kind", ["500", "401", "reset"])
async def test_without_its_embedder_a_search_is_no_empty_memory(memos_rig_process, kind):
    async with opened(memos_rig_process, **FAST) as memory:
        await memory.after_turn(session_id="s", user="I live in Berlin.")
        with memos_rig_process.llm_fault(kind, endpoint="embeddings"):
            with pytest.raises(BackendUnavailable):
                await ask(memory, "Where do I live?")
            health = await memory.health()
        assert health.status == "unavailable"
        assert texts(await ask(memory, "Where do I live?")) != []
        assert (await memory.health()).details["canary"] == "found, unranked"  # the rig has no reranker


async def test_an_event_that_a_broken_embedder_lost_is_not_called_committed(memos_rig_process):
    async with opened(memos_rig_process, **FINE) as memory:
        with memos_rig_process.llm_fault("401", endpoint="embeddings"), pytest.raises(BackendUnavailable):
            await memory.after_turn(session_id="s", user="I live in Berlin.")


@pytest.mark.parametrize("kind", ["500", "401"])
async def test_without_its_model_the_text_is_kept_and_the_receipt_says_so(memos_rig_process, kind):
    async with opened(memos_rig_process, **FINE) as memory:
        with memos_rig_process.llm_fault(kind, endpoint="chat/completions"):
            receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        assert receipt.status == "committed"
        assert "model behind MemOS failed" in receipt.warnings[-1]
        (text,) = texts(await ask(memory, "Where do I live?"))
    assert text.startswith("user: [")


@pytest.mark.parametrize("kind", ["500", "bad_content"])
async def test_what_the_scheduler_lost_or_kept_raw_is_told(memos_rig_process, kind):
    async with opened(memos_rig_process) as memory:
        with memos_rig_process.llm_fault(kind, endpoint="chat/completions"):
            await memory.after_turn(session_id="s", user="I live in Berlin.")
            state, detail = await ready(memory)
        kept = texts(await ask(memory, "Where do I live?"))
    if kind == "500":
        assert (state, len(kept)) == ("failed", 1)
        assert "model behind MemOS failed" in detail
    else:
        assert (state, kept) == ("unknown", [])
        assert "nothing is stored" in detail


async def test_a_database_that_ignores_filters_is_not_taken_for_one_that_filters(memos_rig_process):
    with pytest.raises(ConfigError, match="graph_db"):
        async with opened(memos_rig_process, graph_db="neo4j-community"):
            pass
    async with opened(memos_rig_process, **FINE) as memory:
        await memory.after_turn(session_id="s", user="I live in Berlin.", context="home")
        assert memory.traits.cs_filtering == "soft"
        assert (await memory.health()).details["filters"] == "ignored"
        assert texts(await ask(memory, "Where do I live?", context="work")) == ["I live in Berlin."]


async def test_a_full_index_loses_no_scope(memos_rig_process):
    """Beyond some 300 rows an index with few probes finds nothing in any cube; the rig sets enough of them."""
    first, last = new_scope(), new_scope()
    async with opened(memos_rig_process, first, **FAST) as memory:
        await memory.after_turn(session_id="s", user="My parrot is called Kiwi.")
        await memory.setup_scope(last)
        for number in range(350):
            await memory.after_turn(session_id="s", user=f"I counted {number} sheep.", scope=last)
        assert "Kiwi" in await memory.before_turn("What is the parrot called?", session_id="2")
        assert "349" in await memory.before_turn("Did I count 349 sheep?", session_id="2", scope=last)
        for scope in (first, last):
            assert (await memory.reset_scope(scope)).verified


async def test_many_scopes_at_once_never_mix(memos_rig_process):
    scopes = [new_scope(f"p{number}") for number in range(32)]
    async with opened(memos_rig_process, scopes[0], **FAST) as memory:

        async def live(number):
            scope = scopes[number]
            await memory.setup_scope(scope)
            await memory.after_turn(session_id="s", user=f"My number is {1000 + number}.", scope=scope)
            section = await memory.before_turn("What is my number?", session_id="2", scope=scope)
            found = [other for other in range(32) if f"number is {1000 + other}" in section]
            assert found == [number]
            await memory.reset_scope(scope)

        async with anyio.create_task_group() as tasks:
            for number in range(len(scopes)):
                tasks.start_soon(live, number)
