"""Promises of the slot that hold without a journal: ids, resets, turns of others, truth of health and of traces."""

from contextlib import closing

import anyio
import anyio.lowlevel
import pytest
from journals import open_store
from slot_support import ALICE, Lookup, Obedient, ask, event

from memory import (
    AdapterMode,
    BackendUnavailable,
    LifecycleError,
    MemorySlot,
    MemslotError,
    ScopeError,
    SupportsBulkIngest,
    Trace,
    WriteReceipt,
)
from memory.adapter import BackendRejected, SequentialBulk
from memory.slot import sending


def ids(adapter):
    return [row.event_id for row in adapter.rows]


async def test_an_event_that_was_written_is_not_sent_again():
    adapter = Obedient()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        first = await slot.record_event(event(1))
        again = await slot.record_event(event(1))
        assert (again.status, again.native_ids) == (first.status, first.native_ids)
        assert again.warnings[-1] == "recorded before; it was not sent again"
        assert ids(adapter) == ["e1"]
        await slot.reset_scope(ALICE)
        await slot.record_event(event(1))
    assert adapter.calls.count("e1") == 2, "a reset makes it new"


async def test_the_ids_that_a_slot_remembers_are_bounded(monkeypatch):
    monkeypatch.setattr(sending, "_REMEMBERED", 2)
    adapter = Obedient()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        for number in (1, 2, 3, 2, 1):
            await slot.record_event(event(number))
    assert adapter.calls == ["e1", "e2", "e3", "e1"]


async def test_an_event_without_an_answer_is_looked_up_before_it_is_sent_again():
    adapter = Lookup()
    adapter.next_write = [ConnectionResetError("lost")]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        assert (await slot.record_event(event(1))).status == "unknown"
        adapter.found = ("n1",)
        found = await slot.record_event(event(1))
    assert (found.status, found.native_ids) == ("committed", ("n1",))
    assert adapter.calls == ["e1"]


class Unsure(Obedient):
    """A reset of it gets no answer."""

    sure = False

    async def reset_scope(self, scope):
        if not self.sure:
            raise ConnectionResetError("lost")
        self.rows.clear()
        return await super().reset_scope(scope)


async def test_a_reset_without_an_answer_is_known_to_the_next_process_without_a_journal(tmp_path):
    adapter = Unsure()
    with closing(open_store(tmp_path)) as store:
        async with MemorySlot(adapter, scope=ALICE, store=store) as slot:
            await slot.record_event(event(1))
            with pytest.raises(MemslotError):
                await slot.reset_scope(ALICE)
            with pytest.raises(BackendUnavailable, match="its end is not known"):
                await slot.retrieve(ask())
        later = MemorySlot(adapter, store=store)
        with pytest.raises(BackendUnavailable, match="could not be finished"):
            await later.setup_scope(ALICE)
        with pytest.raises(BackendUnavailable, match="its end is not known"):
            await later.retrieve(ask())
        adapter.sure = True
        await later.setup_scope(ALICE)
        assert (await later.retrieve(ask())).formatted_context == ""
        await later.aclose()


CALLS = {
    "setup_scope": lambda slot: slot.setup_scope(ALICE),
    "set_mode": lambda slot: slot.set_mode(AdapterMode(read_only=True)),
    "record_event": lambda slot: slot.record_event(event(1)),
    "record_events": lambda slot: slot.capability(SupportsBulkIngest).record_events([event(1)]),
    "retrieve": lambda slot: slot.retrieve(ask()),
    "before_turn": lambda slot: slot.before_turn("tea", session_id="s"),
    "after_turn": lambda slot: slot.after_turn(session_id="s", user="tea"),
    "a view's after_turn": lambda slot: slot.for_scope(ALICE).after_turn(session_id="s", user="tea"),
    "keep": lambda slot: slot.delivery.keep(event(1)),
    "find_event": lambda slot: slot.delivery.find_event(event(1)),
    "reset_scope": lambda slot: slot.reset_scope(ALICE),
    "health": lambda slot: slot.health(),
    "aclose": lambda slot: slot.aclose(),
}


class Whole(SequentialBulk, Lookup):
    """A backend without a single checkpoint of its own."""

    record_event = Lookup.record_event


@pytest.mark.parametrize("call", CALLS)
async def test_other_tasks_have_their_turn_during_every_call(call):
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with MemorySlot(Whole(), scope=ALICE) as slot, anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        for _ in range(20):
            await CALLS[call](slot)
        assert turns - before >= 15
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"keep"}))  # without a journal it keeps nothing
async def test_every_call_from_another_event_loop_is_refused(call):
    async with MemorySlot(Whole(), scope=ALICE) as slot:
        with pytest.raises(LifecycleError, match="another event loop"), anyio.fail_after(20):
            await anyio.to_thread.run_sync(anyio.run, CALLS[call], slot)
        assert (await slot.record_event(event(2))).status == "committed"


@pytest.mark.parametrize("call", ["record_event", "record_events", "retrieve", "find_event", "reset_scope"])
async def test_every_call_for_a_scope_that_was_never_set_up_is_refused(call):
    async with MemorySlot(adapter := Whole()) as slot:
        with pytest.raises(ScopeError, match="not set up"):
            await CALLS[call](slot)
    assert adapter.calls == []


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (BackendRejected("no"), "1 write since the last success failed (BackendRejected)"),
        (ConnectionResetError("lost"), "1 write since the last success got no answer"),
    ],
)
async def test_health_says_that_writes_failed_until_one_succeeds(failure, says):
    adapter = Obedient()
    adapter.next_write = [failure]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        try:
            await slot.record_event(event(1))
        except BackendRejected:
            pass
        health = await slot.health()
        assert (health.status, says in health.warnings[0]) == ("degraded", True)
        assert ("the last record_event failed" in str(health.warnings)) == ("BackendRejected" in says)
        await slot.record_event(event(2))
        assert (await slot.health()).status == "ok"


async def test_the_trace_of_a_bulk_write_adds_up_its_receipts():
    counts = [name for name, field in Trace.model_fields.items() if field.annotation in (int, int | None)]
    counts = [name for name in counts if not name.startswith("llm_")]  # the slot counts these itself

    class Bulk(Obedient):
        async def record_events(self, events):
            return [
                WriteReceipt(
                    event_id=each.event_id,
                    status=status,
                    native_ids=(each.event_id,),
                    trace=Trace(
                        backend_name="obedient",
                        scope=ALICE,
                        native_operation="add",
                        **dict.fromkeys(counts, 2),
                    ),
                )
                for each, status in zip(events, ("committed", "queued", "committed"), strict=True)
            ]

    async with MemorySlot(Bulk(), scope=ALICE) as slot:
        receipts = await slot.capability(SupportsBulkIngest).record_events([event(n) for n in range(3)])
    trace = receipts[0].trace
    assert {name: getattr(trace, name) for name in counts} == dict.fromkeys(counts, 6)
    assert trace.consistency == "queued"
    assert trace.native_ids == ("e0", "e1", "e2")
