"""What a mirror must not forget with its process: a shadow's failed reset, a lag, a past it was opened over."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from said import said
from test_mirror import ADA, PATIENT_S, Pair, make

from memory import BackendError, MemoryFeedback, SupportsBulkIngest, SupportsFeedback
from memory.testing import FakeNativeStore

__all__ = ["make"]

Make = Callable[..., Pair]


def _again(make: Make, pair: Pair, **fields: Any) -> Pair:
    """A fresh process over the same stores and files."""
    return make(stores=(pair.ours, pair.theirs), **fields)


async def test_a_shadows_failed_reset_is_known_to_the_next_process(make: Make) -> None:
    pair = make()
    async with pair.slot:
        await pair.record("erased")
        await pair.shadow.drained(PATIENT_S)
        pair.theirs.faults.add("500", times=None)
        assert not (await pair.slot.reset_scope(ADA)).verified
    assert pair.texts(pair.theirs) == ["erased"]
    later = _again(make, pair)
    async with later.slot:
        await later.shadow.drained(PATIENT_S)
        assert (await later.slot.health()).status == "degraded"
        assert any("may hold what was erased" in warning for warning in (await later.state())["warnings"])
        later.theirs.faults.clear()
        await later.record("new")
        await later.shadow.drained(PATIENT_S)
        assert later.texts(later.theirs) == ["new"], "reset first, then written"
        assert (await later.slot.health()).status == "ok"


@pytest.mark.parametrize("at", ["before", "primary", "shadow"])
async def test_a_reset_cut_short_is_finished_by_the_next_process(
    make: Make, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Killed before the primary's reset, between the two, and before the shadow's."""
    pair = make()
    with anyio.CancelScope() as killed:
        async with pair.slot:
            await pair.record("erased")
            await pair.shadow.drained(PATIENT_S)
            primary, reset = pair.adapter._primary, pair.adapter._primary.reset_scope

            async def cut(scope: Any) -> Any:
                if at != "before":
                    await reset(scope)
                killed.cancel()
                await anyio.sleep_forever()

            if at == "shadow":
                monkeypatch.setattr(pair.shadow, "reset", cut)
            else:
                monkeypatch.setattr(primary, "reset_scope", cut)
            await pair.slot.reset_scope(ADA)
    later = _again(make, pair)
    async with later.slot:
        await later.slot.setup_scope(ADA)
        await later.shadow.drained(PATIENT_S)
        assert later.texts(later.theirs) == []
        assert later.texts(later.ours) == (["erased"] if at == "before" else [])
        # Between the two, nobody can know that the primary had ended: then it is said to differ too.
        assert (await later.slot.health()).status == ("ok" if at == "shadow" else "degraded")
        assert (await later.slot.reset_scope(ADA)).verified
        assert (await later.slot.health()).status == "ok"


async def test_a_reset_that_the_primary_refuses_takes_nothing_from_the_shadow(make: Make) -> None:
    pair = make()
    async with pair.slot:
        await pair.record("kept")
        await pair.shadow.drained(PATIENT_S)
        pair.ours.faults.add("422", times=1)
        with pytest.raises(Exception, match="422"):
            await pair.slot.reset_scope(ADA)
        await pair.record("more")
        await pair.shadow.drained(PATIENT_S)
        assert pair.texts(pair.theirs) == ["kept", "more"]


async def test_a_process_that_was_killed_leaves_its_shadow_in_question(make: Make) -> None:
    pair = make()
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two")
        left = (pair.log.parent / "new.json").read_bytes()
        pair.hold(False)
    (pair.log.parent / "new.json").write_bytes(left)  # as a kill at that moment leaves it
    pair.theirs.rows.clear()
    later = _again(make, pair)
    async with later.slot:
        assert any("process ended before" in warning for warning in (await later.state())["warnings"])
    even_later = _again(make, pair)
    async with even_later.slot:
        assert any("process ended before" in warning for warning in (await even_later.state())["warnings"])
        assert (await even_later.slot.reset_scope(ADA)).verified
        assert (await even_later.slot.health()).status == "ok"


