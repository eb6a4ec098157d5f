"""mem0 on embedded Qdrant, the default: the real library, no network, no key."""

import json
from datetime import datetime, timedelta

import pytest
from mem0_support import (
    ALICE,
    BOB,
    NEEDS_MEM0,
    START,
    ask,
    coloured,
    event,
    found,
    histories,
    mutate,
    native,
    opened,
    stored,
)

from memory import MemoryScope, Message

pytestmark = NEEDS_MEM0


async def test_a_turn_comes_back_with_everything_that_was_said_about_it(tmp_path):
    async with opened(tmp_path) as slot:
        oolong_event = event(
            "I drink oolong.", scenario="tea", context="work", attribute="taste", metadata={"n": [1]}
        )
        receipt = await slot.record_event(oolong_event)
        result = await slot.retrieve(ask("Which oolong?"))
    (entry,), (row,) = result.entries, result.raw["results"]
    assert receipt.status == "committed"
    assert receipt.native_ids == (entry.native_id,)
    assert not receipt.warnings
    assert entry.timestamp == oolong_event.timestamp, "backdated to the event, not to the wall clock"
    assert entry.event_ids == (oolong_event.event_id,)
    assert entry.score == row["score"] == result.trace.top_score
    assert datetime.fromisoformat(row["metadata"].pop("stored_at")).tzinfo is not None
    assert row["metadata"] == {
        "event_id": oolong_event.event_id,
        "session_id": oolong_event.session_id,
        "turn_id": oolong_event.turn_id,
        "agent": "agent",
        "scenario": "tea",
        "context": "work",
        "attribute": "taste",
        "timestamp": oolong_event.timestamp.isoformat(),
        "ts_epoch": oolong_event.timestamp.timestamp(),
        "meta_n": "[1]",
    }
    assert json.loads(json.dumps(result.raw)) == result.raw
    assert result.trace.native_operation == "Memory.search"
    assert result.trace.cs_filtering == "hard"


async def test_top_k_is_the_budget_or_the_configured_one(tmp_path):
    async with opened(tmp_path, top_k=3) as slot:
        for number in range(6):
            await slot.record_event(event(f"tea number {number}"))
        assert len(await found(slot, "tea number")) == 3
        assert len(await found(slot, "tea number", max_items=5)) == 5


async def test_every_message_is_a_memory_of_its_speaker(tmp_path):
    said = (
        Message(role="user", content="Which tea?", name="Ann"),
        Message(role="assistant", content="Oolong tea."),
        Message(role="tool", content="tea: 3 kinds"),
    )
    async with opened(tmp_path) as slot:
        receipt = await slot.record_event(event(messages=said))
        entries = (await slot.retrieve(ask("tea"))).entries
    assert len(receipt.native_ids) == 3
    assert {entry.labels[0][1] for entry in entries} == {"Ann", "assistant", "tool"}


async def test_an_event_mem0_would_not_remember_is_not_a_silent_success(tmp_path):
    async with opened(tmp_path) as slot:
        receipt = await slot.record_event(event(messages=(Message(role="system", content="Be kind."),)))
        assert receipt.native_ids == ()
        assert "mem0 remembers nothing of this event" in receipt.warnings[-1]
        assert await stored(slot) == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"colour": "red"}, {"red"}),
        ({"n": 2}, {"green"}),
        ({"even": True}, {"green"}),
        ({"colour": {"ne": "red"}}, {"green", "blue"}),
        ({"n": {"gt": 1}}, {"green", "blue"}),
        ({"n": {"gte": 2, "lt": 3}}, {"green"}),
        ({"n": {"lte": 1.5}}, {"red"}),
        ({"colour": {"in": ["red", "blue"]}}, {"red", "blue"}),
        ({"colour": {"nin": ["red", "blue"]}}, {"green"}),
        ({"colour": {"contains": "green"}}, {"green"}),
        ({"day": {"gte": "2023-05-02"}}, {"green", "blue"}),
        ({"timestamp": {"gte": (START + timedelta(days=2)).isoformat()}}, {"green", "blue"}),
        ({"timestamp": (START + timedelta(days=2)).isoformat()}, {"green"}),
        ({"colour": "red", "n": {"lt": 3}}, {"red"}),
        ({"colour": "red", "n": 2}, set()),
        ({"nowhere": {"ne": "x"}}, set()),
        ({"role": "user", "colour": "blue"}, {"blue"}),
    ],
)
async def test_filters_narrow(tmp_path, filters, expected):
    async with opened(tmp_path) as slot:
        await coloured(slot)
        assert {text.split()[1] for text in await found(slot, "mug", filters=filters)} == expected


