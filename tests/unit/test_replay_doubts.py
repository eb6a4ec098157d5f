"""A replay says ``complete`` where every event is known to have arrived; a doubt does not end by asking twice."""

import pytest
from journals import keep, open_journal, wipe
from slot_support import ALICE, Lookup, Obedient, event

from memory import AdapterMode, BackendUnavailable, InputError, MemorySlot
from memory.adapter import ContextEntry
from memory.runtime._replay import replay

LOST = ConnectionResetError("lost")


@pytest.fixture
async def journal(tmp_path):
    with open_journal(tmp_path) as opened:
        await keep(opened, *[event(number, text=f"hello {number}") for number in range(4)])
        yield opened


async def moved(journal, adapter, **more):
    async with MemorySlot(adapter) as slot:
        report = await replay(journal, slot, "target", **more)
    (moved_scope,) = report.scopes
    return report.complete, moved_scope.earlier, moved_scope.written, len(moved_scope.unknown)


async def test_an_event_without_an_answer_stays_unknown_whoever_asks_again(journal):
    adapter = Obedient()
    adapter.next_write = [LOST]
    assert await moved(journal, adapter) == (False, 0, 4, 1)
    assert await moved(journal, adapter) == (False, 4, 0, 1)
    assert [row.event_id for row in adapter.rows] == ["e1", "e2", "e3"], (
        "it may be there, and is not sent again"
    )
    adapter.rows.clear()
    assert await moved(journal, adapter, anew=True) == (True, 0, 4, 0)
    assert await moved(journal, adapter) == (True, 4, 0, 0)


async def test_the_event_in_doubt_is_named_and_sent_again_only_where_that_is_asked_for(journal):
    adapter = Obedient()
    adapter.next_write = [LOST]
    async with MemorySlot(adapter) as slot:
        (scope,) = (await replay(journal, slot, "target")).scopes
        assert (scope.unknown, scope.resolved) == (("e0",), 0)
        adapter.next_write = [LOST]
        (scope,) = (await replay(journal, slot, "target", retry_unknown=True)).scopes
        assert (scope.unknown, scope.resolved) == (("e0",), 0), "again without an answer"
        report = await replay(journal, slot, "target", retry_unknown=True)
    (scope,) = report.scopes
    assert (report.complete, scope.unknown, scope.resolved, scope.earlier, scope.written) == (
        True,
        (),
        1,
        4,
        0,
    )
    assert [row.event_id for row in adapter.rows] == ["e1", "e2", "e3", "e0"]


async def test_a_doubt_is_settled_by_looking_where_that_can_be_done(journal):
    adapter = Lookup()
    there: set[str] = set()
    silent = True

    async def find_event(event):
        if silent:
            raise BackendUnavailable("down")
        return (event.event_id,) if event.event_id in there else None

    adapter.find_event = find_event
    adapter.next_write = [LOST, LOST]
    assert await moved(journal, adapter) == (False, 0, 4, 2)
    silent, there = False, {"e0"}
    before = list(adapter.rows)
    assert await moved(journal, adapter) == (True, 4, 0, 0)
    assert [row.event_id for row in adapter.rows[len(before) :]] == ["e1"], "what was not there"


async def test_a_doubt_goes_with_the_reset_of_its_scope_and_the_forgetting_of_its_person(journal):
    adapter = Obedient()
    for end in (lambda: wipe(journal, ALICE), None):
        adapter.next_write = [LOST]
        await moved(journal, adapter, anew=True)
        assert len(journal.unanswered("target", ALICE)) == 1
        if end is not None:
            await end()
            assert journal.unanswered("target", ALICE) == ()
            await keep(journal, *[event(10 + number, text="hello") for number in range(4)])
    journal.forget(ALICE.persona_id)
    assert journal.unanswered("target", ALICE) == ()


async def test_a_doubt_outlives_a_replay_that_failed_after_it(journal):
    adapter = Obedient()
    adapter.next_write = [LOST, BackendUnavailable("down", sent=False)]
    with pytest.raises(BackendUnavailable):
        await moved(journal, adapter)
    assert await moved(journal, adapter) == (False, 1, 3, 1)


async def test_what_is_looked_up_and_found_is_no_doubt(journal):
    adapter = Lookup()
    adapter.next_write = [LOST]

    async def find_event(event):
        return (event.event_id,) if event.event_id == "e0" and adapter.calls else None

    adapter.find_event = find_event
    assert await moved(journal, adapter) == (True, 0, 4, 0)


async def test_only_what_a_replay_before_may_have_sent_is_looked_up(journal):
    """A look-up costs as much as a write; where none had begun, there is nothing to find."""
    adapter = Lookup()
    asked = []

    async def find_event(event):
        asked.append(event.event_id)
        return None

    adapter.find_event = find_event
    adapter.next_write = [BackendUnavailable("down", sent=False)]
    with pytest.raises(BackendUnavailable):
        await moved(journal, adapter)
    assert asked == []
    assert await moved(journal, adapter) == (True, 0, 4, 0)
    assert asked == ["e0", "e1", "e2", "e3"], "the first piece of the one that failed"


async def test_nothing_is_called_written_by_a_target_that_is_read_only(journal):
    adapter = Obedient()
    async with MemorySlot(adapter) as slot:
        await slot.setup_scope(ALICE)
        await slot.set_mode(AdapterMode(read_only=True))
        with pytest.raises(InputError, match="read-only"):
            await replay(journal, slot, "target")
    assert adapter.calls == []
    assert journal.position("target", ALICE) == 0


async def test_only_events_with_words_are_asked_for(journal):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    silent = (
        event(9).messages[0].model_copy(update={"role": "assistant", "content": "", "tool_calls": (call,)})
    )
    await keep(journal, event(9).model_copy(update={"messages": (silent,)}))

    class Labels(Obedient):
        async def retrieve(self, request):
            found = await super().retrieve(request)
            rows = tuple(
                ContextEntry(
                    event.messages[0].content, event_ids=(event.event_id,), scope_ids={"id": "r:alice"}
                )
                for event in self.rows
            )
            return found.model_copy(update={"entries": rows})

    async with MemorySlot(Labels()) as slot:
        (scope,) = (await replay(journal, slot, "target")).scopes
    assert (scope.asked, scope.recalled) == (4, 4)
