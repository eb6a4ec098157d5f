"""Events that a real MemOS loses: never ready, asked by whoever wrote them or by a fresh process.

    MEMOS_URL=http://127.0.0.1:8001 MODEL_CONTROL=... pytest tests/live/test_memos_ledger_live.py

The server has PostgreSQL and a local queue. What breaks it, :mod:`live_control` names.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_control import model_fails, needs_control, restart

from memory import (
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    SupportsReadiness,
    open_memory,
)

URL = os.environ.get("MEMOS_URL")

pytestmark = [needs_control, pytest.mark.skipif(not URL, reason="MEMOS_URL names no live MemOS server")]


@pytest.fixture
def scope() -> MemoryScope:
    return MemoryScope(run_id=f"live-{os.urandom(6).hex()}", persona_id="ada")


@asynccontextmanager
async def _opened(scope: MemoryScope, data_dir: Path, **block: Any) -> AsyncIterator[MemorySlot]:
    blocks = {"memos": {"url": URL, "graph_db": "postgres", **block}}
    config = {"memory": {"backend": "memos", "backends": blocks, "deadlines": {"setup_s": 60, "write_s": 60}}}
    async with open_memory(config, scope=scope, data_dir=data_dir) as memory:
        yield memory


async def _ready(memory: MemorySlot, scope: MemoryScope) -> BackendReadiness:
    readiness = memory.capability(SupportsReadiness)
    assert readiness is not None
    with anyio.fail_after(200):
        return await readiness.wait_until_ready(scope, 150.0)


@pytest.mark.parametrize("kind", ["bad_content", "empty", "500"])
async def test_turns_that_the_model_lost_are_never_ready(
    scope: MemoryScope, tmp_path: Path, kind: str
) -> None:
    async with _opened(scope, tmp_path) as memory:
        await memory.after_turn(session_id="1", user="I like sencha tea.")
        assert (await _ready(memory, scope)).state == "ready"
        with model_fails(kind):
            for drink in ("oolong", "mate", "rooibos"):
                await memory.after_turn(session_id="1", user=f"I like {drink} tea.")
            lost = await _ready(memory, scope)
        assert lost.state in ("unknown", "failed"), lost
        await memory.after_turn(session_id="1", user="I like chai tea.")
        assert (await _ready(memory, scope)).state in ("unknown", "failed")
    await restart()
    async with _opened(scope, tmp_path) as fresh:
        answer = await _ready(fresh, scope)
        assert answer.state in ("unknown", "failed"), answer
        assert (await fresh.reset_scope(scope)).verified
        assert (await _ready(fresh, scope)).state == "ready"


async def test_what_another_machine_wrote_is_unknown(scope: MemoryScope, tmp_path: Path) -> None:
    async with _opened(scope, tmp_path / "one") as memory:
        await memory.after_turn(session_id="1", user="I like sencha tea.")
        assert (await _ready(memory, scope)).state == "ready"
    async with _opened(scope, tmp_path / "one") as fresh:
        assert (await _ready(fresh, scope)).state == "ready"
    async with _opened(scope, tmp_path / "two") as elsewhere:
        assert (await _ready(elsewhere, scope)).state == "unknown"
        await elsewhere.reset_scope(scope)


async def test_what_another_process_lost_is_told_to_one_that_was_ready(
    scope: MemoryScope, tmp_path: Path
) -> None:
    async with _opened(scope, tmp_path) as reader, _opened(scope, tmp_path) as writer:
        await writer.after_turn(session_id="1", user="I like sencha tea.")
        assert (await _ready(writer, scope)).state == "ready"
        assert (await _ready(reader, scope)).state == "ready"
        with model_fails("empty"):
            await writer.after_turn(session_id="1", user="I like oolong tea.")
            assert (await _ready(writer, scope)).state in ("unknown", "failed")
        assert (await _ready(reader, scope)).state in ("unknown", "failed")
        assert (await writer.reset_scope(scope)).verified
        assert (await _ready(reader, scope)).state == "ready"


async def test_an_event_is_found_by_its_id_and_sent_again_once(scope: MemoryScope, tmp_path: Path) -> None:
    event = MemoryEvent(
        event_id="e1",
        scope=scope,
        session_id="1",
        turn_id="1",
        timestamp="2024-05-06T09:00:00Z",
        messages=(Message(role="user", content="I like sencha tea."),),
    )
    async with _opened(scope, tmp_path, async_mode="sync", mode="fast") as memory:
        first = await memory.record_event(event)
        assert first.native_ids
        assert await memory.find_event(event) == first.native_ids
        again = await memory.record_event(event)
        assert set(again.native_ids) == set(first.native_ids)
        assert await memory.find_event(event) == first.native_ids
        await memory.reset_scope(scope)
        assert await memory.find_event(event) is None
