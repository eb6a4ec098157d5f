"""Single memories, feedback, reset: what MemOS says is looked at again, and no scope reaches another's."""

import pytest
from memos_support import ALICE, BOB, ask, event, opened, ready, verdict

from memory import (
    CapabilityNotSupported,
    InputError,
    IsolationError,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    ScopeError,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
)
from memory.adapter import BackendProtocolError


async def delete(slot, native_id, scope=ALICE, **fields):
    fields = {"operation": "delete", "native_id": native_id, **fields}
    mutate = slot.capability(SupportsNativeMutation)
    return await mutate.native_mutation(NativeMutationRequest(scope=scope, **fields))


async def test_a_row_of_another_user_in_the_answer_is_never_shown(double):
    async with opened(double, BOB) as slot:
        await slot.record_event(event("I like oolong tea.", scope=BOB))
        double.model.mixes_cubes = True
        with pytest.raises(IsolationError, match="cube_id"):
            await ask(slot)


async def test_a_delete_that_did_nothing_is_an_error(double):
    async with opened(double, async_mode="sync") as slot:
        (native_id,) = (await slot.record_event(event("I like oolong tea."))).native_ids
        double.model.undeletable = True
        with pytest.raises(BackendProtocolError, match="still there"):
            await delete(slot, native_id)
        double.model.undeletable = False
        receipt = await delete(slot, native_id)
        assert (receipt.status, receipt.native_ids) == ("committed", (native_id,))
        assert receipt.raw["data"] == {"status": "success"}
        with pytest.raises(ScopeError, match="native_id"):
            await delete(slot, native_id)


async def test_a_delete_waits_for_the_scheduler_which_would_store_the_memory_again(double):
    async with opened(double, idle_timeout_s=20) as slot:
        (raw,) = (await slot.record_event(event("I like oolong tea."))).native_ids
        with pytest.raises(ScopeError, match="native_id"):
            await delete(slot, raw)
        (entry,) = (await ask(slot)).entries
        await delete(slot, entry.native_id)
        assert (await ask(slot)).entries == ()
        assert (await ready(slot)).state == "ready", "what was deleted on purpose is not missed"


async def test_deletes_reach_the_scopes_own_memories_only(double):
    async with opened(double, BOB, async_mode="sync") as slot:
        (native_id,) = (await slot.record_event(event("I like oolong tea."))).native_ids
        with pytest.raises(ScopeError, match="another scope"):
            await delete(slot, native_id, scope=BOB)
        assert double.sent("/product/delete_memory") == []
        assert (await ask(slot)).entries


async def test_a_reset_believes_no_word_of_the_server(double):
    async with opened(double, BOB, async_mode="sync") as slot:
        await slot.record_event(event("I like oolong tea."))
        await slot.record_event(event("I like sencha tea.", scope=BOB))
        double.model.undeletable = True
        assert not (await slot.reset_scope(ALICE)).verified
        double.model.undeletable = False
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed, receipt.left) == (True, 1, ())
        assert (await ask(slot)).entries == ()
        assert len((await ask(slot, scope=BOB)).entries) == 1


async def test_a_reset_takes_what_others_put_into_the_cube(double):
    async with opened(double, async_mode="sync") as slot:
        await slot.record_event(event("I like oolong tea."))
        double.model.rows[-1].metadata["user_id"] = "somebody"
        receipt = await slot.reset_scope(ALICE)
    assert (receipt.verified, receipt.removed) == (True, 1)


async def test_a_reset_while_the_scheduler_works_is_not_verified(double):
    async with opened(double, idle_timeout_s=0.1) as slot:
        double.model.held = True
        await slot.record_event(event("I like oolong tea."))
        receipt = await slot.reset_scope(ALICE)
        assert not receipt.verified
        assert "scheduler" in receipt.left[0]
        double.model.held = False
        assert (await slot.reset_scope(ALICE)).verified


