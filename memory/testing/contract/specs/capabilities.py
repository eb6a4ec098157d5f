"""The declared, offered and working capabilities are the same set (DESIGN 4 and 5; spec 5.4, 9.6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memory import (
    FeedbackReceipt,
    InputError,
    MemoryScope,
    ProvenanceRequest,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsProvenance,
    SupportsReadiness,
)
from memory.adapter import ContextEntry
from memory.contract.adapter import missing_methods
from memory.testing.contract._kit import STORED, Kit, as_json, raises, unique_word
from memory.testing.contract._spec import NotRun, of_capability

Calls = list[Callable[[], Awaitable[Any]]]
_LESS = "do not declare feedback: leave apply_feedback out"


def calls_about(kit: Kit, scope: MemoryScope, entries: Sequence[ContextEntry]) -> Calls:
    """The offered calls of provenance, feedback and mutations about these entries."""
    slot, ids = kit.slot, tuple(entry.native_id for entry in entries if entry.native_id)
    mutate, provenance = slot.capability(SupportsNativeMutation), slot.capability(SupportsProvenance)
    feedback = slot.capability(SupportsFeedback)
    calls: Calls = []
    if mutate is not None:
        calls += [partial(mutate.native_mutation, each) for each in kit.declared.mutations(scope, entries)]
    if provenance is not None:
        request = ProvenanceRequest(scope=scope, native_id=next(iter(ids), None))
        calls.append(partial(provenance.provenance, request))
    if feedback is not None:
        calls.append(partial(feedback.apply_feedback, kit.feedback(scope=scope, native_ids=ids)))
    return calls


@of_capability("describe the capabilities that some configuration offers", "implement what is described")
async def the_plugins_description_is_true(kit: Kit) -> None:
    """DESIGN 6: the description for listings equals the traits of the loaded plugin."""
    described = kit.aids.described
    if described is None:
        raise NotRun("not tested", "described: without a configuration nothing says what the plugin declares")
    assert described.name == kit.slot.backend_name, "the description's name is not the adapter's"
    as_described = described.kind == kit.slot.traits.kind or kit.slot.traits.equivalent_control
    assert as_described, "the description's kind is not the adapter's"
    undeclared = kit.slot.capabilities() - described.capabilities
    assert not undeclared, f"offered and not described: {sorted(undeclared)}"
    absent = missing_methods(kit.adapter, described.capabilities)
    assert not absent, f"described, not withheld by configuration, and absent: {absent}"
    assert described.summary, "a listing needs one line of summary"


@of_capability(
    "prove readiness by what can be found, not by an empty queue",
    "answer unknown where the backend cannot tell",
)
async def ready_means_retrievable(kit: Kit) -> None:
    """DESIGN 4: an empty queue is not readiness. ``ready`` is a promise, and ``unknown`` is honest."""
    readiness = kit.needs(SupportsReadiness)
    names = [f"ready{number}" for number in range(4)]
    for name in names:
        await kit.write(name)
        answer = await readiness.readiness(kit.scope)
        if answer.state == "ready" and kit.recalls_writes:
            assert await kit.recalls(name), "ready was said too early"
    answer = await readiness.wait_until_ready(kit.scope, kit.declared.ready_timeout_s)
    assert answer.state in ("ready", "unknown"), answer.detail
    for name in names if answer.state == "ready" else ():
        await kit.assert_recalled(name, f"ready was said, and {name} is not recalled as declared")


@of_capability(
    "answer one receipt for each event, in order", "leave record_events out: the slot then writes one by one"
)
async def bulk_ingest_gives_one_receipt_per_event_in_order(kit: Kit) -> None:
    """Spec 2: a bulk write equals single writes, also over several scopes."""
    bulk = kit.needs(SupportsBulkIngest)
    other = await kit.another_scope()
    scopes = (kit.scope, other)
    said = [(kit.fact(f"bulk{number}"), kit.fact(f"answer{number}")) for number in range(6)]
    events = [kit.event(*each, scope=scopes[at % 2], session_id=f"chat-{at}") for at, each in enumerate(said)]
    native: Any = kit.adapter
    alone = [kit.event(kit.fact(f"alone{number}")) for number in range(3)]
    bulks = ((native, alone), (bulk, events))  # the bare adapter first, because the slot completes receipts
    for writer, each in bulks:
        receipts = await writer.record_events(each)
        wanted, came = [event.event_id for event in each], [receipt.event_id for receipt in receipts]
        assert came == wanted, "not one receipt per event, in order"
    statuses = [receipt.status for receipt in receipts]
    assert set(statuses) <= set(STORED), f"plain writes were {statuses}"
    ids = [native_id for receipt in receipts for native_id in receipt.native_ids]
    assert len(set(ids)) == len(ids), "two events share a native id"
    for scope in scopes:
        await kit.until_ready(scope)
    for number, event in enumerate(events):
        name = f"bulk{number}"
        await kit.assert_recalled(name, f"{name} is not recalled as declared", scope=event.scope)
        for entry in await kit.entries(name, scope=event.scope):
            assert entry.timestamp in (None, event.timestamp), "an entry is dated by another event"
            assert entry.session_id in (None, event.session_id), "an entry names another event's session"
        if kit.recalls_writes and not kit.declared.rewrites and not receipts[number].warnings:
            assert await kit.recalls(f"answer{number}", scope=event.scope), "an answer was left out"
    assert not await kit.recalls("bulk1"), "an event of another scope was recalled"
    with raises(InputError, "a bulk with one event twice"):
        await bulk.record_events([events[0], events[0]])
    assert await bulk.record_events([]) == [], "nothing to write is not nothing written"


@of_capability("send every part of a bulk that is cut into parts", "leave record_events out")
async def a_long_bulk_is_stored_to_its_end(kit: Kit) -> None:
    """Each receipt is true: the last of many events is stored like the first."""
    bulk = kit.needs(SupportsBulkIngest)
    kit.needs_recall()
    names = [f"part{number}" for number in range(13)]
    receipts = await bulk.record_events([kit.event(kit.fact(name), None) for name in names])
    await kit.until_ready()
    stored = [name for name, receipt in zip(names, receipts, strict=True) if receipt.status in STORED]
    lost = [name for name in stored if not await kit.recalls(name)]
    assert not lost, "events of a bulk have a receipt and are not there"


@of_capability("answer a FeedbackReceipt with the feedback's id", _LESS)
async def feedback_is_taken_with_a_receipt(kit: Kit) -> None:
    """Spec 5.4."""
    receipt = await _give(kit, "green")
    assert receipt.feedback_id == "feedback-1", "the receipt is of another feedback"
    await kit.remember("red", event_id=receipt.feedback_id)
    await kit.assert_recalled("red", "an event with the id of feedback was taken for it")


@of_capability(
    "make the change visible to the next retrieval",
    "name the operations that there are: native_mutations",
    "leave native_mutation out",
)
async def a_native_record_can_be_changed(kit: Kit) -> None:
    """Spec 2: native mutations serve explicit correction experiments."""
    mutate = kit.needs(SupportsNativeMutation)
    for operation in kit.declared.native_mutations:
        await kit.remember(f"to {operation}")
        (entry, *_) = await kit.entries(f"to {operation}")
        requests = {each.operation: each for each in kit.declared.mutations(kit.scope, [entry])}
        receipt = await mutate.native_mutation(requests[operation])
        assert receipt.status in STORED, f"a native {operation} was {receipt.status}"
        as_json(receipt.raw)
        await kit.until_ready()
        after = [(found.native_id, found.text) for found in (await kit.ask(f"to {operation}")).entries]
        assert (entry.native_id, entry.text) not in after, f"the record is as before its {operation}"


@of_capability("answer the record's history with its id", "leave provenance out")
async def provenance_of_a_record(kit: Kit) -> None:
    """Spec 2: provenance gives the history of one record as JSON, and names the record."""
    provenance = kit.needs(SupportsProvenance)
    for name in ("green", "blue"):
        await kit.remember(name)
    ids = [entry.native_id for entry in await kit.entries("blue") if entry.native_id]
    assert ids, "provenance without native ids is of no use"
    answer = await provenance.provenance(ProvenanceRequest(scope=kit.scope, native_id=ids[0]))
    history = as_json(answer.raw)
    assert ids[0] in history, "the history does not name its record"
    assert kit.declared.rewrites or unique_word("green") not in history, "the history is of others, too"


@of_capability("compare the times of changes with since and until", "refuse a range: BackendRejected")
async def provenance_keeps_to_its_range(kit: Kit) -> None:
    """``since`` and ``until`` select the changes in a range, and nothing else."""
    kit.needs(SupportsProvenance)
    await kit.remember("blue")
    since, until = (datetime(year, 1, 1, tzinfo=UTC) for year in (1990, 1991))
    shown = await kit.history(since=since, until=until)
    ids = [native_id for native_id in await kit.native_ids("blue") if f'"{native_id}"' in shown]
    assert not ids, "a record is in the history of years before it was written"


@of_capability(
    "remove the history with the rows", "say in the receipt what cannot be removed: left=('history rows',)"
)
async def history_goes_with_its_scope(kit: Kit) -> None:
    """Spec 9.6: a record's history holds the user's words too. A reset erases it."""
    kit.needs(SupportsProvenance)
    await kit.remember("blue")
    ids = await kit.native_ids("blue")
    receipt = await kit.slot.reset_scope(kit.scope)
    for native_id in (None, *ids):
        shown = await kit.history(native_id=native_id)
        assert unique_word("blue") not in shown or receipt.left, "the history still tells what was reset"


@of_capability(
    "list the rows of the scope",
    "name another operation: native_query = ('operation', {})",
    "leave native_query out",
)
async def native_query_shows_this_scope(kit: Kit) -> None:
    """Spec 2: a native query gives diagnostics in the backend's own terms. It never enters the prompt."""
    kit.needs_query()
    await kit.remember("blue")
    shown = await kit.queried(kit.scope)
    if kit.recalls_writes and unique_word("blue") not in shown:
        ids = [entry.native_id or "?" for entry in (await kit.ask("blue")).entries]
        lost = [native_id for native_id in ids if native_id not in shown]
        assert not lost, "the native query does not show what was told"


