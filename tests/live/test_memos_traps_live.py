"""What MemOS does behind its answers, on a real server whose language model we can break."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import anyio
import pytest
from memos_rig import MemosProcess
from test_memos_live import config

from memory import (
    BackendUnavailable,
    ConfigError,
    MemoryFeedback,
    MemoryScope,
    MemorySlot,
    Message,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
    RetrieveResult,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    open_memory,
)
from memory.backends.memos.client import CANARY

T = TypeVar("T")
FINE: dict[str, Any] = {"async_mode": "sync", "mode": "fine"}
FAST: dict[str, Any] = {"async_mode": "sync", "mode": "fast"}
ASYNC: dict[str, Any] = {}


def new_scope(persona_id: str = "ada") -> MemoryScope:
    return MemoryScope(run_id=os.urandom(6).hex(), persona_id=persona_id)


@asynccontextmanager
async def opened(
    rig: MemosProcess, scope: MemoryScope | None = None, **block: Any
) -> AsyncIterator[MemorySlot]:
    async with open_memory(config(rig.url, **block), scope=scope or new_scope()) as memory:
        yield memory


async def ask(memory: MemorySlot, query: str, **more: Any) -> RetrieveResult:
    more = {"scope": memory.scope, "session_id": "s", **more}
    return await memory.retrieve(RetrieveRequest(query=query, **more))


async def ready(memory: MemorySlot, timeout_s: float = 30) -> tuple[str, str]:
    assert memory.scope is not None
    state = await able(memory, SupportsReadiness).wait_until_ready(memory.scope, timeout_s)
    return state.state, state.detail


def able(memory: MemorySlot, protocol: type[T]) -> T:
    capability = memory.capability(protocol)
    assert capability is not None
    return capability


def texts(result: RetrieveResult) -> list[str]:
    return [entry.text for entry in result.entries]


def feedback(memory: MemorySlot, content: str, native_ids: Iterable[str] = (), **more: Any) -> MemoryFeedback:
    assert memory.scope is not None
    return MemoryFeedback(
        feedback_id="f1",
        scope=memory.scope,
        session_id="s",
        timestamp=datetime(2024, 1, 2, tzinfo=UTC),
        content=content,
        native_ids=tuple(native_ids),
        **more,
    )


# -- what comes back ------------------------------------------------------------------------------------


async def test_memories_keep_their_groups_and_exact_types(memos_rig_process: MemosProcess) -> None:
    def use(number: int) -> list[Message]:
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


async def test_a_search_bounds_every_group(memos_rig_process: MemosProcess) -> None:
    async with opened(memos_rig_process, pref_top_k=0, **FINE) as memory:
        for drink in ("oolong", "sencha", "matcha"):
            await memory.after_turn(session_id="s", user=f"I like {drink} tea.")
        result = await ask(memory, "Which tea do I like?", budget={"max_items": 2})
    assert {entry.group for entry in result.entries} == {"text_mem UserMemory"}
    assert len(result.entries) == 2


@pytest.mark.parametrize("search_mode", ["fine", "mixture"])
async def test_other_ways_to_search(memos_rig_process: MemosProcess, search_mode: str) -> None:
    async with opened(memos_rig_process, search_mode=search_mode, **FINE) as memory:
        await memory.after_turn(session_id="s", user="I live in Berlin.")
        assert "I live in Berlin." in texts(await ask(memory, "Where do I live?"))


async def test_memory_outlives_the_slot_and_a_reset_spares_the_bystander(
    memos_rig_process: MemosProcess,
) -> None:
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
    assert not [row for row in memos_rig_process.memories() if row[1] in cubes]


# -- the scheduler --------------------------------------------------------------------------------------


async def test_a_queued_memory_is_replaced_and_its_event_lives_on(memos_rig_process: MemosProcess) -> None:
    """Again and again, because the local queue loses sight of a task now and then."""
    async with opened(memos_rig_process) as memory:
        assert memory.scope is not None
        for number in range(20):
            receipt = await memory.after_turn(session_id="s", event_id=f"e{number}", user="I live in Berlin.")
            assert (receipt.status, len(receipt.native_ids)) == ("queued", 1)
            assert "replaces" in receipt.warnings[0]
            assert (await ready(memory))[0] == "ready"
            (entry,) = (await ask(memory, "Where do I live?")).entries
            assert entry.native_id not in receipt.native_ids
            assert (entry.text, entry.event_ids) == ("I live in Berlin.", (f"e{number}",))
            await memory.reset_scope(memory.scope)


@pytest.mark.parametrize("queue", ["local", "redis"])
async def test_readiness_is_pending_while_the_scheduler_works(
    request: pytest.FixtureRequest, queue: str
) -> None:
    rig = request.getfixturevalue("memos_redis_rig" if queue == "redis" else "memos_rig_process")
    async with opened(rig, scheduler=queue) as memory:
        with rig.llm_fault("late", endpoint="chat/completions", delay_s=1.5):
            await memory.after_turn(session_id="s", user="I live in Berlin.")
            assert memory.scope is not None
            readiness = able(memory, SupportsReadiness)
            early = await readiness.readiness(memory.scope)
            # Only Redis tells whose tasks they are.
            assert (early.state, early.pending_count) == ("pending", 1 if queue == "redis" else None)
            assert (await readiness.wait_until_ready(memory.scope, 0.2)).state == "pending"
        assert (await ready(memory))[0] == "ready"


# -- single memories ------------------------------------------------------------------------------------


async def test_provenance_names_the_messages_and_the_event(memos_rig_process: MemosProcess) -> None:
    async with opened(memos_rig_process, **FINE) as memory:
        said = datetime(2024, 1, 1, 10, tzinfo=UTC)
        receipt = await memory.after_turn(
            session_id="s", event_id="e1", user="I live in Berlin.", scenario="home", timestamp=said
        )
        assert memory.scope is not None
        answer = await able(memory, SupportsProvenance).provenance(
            ProvenanceRequest(scope=memory.scope, native_id=receipt.native_ids[0])
        )
    metadata = answer.raw["memory"]["metadata"]
    assert answer.event_ids == ("e1",)
    assert metadata["info"]["scenario"] == "home"
    assert "I live in Berlin." in str(metadata["sources"])
    assert said.isoformat() in str(metadata["sources"])


async def test_feedback_replaces_what_it_names(memos_rig_process: MemosProcess) -> None:
    history = [
        {"role": "user", "content": "Where do I live?"},
        {"role": "assistant", "content": "You live in Berlin."},
    ]
    async with opened(memos_rig_process, **FINE) as memory:
        receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        applied = await able(memory, SupportsFeedback).apply_feedback(
            feedback(memory, "No, I live in Paris.", receipt.native_ids, metadata={"history": history})
        )
        assert applied.status == "committed"
        assert texts(await ask(memory, "Where do I live?")) == ["No, I live in Paris."]
        assert (await ready(memory))[0] in ("ready", "unknown")


async def test_a_deleted_memory_is_gone_and_readiness_says_nothing_else(
    memos_rig_process: MemosProcess,
) -> None:
    async with opened(memos_rig_process, **FINE) as memory:
        receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        assert memory.scope is not None
        await able(memory, SupportsNativeMutation).native_mutation(
            NativeMutationRequest(scope=memory.scope, operation="delete", native_id=receipt.native_ids[0])
        )
        assert texts(await ask(memory, "Where do I live?")) == []
        assert (await ready(memory))[0] == "ready"
        listed = await able(memory, SupportsNativeQuery).native_query(
            NativeQueryRequest(scope=memory.scope, operation="inventory")
        )
    assert not any(listed.raw.values())


# -- the model behind the server fails ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["500", "401", "reset"])
async def test_without_its_embedder_a_search_is_no_empty_memory(
    memos_rig_process: MemosProcess, kind: str
) -> None:
    async with opened(memos_rig_process, **FAST) as memory:
        await memory.after_turn(session_id="s", user="I live in Berlin.")
        with memos_rig_process.llm_fault(kind, endpoint="embeddings"):
            with pytest.raises(BackendUnavailable):
                await ask(memory, "Where do I live?")
            health = await memory.health()
        assert health.status == "unavailable"
        assert texts(await ask(memory, "Where do I live?")) != []
        assert (await memory.health()).status == "ok"


async def test_nothing_found_is_still_no_failure(memos_rig_process: MemosProcess) -> None:
    async with opened(memos_rig_process, **FAST) as memory:
        assert texts(await ask(memory, "Where do I live?")) == []


@pytest.mark.parametrize("kind", ["500", "401"])
async def test_a_memory_without_a_vector_is_not_called_committed(
    memos_rig_process: MemosProcess, kind: str
) -> None:
    async with opened(memos_rig_process, **FAST) as memory:
        with memos_rig_process.llm_fault(kind, endpoint="embeddings"):
            receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
            assert receipt.status == "pending"
            assert "not found again" in receipt.warnings[-1]
            assert (await ready(memory))[0] == "failed"
        # The vector does not come later.
        assert (await ready(memory))[0] != "ready"


async def test_an_event_that_a_broken_embedder_lost_is_not_called_committed(
    memos_rig_process: MemosProcess,
) -> None:
    async with opened(memos_rig_process, **FINE) as memory:
        with memos_rig_process.llm_fault("401", endpoint="embeddings"), pytest.raises(BackendUnavailable):
            await memory.after_turn(session_id="s", user="I live in Berlin.")


@pytest.mark.parametrize("block", [FAST, FINE, ASYNC], ids=["fast", "fine", "async"])
async def test_an_id_is_no_proof_that_anything_is_stored(
    memos_rig_process: MemosProcess, block: dict[str, Any]
) -> None:
    async with opened(memos_rig_process, **block) as memory:
        with memos_rig_process.no_database():
            receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
            assert len(receipt.native_ids) == 1
            assert receipt.status == ("queued" if block is ASYNC else "unknown")
            with pytest.raises(BackendUnavailable):
                await ask(memory, "Where do I live?")
            with pytest.raises(BackendUnavailable):
                await ready(memory)
        assert (await ready(memory))[0] == "unknown"
        assert texts(await ask(memory, "Where do I live?")) == []


async def test_small_talk_is_kept_by_nobody_and_no_failure(memos_rig_process: MemosProcess) -> None:
    async with opened(memos_rig_process, **FINE) as memory:
        receipt = await memory.after_turn(session_id="s", user="Hello there!")
    assert (receipt.status, receipt.native_ids) == ("unknown", ())
    assert receipt.warnings


@pytest.mark.parametrize("kind", ["500", "401"])
async def test_without_its_model_the_text_is_kept_and_the_receipt_says_so(
    memos_rig_process: MemosProcess, kind: str
) -> None:
    async with opened(memos_rig_process, **FINE) as memory:
        with memos_rig_process.llm_fault(kind, endpoint="chat/completions"):
            receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        assert receipt.status == "committed"
        assert "model behind MemOS failed" in receipt.warnings[-1]
        (text,) = texts(await ask(memory, "Where do I live?"))
    assert text.startswith("user: [")


@pytest.mark.parametrize("kind", ["500", "bad_content"])
async def test_what_the_scheduler_lost_or_kept_raw_is_told(
    memos_rig_process: MemosProcess, kind: str
) -> None:
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


async def test_feedback_that_does_nothing_is_not_called_committed(memos_rig_process: MemosProcess) -> None:
    async with opened(memos_rig_process, **FAST) as memory:
        with memos_rig_process.llm_fault("401"):
            receipt = await able(memory, SupportsFeedback).apply_feedback(feedback(memory, "I have a dog."))
    assert receipt.status == "unknown"
    assert receipt.warnings


async def test_a_scope_is_not_set_up_on_a_server_that_finds_nothing(memos_rig_process: MemosProcess) -> None:
    with memos_rig_process.llm_fault("401", endpoint="embeddings"), pytest.raises(BackendUnavailable):
        async with opened(memos_rig_process):
            pass
    async with opened(memos_rig_process) as memory:  # the canary that got no vector is stored again
        assert (await memory.health()).status == "ok"


async def test_a_set_up_in_an_outage_of_the_embedder_costs_no_open_slot_its_canary(
    memos_rig_process: MemosProcess,
) -> None:
    def canaries() -> list[tuple[Any, ...]]:
        return [row for row in memos_rig_process.memories() if row[1].strip('"') == CANARY]

    async with opened(memos_rig_process) as memory:
        good = canaries()
        assert len(good) == 1
        with memos_rig_process.llm_fault("500", endpoint="embeddings"):
            for _ in range(2):
                with pytest.raises(BackendUnavailable):
                    async with opened(memos_rig_process):
                        pass
        assert canaries() == good
        assert texts(await ask(memory, "Where do I live?")) == []
        assert (await memory.health()).status == "ok"


@pytest.mark.parametrize("search_mode", ["fine", "mixture"])
async def test_a_way_to_search_that_finds_nothing_where_fast_does_is_an_error(
    memos_rig_process: MemosProcess, search_mode: str
) -> None:
    """The scripted model drops the second memory, and does not answer MemOS' question of what is missing."""
    async with opened(memos_rig_process, search_mode=search_mode, **FINE) as memory:
        for said in ("I live in Berlin.", "I work in Lyon."):
            await memory.after_turn(session_id="s", user=said)
        if search_mode == "fine":
            with pytest.raises(BackendUnavailable, match="search_mode: fine"):
                await ask(memory, "Where do I live?")
        else:
            assert "I live in Berlin." in texts(await ask(memory, "Where do I live?"))