async def test_cs_fields_are_required_of_every_row(tmp_path):
    async with opened(tmp_path) as slot:
        await coloured(slot)
        assert len(await found(slot, "mug", context="work")) == 2
        assert await found(slot, "mug", context="holiday") == []
        assert await found(slot, "mug", context="*") == [], "a wildcard of mem0, literal here"
        assert len(await found(slot, "mug", context="work", filters={"cross_context": True})) == 3


HOSTILE = [
    MemoryScope(run_id="run1", persona_id="alice", agent_id="agent"),
    MemoryScope(run_id="run1", persona_id="alice", backend_namespace="agent"),
    MemoryScope(run_id="run1", persona_id="Alice"),
    MemoryScope(run_id="run1", persona_id=" alice"),
    MemoryScope(run_id="run1:%n:agent", persona_id="alice"),
    MemoryScope(run_id="alice", persona_id="run1"),
    MemoryScope(run_id="run1", persona_id="alice/../bob"),
    MemoryScope(run_id="run1", persona_id="乌龙"),
    MemoryScope(run_id="run1", persona_id="a" * 512),
    MemoryScope(run_id="run1", persona_id="a" * 511 + "b"),
    BOB,
]


async def test_reset_clears_one_scope_and_what_mem0_would_leave(tmp_path):
    async with opened(tmp_path, BOB, *HOSTILE[:2]) as slot:
        for scope in (ALICE, BOB, *HOSTILE[:2]):
            await slot.record_event(event("one secret", "two secrets", scope=scope))
        await mutate(slot, "delete", (await stored(slot))[0]["id"])
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed, receipt.left) == (True, 1, ())
        assert await stored(slot) == []
        for scope in (BOB, *HOSTILE[:2]):
            assert len(await stored(slot, scope)) == 2
        await slot.record_event(event("a fresh start"))
        assert await found(slot, "secret fresh") == ["a fresh start"]
    history = histories(tmp_path, "SELECT new_memory, old_memory FROM history")
    secrets = [("one secret", None), ("two secrets", None)]
    assert sorted(history) == sorted([*secrets * 3, ("a fresh start", None)]), (
        "of the others, and what is new"
    )


async def entities(slot, scope):
    """mem0's entities of a scope, read from its own store."""
    ids = slot.native_scope(scope)
    rows = await slot._adapter.worker.run(lambda: native(slot, scope).entity_store.list(ids, top_k=100)[0])
    return {row.payload["data"] for row in rows}


async def test_entities_of_an_earlier_process_go_as_well(tmp_path):
    """mem0 leaves them, because it opens its entity store only with the first new entity (mem0 #7226). Linked
    here by mem0's own call, which it makes for every entity spaCy finds."""
    async with opened(tmp_path, BOB) as slot:
        adapter = slot._adapter
        for scope in (ALICE, BOB):
            receipt = await slot.record_event(event("I met Ada.", "I met Grace.", scope=scope))
            for name, native_id in zip(("Ada", "Grace"), receipt.native_ids, strict=True):
                ids = slot.native_scope(scope)
                link = native(slot, scope)._upsert_entity
                await adapter.worker.run(
                    lambda link=link, name=name, id=native_id, ids=ids: link(name, "person", id, ids)
                )
        assert await entities(slot, ALICE) == {"Ada", "Grace"}
    async with opened(tmp_path, BOB) as slot:
        (native_id,) = [row["id"] for row in await stored(slot) if "Ada" in row["memory"]]
        await mutate(slot, "delete", native_id)
        assert await entities(slot, ALICE) == {"Grace"}
    async with opened(tmp_path, BOB) as slot:
        assert (await slot.reset_scope(ALICE)).verified
        assert await entities(slot, ALICE) == set()
        assert await entities(slot, BOB) == {"Ada", "Grace"}
