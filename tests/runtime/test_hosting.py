"""What every binding shares: a memory that is called from other threads and loops, and costs no turn."""

from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from memory import ConfigError, MemoryScope, MemorySlot, ScopeError, open_memory_sync
from memory.hosts._shared import spoken
from memory.runtime import HostTurns, TurnPolicy, turns_of
from memory.testing import FakeBackend, FakeNativeStore

ADA = MemoryScope(run_id="app", persona_id="ada")


@asynccontextmanager
async def turns(store, **policy):
    async with MemorySlot(FakeBackend(store), scope=ADA) as slot:
        turns_of(slot, TurnPolicy(recall_s=20.0, **policy))
        yield HostTurns(slot, "test")


async def test_calls_of_one_turn_share_one_recall_also_at_once():
    store = FakeNativeStore(latency_s=0.05)
    async with turns(store) as host, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(lambda: host.recall("t1", "Which tea?", session_id="s"))
    assert store.operations.count("search") == 1


async def test_a_recall_that_was_cancelled_may_be_asked_again():
    store = FakeNativeStore()
    async with turns(store) as host:
        store.faults.add("late", delay_s=60.0, endpoint="search")
        with anyio.move_on_after(0.05):
            await host.recall("t1", "Which tea?", session_id="s")
        assert (await host.recall("t1", "Which tea?", session_id="s")).failure is None


async def test_other_words_are_asked_for_anew_and_forgotten_ones_are_those_that_were_asked_for():
    """Hosts give a failed turn and the next one the same name, and lose a message to a summary."""
    store = FakeNativeStore()
    async with turns(store) as host:
        for said in ("Which tea?", "Which coffee?", ""):
            await host.recall("t1", said, session_id="s")
        await host.record("t1", session_id="s", user="", assistant="Oolong.")
    assert store.operations.count("search") == 2
    assert [row.text for row in store.rows.values()] == ["Which coffee?", "Oolong."]


@pytest.mark.parametrize("forgotten", [True, False])
async def test_a_turn_whose_memory_is_reset_before_it_ends_is_not_recorded(forgotten):
    store = FakeNativeStore()
    async with turns(store) as host:
        await host.recall("t1", "My boat is blue.", session_id="s")
        if forgotten:
            await host.memory.slot.reset_scope(ADA)
        recorded = await host.record("t1", session_id="s", user="My boat is blue.", assistant="Understood.")
        assert recorded is not forgotten
        assert host.memory.status()["not_recorded"] == 0
        await host.recall("t2", "Still there?", session_id="s")
        assert await host.record("t2", session_id="s", user="Still there?")
    assert ("My boat is blue." in [row.text for row in store.rows.values()]) is not forgotten


async def test_half_of_a_surrogate_pair_costs_neither_recall_nor_a_turn():
    store = FakeNativeStore()
    async with turns(store) as host:
        assert (await host.recall("t1", "Which \ud83d tea?", session_id="s")).failure is None
        assert await host.record("t1", session_id="s", user="Which \ud83d tea?", assistant="Half \ude00.")
        assert await host.record("t2", session_id="s", messages=spoken([("user", "Whole \ud83d.")]))
    assert [row.text for row in store.rows.values()] == ["Which ? tea?", "Half ?.", "Whole ?."]


async def test_a_turn_that_is_malformed_is_counted_and_one_in_which_nothing_was_said_is_not():
    async with turns(FakeNativeStore()) as host:
        assert not await host.record("t1", session_id="s", user=" ")
        assert not await host.record("t1", session_id="s")
        assert host.memory.status()["not_recorded"] == 0
        assert not await host.record("t1", session_id="s", user="Oolong.", turn_id="x" * 600)
        status = host.memory.status()
        assert status["not_recorded"] == 1
        assert "turn_id" in status["last_failure"]
        assert "Oolong" not in status["last_failure"]


async def test_what_a_thread_hands_over_while_the_loop_is_blocked_is_recorded_before_closing():
    store = FakeNativeStore()
    async with turns(store) as host:
        assert host.record_blocking("t1", session_id="s", user="I like oolong tea.", assistant="Noted.")
    assert [row.text for row in store.rows.values()] == ["I like oolong tea.", "Noted."]