@pytest.mark.parametrize("what", ["event", "events", "feedback"])
async def test_a_process_killed_before_the_shadow_hears_of_a_write_leaves_it_in_question(
    make: Make, what: str
) -> None:
    """The primary has stored its first write of the scope, and has not answered yet."""
    pair = make()
    facts = pair.log.parent / "new.json"
    left: list[bytes] = []
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        event = said(ADA, "tea")
        if what == "feedback":
            await pair.record("tea")
            await pair.shadow.drained(PATIENT_S)
            pair.shadow.facts.closed()  # as a process before this one left it
        method = {"event": "record_event", "events": "record_events", "feedback": "apply_feedback"}[what]
        native = getattr(pair.adapter._primary, method)

        async def kill(given: Any) -> Any:
            answer = await native(given)
            left.append(facts.read_bytes() if facts.exists() else b"")
            return answer

        setattr(pair.adapter._primary, method, kill)
        if what == "event":
            await pair.slot.record_event(event)
        elif what == "events":
            await pair.slot.capability(SupportsBulkIngest).record_events([event])
        else:
            feedback = MemoryFeedback(
                feedback_id="f", scope=ADA, session_id="s", timestamp=event.timestamp, content="It is coffee."
            )
            await pair.slot.capability(SupportsFeedback).apply_feedback(feedback)
    facts.write_bytes(left[0]) if left[0] else facts.unlink()
    later = _again(make, pair)
    async with later.slot:
        assert any("process ended before" in warning for warning in (await later.state())["warnings"])


@pytest.mark.parametrize(("fault", "taken"), [("lost", True), ("late", True), ("422", False)])
async def test_feedback_reaches_a_shadow_where_the_primary_may_have_it(
    make: Make, fault: str, taken: bool
) -> None:
    """The answer was lost, or given up."""
    pair = make()
    event = said(ADA, "tea")
    feedback = MemoryFeedback(
        feedback_id="f", scope=ADA, session_id="s", timestamp=event.timestamp, content="It is coffee."
    )
    async with pair.slot:
        await pair.slot.record_event(event)
        pair.ours.faults.add(fault, times=1, delay_s=60)
        with anyio.move_on_after(0.2), suppress(BackendError):
            await pair.slot.capability(SupportsFeedback).apply_feedback(feedback)
        assert pair.ours.faults.fired
        await pair.shadow.drained(PATIENT_S)
        assert pair.texts(pair.theirs) == (["tea", "It is coffee."] if taken else ["tea"])


async def test_a_lag_that_was_left_behind_is_known_to_the_next_process(make: Make) -> None:
    pair = make(drain_s=0.05)
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two", "three")
    later = _again(make, pair)
    async with later.slot:
        assert any("closed before" in warning for warning in (await later.state())["warnings"])


async def test_a_shadow_opened_over_a_past_is_no_fair_comparison_also_later(make: Make) -> None:
    stores = (FakeNativeStore(), FakeNativeStore())
    alone = make(stores=stores)
    async with alone.slot:
        await alone.record("I like oolong.")
    stores[1].rows.clear()
    (alone.log.parent / "new.json").unlink()
    pair = make(stores=stores)
    async with pair.slot:
        await pair.record("I like mate.")
        await pair.slot.before_turn("What do I like?", session_id="s2")
        assert any("opened over" in warning for warning in (await pair.state())["warnings"])
    later = _again(make, pair)
    async with later.slot:
        assert any("opened over" in warning for warning in (await later.state())["warnings"])


async def test_a_shadow_that_kept_up_is_fair_in_every_process(make: Make) -> None:
    pair = make()
    async with pair.slot:
        await pair.slot.before_turn("What do I like?", session_id="s2")
        await pair.record("I like oolong.")
        await pair.slot.before_turn("What do I like?", session_id="s2")
        await pair.slot.reset_scope(ADA)
        await pair.record("I like mate.")
        await pair.slot.before_turn("What do I like?", session_id="s2")
    for _ in range(2):
        pair = _again(make, pair)
        async with pair.slot:
            await pair.slot.before_turn("What do I like?", session_id="s2")
            await pair.record("I like mate, too.")
            assert (await pair.slot.health()).status == "ok"


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"{}", b'{"unlike": 1}'])
async def test_facts_that_cannot_be_read_are_said_and_kept(
    make: Make, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "log" / "new.json"
    file.parent.mkdir()
    file.write_bytes(content)
    pair = make()
    async with pair.slot:
        await pair.record("I like oolong.")
        assert (await pair.slot.health()).status == "degraded"
        assert any("new.json is damaged" in warning for warning in (await pair.state())["warnings"])
    assert file.read_bytes() == content


async def test_no_word_that_was_said_is_among_the_facts(make: Make) -> None:
    pair = make()
    async with pair.slot:
        await pair.record("I like oolong.")
    facts = (pair.log.parent / "new.json").read_text(encoding="utf-8")
    assert "oolong" not in facts
    assert set(json.loads(facts)) == {"begun", "open", "primary_unsure", "unlike", "unreset"}
