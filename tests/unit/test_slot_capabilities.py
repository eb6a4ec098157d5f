"""Capabilities behind the slot's rules."""

import anyio
import anyio.lowlevel
import pytest
from slot_support import ALICE, BOB, Obedient, event

from memory import (
    AdapterMode,
    BackendReadiness,
    BackendUnavailable,
    InputError,
    MemorySlot,
    NativeMutationReceipt,
    NativeMutationRequest,
    ScopeError,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsReadiness,
)
from memory.contract.adapter import capabilities_of


async def test_capabilities_are_offered_only_where_they_exist(slot):
    assert slot.capabilities() == frozenset()
    assert slot.capability(SupportsReadiness) is None
    assert not isinstance(slot, SupportsReadiness | SupportsFeedback | SupportsBulkIngest)
    with pytest.raises(InputError, match="SupportsReadiness"):
        slot.capability(dict)


class Bulk(Obedient):
    async def record_events(self, events):
        receipts = []
        for incoming in events:
            try:
                receipts.append(await self.record_event(incoming))
            except ConnectionRefusedError as error:
                failure = BackendUnavailable("down", sent=False)
                failure.receipts = tuple(receipts)
                raise failure from error
        return receipts

    async def readiness(self, scope):
        return BackendReadiness(state="ready")

    async def wait_until_ready(self, scope, timeout_s):
        await anyio.sleep_forever()

    async def native_mutation(self, request):
        return NativeMutationReceipt(status="committed", native_ids=(request.native_id,))


async def test_bulk_goes_scope_by_scope_and_answers_in_order(sink):
    adapter = Bulk()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:
        await slot.setup_scope(BOB)
        bulk = slot.capability(SupportsBulkIngest)
        receipts = await bulk.record_events([event(1), event(2, BOB), event(3)])
        assert [receipt.event_id for receipt in receipts] == ["e1", "e2", "e3"]
        assert adapter.calls == ["e1", "e3", "e2"]
        assert sink[-1].native_ids == ("n-e2",)
        with pytest.raises(InputError, match="share an event_id"):
            await bulk.record_events([event(4), event(4)])
        await slot.set_mode(AdapterMode(read_only=True))
        assert [receipt.status for receipt in await bulk.record_events([event(5), event(6, BOB)])] == [
            "skipped_read_only"
        ] * 2
    assert adapter.calls == ["e1", "e3", "e2"]


async def test_waiting_for_readiness_ends_as_pending():
    async with MemorySlot(Bulk(), scope=ALICE) as slot:
        readiness = slot.capability(SupportsReadiness)
        assert (await readiness.readiness(ALICE)).state == "ready"
        answer = await readiness.wait_until_ready(ALICE, 0.01)
        assert (answer.state, answer.waited_ms is not None and answer.waited_ms >= 9) == ("pending", True)
        with pytest.raises(ScopeError):
            await readiness.readiness(BOB)


async def test_native_mutation_obeys_the_mode():
    request = NativeMutationRequest(scope=ALICE, operation="delete", native_id="n1")
    async with MemorySlot(Bulk(), scope=ALICE) as slot:
        mutation = slot.capability(SupportsNativeMutation)
        assert (await mutation.native_mutation(request)).status == "committed"
        await slot.set_mode(AdapterMode(read_only=True))
        assert (await mutation.native_mutation(request)).status == "skipped_read_only"


def test_a_capability_is_offered_only_where_it_is_implemented_and_not_withheld():
    """Offered without either, a host would call what is not there, or what the configuration rules out."""

    class Bulk(Obedient):
        async def record_events(self, events):
            return []

    assert capabilities_of(Obedient()) == frozenset()
    assert capabilities_of(Bulk()) == {"bulk_ingest"}
    for withheld in (frozenset({"bulk_ingest"}), ["bulk_ingest"]):  # as a plugin may write it
        Bulk.withheld_capabilities = withheld
        assert capabilities_of(Bulk()) == frozenset()