# -- the server is not what the configuration says ------------------------------------------------------


async def test_a_database_that_ignores_filters_is_not_taken_for_one_that_filters(
    memos_rig_process: MemosProcess,
) -> None:
    with pytest.raises(ConfigError, match="graph_db"):
        async with opened(memos_rig_process, graph_db="neo4j-community"):
            pass
    async with opened(memos_rig_process, **FINE) as memory:
        await memory.after_turn(session_id="s", user="I live in Berlin.", context="home")
        assert memory.traits.cs_filtering == "soft"
        assert (await memory.health()).details["filters"] == "ignored"
        assert texts(await ask(memory, "Where do I live?", context="work")) == ["I live in Berlin."]


async def test_a_local_queue_is_not_taken_for_one_in_redis(memos_rig_process: MemosProcess) -> None:
    before = memos_rig_process.memories()
    with pytest.raises(ConfigError, match=r"scheduler: says redis"):
        async with opened(memos_rig_process, scheduler="redis"):
            pass
    assert memos_rig_process.memories() == before


# -- many -----------------------------------------------------------------------------------------------


async def test_a_full_index_loses_no_scope(memos_rig_process: MemosProcess) -> None:
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


async def test_many_scopes_at_once_never_mix(memos_rig_process: MemosProcess) -> None:
    scopes = [new_scope(f"p{number}") for number in range(32)]
    async with opened(memos_rig_process, scopes[0], **FAST) as memory:

        async def live(number: int) -> None:
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
