"""Cubes that scopes share, on a real MemOS server."""

from __future__ import annotations

import os
from typing import Any

import pytest
from memos_rig import MemosProcess
from test_memos_live import config
from test_memos_traps_live import ASYNC, FAST, FINE, able, ask, new_scope, opened, ready

from memory import SupportsReadiness
from memory.doctor.runner import run_doctor


def sharing(*cubes: str, read: bool = True) -> dict[str, Any]:
    """Options of a block whose scopes share cubes of these names, new ones for each test."""
    run = os.urandom(4).hex()
    named = [f"{cube}-{run}" for cube in cubes]
    return {"writable_cubes": named, "allow_sharing": True, "readable_cubes": named if read else []}


def in_cube(rig: MemosProcess, cube: str) -> list[str]:
    return [memory for _, owner, memory, _ in rig.memories() if owner.strip('"') == cube]


@pytest.mark.parametrize("block", [FAST, FINE, ASYNC], ids=["fast", "fine", "async"])
async def test_what_one_scope_writes_another_reads_until_it_is_reset(
    memos_rig_process: MemosProcess, block: dict[str, Any]
) -> None:
    ada, bob, shared = new_scope(), new_scope("bob"), sharing("team")
    (team,) = shared["writable_cubes"]
    async with opened(memos_rig_process, ada, **block, **shared) as memory:
        await memory.setup_scope(bob)
        receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        assert (receipt.status, len(receipt.native_ids)) == ("queued" if block is ASYNC else "committed", 2)
        assert (await ready(memory))[0] == "ready"
        own, copy = (await ask(memory, "Where do I live?")).entries
        assert (own.labels, copy.labels) == ((), (("cube", team),))
        (read,) = (await ask(memory, "Where do I live?", scope=bob)).entries
        assert (read.native_id, read.event_ids) == (copy.native_id, (receipt.event_id,))
        assert "Berlin" in read.text
        await memory.after_turn(session_id="s", user="I live in Lyon.", scope=bob)
        await able(memory, SupportsReadiness).wait_until_ready(bob, 30)
        reset = await memory.reset_scope(ada)
        assert (reset.verified, reset.removed, reset.left) == (True, 2, ())
        (stays,) = in_cube(memos_rig_process, team)
        assert "Lyon" in stays
        (found,) = (await ask(memory, "Where do I live?")).entries
        assert "Lyon" in found.text
        assert (await memory.reset_scope(bob)).removed == 2
    assert in_cube(memos_rig_process, team) == []


async def test_with_redis_every_cube_is_waited_for(memos_redis_rig: MemosProcess) -> None:
    shared = sharing("team")
    async with opened(memos_redis_rig, scheduler="redis", **shared) as memory:
        with memos_redis_rig.llm_fault("late", endpoint="chat/completions", delay_s=1.0):
            await memory.after_turn(session_id="s", user="I live in Berlin.")
            assert (await ready(memory, 0.2))[0] == "pending"
        assert (await ready(memory))[0] == "ready"
        texts = [entry.text for entry in (await ask(memory, "Where do I live?")).entries]
        assert texts == ["I live in Berlin."] * 2, "the model's, of both cubes"


@pytest.mark.parametrize("kind", ["500", "bad_content"])
async def test_a_model_that_fails_is_told_of_every_cube(memos_rig_process: MemosProcess, kind: str) -> None:
    shared = sharing("team")
    async with opened(memos_rig_process, **shared) as memory:
        with memos_rig_process.llm_fault(kind, endpoint="chat/completions"):
            await memory.after_turn(session_id="s", user="I live in Berlin.")
            state, detail = await ready(memory)
    assert state == ("failed" if kind == "500" else "unknown")
    assert f"in the shared cube {shared['writable_cubes'][0]}: " in detail


async def test_cubes_come_in_the_order_they_are_asked_for(memos_rig_process: MemosProcess) -> None:
    """Asked many times, because the server gives them as it is done with them."""
    shared = sharing("a", "b", "c")
    async with opened(memos_rig_process, **FAST, **shared) as memory:
        receipt = await memory.after_turn(session_id="s", user="I live in Berlin.")
        asked, native = set(), set()
        for _ in range(30):
            result = await ask(memory, "Where do I live?")
            asked.add(tuple(entry.native_id for entry in result.entries))
            native.add(tuple(bucket["cube_id"] for bucket in result.raw["text_mem"]))
    assert asked == {receipt.native_ids}
    assert all(len(cubes) == 4 for cubes in native)


async def test_the_doctor_tells_a_cube_that_is_written_from_one_that_is_read_as_well(
    memos_rig_process: MemosProcess,
) -> None:
    block = {**FAST, **sharing("team", read=False)}
    report = await run_doctor(config(memos_rig_process.url, **block))
    assert report.ok, report
    assert in_cube(memos_rig_process, block["writable_cubes"][0]) == []
    read = {**block, "readable_cubes": block["writable_cubes"]}
    assert (await run_doctor(config(memos_rig_process.url, **read))).failed == ("isolation",)
