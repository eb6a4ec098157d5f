"""Two machines with one state, servers that stand still, and events that come again, on real Honcho and MemOS.

HONCHO_SOURCE=~/honcho pytest tests/live/test_two_machines_live.py
make live-memos ARGS=-kmachines
"""

import os
import time

import anyio
import honcho_rig
import memos_rig
import pytest

from memory import (
    BackendTimeout,
    BackendUnavailable,
    MemoryScope,
    MemslotError,
    SupportsReadiness,
    open_memory,
)

DEADLINE_S = 3.0
# What the model does so that Honcho's worker and MemOS' scheduler lose an event without a word.
LOSES = {"honcho": "empty", "memos": "bad_content"}
STORED = {
    "honcho": "SELECT content FROM messages WHERE workspace_name = '%s' ORDER BY id",
    "memos": "SELECT memory FROM memos.memories WHERE user_name = '%s' ORDER BY created_at",
}


def _needs(kind, missing):
    return pytest.param(kind, marks=pytest.mark.skipif(bool(missing), reason=missing))


@pytest.fixture(params=[_needs("honcho", honcho_rig.missing()), _needs("memos", memos_rig.missing())])
def kind(request):
    return str(request.param)


@pytest.fixture
def rig(kind, request):
    found = request.getfixturevalue(f"{kind}_rig_process")
    return found


@pytest.fixture
def scope():
    return MemoryScope(run_id=os.urandom(6).hex(), persona_id="ada")


def machine(kind, rig, directory, **options):
    block = {"base_url": rig.url} if kind == "honcho" else {"url": rig.url, "graph_db": "postgres"}
    place = {"data_dir": str(directory), **options}
    return {"memory": {"backend": kind, "backends": {kind: block}, **place}}


async def ready(memory, timeout_s=120.0):
    readiness = memory.capability(SupportsReadiness)
    assert memory.scope is not None
    return await readiness.wait_until_ready(memory.scope, timeout_s)


async def sent(memory, number):
    """Send a numbered event, perhaps again; whether it is known to be stored, or waits in the journal."""
    try:
        receipt = await memory.after_turn(
            session_id="1", user=f"I own {number} boats.", event_id=f"e{number}"
        )
    except MemslotError:
        return False
    return receipt.status != "unknown"


def stored(kind, rig, memory, scope):
    native = memory.native_scope(scope)
    return [
        text for (text,) in rig.rows(STORED[kind] % native["workspace_id" if kind == "honcho" else "cube_id"])
    ]


async def test_no_machine_is_ready_over_what_another_one_lost(kind, rig, scope, tmp_path):
    def opened(name):
        return open_memory(machine(kind, rig, tmp_path / name, state=rig.database), scope=scope)

    async with opened("a") as first, opened("b") as second:
        await first.after_turn(session_id="1", user="I own 1 boat.", event_id="e1")
        assert (await ready(first)).state == "ready"
        with rig.llm_fault(LOSES[kind], endpoint="chat/completions"):
            for number in (2, 3):
                await second.after_turn(session_id="1", user=f"I own {number} boats.", event_id=f"e{number}")
                assert (await ready(second)).state == "unknown"
        assert (await ready(first)).state == "unknown"
    async with opened("a") as fresh:
        assert (await ready(fresh)).state == "unknown"
        assert (await fresh.reset_scope(scope)).verified
        assert (await ready(fresh)).state == "ready"
    async with opened("b") as other:
        assert (await ready(other)).state == "ready"


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("part", ["database", "api"])
async def test_what_stands_still_loses_and_doubles_nothing(kind, rig, scope, tmp_path, part, journal):
    """A write ends by its deadline. Later the events are there once each, in their order."""
    deadlines = {"write_s": DEADLINE_S}
    # What is looked at below is the text as it was sent.
    settings = machine(kind, rig, tmp_path, journal=journal, deadlines=deadlines)
    if kind == "memos":
        settings["memory"]["backends"]["memos"] |= {"async_mode": "sync", "mode": "fast"}
    async with open_memory(settings, scope=scope) as memory:
        await memory.after_turn(session_id="1", user="I own 0 boats.", event_id="e0")
        with rig.stopped(part):
            for number in (1, 2):
                began = time.monotonic()
                said = ""
                try:
                    receipt = await memory.after_turn(
                        session_id="1", user=f"I own {number} boats.", event_id=f"e{number}"
                    )
                    said = " ".join(receipt.warnings)
                    assert receipt.status in ("unknown", "queued")
                except (BackendTimeout, BackendUnavailable) as error:
                    said = str(error)
                assert said
                assert time.monotonic() - began < DEADLINE_S + 2.0
                assert number == 1 or "wait" in said or "earlier" in said, said
        for number in (1, 2, 3):
            with anyio.fail_after(60):
                while not await sent(memory, number):  # noqa: ASYNC110
                    await anyio.sleep(0.2)
        with anyio.fail_after(60):
            while memory.delivery.waiting(scope):
                await memory.delivery.deliver(scope)
                await anyio.sleep(0.2)
        await ready(memory)
        found = stored(kind, rig, memory, scope)
        assert [text.partition("own ")[2][:1] for text in found] == ["0", "1", "2", "3"]
        await memory.reset_scope(scope)


async def test_an_event_that_comes_again_is_stored_once(kind, rig, scope, tmp_path):
    """By the slot that sent it, and by a later process that has a journal."""
    settings = machine(kind, rig, tmp_path, journal=True)
    for _ in range(2):
        async with open_memory(settings, scope=scope) as memory:
            for _ in range(2):
                await memory.after_turn(session_id="1", user="I own a boat.", event_id="e1")
            assert (await ready(memory)).state == "ready"
            assert len(stored(kind, rig, memory, scope)) == 1
    async with open_memory(machine(kind, rig, tmp_path / "other"), scope=scope) as memory:
        for _ in range(2):
            await memory.after_turn(session_id="1", user="I own a car.", event_id="e2")
        await ready(memory)
        assert len(stored(kind, rig, memory, scope)) == 2
        await memory.reset_scope(scope)