async def test_draining_waits_for_what_comes_from_another_thread():
    """Not waited for, a host would end while a turn is on its way."""
    async with MemorySlot(FakeBackend(), scope=ADA) as slot:
        memory = turns_of(slot)
        sent = Future()
        memory.arriving.add(sent)
        assert not await memory.drain(0.05)
        sent.set_result(True)
        assert await memory.drain(20)


async def test_a_turn_is_recorded_once_whoever_hands_it_over():
    store = FakeNativeStore()
    async with turns(store) as host:
        await host.record("t1", session_id="s", user="ok")
        await anyio.to_thread.run_sync(lambda: host.record_blocking("t1", session_id="s", user="ok"))
        assert not await host.record("t2", session_id="s", user="  ")
    assert [row.text for row in store.rows.values()] == ["ok"]


@pytest.mark.parametrize("deletes", [True, False])
async def test_another_version_of_a_turn_replaces_the_first_or_names_it(deletes):
    store = FakeNativeStore(latency_s=0.05)
    backend = FakeBackend(store)
    if not deletes:
        backend.traits = replace(backend.traits, native_mutations={})
    async with MemorySlot(backend, scope=ADA) as slot:
        host = HostTurns(slot, "test")
        for answer in ("Sencha.", "Oolong."):
            await host.record("t1", session_id="s", user="Which tea?", assistant=answer)
            await anyio.sleep(0.01)  # the first version may still be on its way
        assert await host.memory.drain(20)
        assert (host.memory.status()["corrected"], host.memory.status()["not_recorded"]) == (deletes, 0)
    rows = list(store.rows.values())
    kept = ["Which tea?", "Oolong."]
    assert [row.text for row in rows] == (kept if deletes else ["Which tea?", "Sencha.", *kept])
    if not deletes:
        assert rows[-1].metadata["corrects"] == rows[0].labels["event_id"]


def test_a_program_without_an_event_loop_has_one_in_a_thread(tmp_path):
    config = {
        "memory": {
            "backend": "full_history",
            "data_dir": str(tmp_path),
            "scope": {"run_id": "app", "persona_id": "ada"},
        }
    }
    troubles = []
    with open_memory_sync(config) as memory:
        host = HostTurns(memory, "test")
        assert host.record_blocking("t1", session_id="one", user="I like oolong tea.")
    with open_memory_sync(config) as memory:
        turns_of(memory, on_trouble=lambda *words: troubles.append(words))
        host = HostTurns(memory, "test")
        assert "oolong" in host.recall_blocking("t2", "Which tea do I like?", session_id="two").section
    assert host.recall_blocking("t3", "Which tea?", session_id="two").section == ""
    assert [what for what, _ in troubles] == ["recall"]


async def test_all_bindings_of_a_memory_share_its_turns_which_end_with_it():
    store = FakeNativeStore()
    async with MemorySlot(FakeBackend(store), scope=ADA) as slot:
        turns = turns_of(slot, TurnPolicy(recall_s=20.0))
        assert turns_of(slot) is HostTurns(slot, "one").memory is HostTurns(slot, "two").memory is turns
        with pytest.raises(ConfigError, match="before its first binding"):
            turns_of(slot, TurnPolicy(recall_s=1.0))
        assert await HostTurns(slot, "one").record("t1", session_id="s", user="I like oolong tea.")
    assert [row.text for row in store.rows.values()] == ["I like oolong tea."]
    assert turns_of(slot).status()["recorded"] == 1


async def test_a_binding_takes_an_open_memory_and_a_person_or_says_what_is_wrong():
    with pytest.raises(ConfigError, match=r"'async with open_memory\(...\)' gives, not str"):
        turns_of("memslot.yaml")
    bob = MemoryScope(run_id="app", persona_id="bob")
    async with MemorySlot(FakeBackend(), scope=ADA) as slot:
        for named in ("bob", bob, lambda run: run, lambda run: bob):
            assert HostTurns(slot, "test", named).scope_of("bob") == bob
        assert HostTurns(slot, "test").scope_of("bob") == ADA
        with pytest.raises(ScopeError, match="returned None"):
            HostTurns(slot, "test", lambda run: None).scope_of("bob")
        with pytest.raises(ScopeError, match="blank"):
            HostTurns(slot, "test", " ")
    async with MemorySlot(FakeBackend()) as slot:
        with pytest.raises(ScopeError, match=r"set memory\.scope"):
            HostTurns(slot, "test", "bob")
        with pytest.raises(ScopeError):
            HostTurns(slot, "test")
