"""Readiness message by message: a conclusion speaks for the messages it was drawn from, and for no other."""

import pytest
from both_loops import anyio_backend as anyio_backend
from honcho_support import ADA, event, sent, slot_on
from variants import plain

from memory import (
    Message,
    SupportsBulkIngest,
    SupportsReadiness,
)

NOTED = Message(role="assistant", content="Noted.")


async def _wait(slot, timeout_s=60.0):
    readiness = slot.capability(SupportsReadiness)
    return await readiness.wait_until_ready(ADA, timeout_s)


def _fail(double, kind, fails):
    setattr(double.model, kind, fails)


async def _say(slot, *numbers, one_by_one=None, **fields):
    for number in numbers:
        await slot.record_event(event(number, f"I own {number} boats.", NOTED, **fields))
        if one_by_one is not None:
            one_by_one.model.advance(to_the_end=True)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", plain("failing", "mute", of=["failing", "mute", "dying"]))
async def test_one_good_turn_does_not_vouch_for_five_lost_ones(double, kind):
    async with slot_on(double) as slot:
        _fail(double, kind, True)
        await _say(slot, 1, 2, 3, 4, 5)
        if kind != "dying":
            double.model.advance(to_the_end=True)
        _fail(double, kind, False)
        await _say(slot, 6)
        for _ in range(2):
            answer = await _wait(slot, 25.0)
            assert (answer.state, "from 5 of 6 messages" in answer.detail) == ("unknown", True), answer
    async with slot_on(double) as slot:  # a fresh process knows no more, and says no more
        answer = await _wait(slot)
        assert (answer.state, "from 5 of 6 messages" in answer.detail) == ("unknown", True), answer


async def test_totals_that_compensate_prove_nothing(double):
    """Rows are purged from the queue, and another client's rows come in their place."""
    async with slot_on(double) as slot, slot_on(double) as another:
        await _say(slot, 1)
        assert (await _wait(slot)).state == "ready"
        double.model.dying = True
        await _say(slot, 2)  # stored, and never in the queue
        double.model.dying = False
        await _say(another, 3)
        answer = await _wait(slot)
        assert (answer.state, "from 1 of 3 messages" in answer.detail) == ("unknown", True)


@pytest.mark.thorough
async def test_everything_derived_is_ready_also_to_a_fresh_process(double):
    """With another workspace's messages between, in several sessions."""
    async with slot_on(double) as slot, slot_on(double) as another:
        await _say(slot, *range(12), one_by_one=double)
        await _say(slot, *range(20, 23), session_id="s2", one_by_one=double)
        for number in range(30, 36):
            await _say(slot, number, session_id="s3")
            await _say(another, number, session_id="s4")
            double.model.advance(to_the_end=True)
        assert (await _wait(slot)).state == "ready"
    async with slot_on(double) as slot:
        assert (await _wait(slot)).state == "ready"


@pytest.mark.thorough
async def test_a_long_session_costs_few_requests_more_for_each_new_message(double):
    async with slot_on(double) as slot:
        await _say(slot, *range(40), one_by_one=double)
        assert (await _wait(slot)).state == "ready"
        await _say(slot, 41)
        double.model.advance(to_the_end=True)
        before = len(double.requests)
        assert (await _wait(slot)).state == "ready"
        assert sum(call.startswith("POST conclusions") for call in sent(double, before)) < 12


async def test_purged_rows_take_nothing_from_what_is_derived(double):
    async with slot_on(double) as slot:
        await _say(slot, 1)
        double.model.advance(to_the_end=True)
        double.model.purge()
        assert (await _wait(slot)).state == "ready"


async def test_a_server_whose_conclusions_name_nothing_is_unknown(double):
    async with slot_on(double) as slot:
        await _say(slot, 1, 2)
        double.model.advance(to_the_end=True)
        for conclusion in double.model.workspaces["r_xada"].conclusions:
            conclusion.message_ids = ()
        assert (await _wait(slot)).state == "unknown"


async def test_a_conclusion_from_several_messages_vouches_for_none_of_them(double):
    """The model was given four turns at once, and drew a conclusion from one; nothing tells which."""
    async with slot_on(double) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        await bulk.record_events([event(number, f"I own {number} boats.") for number in range(1, 5)])
        for _ in range(2):
            answer = await _wait(slot)
            assert (answer.state, "from 4 of 4 messages" in answer.detail) == ("unknown", True)
            assert "given several at once" in answer.detail
        await _say(slot, 5, one_by_one=double)
        assert "from 4 of 5 messages" in (await _wait(slot)).detail


async def test_a_conclusion_from_several_messages_hides_none_that_names_one(double):
    async with slot_on(double) as slot:
        await _say(slot, 1, 2, 3, one_by_one=double)
        conclusions = double.model.workspaces["r_xada"].conclusions
        for conclusion, numbers in zip(conclusions, [(1,), (1200, 1201), (9000,)], strict=True):
            conclusion.message_ids = numbers
        assert "from 1 of 3 messages" in (await _wait(slot)).detail