async def _give(kit: Kit, name: str) -> FeedbackReceipt:
    feedback = kit.needs(SupportsFeedback)
    await kit.remember("blue")
    said, about = kit.fact(name), await kit.native_ids("blue")
    receipt = await feedback.apply_feedback(kit.feedback(said, corrected_answer=said, native_ids=about))
    assert receipt.status in STORED, f"plain feedback was {receipt.status}"
    await kit.until_ready()
    return receipt


async def _everything(kit: Kit, name: str, scope: MemoryScope) -> str:
    """Everything of a scope that a question for a fact can read."""
    return await kit.shown(name, scope=scope) + await kit.queried(scope)


@of_capability("store it where the backend can use it", _LESS)
async def feedback_is_stored(kit: Kit) -> None:
    """A ``committed`` receipt for lost feedback is worse than no feedback."""
    feedback, said = kit.needs(SupportsFeedback), kit.fact("green")
    await kit.remember("blue")
    before = await kit.observe()
    given = kit.feedback(said, corrected_answer=said)
    receipt = await feedback.apply_feedback(given)
    await kit.until_ready()
    dates = {entry.timestamp for entry in await kit.entries("green")}
    assert dates <= {None, given.timestamp}, "feedback is dated otherwise than it was given"
    if unique_word("green") in await _everything(kit, "green", kit.scope):
        return
    if not kit.sees_native_state:
        raise NotRun("not tested", "fingerprint: the feedback is in no answer, and nobody can look further")
    assert await kit.observe() != before, f"feedback was {receipt.status}, and the native state is the same"


@of_capability("keep it under the scope's own native id", _LESS)
async def feedback_stays_in_its_scope(kit: Kit) -> None:
    """One person's correction changes no other person's memory."""
    other = await kit.another_scope()
    await _give(kit, "green")
    shown = await _everything(kit, "green", other)
    assert unique_word("green") not in shown, "feedback of one scope is shown in another"


@of_capability("remove feedback with the rest of the scope", _LESS)
async def feedback_goes_with_its_scope(kit: Kit) -> None:
    """Spec 9.6: a reset removes everything of a scope, feedback included."""
    name = f"green {kit.run_id}"  # a server may hold texts of earlier runs
    await _give(kit, name)
    seen = str(await kit.observe()) if kit.sees_native_state else ""
    await kit.reset()
    shown = await _everything(kit, name, kit.scope)
    assert unique_word(name) not in shown, "feedback is still shown after the reset of its scope"
    if unique_word(name) in seen:
        left = str(await kit.observe())
        assert unique_word(name) not in left, "feedback is still stored after the reset of its scope"
