"""Whether memory is ready, and when the slot may become read-only: by the scheduler, and by what is found."""

import anyio
import pytest
from memos_double import MemosDouble
from memos_support import ALICE, ask, event, opened, ready

from memory import (
    AdapterMode,
    BackendTimeout,
    NativeMutationRequest,
    SupportsNativeMutation,
    SupportsReadiness,
)
from memory.adapter import BackendRejected
from memory.backends.memos.client import CANARY


async def test_while_the_local_queue_works_nothing_is_ready(double):
    async with opened(double) as slot:
        double.model.held = True
        await slot.record_event(event("I like oolong tea."))
        answer = await ready(slot, 1.5)
        assert answer.state == "pending"
        assert answer.pending_count is None, "the count is of all users"
        assert "all users" in answer.detail
        assert answer.waited_ms >= 1400


async def test_a_task_that_is_handed_over_is_not_forgotten(double):
    """Ten times in sixty a real server counted none between taking a task and starting it."""
    async with opened(double, idle_timeout_s=0.3) as slot:
        double.model.held = True
        await slot.record_event(event("I like oolong tea."))
        double.model.handing_over = True
        assert (await slot.capability(SupportsReadiness).readiness(ALICE)).state == "pending"
        double.model.handing_over = True
        with pytest.raises(BackendTimeout, match="scheduler"):
            await slot.set_mode(AdapterMode(read_only=True))


async def test_a_moment_without_any_memory_is_waited_out(double):
    """Between the raw memory and what replaces it there may be neither."""
    async with opened(double) as slot:
        await slot.record_event(event("I like oolong tea."))
        await ready(slot)
        row = double.model.rows.pop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_later, 0.05, double.model.rows.append, row)
            assert (await ready(slot)).state == "ready"


async def _later(seconds, call, *arguments):
    await anyio.sleep(seconds)
    call(*arguments)


async def test_health_counts_the_tasks_of_all_users():
    for redis in (True, False):
        with MemosDouble(redis=redis) as double:
            double.model.held = True
            async with opened(double) as slot:
                await slot.record_event(event("I like oolong tea."))
                assert (await slot.health()).details["tasks_under_way"] == 1


async def test_a_memory_that_the_scheduler_lost_is_not_ready(double):
    async with opened(double) as slot:
        await slot.record_event(event("I like sencha."))
        await ready(slot)
        double.model.loses_raw = True
        await slot.record_event(event("I like oolong tea."))
        answer = await ready(slot)
        assert (answer.state, "of 1 event nothing is stored" in answer.detail) == ("unknown", True)
        double.model.loses_raw = False
        await slot.record_event(event("I like rooibos."))
        assert (await ready(slot)).state == "unknown", "a doubt is not forgotten for what came after"
        await slot.reset_scope(ALICE)
        assert (await ready(slot)).state == "ready"


async def test_with_a_dead_model_nothing_is_ready_for_whoever_asks(double):
    """The raw text stays and is found: figures would be better than with a model that works."""
    async with opened(double) as slot:
        await slot.record_event(event("I like sencha."))
        assert (await ready(slot)).state == "ready"
        double.model.model_down = True
        await slot.record_event(event("I like oolong tea."))
        await ready(slot)
        double.model.model_down = False
        await slot.record_event(event("I like rooibos."))
        answer = await ready(slot)
        assert (answer.state, "language model" in answer.detail) == ("failed", True)
        assert "1 of 3 memories" in answer.detail
        assert (await ready(slot)).state == "failed"
    async with opened(double) as slot:
        assert (await ready(slot)).state == "failed", "a new process sees it as well"


async def test_each_event_must_be_found_not_only_the_last(double):
    async with opened(double, async_mode="sync", mode="fast") as slot:
        double.model.embedder_down = True
        await slot.record_event(event("I like sencha."))
        double.model.embedder_down = False
        await slot.record_event(event("I like oolong tea."))
        answer = await ready(slot)
        assert (answer.state, "not among the first" in answer.detail) == ("unknown", True)


async def test_what_the_scheduler_never_replaced_is_not_ready(double):
    """A server that was restarted has lost its local queue; the raw memories stay as they are."""
    async with opened(double) as slot:
        for _ in range(2):  # the second time it is found
            await slot.record_event(event("I like sencha.", event_id="e1"))
        double.model.queue.clear()
        answer = await ready(slot)
        assert (answer.state, "still as sent" in answer.detail) == ("unknown", True)
        (entry,) = (await ask(slot)).entries
        await delete_memory(slot, entry.native_id)
        assert (await ready(slot)).state == "ready", "what was deleted is not missed"


async def delete_memory(slot, native_id):
    mutation = slot.capability(SupportsNativeMutation)
    await mutation.native_mutation(
        NativeMutationRequest(scope=ALICE, operation="delete", native_id=native_id)
    )


async def test_an_event_that_was_refused_is_not_missed(double):
    async with opened(double) as slot:
        double.faults.add("422", endpoint="POST /product/add")
        with pytest.raises(BackendRejected):
            await slot.record_event(event("I like oolong tea."))
        assert (await ready(slot)).state == "ready"


async def test_an_event_whose_answer_was_lost_is_asked_for(double):
    async with opened(double) as slot:
        double.faults.add("lost", endpoint="POST /product/add")
        assert "look-up" in (await slot.record_event(event("I like oolong tea."))).warnings[0]
        assert (await ready(slot)).state == "ready"
        double.faults.add("reset", endpoint="POST /product/add")
        assert (await slot.record_event(event("I like sencha tea."))).status == "unknown"
        assert (await ready(slot)).state == "unknown"


async def test_stored_and_not_found_is_failed(double):
    async with opened(double) as slot:
        await slot.record_event(event("I like oolong tea."))
        double.model.embedder_down = True
        answer = await ready(slot)
        assert (answer.state, "embedder" in answer.detail) == ("failed", True)
    async with opened_while_down(double) as slot:
        assert (await ready(slot)).state == "failed"


def opened_while_down(double):
    """A slot that has written nothing itself; its canary answers_probe, the scope's memories have no vector."""
    double.model.embedder_down = False
    for row in double.model.rows:
        row.embedded = row.cube_id == CANARY
    return opened(double)


async def test_what_an_earlier_process_wrote_is_ready_where_it_can_be_found(double):
    async with opened(double) as slot:
        assert (await ready(slot)).detail == "nothing is stored"
        await slot.record_event(event("I like oolong tea."))
        await ready(slot)
    async with opened(double) as slot:
        assert (await ready(slot)).detail == "what is stored is found"


async def test_becoming_read_only_waits_for_the_scheduler(double):
    async with opened(double, idle_timeout_s=20) as slot:
        raw = await slot.record_event(event("I like oolong tea."))
        await slot.set_mode(AdapterMode(read_only=True))
        assert all(row.id not in raw.native_ids for row in double.model.rows), (
            "the raw memory was still there"
        )


async def test_no_more_than_four_requests_are_under_way(double):
    """Whoever asks: readiness and health do not pass the slot's own limit."""
    async with opened(double) as slot:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(slot.health)
        assert double.connections <= 4


async def test_a_scheduler_that_does_not_end_is_told_and_the_slot_is_read_only_all_the_same(double):
    async with opened(double, idle_timeout_s=0.1) as slot:
        double.model.held = True
        await slot.record_event(event("I like oolong tea."))
        with pytest.raises(BackendTimeout, match="scheduler"):
            await slot.set_mode(AdapterMode(read_only=True))
        assert slot.read_only
