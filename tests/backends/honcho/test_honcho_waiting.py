"""What Honcho does later: an empty queue is not the end of deriving, nor an answer the end of deleting."""

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from honcho_double import HonchoDouble
from honcho_model import Conclusion
from honcho_support import ADA, BOB, FACT, adapter_of, ask, event, slot_on, stored
from waits import held, until

from memory import (
    Message,
    SupportsReadiness,
)

NEVER = 1e9


async def _wait(slot, timeout_s=60.0):
    readiness = slot.capability(SupportsReadiness)
    return await readiness.wait_until_ready(ADA, timeout_s)


async def _look(slot):
    readiness = slot.capability(SupportsReadiness)
    return await readiness.readiness(ADA)


async def _fired(double):
    """Until the server has taken the request whose fault was ordered."""
    await until(lambda: double.faults.fired)


async def test_an_empty_queue_after_a_write_is_not_ready(double):
    double.model.enqueue_s = NEVER
    async with slot_on(double, quiet_period_s=1.0) as slot:
        await slot.record_event(event(1, FACT, Message(role="assistant", content="Noted.")))
        assert (await _look(slot)).state == "pending"
        double.model.hasten(0.15)
        answer = await _wait(slot)
        assert answer.state == "ready"
        assert answer.waited_ms is not None
        assert answer.waited_ms > 100
        assert "blue drawer" in (await ask(slot)).formatted_context
        newest = double.model.workspaces["r_xada"].conclusions[-1]
        assert answer.last_derived_at.isoformat().replace("+00:00", "Z") == newest.created_at
        assert (await _look(slot)).state == "ready"


@pytest.mark.thorough
async def test_a_session_that_is_held_back_is_pending_and_says_why():
    with HonchoDouble(batch_tokens=512) as double:
        async with slot_on(double, quiet_period_s=0.0) as slot:
            await slot.record_event(event(1))
            answer = await _wait(slot, 1.5)
            assert (answer.state, answer.pending_count) == ("pending", 1)
            assert "DERIVER_FLUSH_ENABLED" in answer.detail
            await slot.record_event(event(2, *["I own many boats. " * 10] * 30))
            assert (await _wait(slot)).state != "pending"


@pytest.mark.thorough
async def test_work_that_goes_on_is_pending(double):
    double.model.derive_s = NEVER
    async with slot_on(double, quiet_period_s=0.0) as slot:
        await slot.record_event(event(1))
        answer = await _wait(slot, 1.5)
        assert (answer.state, answer.pending_count) == ("pending", 1)
        assert "1 in progress" in answer.detail
        assert "DERIVER" not in answer.detail


@pytest.mark.thorough
async def test_processed_without_a_conclusion_is_unknown_however_often_asked(double):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        assert (await _wait(slot)).state == "ready"
        double.model.failing = True
        await slot.record_event(event(2, "I like tea."))
        for ask_again in (_wait, _look, _wait):
            answer = await ask_again(slot)
            assert (answer.state, "model failed" in answer.detail) == ("unknown", True)
        double.model.failing = False
        await slot.record_event(event(3, "I like rain."))
        answer = await _wait(slot)
        assert (answer.state, "from 1 of 3 messages" in answer.detail) == ("unknown", True)
        await slot.reset_scope(ADA)
        await slot.record_event(event(4, "I like rain."))
        assert (await _wait(slot)).state == "ready"


async def test_a_conclusion_in_one_session_speaks_for_no_other(double):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        await slot.record_event(event(2, "Is it?", session_id="s2"))
        answer = await _wait(slot)
        assert (answer.state, "from 1 of 2 messages" in answer.detail) == ("unknown", True)


@pytest.mark.thorough
async def test_messages_that_never_entered_the_queue_are_never_ready(double):
    """As where the API was killed between its answer and its background task."""
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        assert (await _wait(slot)).state == "ready"
        double.model.dying = True
        await slot.record_event(event(2, "I like tea."))
        double.model.dying = False
        await slot.record_event(event(3, "I like rain."))
        for ask_again in (_wait, _look, _wait):
            answer = await ask_again(slot)
            assert (answer.state, "never entered its queue" in answer.detail) == ("unknown", True)
    async with slot_on(double) as slot:
        for ask_again in (_wait, _look, _wait):
            answer = await ask_again(slot)
            assert (answer.state, "from 1 of 3 messages" in answer.detail) == ("unknown", True)
        await slot.record_event(event(4, "I like snow."))
        assert (await _wait(slot)).state == "unknown"


