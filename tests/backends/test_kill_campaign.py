"""Owners of embedded stores that are killed at random: nothing acknowledged is lost, nothing erased comes back.

MEMSLOT_ROUNDS=1000 pytest tests/backends/test_kill_campaign.py -s
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from embedded_stores import LOCAL, SCOPE, config, require
from embedded_stores import event as of_words

from memory import (
    MemoryEvent,
    MemorySlot,
    NativeQueryRequest,
    RetrieveRequest,
    SupportsReadiness,
)
from memory.plugins.opening import build_slot
from memory.testing import ScriptedLLM

# A round starts a process and an SDK, so CI, which asks for 200 of the cheap ones elsewhere, has a tenth here.
ROUNDS = max(5, int(os.environ.get("MEMSLOT_ROUNDS", "0")) // 10)
MESSAGES = 3
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import test_kill_campaign
test_kill_campaign.play(*sys.argv[2:])
"""


def event(number: int) -> MemoryEvent:
    """Of three messages, or facts, that nobody else says."""
    return of_words(number, *(f"word{number}x{part}" for part in range(MESSAGES)))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def play(store: str, data_dir: str, base_url: str, start: str, seed: str) -> None:
    """Write, and now and then reset, until killed; say each step before it begins, and when it is acknowledged."""
    chance = random.Random(int(seed))

    async def run() -> None:
        async with build_slot(config(store, data_dir, base_url), scope=SCOPE) as slot:
            await slot.setup_scope(SCOPE)
            say("open")
            for number in range(int(start), 10**6):
                if chance.random() < 0.06:
                    say("resetting")
                    assert (await slot.reset_scope(SCOPE)).verified
                    say("reset")
                say(f"writing {number}")
                receipt = await slot.record_event(event(number))
                if receipt.status in ("committed", "pending"):
                    say(f"written {number}")

    anyio.run(run)


@contextmanager
def writer(store: str, data_dir: Path, base_url: str, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    arguments = [store, str(data_dir), base_url, *map(str, numbers)]
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(Path(__file__).parent), *arguments]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OPENAI_API_KEY": "unused"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass
class Figures:
    """What was seen over all rounds."""

    kills: int = 0
    acknowledged: int = 0
    acknowledged_lost: int = 0
    half_stored: int = 0
    erased_found: int = 0
    false_ready: int = 0
    unhealthy: int = 0


@dataclass
class Expected:
    """What must be there, what may be, and what must be nowhere."""

    kept: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)

    def follow(self, lines: list[str]) -> int:
        """Take up what a writer said until it was killed; how many events it acknowledged."""
        written, resetting = 0, False
        for line in lines:
            word, _, number = line.partition(" ")
            if word == "writing":
                self.maybe.add(int(number))
            elif word == "written":
                self.maybe.discard(int(number))
                self.kept.add(int(number))
                written += 1
            elif word == "resetting":
                resetting = True
            elif word == "reset":
                resetting = False
                self.erased |= self.kept | self.maybe
                self.kept, self.maybe = set(), set()
        if resetting:  # nobody was told how it ended
            self.maybe |= self.kept
            self.kept = set()
        return written


async def parts_stored(slot: MemorySlot, expected: Expected) -> dict[int, int]:
    """Event -> how many of its messages are retrievable, after waiting until the slot is ready."""
    readiness = slot.capability(SupportsReadiness)
    if readiness is not None:
        assert (await readiness.wait_until_ready(SCOPE, 60)).state == "ready"
    adapter: Any = slot._adapter
    numbers = expected.kept | expected.maybe | expected.erased
    if adapter.backend_name == "rolling_summary":  # whose memory leaves things out by design
        notebook = adapter._notebooks[SCOPE]
        return {number: MESSAGES * notebook.knows(f"e{number}") for number in numbers}
    if adapter.backend_name == "full_history":
        request = RetrieveRequest(query="?", scope=SCOPE, session_id="t")
        text = (await slot.retrieve(request)).formatted_context
    else:
        operation = "edges" if adapter.backend_name == "graphiti" else "list"
        asked = NativeQueryRequest(scope=SCOPE, operation=operation)
        text = json.dumps((await adapter.native_query(asked)).raw)
    return {number: sum(f"word{number}x{part}" in text for part in range(MESSAGES)) for number in numbers}


def on_disk(directory: Path, numbers: set[int]) -> int:
    contents = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    return sum(any(f"word{number}x0".encode() in content for content in contents) for number in numbers)


@pytest.mark.thorough
@pytest.mark.parametrize("store", LOCAL)
async def test_kills_lose_nothing_and_bring_nothing_back(
    store: str, tmp_path: Path, llm: ScriptedLLM, capsys: pytest.CaptureFixture[str]
) -> None:
    require(store)
    chance, expected, figures = random.Random(7), Expected(), Figures()
    for round_ in range(ROUNDS):
        start = max((*expected.kept, *expected.maybe, *expected.erased, -1)) + 1
        with writer(store, tmp_path, llm.base_url, start, round_) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(chance.randrange(1, 60))]
            assert lines[0] == "open", "the store a kill left could not be opened"
            await anyio.sleep(chance.random() * 0.02)
            process.kill()
            lines += [line.strip() for line in process.stdout if line.endswith("\n")]
        figures.kills += 1
        figures.acknowledged += expected.follow(lines)
        async with build_slot(config(store, str(tmp_path), llm.base_url), scope=SCOPE) as slot:
            stored = await parts_stored(slot, expected)
            figures.unhealthy += (await slot.health()).status != "ok"
            lost = {number for number in expected.kept if stored[number] < MESSAGES}
            figures.acknowledged_lost += len(lost)
            figures.false_ready += bool(lost)
            figures.half_stored += sum(0 < stored[number] < MESSAGES for number in expected.maybe)
            erased = {number for number in expected.maybe if not stored[number]}
            expected.kept |= expected.maybe - erased
            expected.maybe = set()
            for number in sorted(expected.kept):  # a repeat completes what is not whole
                if 0 < stored[number] < MESSAGES:
                    adapter: Any = slot._adapter
                    await adapter.find_event(event(number))
                    await slot.record_event(event(number))
                    assert (await parts_stored(slot, expected))[number] == MESSAGES
        figures.erased_found += on_disk(tmp_path, expected.erased)
    with capsys.disabled():
        say(f"\n{store}: {figures}")
    assert figures.acknowledged > 0
    assert (figures.acknowledged_lost, figures.erased_found, figures.false_ready) == (0, 0, 0)
    assert figures.unhealthy == 0
