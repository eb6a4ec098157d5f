"""Cubes that scopes write to besides their own: what is stored where, and nothing half stored is called whole."""

from __future__ import annotations

from typing import Any

import pytest
from memos_double import MemosDouble
from memos_model import Row
from memos_support import ALICE, BOB, ask, event, opened, options, ready, verdict

from memory import (
    AdapterMode,
    MemorySlot,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    ScopeError,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
)
from memory.adapter import BackendRejected
from memory.doctor.runner import run_doctor

TEAM: dict[str, Any] = {"writable_cubes": ["team"], "allow_sharing": True}
FAST: dict[str, Any] = {**TEAM, "async_mode": "sync", "mode": "fast"}
TEXT = "I like oolong tea."
ADD = "POST /product/add"


def rows(double: MemosDouble, cube: str) -> list[Row]:
    return [row for row in double.model.rows if row.cube_id == cube]


def fail_second_add(double: MemosDouble, fault: str) -> None:
    double.faults.add("late", endpoint=ADD, delay_s=0.0)
    double.faults.add(fault, endpoint=ADD)


async def delete(slot: MemorySlot, native_id: str) -> None:
    mutation = slot.capability(SupportsNativeMutation)
    assert mutation is not None
    await mutation.native_mutation(
        NativeMutationRequest(scope=ALICE, operation="delete", native_id=native_id)
    )


