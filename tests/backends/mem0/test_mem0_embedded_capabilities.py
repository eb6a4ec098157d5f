"""mem0 on embedded Qdrant: corrections, provenance, diagnostics and bulk."""

from datetime import UTC, datetime, timedelta

import pytest
from mem0_support import ALICE, BOB, NEEDS_MEM0, START, coloured, event, found, mutate, native, opened, stored

from memory import ProvenanceRequest, ScopeError, SupportsProvenance

pytestmark = NEEDS_MEM0


async def test_records_can_be_corrected_and_their_history_told(tmp_path):
    async with opened(tmp_path, BOB) as slot:
        coffee_event = event("I drink coffee.")
        (native_id,) = (await slot.record_event(coffee_event)).native_ids
        receipt = await mutate(
            slot, "update", native_id, text="I drink tea.", metadata={"event_id": "forged"}
        )
        assert receipt.native_ids == (native_id,)
        (row,) = await stored(slot)
        assert row["memory"] == "I drink tea."
        assert row["metadata"]["event_id"] == coffee_event.event_id
        assert row["metadata"]["meta_event_id"] == "forged"
        provenance = slot.capability(SupportsProvenance)
        source = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=native_id))
        assert source.event_ids == (coffee_event.event_id,)
        assert [step["event"] for step in source.raw["history"]] == ["ADD", "UPDATE"]
        await mutate(slot, "delete", native_id)
        assert await stored(slot) == []
        source = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=native_id))
        assert source.raw["memory"] is None
        assert source.raw["history"][-1]["event"] == "DELETE"
        with pytest.raises(ScopeError):
            await provenance.provenance(ProvenanceRequest(scope=BOB, native_id=native_id))


async def test_an_expired_memory_is_counted_and_reset(tmp_path):
    async with opened(tmp_path) as slot:
        (native_id,) = (await slot.record_event(event("tea"))).native_ids
        await mutate(slot, "update", native_id, expiration_date="2020-01-01")
        assert await found(slot, "tea") == []
        assert len(await stored(slot)) == 1
        assert (await slot.reset_scope(ALICE)).removed == 1


async def test_a_range_of_provenance_means_what_was_stored_or_changed_in_it(tmp_path):
    """The events are of last year, and mem0 itself dates their memories by them."""
    async with opened(tmp_path) as slot:
        before = datetime.now(UTC)
        await coloured(slot)
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None
        then = ProvenanceRequest(scope=ALICE, since=START, until=START + timedelta(days=30))
        assert (await provenance.provenance(then)).native_ids == ()
        stored_today = await provenance.provenance(ProvenanceRequest(scope=ALICE, since=before))
        assert (len(stored_today.native_ids), len(stored_today.event_ids)) == (3, 3)
        later = ProvenanceRequest(scope=ALICE, since=datetime.now(UTC))
        assert (await provenance.provenance(later)).native_ids == ()
        corrected = stored_today.native_ids[0]
        await mutate(slot, "update", corrected, text="My purple mug")
        assert (await provenance.provenance(later)).native_ids == (corrected,)


async def test_a_memory_that_another_program_wrote_without_metadata_has_a_source_too(tmp_path):
    async with opened(tmp_path) as slot:
        native(slot).add("I like tea", **slot.native_scope(ALICE), infer=False)
        capability = slot.capability(SupportsProvenance)
        answer = await capability.provenance(ProvenanceRequest(scope=ALICE))
        assert answer.native_ids == ((await stored(slot))[0]["id"],)
        assert answer.event_ids == ()
        assert await found(slot, "tea") == ["I like tea"]
