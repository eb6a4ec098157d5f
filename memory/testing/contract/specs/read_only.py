"""Test sessions leave no trace in memory (spec 4.2, 9.4, 9.10, 9.11; DESIGN 5.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from memory import (
    AdapterMode,
    MemoryEvent,
    ReadOnlyError,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
)
from memory.testing.contract._kit import STORED, Kit, raises
from memory.testing.contract._spec import NotRun, promise

_ORIGINS = ("test_user", "assistant", "simulator", "judge")


@promise("switch off what the backend learns from queries, such as counts of recalls that change its ranking")
async def a_test_session_writes_nothing_into_memory(kit: Kit) -> None:
    """Spec 9.4: memory receives no test turns, responses, simulator events or judge artifacts."""
    await kit.remember("known")
    before = await kit.observe()
    await kit.read_only()
    for name in _ORIGINS:
        await kit.slot.before_turn(f"{kit.fact(name)} Where is it?", session_id="test-1")
        receipt = await kit.write(name, session_id="test-1", metadata={"origin": name})
        assert receipt.status == "skipped_read_only", f"a {name} event was {receipt.status} while read-only"
    assert await kit.observe() == before, "a test session changed the native state"
    await kit.read_only(False)
    await kit.until_ready()
    assert await kit.observe() == before, "something of a test session was written after it"
    for name in _ORIGINS:
        assert not await kit.recalls(name), f"the {name} of a test session is recalled"
    await kit.assert_recalled("known", "what was known before is not recalled as declared")
    await kit.remember("later")
    await kit.assert_recalled("later", "what is told afterwards is not recalled as declared")


@promise()
async def controls_and_backends_pass_the_same_gate(kit: Kit) -> None:
    """Spec 9.11: the slot skips writes for every kind of provider, and traces name the kind."""
    await kit.read_only()
    receipt = await kit.slot.after_turn(user=kit.fact("x"), session_id="s")
    trace = receipt.trace
    assert receipt.status == "skipped_read_only", f"a write while read-only was {receipt.status}"
    assert trace is not None, "a skipped write has no trace"
    assert trace.read_only is True, "the trace does not say that the slot was read-only"
    assert trace.condition_kind == kit.slot.traits.kind, "the trace names another kind of provider"
    assert trace.attempts == 0, "a skipped write was attempted"


@promise()
async def every_write_path_is_skipped_while_read_only(kit: Kit) -> None:
    """DESIGN 5.1: each skipped write gets a receipt that says so, and makes no native call."""
    await kit.remember("known")
    entries = (await kit.ask("known")).entries
    before = await kit.observe()
    await kit.read_only()
    events = [kit.event(kit.fact("x")), kit.event(kit.fact("y"))]
    receipts = [await kit.slot.record_event(event) for event in events]
    bulk = kit.slot.capability(SupportsBulkIngest)
    for skipped in (receipts, receipts if bulk is None else await bulk.record_events(events)):
        wanted = [(event.event_id, "skipped_read_only", ()) for event in events]
        came = [(receipt.event_id, receipt.status, receipt.native_ids) for receipt in skipped]
        assert came == wanted, "a write while read-only has not the receipt of a skipped one"
    feedback, mutate = kit.slot.capability(SupportsFeedback), kit.slot.capability(SupportsNativeMutation)
    if feedback is not None:
        status = (await feedback.apply_feedback(kit.feedback())).status
        assert status == "skipped_read_only", f"feedback while read-only was {status}"
    if mutate is not None:
        for request in kit.declared.mutations(kit.scope, entries):
            changed = (await mutate.native_mutation(request)).status
            assert changed == "skipped_read_only", f"a mutation while read-only was {changed}"
    assert await kit.observe() == before, "a skipped write changed the native state"


@promise()
async def reset_is_refused_while_read_only(kit: Kit) -> None:
    """Spec 9.10: a test session never resets, and the memory stays as it was."""
    async with _unchanged(kit, "a refused reset"):
        with raises(ReadOnlyError, "a reset while read-only"):
            await kit.slot.reset_scope(kit.scope)


@promise(
    "make the space with the first write",
    "declare AdapterTraits(setup_writes=True): the slot then refuses it while read-only",
)
async def setting_up_a_scope_writes_nothing_while_read_only(kit: Kit) -> None:
    """DESIGN 5.1: a new scope is refused, unless ``traits.setup_writes`` is False and setup writes nothing."""
    async with _unchanged(kit, "setting a scope up"):
        with suppress(ReadOnlyError):
            await kit.slot.setup_scope(kit.scope_of("newcomer"))
        await kit.slot.setup_scope(kit.scope)


@asynccontextmanager
async def _unchanged(kit: Kit, doing: str) -> AsyncIterator[None]:
    """A read-only phase. The native state does not change, and the known fact is still recalled afterwards."""
    await kit.remember("known")
    before = await kit.observe()
    await kit.read_only()
    yield
    assert await kit.observe() == before, f"{doing} changed the native state while read-only"
    await kit.read_only(False)
    await kit.assert_recalled("known", "what was known before is not recalled as declared")


@promise(
    "switch off what the backend learns from queries",
    "leave counters of access out of the fingerprint where they are no memory",
)
async def reading_leaves_the_native_state_unchanged(kit: Kit) -> None:
    """DESIGN 5.1: retrieval, health and formatting write nothing in either mode."""
    await kit.remember("known")
    for read_only in (False, True):
        await kit.read_only(read_only)
        before = await kit.observe()
        for query in ("known", "never told"):
            result = await kit.ask(query, context="work", filters={"cross_context": True})
            kit.slot.format_context(result)
        await kit.slot.before_turn(kit.fact("asked"), session_id="probe")
        await kit.slot.health()
        assert await kit.observe() == before, f"reading changed the native state, read_only={read_only}"
    assert not await kit.recalls("asked"), "a question is recalled as if it had been told"
    if not kit.sees_native_state and kit.recalls_writes:
        raise NotRun("not tested", "fingerprint: without it only what can be retrieved is compared")


@promise(
    "return from record_event when nothing of the write is still under way in a task or thread of its own",
    "switch off what the backend learns from queries: after the switch the kit asks, and compares",
)
async def set_mode_drains_writes_before_it_flips(kit: Kit) -> None:
    """DESIGN 5.1: each write finishes before the flip or is skipped. None lands afterwards."""
    statuses: dict[str, str] = {}

    async def write(name: str, event: MemoryEvent) -> None:
        statuses[name] = (await kit.slot.record_event(event)).status

    names = [f"racer{number}" for number in range(8)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            if name == names[4]:
                await anyio.wait_all_tasks_blocked()
            tasks.start_soon(write, name, kit.event(kit.fact(name)))
        mode = await kit.slot.set_mode(AdapterMode(read_only=True, reason="race"))
    assert (mode.read_only, mode.reason) == (True, "race"), "the receipt does not name mode and reason"
    await kit.until_ready(required=False)
    flipped = await kit.observe()
    other = set(statuses.values()) - {*STORED, "skipped_read_only"}
    assert not other, f"writes at a mode switch were {statuses}"
    early = [statuses[name] for name in names[:4]]
    assert "skipped_read_only" not in early, "what was under way before set_mode counts"
    for name in names:
        await kit.ask(name)
    await anyio.sleep(0.02)
    assert await kit.observe() == flipped, "something was written after the flip"
    await kit.read_only(False)
    await kit.until_ready()
    for name in names:
        expected = kit.recalls_writes and statuses[name] in STORED
        assert await kit.recalls(name) == expected, f"{name} was {statuses[name]}"