async def test_feedback_changes_memory_or_says_that_it_did_not(double):
    async with opened(double, async_mode="sync") as slot:
        feedback = slot.capability(SupportsFeedback)
        (native_id,) = (await slot.record_event(event("I like oolong tea."))).native_ids
        receipt = await feedback.apply_feedback(verdict(native_ids=(native_id,)))
        assert (receipt.status, len(receipt.native_ids), receipt.warnings) == ("committed", 1, ())
        assert "sencha" in (await ask(slot)).formatted_context
        double.model.model_down = True
        receipt = await feedback.apply_feedback(verdict())
        assert (receipt.status, receipt.native_ids) == ("unknown", ())
        assert "changed nothing" in receipt.warnings[0]


async def test_feedback_on_memories_that_were_replaced_is_not_lost(double):
    """One unknown id, and a MemOS server drops the whole feedback without a word."""
    async with opened(double) as slot:
        receipt = await slot.record_event(event("I like oolong tea."))
        await ready(slot)
        answer = await slot.capability(SupportsFeedback).apply_feedback(
            verdict(native_ids=receipt.native_ids)
        )
    assert answer.status == "committed"
    assert "1 of native_ids" in answer.warnings[0]


async def test_provenance_names_events_sources_and_times(double):
    async with opened(double, BOB, async_mode="sync") as slot:
        said = event("I like oolong tea.", context="home")
        (native_id,) = (await slot.record_event(said)).native_ids
        provenance = slot.capability(SupportsProvenance)
        answer = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=native_id))
        assert (answer.native_ids, answer.event_ids) == ((native_id,), (said.event_id,))
        assert answer.raw["memory"]["metadata"]["info"]["context"] == "home"
        with pytest.raises(ScopeError, match="native_id"):
            await provenance.provenance(ProvenanceRequest(scope=BOB, native_id=native_id))
        now = said.timestamp.replace(year=2100)
        before = ProvenanceRequest(scope=ALICE, since=said.timestamp, until=now)
        assert (await provenance.provenance(before)).native_ids == (native_id,)
        for missed in ({"since": now}, {"until": said.timestamp}):
            assert (await provenance.provenance(ProvenanceRequest(scope=ALICE, **missed))).native_ids == ()
        for created_at in ("soon", "2024-03-01T10:00:00"):
            double.model.rows[-1].metadata.update(created_at=created_at, updated_at=None)
            assert (await provenance.provenance(before)).native_ids == ()
        assert (await provenance.provenance(ProvenanceRequest(scope=ALICE))).native_ids == (native_id,)


async def test_the_inventory_counts_each_memory_once(double):
    async with opened(double, async_mode="sync") as slot:
        await slot.record_event(event("I like oolong tea."))
        await slot.record_event(event("I like sencha tea."))
        query = slot.capability(SupportsNativeQuery)

        async def native(operation, **arguments):
            request = NativeQueryRequest(scope=ALICE, operation=operation, arguments=arguments)
            return (await query.native_query(request)).raw

        assert await native("inventory") == {"UserMemory": 2}
        assert len((await native("get_memory"))["pref_mem"][0]["memories"]) == 2, "as PostgreSQL has it"
        with pytest.raises(CapabilityNotSupported, match="inventory"):
            await native("task_queue_status")
        with pytest.raises(InputError, match=r"arguments\.page"):
            await native("inventory", page=1)


async def test_no_request_names_the_route_that_starts_a_redis_server(double):
    async with opened(double) as slot:
        await slot.record_event(event("I like oolong tea."))
        await ready(slot)
        await slot.health()
        await slot.reset_scope(ALICE)
    paths = {request.path for request in double.requests}
    assert paths == {
        "/health",
        "/product/add",
        "/product/search",
        "/product/get_memory",
        "/product/delete_memory",
        "/product/scheduler/allstatus",
    }


async def test_the_key_is_sent_as_bearer(double):
    async with opened(double, api_key="sk-test"):
        pass
    assert {request.headers["authorization"] for request in double.requests} == {"Bearer sk-test"}
