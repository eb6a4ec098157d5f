"""Conditions that remember: they lose nothing acknowledged, and damage never looks like empty."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from one_loop import anyio_backend as anyio_backend
from said import said

from memory import BackendUnavailable, MemoryScope, MemslotError, RetrieveRequest, SupportsReadiness
from memory.plugins.opening import build_slot

ALICE, BOB = (MemoryScope(run_id="run", persona_id=persona) for persona in ("alice", "bob"))
KINDS = ("full_history", "rolling_summary")
WRITER = """
import sys, anyio
from datetime import UTC, datetime
from memory import MemoryEvent, MemoryScope, Message
from memory.plugins.opening import build_slot

async def main(kind, path, start):
    config = {"memory": {"condition": kind, "data_dir": path}}
    async with build_slot(config, scope=MemoryScope(run_id="run", persona_id="alice")) as slot:
        for number in range(int(start), 10**6):
            await slot.record_event(
                MemoryEvent(
                    event_id=f"e{number}", scope=slot.scope, session_id=f"s{number // 5}", turn_id="t",
                    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
                    messages=[Message(role="user", content=f"I prefer word{number} over other{number}.")],
                )
            )
            print(number, flush=True)

anyio.run(main, *sys.argv[1:])
"""
pytestmark = pytest.mark.parametrize("kind", KINDS)


def opened(kind, path, **fields):
    return build_slot({"memory": {"condition": kind, "data_dir": str(path)}}, **{"scope": ALICE, **fields})


def event(number, scope=ALICE):
    return said(scope, f"I prefer word{number} over other{number}.", number=number, session_id=f"s{number}")


async def known(slot, number):
    """Whether the event is stored: then the condition says so when it is recorded again."""
    return "recorded before" in str((await slot.record_event(event(number))).warnings)


async def recalled(slot, scope=ALICE):
    if (readiness := slot.capability(SupportsReadiness)) is not None:
        assert (await readiness.wait_until_ready(scope, 5)).state == "ready"
    return (await slot.retrieve(RetrieveRequest(query="?", scope=scope, session_id="t"))).formatted_context


async def filled(kind, path, count=3):
    async with opened(kind, path) as slot:
        for number in range(count):
            await slot.record_event(event(number))
        assert "word0" in await recalled(slot)


def changed(path, statement):
    with closing(sqlite3.connect(path / "memslot.db")) as db, db:
        assert db.execute(statement).rowcount == 1


def bytes_in(path):
    return [file.read_bytes() for file in path.rglob("*") if file.is_file()]


@pytest.mark.thorough
async def test_what_was_acknowledged_survives_a_kill(kind, tmp_path):
    """Killed at random, five times over one directory: every event whose receipt was seen is there."""
    chance = random.Random(3)
    acknowledged = []
    for _ in range(5):
        # One after the last seen may have been written without its receipt having been seen.
        start = acknowledged[-1] + 2 if acknowledged else 0
        command = [sys.executable, "-c", WRITER, kind, str(tmp_path), str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                acknowledged.append(int(process.stdout.readline()))
            os.kill(process.pid, signal.SIGKILL)
            acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        async with opened(kind, tmp_path) as slot:
            assert [number for number in acknowledged if not await known(slot, number)] == []
            assert (await slot.health()).status == "ok"


async def test_an_unreadable_row_is_named_and_blocks_nothing(kind, tmp_path):
    await filled(kind, tmp_path)
    changed(tmp_path, "UPDATE condition_events SET event = '{' WHERE seq = 2")
    if kind == "rolling_summary":
        changed(tmp_path, "UPDATE condition_scopes SET progress = '{}', summary = ''")
    async with opened(kind, tmp_path) as slot:
        found = await slot.retrieve(RetrieveRequest(query="?", scope=ALICE, session_id="t"))
        wrong = "unreadable and left out: 1 row of condition_events (2); restore the store"
        assert wrong in str(found.trace.warnings)
        health = await slot.health()
        assert (health.status, wrong in str(health.warnings)) == ("degraded", True)
        await slot.record_event(event(9))
        shown = await recalled(slot)
        assert [f"word{number} " in shown for number in (0, 1, 2, 9)] == [True, False, True, True]
        assert (await slot.reset_scope(ALICE)).verified
        assert (await slot.health()).status == "ok"


@pytest.mark.parametrize("progress", ["[]", "{}x", '{"done": -3}', '{"more": 1}'])
async def test_a_progress_of_wrong_values_is_an_error(kind, progress, tmp_path):
    if kind == "full_history":
        pytest.skip("it has none")
    await filled(kind, tmp_path)
    changed(tmp_path, f"UPDATE condition_scopes SET progress = '{progress}'")
    async with opened(kind, tmp_path, scope=None) as slot:
        with pytest.raises(BackendUnavailable, match=r"is not as it was written; .* or reset the scope"):
            await slot.setup_scope(ALICE)
        assert (await slot.reset_scope(ALICE)).verified
        await slot.setup_scope(ALICE)


async def test_a_store_that_cannot_be_used_is_an_error_at_the_start(kind, tmp_path):
    await filled(kind, tmp_path)
    (tmp_path / "memslot.db").write_bytes(b"no database at all" * 99)
    with pytest.raises(MemslotError, match="damaged, or not a SQLite file"):
        async with opened(kind, tmp_path):
            pass


async def test_a_read_creates_nothing(kind, tmp_path):
    adapter = opened(kind, tmp_path / "kept", scope=None)._adapter
    result = await adapter.retrieve(RetrieveRequest(query="q", scope=ALICE, session_id="s"))
    assert (result.entries, (tmp_path / "kept").exists()) == ((), False)