@pytest.mark.thorough
async def test_memory_is_not_ready_before_the_summary_is(double):
    """A summary is work of the session, and in no sender's queue."""
    double.model.summarise_s = 0.3
    async with slot_on(double, quiet_period_s=0.0) as slot:
        for number in range(10):
            await slot.record_event(
                event(number, f"I own {number} boats.", Message(role="assistant", content="Noted."))
            )
        answer = await _wait(slot)
        assert answer.state != "pending"
        assert double.model.workspaces["r_xada"].sessions["s1"].summary is not None


async def test_a_fresh_adapter_needs_quiet_because_it_counted_nothing(double):
    double.model.derive_s = 0.1
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
    async with slot_on(double, quiet_period_s=0.15) as slot:
        assert (await _look(slot)).state == "pending"
        answer = await _wait(slot)
        assert answer.state == "ready"
        assert answer.waited_ms is not None
        assert answer.waited_ms >= 150
        assert "blue drawer" in (await ask(slot)).formatted_context
        assert (await _look(slot)).state == "ready", "it has seen it idle"


async def test_a_workspace_without_sessions_is_ready_at_once(double):
    async with slot_on(double, quiet_period_s=NEVER) as slot:
        assert (await _look(slot)).state == "ready"
    assert double.model.workspaces == {}


@pytest.mark.thorough
async def test_a_write_under_way_is_pending_and_not_forgotten(double):
    async with slot_on(double, quiet_period_s=0.8) as slot:
        await slot.record_event(event(1))
        assert (await _wait(slot)).state == "ready"
        double.model.enqueue_s = 0.4
        with held(double, "POST */messages") as go_on:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slot.record_event, event(2, "I like tea."))
                await _fired(double)
                early = await _look(slot)
                assert (early.state, early.detail) == ("pending", "a write is still under way")
                go_on.set()
        assert (await _wait(slot)).state == "ready"
        assert "tea" in (await ask(slot)).formatted_context


async def test_what_only_the_assistant_said_needs_quiet_alone(double):
    async with slot_on(double, quiet_period_s=0.1) as slot:
        await slot.record_event(event(1, Message(role="assistant", content="Noted.")))
        assert (await _look(slot)).state == "pending", "it may have made a summary due"
        assert (await _wait(slot)).state == "ready"


@pytest.mark.thorough
async def test_a_reset_waits_until_everything_is_gone(double):
    double.model.delete_s = 0.15
    async with slot_on(double, BOB) as slot:
        await slot.record_event(event(0, "I am Bob.", scope=BOB))
        for number in range(3):
            await slot.record_event(event(number, session_id=f"s{number}"))
        await _wait(slot)
        workspace = double.model.workspaces["r_xada"]
        workspace.cards["ada"] = ["Name: Ada"]
        workspace.conclusions.append(
            Conclusion("dream", "ada dreams", "ada", None, "2026-01-01T00:00:00Z", "2026-01-01")
        )
        receipt = await slot.reset_scope(ADA)
        assert receipt.verified
        assert receipt.removed == 3 + 1 + 1, "messages, the conclusion of no session, the line of the card"
        assert receipt.left == ("the workspace and its peers, empty",)
        assert (stored(double), workspace.conclusions, workspace.cards) == ([], [], {"ada": []})
        assert list(double.model.workspaces) == ["r_xbob", "r_xada"]
        assert len(stored(double, "r_xbob")) == 1
        await slot.record_event(event(9, "I like tea."))
        assert (await _wait(slot)).state == "ready"
        seen = (await ask(slot, session_id="s1")).formatted_context
        assert "tea" in seen
        assert "drawer" not in seen


async def test_no_session_is_deleted_while_something_is_derived_from_it(double):
    """Honcho fails to delete it then, for good, and it can be neither used nor deleted any more."""
    double.model.derive_s, double.model.delete_s = 0.3, 0.0
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        with anyio.fail_after(20):
            assert (await slot.reset_scope(ADA)).verified
        assert (stored(double), double.model.workspaces["r_xada"].conclusions) == ([], [])
        await slot.record_event(event(2, "I like tea."))
        assert "drawer" not in (await ask(slot, session_id="s1")).formatted_context


async def test_a_worker_that_does_not_run_leaves_the_reset_unverified(double):
    double.model.delete_s = NEVER
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        adapter_of(slot)._reset_s = 0.5
        receipt = await slot.reset_scope(ADA)
        assert not receipt.verified
        assert receipt.left == ("what Honcho's worker has not deleted, for it does not run or has failed",)


async def test_resetting_what_was_never_written_makes_nothing(double):
    async with slot_on(double) as slot:
        receipt = await slot.reset_scope(ADA)
        assert (receipt.verified, receipt.removed, receipt.left) == (True, 0, ())
    assert double.model.workspaces == {}
