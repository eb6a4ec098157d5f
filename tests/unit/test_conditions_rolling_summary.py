"""rolling_summary with the extractive summariser: when it summarises, what it keeps, what it shows."""

import anyio
import pytest
from rolling_support import ALICE, BOB, Host, Noting, event

from conditions import rolling_summary
from memory import AdapterMode


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 0.0)


async def test_a_session_is_summarised_when_the_next_one_begins():
    async with Host(Noting()) as host:
        first, second = await host.write(event(1, "a", "b"), event(2, "c"))
        assert (first.status, second.status) == ("pending", "pending")
        assert (await host.ask()).formatted_context == ""
        (third,) = await host.write(event(3, "d", session="s2"))
        assert host.summariser.calls == [["a", "b", "c"]]
        assert third.trace.native_operation == "memory.consolidate"
        result = await host.ask()
    assert [entry.text for entry in result.entries] == ["a\nb\nc"]
    assert result.trace.consistency == "pending"
    assert result.trace.representation_version == "1"
    assert result.trace.last_derived_at is not None
    assert result.trace.condition_kind == "control"
    assert result.raw["messages_pending"] == 1


async def test_what_is_not_summarised_yet_is_never_shown():
    """Fairness rule, spec section 2.2: no context that real backends do not get."""
    async with Host(Noting()) as host:
        await host.write(event(1, "old words"), event(2, "fresh words", session="s2"))
        result = await host.ask()
    assert "old words" in result.formatted_context
    assert "fresh words" not in result.formatted_context
    assert "fresh words" not in str(result.raw)
    assert "1 message is not summarised yet" in result.trace.warnings


async def test_a_test_point_ends_the_session():
    async with Host(Noting()) as host:
        await host.write(event(1, "a"), event(2, "b"))
        before = await host.state()
        assert (before.state, before.pending_count) == ("pending", 2)
        assert before.detail == "2 messages are not summarised yet"
        after = await host.ready()
        assert (after.state, after.pending_count, after.detail) == ("ready", 0, "")
        assert after.last_derived_at is not None
        assert after.waited_ms is not None
        assert [entry.text for entry in (await host.ask()).entries] == ["a\nb"]
        assert (await host.ask()).trace.consistency == "committed"
        assert (await host.ready(BOB)).state == "ready"
    assert host.summariser.closed


async def test_becoming_read_only_ends_the_session():
    async with Host(Noting()) as host:
        await host.write(event(1, "a"), event(2, "b", scope=BOB))
        await host.slot.set_mode(AdapterMode(read_only=True))
        assert [entry.text for entry in (await host.ask()).entries] == ["a"]
        assert [entry.text for entry in (await host.ask(BOB)).entries] == ["b"]


async def test_read_only_summarises_nothing():
    noting = Noting()
    noting.faults = 1
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        await host.slot.set_mode(AdapterMode(read_only=True))
        waited = await host.ready()
        assert (waited.state, waited.pending_count) == ("pending", 1)
        assert "nothing is summarised while read-only" in waited.detail
        (skipped,) = await host.write(event(2, "b", session="s2"))
        assert skipped.status == "skipped_read_only"
        assert noting.calls == []
        await host.slot.set_mode(AdapterMode(read_only=False))
        assert (await host.ready()).state == "ready"
    assert noting.calls == [["a"]]


@pytest.mark.thorough
async def test_a_summary_that_comes_back_after_the_switch_to_read_only_is_discarded():
    noting = Noting()
    noting.hold = anyio.Event()
    async with Host(noting, deadline_s=0.05) as host:
        await host.write(event(1, "a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.ready)
            await anyio.wait_all_tasks_blocked()
            await host.slot.set_mode(AdapterMode(read_only=True))
            noting.hold.set()
        assert noting.calls == [["a"]], "it did come back"
        assert (await host.ask()).formatted_context == ""
        assert (await host.state()).pending_count == 1


async def test_a_session_too_long_for_one_call_is_taken_in_parts():
    noting = Noting()
    async with Host(noting, context_window_tokens=5120 + 300) as host:
        for number in range(12):
            await host.write(event(number, f"{number:02} " + "x" * 100, "y" * 100))
        await host.ready()
    assert len(noting.calls) > 2
    assert [text for call in noting.calls for text in call] == [
        text for number in range(12) for text in (f"{number:02} " + "x" * 100, "y" * 100)
    ]
    assert all(call[0].endswith("x") for call in noting.calls[:2]), "parts begin where the user speaks"


async def test_a_failure_is_tried_again_and_nothing_is_lost():
    noting = Noting()
    noting.faults = 2
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        (second,) = await host.write(event(2, "b", session="s2"))
        assert second.status == "pending"
        assert second.warnings == ("summarising failed: BackendUnavailable, HTTP 503",)
        (third,) = await host.write(event(3, "c", session="s2"))
        assert third.warnings == second.warnings
        state = await host.state()
        assert state.state == "pending"
        assert state.detail == "3 messages are not summarised yet (BackendUnavailable, HTTP 503)"
        (fourth,) = await host.write(event(4, "d", session="s2"))
        assert fourth.warnings == ()
        assert (await host.ready()).state == "ready"
    assert noting.calls == [["a"], ["b", "c", "d"]]


async def test_after_three_failures_the_messages_go_into_the_history_as_they_are():
    noting = Noting()
    noting.faults = 3
    async with Host(noting) as host:
        await host.write(event(1, "secret words", "answer"))
        state = await host.ready()
        assert state.state == "failed"
        assert state.pending_count == 0
        assert state.detail == (
            "2 messages went into the history unsummarised (BackendUnavailable, HTTP 503)"
        )
        assert await host.native("history") == [
            "[2026-01-01 10:01] [RAW] 2 messages\n"
            "[2026-01-01 10:01] USER: secret words\n"
            "[2026-01-01 10:01] ASSISTANT: answer"
        ]
        health = await host.slot.health()
        assert health.status == "degraded"
        assert "2 messages went into the history unsummarised" in health.warnings
        result = await host.ask()
        assert result.formatted_context == ""
        assert "2 messages could not be summarised" in result.trace.warnings
        # What comes later is summarised, but the gap stays visible.
        await host.write(event(2, "later", session="s2"))
        assert (await host.ready()).state == "failed"
        assert [entry.text for entry in (await host.ask()).entries] == ["later"]
        await host.slot.reset_scope(ALICE)
        assert (await host.state()).state == "ready"


async def test_the_receipt_of_the_third_failure_says_what_went_in_unsummarised():
    noting = Noting()
    noting.faults = 3
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        for number in (2, 3):
            (receipt,) = await host.write(event(number, "b", session="s2"))
            assert "unsummarised" not in str(receipt.warnings)
        (receipt,) = await host.write(event(4, "d", session="s2"))
        assert any("went into the history unsummarised" in w for w in receipt.warnings), receipt


async def test_a_slow_summariser_does_not_turn_a_write_into_a_timeout():
    noting = Noting()
    noting.hold = anyio.Event()
    async with Host(noting, deadline_s=0.05) as host:
        await host.write(event(1, "a"))
        (second,) = await host.write(event(2, "b", session="s2"))
        assert second.status == "pending"
        assert second.warnings == (
            "summarising took too long for a write; it is tried again with the next one",
        )
        noting.hold.set()
        await host.ready()
    assert noting.calls == [["a", "b"]]