# -- what the configuration may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"writable_cubes": ["team"]}, "allow_sharing: true"),
        ({"allow_sharing": True}, "writable_cubes"),
        ({**TEAM, "writable_cubes": ["run1.bob"]}, "a scope's own"),
        ({**TEAM, "writable_cubes": ["x" * 101]}, "over 100 characters"),
        ({**TEAM, "writable_cubes": ["a:b"]}, "letters, digits"),
        ({**TEAM, "writable_cubes": ["memslot-canary"]}, "memslot's own"),
        ({**TEAM, "writable_cubes": ["team", "team"]}, "twice"),
    ],
)
def test_what_would_share_unasked_or_reach_a_scopes_cube_is_refused(
    block: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        options(**block)


async def test_without_the_option_nothing_but_the_scopes_own_cube_is_written(double: MemosDouble) -> None:
    async with opened(double, async_mode="sync", mode="fast") as slot:
        await slot.record_event(event(TEXT))
    assert {row.cube_id for row in double.model.rows} == {"memslot-canary", "run1.alice"}


# -- writing and reading ----------------------------------------------------------------------------------


async def test_an_event_is_stored_in_every_cube_and_the_receipt_lists_all_ids(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        receipt = await slot.record_event(event(TEXT))
        (own,), (shared,) = rows(double, "run1.alice"), rows(double, "team")
        assert (receipt.status, receipt.native_ids) == ("committed", (own.id, shared.id))
        assert receipt.trace is not None
        assert receipt.trace.native_ids == receipt.native_ids
        assert (await ready(slot)).state == "ready"
        assert [entry.native_id for entry in (await ask(slot)).entries] == [own.id], "writing is not reading"
    assert "written_by" not in own.metadata["info"]
    assert shared.metadata["info"]["written_by"] == "run1.alice"
    assert shared.metadata["user_id"] == "team"


async def test_what_one_scope_writes_another_reads_where_both_are_configured(double: MemosDouble) -> None:
    async with opened(double, BOB, readable_cubes=["team"], **FAST) as slot:
        await slot.record_event(event(TEXT))
        own, shared = (await ask(slot)).entries
        assert (own.labels, shared.labels) == ((), (("cube", "team"),))
        (read,) = (await ask(slot, scope=BOB)).entries
        assert read == shared


@pytest.mark.parametrize("order", [["team", "lab"], ["lab", "team"]])
async def test_rows_come_in_the_order_of_the_cubes_asked_for(double: MemosDouble, order: list[str]) -> None:
    """MemOS searches cubes side by side and gives them as they are done."""
    block = {**FAST, "writable_cubes": order, "readable_cubes": order}
    async with opened(double, **block) as slot:
        await slot.record_event(event(TEXT))
        entries = (await ask(slot)).entries
    assert [entry.labels for entry in entries] == [(), *((("cube", cube),) for cube in order)]


async def test_a_queued_event_is_replaced_and_found_in_every_cube(double: MemosDouble) -> None:
    async with opened(double, **TEAM) as slot:
        receipt = await slot.record_event(event(TEXT))
        assert (receipt.status, len(receipt.native_ids)) == ("queued", 2)
        assert (await ready(slot)).state == "ready"
        for cube in ("run1.alice", "team"):
            (row,) = rows(double, cube)
            assert row.id not in receipt.native_ids
        assert rows(double, "team")[0].metadata["info"]["written_by"] == "run1.alice"


async def test_a_bulk_goes_to_every_cube(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        receipts = await bulk.record_events([event("I like sencha."), event(TEXT)])
    assert [(receipt.status, len(receipt.native_ids)) for receipt in receipts] == [("committed", 2)] * 2


# -- stored in one cube, and not in another ---------------------------------------------------------------


async def test_what_is_refused_by_the_first_cube_is_sent_to_no_other(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        double.faults.add("422", endpoint=ADD)
        with pytest.raises(BackendRejected):
            await slot.record_event(event(TEXT))
        assert (await ready(slot)).state == "ready"
    assert rows(double, "run1.alice") == rows(double, "team") == []


@pytest.mark.parametrize(
    ("fault", "message"), [("422", "not stored there"), ("reset", "may or may not be stored")]
)
@pytest.mark.parametrize("block", [FAST, TEAM], ids=["sync", "async"])
async def test_what_one_cube_has_and_another_lacks_is_unknown(
    double: MemosDouble, block: dict[str, Any], fault: str, message: str
) -> None:
    async with opened(double, **{**block, "writable_cubes": ["team", "lab"]}) as slot:
        fail_second_add(double, fault)
        receipt = await slot.record_event(event(TEXT))
        (own,) = rows(double, "run1.alice")
        assert (receipt.status, receipt.native_ids) == ("unknown", (own.id,))
        assert any(warning.startswith("cube team: ") and message in warning for warning in receipt.warnings)
        assert "cube lab: not sent to it" in receipt.warnings
    assert rows(double, "lab") == []


async def test_an_event_whose_answer_a_further_cube_lost_keeps_memory_from_being_ready(
    double: MemosDouble,
) -> None:
    async with opened(double, **FAST) as slot:
        fail_second_add(double, "reset")
        await slot.record_event(event(TEXT))
        answer = await ready(slot)
        assert (answer.state, "nothing is stored" in answer.detail) == ("unknown", True)


@pytest.mark.parametrize("which", [0, 1])
async def test_what_one_cube_stores_and_no_search_of_it_finds_is_pending(
    double: MemosDouble, which: int
) -> None:
    async with opened(double, **FAST) as slot:
        add, seen = double.model.add, []

        def half_blind(body: dict[str, Any]) -> Any:
            double.model.embedder_down = len(seen) == which
            seen.append(body)
            answer = add(body)
            double.model.embedder_down = False
            return answer

        double.model.add = half_blind  # type: ignore[method-assign]
        receipt = await slot.record_event(event(TEXT))
        assert (receipt.status, len(receipt.native_ids)) == ("pending", 2)
        assert len([warning for warning in receipt.warnings if "not found again" in warning]) == 1
        assert (await ready(slot)).state == "failed"


# -- readiness --------------------------------------------------------------------------------------------


async def test_memory_is_ready_once_every_cube_is(double: MemosDouble) -> None:
    async with opened(double, **TEAM) as slot:
        await slot.record_event(event(TEXT))
        finish(double)
        (shared,) = rows(double, "team")
        shared.metadata["tags"], shared.metadata["key"] = [], shared.memory[:10]
        for _ in range(2):  # a doubt does not go away by asking twice
            answer = await ready(slot)
            assert (answer.state, "in the shared cube team: the language" in answer.detail) == (
                "failed",
                True,
            )
        await slot.reset_scope(ALICE)
        assert (await ready(slot)).state == "ready"


def finish(double: MemosDouble) -> None:
    for task in double.model.queue:
        task.due = 0.0
    double.model.work()


async def test_the_whole_of_a_shared_cube_is_not_read_for_one_event(double: MemosDouble) -> None:
    """It holds what everybody wrote, and MemOS lists a cube whole; a search finds the event as well."""
    async with opened(double, **TEAM) as slot:
        for text in (TEXT, "I like sencha."):
            await slot.record_event(event(text))
            assert (await ready(slot)).state == "ready"
        await ready(slot)
    assert "team" not in {body["mem_cube_id"] for body in double.sent("/product/get_memory")}


async def test_what_others_wrote_to_a_shared_cube_is_not_this_scopes_failure(double: MemosDouble) -> None:
    async with opened(double, BOB, **TEAM) as slot:
        await slot.record_event(event("I like sencha.", scope=BOB))
        await ready(slot)
        (shared,) = rows(double, "team")
        shared.metadata["tags"], shared.metadata["key"] = [], shared.memory[:10]
        await slot.record_event(event(TEXT))
        assert (await ready(slot)).state == "ready"


@pytest.mark.thorough
async def test_with_redis_tasks_of_every_cube_are_waited_for() -> None:
    with MemosDouble(redis=True) as double:
        async with opened(double, scheduler="redis", **TEAM) as slot:
            await slot.record_event(event(TEXT))
            for task in double.model.tasks:
                if task.user_id == "team":
                    task.due += 4
            answer = await ready(slot, 1.5)
            assert (answer.state, "shared cubes" in answer.detail) == ("pending", True)
            assert answer.pending_count is None, "some may be of others"
            assert (await ready(slot)).state == "ready"


async def test_a_switch_to_read_only_waits_for_every_cube(double: MemosDouble) -> None:
    async with opened(double, **{**TEAM, "idle_timeout_s": 20}) as slot:
        receipt = await slot.record_event(event(TEXT))
        await slot.set_mode(AdapterMode(read_only=True))
        assert not {row.id for row in double.model.rows} & set(receipt.native_ids)
        before = double.state()
        assert (await slot.record_event(event("I like sencha."))).status == "skipped_read_only"
        assert double.state() == before


# -- nobody's memory but the scope's own is changed -------------------------------------------------------


@pytest.mark.parametrize("graph_db", ["postgres", "neo4j-community", "polardb"])
@pytest.mark.parametrize("block", [FAST, {**TEAM, "idle_timeout_s": 20}], ids=["sync", "async"])
async def test_a_reset_takes_back_what_the_scope_wrote_and_nothing_of_others(
    graph_db: str, block: dict[str, Any]
) -> None:
    with MemosDouble(graph_db=graph_db) as double:
        async with opened(double, BOB, **{**block, "readable_cubes": ["team"]}) as slot:
            await slot.record_event(event(TEXT))
            await slot.record_event(event("I like sencha.", scope=BOB))
            fill_as(double, "team", "Nobody of ours wrote this.")
            receipt = await slot.reset_scope(ALICE)
            assert (receipt.verified, receipt.removed, receipt.left) == (True, 2, ())
            assert rows(double, "run1.alice") == []
            stays = "".join(row.memory for row in rows(double, "team"))
            assert ["oolong" in stays, "sencha" in stays, "Nobody" in stays] == [False, True, True]
            assert len(rows(double, "run1.bob")) == 1
            assert (await ready(slot)).state == "ready"
            receipt = await slot.reset_scope(BOB)
            assert (receipt.verified, receipt.removed) == (True, 2)
        assert len(rows(double, "team")) == 1


def fill_as(double: MemosDouble, cube: str, text: str) -> None:
    """What another program stored there."""
    body = {"user_id": cube, "writable_cube_ids": [cube], "async_mode": "sync", "mode": "fast"}
    double.model.add({**body, "messages": [{"role": "user", "content": text}]})


async def test_a_memory_made_of_several_events_may_be_others_too_and_stays(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        await slot.record_event(event(TEXT))
        (shared,) = rows(double, "team")
        shared.metadata["sources"].append({"type": "chat", "message_id": "bobs-event#0"})
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, 1)
        assert receipt.left == ("1 memories in the shared cube team, made of more than one event",)
    assert rows(double, "team") == [shared]


async def test_what_a_shared_cube_does_not_give_back_leaves_a_reset_unverified(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        await slot.record_event(event(TEXT))
        own, double.model.undeletable = rows(double, "run1.alice"), True
        double.model.rows.remove(own[0])
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (False, 0)


async def test_a_scope_deletes_its_own_words_in_a_shared_cube_and_nobody_elses(double: MemosDouble) -> None:
    async with opened(double, BOB, **FAST) as slot:
        own, shared = (await slot.record_event(event(TEXT))).native_ids
        _, others = (await slot.record_event(event("I like sencha.", scope=BOB))).native_ids
        with pytest.raises(ScopeError, match="native_id"):
            await delete(slot, others)
        provenance, query = slot.capability(SupportsProvenance), slot.capability(SupportsNativeQuery)
        assert provenance is not None
        assert query is not None
        assert (await provenance.provenance(ProvenanceRequest(scope=ALICE))).native_ids == (own,)
        origin = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=shared))
        assert origin.raw["memory"]["metadata"]["info"]["written_by"] == "run1.alice"
        inventory = await query.native_query(NativeQueryRequest(scope=ALICE, operation="inventory"))
        assert inventory.raw == {"UserMemory": 1}
        await delete(slot, shared)
        assert [row.id for row in rows(double, "team")] == [others]
        assert len(rows(double, "run1.alice")) == 1
        await delete(slot, own)
        assert (await ready(slot)).state == "ready"


async def test_feedback_changes_the_scopes_own_cube_alone(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        own, shared = (await slot.record_event(event(TEXT))).native_ids
        feedback = slot.capability(SupportsFeedback)
        assert feedback is not None
        receipt = await feedback.apply_feedback(verdict(native_ids=(own, shared)))
        assert receipt.status == "committed"
        assert "1 of native_ids" in receipt.warnings[0]
        assert len(rows(double, "team")) == 1


# -- it is said -------------------------------------------------------------------------------------------


async def test_health_says_that_scopes_share(double: MemosDouble) -> None:
    async with opened(double, **FAST) as slot:
        health = await slot.health()
    assert health.status == "ok"
    assert health.details["writable_cubes"] == ["team"]
    assert any("allow_sharing" in warning and "team" in warning for warning in health.warnings)


async def test_the_doctor_passes_what_is_only_written_and_finds_what_is_read_as_well(
    double: MemosDouble,
) -> None:
    def configured(**block: Any) -> dict[str, Any]:
        block = {"url": double.url, "graph_db": "postgres", **FAST, **block}
        scope = {"run_id": "run1", "persona_id": "alice"}
        return {"memory": {"backend": "memos", "scope": scope, "backends": {"memos": block}}}

    written = await run_doctor(configured())
    outcomes = {check.name: (check.status, check.evidence) for check in written.checks}
    assert written.ok, outcomes
    assert "allow_sharing" in outcomes["health"][1]
    assert outcomes["reset"][0] == "passed"
    assert rows(double, "team") == [], "the doctor leaves nothing where others read"
    read = {
        check.name: check.status for check in (await run_doctor(configured(readable_cubes=["team"]))).checks
    }
    assert [read[name] for name in ("write", "isolation", "reset")] == ["passed", "failed", "passed"]
