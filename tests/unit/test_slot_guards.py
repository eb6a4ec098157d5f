"""Guards of the slot that nothing else would miss until it is too late."""

import anyio
import anyio.lowlevel
import pytest
from everything_support import Everything
from journals import open_journal
from slot_support import ALICE, BOB, QUICK, Lookup, Obedient, Sink, ask, event, forever

from memory import (
    InputError,
    LifecycleError,
    MemoryScope,
    MemorySlot,
    ScopeError,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.adapter import ContextEntry, awaiting_turn
from memory.contract.requests import CROSS_CONTEXT


async def test_a_closing_that_was_refused_closes_no_journal(tmp_path):
    slot = MemorySlot(Obedient(), scope=ALICE, journal=open_journal(tmp_path))
    async with slot:
        with pytest.raises(LifecycleError, match="another event loop"):
            await anyio.to_thread.run_sync(anyio.run, slot.aclose)
        assert (await slot.record_event(event())).status == "committed"


@pytest.mark.parametrize("across", [True, False])
async def test_a_probe_across_contexts_is_traced_as_filtered_by_none(across):
    sink = Sink()
    async with MemorySlot(Obedient(cs_filtering="hard"), scope=ALICE, trace_sink=sink) as slot:
        await slot.retrieve(ask(filters={CROSS_CONTEXT: across}))
    assert sink[-1].cs_filtering == ("none" if across else "hard")


async def test_a_view_keeps_the_rest_of_the_scope():
    whole = MemoryScope(run_id="r", persona_id="alice", backend_namespace="n")
    async with MemorySlot(Obedient(), scope=whole) as slot:
        assert slot.for_scope(persona_id="bob", run_id="s").scope.backend_namespace == "n"


class Queued(Lookup):
    """Its look-ups have a queue of their own, in which nothing moves."""

    async def find_event(self, event):
        with awaiting_turn():
            await forever()


async def test_a_look_up_given_up_in_a_queue_does_not_make_the_write_one_that_was_not_sent():
    adapter = Queued()
    adapter.next_write = [ConnectionResetError("lost")]
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK) as slot:
        receipt = await slot.record_event(event())
    assert (receipt.status, receipt.trace.attempts) == ("unknown", 1)


async def test_an_event_is_looked_for_in_scopes_that_are_set_up():
    adapter = Lookup()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        assert await slot.delivery.find_event(event()) is None
        with pytest.raises(ScopeError, match="not set up"):
            await slot.delivery.find_event(event(scope=BOB))


async def test_a_bulk_write_with_a_stranger_in_it_writes_nothing():
    adapter = Everything()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        seen = []
        adapter.native = lambda name: seen.append(name) or anyio.lowlevel.checkpoint()
        with pytest.raises(ScopeError, match="not set up"):
            await slot.capability(SupportsBulkIngest).record_events([event(1), event(2, BOB)])
    assert seen == []


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -0.1, "1", None])
async def test_a_wait_has_an_end(timeout_s):
    async with MemorySlot(Everything(), scope=ALICE) as slot:
        readiness = slot.capability(SupportsReadiness)
        with pytest.raises(InputError, match="timeout_s must be a finite number of seconds"):
            await readiness.wait_until_ready(ALICE, timeout_s)
        assert (await readiness.wait_until_ready(ALICE, 0)).state == "ready"


async def test_a_blank_row_is_neither_shown_nor_counted():
    class Blank(Obedient):
        async def retrieve(self, request):
            found = await super().retrieve(request)
            return found.model_copy(update={"entries": (ContextEntry(" \n"), ContextEntry("tea"))})

    async with MemorySlot(Blank(), scope=ALICE) as slot:
        found = await slot.retrieve(ask())
    assert found.included == (1,)
    assert found.formatted_context.splitlines()[1:-1] == ["- tea"]
    assert (found.trace.retrieved_count, found.trace.included_count) == (2, 1)


async def test_every_sink_receives_every_trace():
    first, second = Sink(), Sink()
    async with MemorySlot(Obedient(), scope=ALICE, trace_sink=first) as slot:
        slot.delivery.trace_to(second)
        await slot.retrieve(ask())
    assert [trace.operation for trace in first] == ["setup_scope", "retrieve"]
    assert list(second) == first[1:]
