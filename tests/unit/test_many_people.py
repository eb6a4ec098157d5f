"""One slot for many people, for code that does not await, and for hosts that still show the conversation."""

import threading
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest
from slot_support import ALICE, BOB, Obedient, event
from waits import MAX_WAIT_S

from memory import (
    BackendUnavailable,
    LifecycleError,
    MemoryScope,
    MemorySlot,
    RetrieveRequest,
    ScopeError,
    open_memory_sync,
)
from memory.testing import FakeBackend

HISTORY = {"memory": {"condition": "full_history", "conditions": {"full_history": {}}}}


class Counting(Obedient):
    def __init__(self):
        super().__init__()
        self.set_up = []
        self.fail = 0

    async def setup_scope(self, scope):
        await anyio.lowlevel.checkpoint()
        if self.fail:
            self.fail -= 1
            raise ConnectionRefusedError("down")
        self.set_up.append(scope.persona_id)


def person(number):
    return f"p{number}"


async def test_a_hundred_people_share_a_slot_and_see_their_own():
    async with MemorySlot(Counting(), scope=ALICE) as slot:
        people = [slot.for_scope(persona_id=person(number)) for number in range(100)]
        for memory in people:
            await memory.after_turn(session_id="s", user=f"I am {memory.scope.persona_id}.")
        sections = [await memory.before_turn("who am I?", session_id="s") for memory in people]
    assert all(f"I am {person(number)}." in section for number, section in enumerate(sections))
    assert all(section.count("I am") == 1 for section in sections)


async def test_a_scope_is_set_up_at_its_first_use_and_once():
    adapter = Counting()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        bob = slot.for_scope(persona_id="bob")
        assert adapter.set_up == ["alice"]
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: bob.before_turn("tea", session_id="s"))
    assert adapter.set_up == ["alice", "bob"]


async def test_a_set_up_that_failed_is_tried_again():
    adapter = Counting()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        bob = slot.for_scope(persona_id="bob")
        adapter.fail = 1
        with pytest.raises(BackendUnavailable):
            await bob.before_turn("tea", session_id="s")
        assert await bob.before_turn("tea", session_id="s") == ""


async def test_without_a_scope_to_begin_from_the_ids_must_be_given():
    async with MemorySlot(Counting()) as slot:
        with pytest.raises(ScopeError, match="no scope"):
            slot.for_scope(persona_id="bob")
        assert slot.for_scope(persona_id="bob", run_id="r").scope == BOB
        assert repr(slot.for_scope(BOB)) == "<memory of r:bob on obedient>"


async def test_what_names_no_session_stays():
    async with MemorySlot(Obedient(), scope=ALICE) as slot:
        await slot.record_event(event(1))
        request = RetrieveRequest(query="x", scope=ALICE, session_id="s", exclude_session=True)
        assert len((await slot.retrieve(request)).entries) == 1


def test_code_that_does_not_await_has_a_memory(tmp_path):
    with open_memory_sync(HISTORY, scope=ALICE, data_dir=tmp_path) as memory:
        assert memory.before_turn("tea", session_id="s") == ""
        memory.after_turn(session_id="s", user="I like oolong.", assistant="Noted.")
        bob = memory.for_scope(persona_id="bob")
        bob.after_turn(session_id="s", user="I like coffee.")
        assert "oolong" in memory.before_turn("tea", session_id="t")
        assert "oolong" not in bob.before_turn("tea", session_id="t")
        assert memory.run(lambda slot: slot.health()).status == "ok"
        assert memory.reset().verified
        assert memory.before_turn("tea", session_id="t") == ""
        assert "coffee" in bob.before_turn("x", session_id="t")
    for closed in (memory, bob):
        with pytest.raises(LifecycleError, match="this memory is closed"):
            closed.before_turn("tea", session_id="s")


def test_threads_share_a_blocking_memory(tmp_path):
    failures = []
    with open_memory_sync(HISTORY, scope=ALICE, data_dir=tmp_path) as memory:

        def talk(number):
            mine = memory.for_scope(persona_id=person(number))
            for turn in range(5):
                mine.after_turn(session_id="s", user=f"I am person {number}, turn {turn}")
            section = mine.before_turn("x", session_id="t")
            if section.count(f"I am person {number},") != 5 or section.count("I am") != 5:
                failures.append(section)

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_an_error_arrives_where_the_call_was_made(tmp_path):
    before = set(threading.enumerate())
    with open_memory_sync(HISTORY, data_dir=tmp_path) as memory, pytest.raises(ScopeError, match="no scope"):
        memory.before_turn("tea", session_id="s")
    for begun in set(threading.enumerate()) - before:
        begun.join(MAX_WAIT_S)
        assert not begun.is_alive(), f"{begun.name} is left behind"
    assert MemoryScope(run_id="r", persona_id="x")


async def test_a_person_is_named_by_an_id_as_people_have_it():
    async with MemorySlot(FakeBackend(), scope=MemoryScope(run_id="r", persona_id="ada")) as slot:
        number = UUID(int=7)
        found = [slot.for_scope(each).scope.persona_id for each in ("bob", 7, number)]
        assert found == ["bob", "7", str(number)]
        assert {slot.for_scope(each).scope.run_id for each in ("bob", 7)} == {"r"}
