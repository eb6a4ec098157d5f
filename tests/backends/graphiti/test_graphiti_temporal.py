"""Time in Graphiti: facts are invalidated, never lost, and the context says when they held."""

from datetime import UTC, datetime, timedelta

import pytest
from graphiti_support import ALICE, NEEDS_GRAPHITI, ask, event, found, listed, opened, sources

pytestmark = NEEDS_GRAPHITI

PARIS, BERLIN = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 31, tzinfo=UTC)
OSLO = datetime(2023, 9, 1, tzinfo=UTC)


@pytest.mark.thorough
async def test_a_newer_fact_ends_the_older_one_and_a_late_one_arrives_ended(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        paris = await slot.record_event(event("I live in Paris.", at=PARIS))
        await slot.record_event(event("I live in Berlin.", at=BERLIN))
        oslo = await slot.record_event(event("I live in Oslo.", at=OSLO))
        result = await slot.retrieve(ask("Where do I live?"))
        rows = {row["fact"]: row for row in result.raw["edges"]}
        invalidated = await sources(slot, since=BERLIN, until=BERLIN)
        everything = await sources(slot)
        stored = await sources(slot, since=BERLIN + timedelta(days=1))
    assert rows["I live in Paris."]["uuid"] in paris.native_ids, "the same fact, not a copy"
    assert {fact: (row["valid_at"], row["invalid_at"]) for fact, row in rows.items()} == {
        "I live in Paris.": (PARIS.isoformat(), BERLIN.isoformat()),
        "I live in Berlin.": (BERLIN.isoformat(), None),
        "I live in Oslo.": (OSLO.isoformat(), PARIS.isoformat()),
    }
    assert rows["I live in Paris."]["expired_at"] is not None
    assert rows["I live in Oslo."]["uuid"] in oslo.native_ids
    for line in (
        f"valid_at {PARIS.isoformat()}, invalid_at {BERLIN.isoformat()}",
        f"valid_at {BERLIN.isoformat()}, score",
        f"valid_at {OSLO.isoformat()}, invalid_at {PARIS.isoformat()}",
    ):
        assert line in result.formatted_context
    assert [edge["fact"] for edge in invalidated.raw["edges"]] == ["I live in Paris."]
    assert {edge["fact"] for edge in everything.raw["edges"]} == set(rows)
    assert {edge["fact"] for edge in stored.raw["edges"]} == set(rows), "all of them were stored today"


@pytest.mark.thorough
async def test_only_valid_leaves_out_what_no_longer_holds(tmp_path, llm):
    async with opened(llm, tmp_path, only_valid=True) as slot:
        await slot.record_event(event("I live in Paris.", at=PARIS))
        await slot.record_event(event("I live in Berlin.", at=BERLIN))
        assert await found(slot, "Where do I live?") == ["I live in Berlin."]
        assert len((await listed(slot, "edges"))["edges"]) == 2


@pytest.mark.thorough
async def test_a_repeated_fact_is_one_fact_with_two_sources(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        events = [event("I live in Paris."), event("I live in Paris.")]
        first, second = [await slot.record_event(event) for event in events]
        (entry,) = (await slot.retrieve(ask("Paris"))).entries
        history = await sources(slot, native_id=entry.native_id)
        backwards = [second.native_ids[0], first.native_ids[0]]
        async with slot._adapter.graph(ALICE) as graph:
            assert [episode.uuid for episode in await graph.episodes(backwards)] == backwards
    assert first.native_ids[1] == second.native_ids[1] == entry.native_id
    assert entry.event_ids == history.event_ids == tuple(event.event_id for event in events)


async def test_the_events_time_decides_and_not_its_zone(tmp_path, llm):
    from datetime import timezone

    async with opened(llm, tmp_path) as slot:
        at = datetime(2024, 1, 1, 3, tzinfo=timezone(timedelta(hours=8)))
        await slot.record_event(event("I live in Paris.", at=at))
        (row,) = (await slot.retrieve(ask("Paris"))).raw["edges"]
    assert row["valid_at"] == row["reference_time"] == "2023-12-31T19:00:00+00:00"


@pytest.mark.thorough
async def test_dates_in_the_text_win(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        await slot.record_event(event("I live in Paris since 2020-05-01."))
        await slot.record_event(event("I rent my Vespa until 2024-03-01."))
        rows = {row["fact"]: row for row in (await listed(slot, "edges"))["edges"]}
    assert rows["I live in Paris since 2020-05-01."]["valid_at"] == "2020-05-01T00:00:00+00:00"
    assert rows["I rent my Vespa until 2024-03-01."]["invalid_at"] == "2024-03-01T00:00:00+00:00"


@pytest.mark.thorough
async def test_native_bulk_keeps_contradictions_and_says_so(tmp_path, llm):
    from memory import SupportsBulkIngest

    async with opened(llm, tmp_path, bulk="native") as slot:
        bulk = slot.capability(SupportsBulkIngest)
        receipts = await bulk.record_events(
            [event("I live in Paris.", at=PARIS), event("I live in Berlin.", at=BERLIN)]
        )
        rows = (await listed(slot, "edges"))["edges"]
        assert all("contradict" in receipt.warnings[0] for receipt in receipts)
        assert all(len(receipt.native_ids) == 2 for receipt in receipts)
        assert {row["fact"] for row in rows} == {"I live in Paris.", "I live in Berlin."}
        assert [row["invalid_at"] for row in rows] == [None, None]
        assert (await slot.reset_scope(ALICE)).verified
