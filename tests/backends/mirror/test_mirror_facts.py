"""What a mirror must not forget with its process: a shadow's failed reset, and a lag."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from test_mirror import ADA, PATIENT_S, Pair, make

__all__ = ["make"]

Make = Callable[..., Pair]


def _again(make, pair, **fields):
    """A fresh process over the same stores and files."""
    return make(stores=(pair.ours, pair.theirs), **fields)


async def test_a_shadows_failed_reset_is_known_to_the_next_process(make):
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
        await later.delivered()
        assert later.texts(later.theirs) == ["new"], "reset first, then written"
        assert (await later.slot.health()).status == "ok"


@pytest.mark.parametrize("at", ["before", "primary", "shadow"])
async def test_a_reset_cut_short_is_finished_by_the_next_process(make, monkeypatch, at):
    """Killed before the primary's reset, between the two, and before the shadow's."""
    pair = make()
    with anyio.CancelScope() as killed:
        async with pair.slot:
            await pair.record("erased")
            await pair.shadow.drained(PATIENT_S)
            primary, reset = pair.adapter._primary, pair.adapter._primary.reset_scope

            async def cut(scope, *within_s):
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
        assert later.texts(later.theirs) == later.texts(later.ours) == []
        assert (await later.slot.health()).status == "ok"


async def test_a_reset_that_the_primary_refuses_takes_nothing_from_the_shadow(make):
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


async def test_what_waits_for_a_shadow_is_delivered_by_the_next_process(make):
    pair = make(drain_s=0.05)
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two", "three")
    assert pair.texts(pair.theirs) == []
    later = _again(make, pair)
    async with later.slot:
        await later.delivered()
        assert later.texts(later.theirs) == ["one", "two", "three"]
        assert (await later.slot.health()).status == "ok"


async def test_no_word_that_was_said_stays_once_a_shadow_has_it(make):
    pair = make()
    async with pair.slot:
        await pair.record("I like oolong.")
        await pair.delivered()
    with closing(sqlite3.connect(pair.file)) as db:
        assert "oolong" not in "".join(db.iterdump())
