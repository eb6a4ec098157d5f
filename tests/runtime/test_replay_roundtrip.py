"""A memory moves from mem0 to Graphiti and back, over real embedded stores, killed half-way each time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from test_replay import ADA, CITIES, event, files, kept, memslot, recorded  # noqa: F401

from memory import MemorySlot, NativeQueryRequest
from memory.contract.adapter import SupportsNativeQuery
from memory.plugins.opening import build_slot
from memory.testing import FAKE_KEY, ScriptedLLM

pytestmark = pytest.mark.thorough
COUNT = 30


async def rows(slot: MemorySlot, operation: str, within: str) -> list[Mapping[str, Any]]:
    """Every native record of Ada's."""
    await slot.setup_scope(ADA)
    asking = slot.capability(SupportsNativeQuery)
    assert asking is not None
    request = NativeQueryRequest(scope=ADA, operation=operation, arguments={"limit": 1000})
    return list((await asking.native_query(request)).raw[within])


def killed_half_way(source: Path, target: Path, enough: Callable[[], bool]) -> None:
    """Begin a replay in a process of its own, and kill it once enough has arrived."""
    command = [sys.executable, "-c", "from memory.cli import main; main()", "journal", "replay"]
    for _ in range(20):
        process = subprocess.Popen([*command, str(source), "--to", str(target)], stderr=subprocess.PIPE)
        while process.poll() is None and not enough():
            time.sleep(0.005)
        process.kill()
        _, errors = process.communicate()
        if process.returncode == -signal.SIGKILL:
            return
        assert process.returncode == 0, errors
        shutil.rmtree(target.with_suffix(""))  # it was through before this looked: once more
    raise AssertionError("it was never caught at work")


async def goes_on(source: Path, target: Path) -> dict[str, Any]:
    """Replay to the end; what is said of Ada's scope."""
    printed = await memslot("journal", "replay", source, "--to", target, "--json")
    report = json.loads(printed[printed.index("{") :])  # behind the lines of progress
    assert report["complete"]
    ada, bob = report["scopes"]
    assert (bob["events"], bob["earlier"] + bob["written"]) == (1, 1)
    assert (ada["events"], ada["earlier"] + ada["written"], ada["unknown"]) == (COUNT, COUNT, [])
    assert ada["recalled"] == ada["asked"] > 0
    return dict(ada)


async def test_every_event_goes_to_graphiti_and_back_though_both_replays_are_killed(
    files: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    first = files("first", "mem0", journal="  journal: true\n")
    back = files("back", "mem0")
    await recorded(first, COUNT)
    said = [event(number) for number in range(COUNT)]
    with ScriptedLLM() as llm:
        block = f"{{llm: {{model: scripted, base_url: '{llm.base_url}', api_key: {FAKE_KEY}}}}}"
        graph = files("graph", "graphiti", block, journal="  journal: true\n")
        killed_half_way(first, graph, lambda: len(llm.requests) > 40)
        there = await goes_on(first, graph)
        assert 0 < there["earlier"] + there["found_written"] < COUNT, "it went on in the middle"
        async with build_slot(graph) as slot:
            episodes = sorted(
                await rows(slot, "episodes", "episodes"), key=lambda episode: episode["created_at"]
            )
        assert [episode["name"] for episode in episodes] == [event.event_id for event in said], (
            "once, and in order"
        )
        assert [datetime.fromisoformat(episode["valid_at"]) for episode in episodes] == [
            event.timestamp for event in said
        ]

        killed_half_way(first, back, lambda: any((tmp_path / "back").rglob("storage.sqlite")))
        await goes_on(first, back)
    async with build_slot(back) as slot:
        records = await rows(slot, "list", "results")
        for number in (2, 16):
            question = f"Where did trip number {number} take me?"
            assert CITIES[number % len(CITIES)] in await slot.before_turn(question, session_id="later")
    arrived = {
        (record["metadata"]["event_id"], record["role"]): (
            record["memory"],
            datetime.fromisoformat(record["created_at"]),
        )
        for record in records
    }
    wanted = {
        (event.event_id, message.role): (message.content, event.timestamp)
        for event in said
        for message in event.messages
    }
    assert arrived == wanted
    assert len(records) == len(wanted), "nothing twice"
