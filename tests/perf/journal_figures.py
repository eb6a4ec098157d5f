"""Prints what the journal costs a write, and what a replay costs beside native bulk: ratios within one run.

python tests/perf/journal_figures.py
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
from figures import SCOPE, event, finish, show

from memory import MemorySlot, SupportsBulkIngest
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.runtime.replay import replay
from memory.slot.journal import Durability, Journal
from memory.testing import FakeBackend

WRITES, PAST = 1500, 400
logging.disable(logging.WARNING)


async def writes(journal: Journal | None) -> list[float]:
    """ms of each write over the in-memory backend."""
    took = []
    async with MemorySlot(FakeBackend(), scope=SCOPE, journal=journal) as slot:
        for number in range(WRITES):
            started = time.perf_counter()
            await slot.record_event(event(number))
            took.append((time.perf_counter() - started) * 1000)
    return sorted(took)


async def cost(durability: Durability, target_ms: float) -> None:
    added = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            bare = await writes(None)
            kept = await writes(Journal(Path(directory, "j.db"), durability=durability))
        added.append([kept[int(share * WRITES)] - bare[int(share * WRITES)] for share in (0.5, 0.95)])
    p50, p95 = (statistics.median(column) for column in zip(*added, strict=True))
    name = f"journal adds to a write, durability {durability}, p50/p95"
    show(name, f"{p50:.3f} / {p95:.3f} ms", f"< {target_ms} ms p95", p95 < target_ms)


def mem0(place: str, name: str) -> MemslotConfig:
    return load_config(
        {"memory": {"backend": "mem0", "backends": {"mem0": {}}, "data_dir": f"{place}/{name}"}}
    )


async def replaying() -> None:
    """Into embedded mem0, beside its own bulk call."""
    ratios = []
    events = [event(number) for number in range(PAST)]
    for number in range(3):
        with tempfile.TemporaryDirectory() as place, Journal(Path(place, "j.db")) as journal:
            await journal.append(events)
            async with build_slot(mem0(place, "native")) as slot:
                await slot.setup_scope(SCOPE)
                bulk = slot.capability(SupportsBulkIngest)
                assert bulk is not None
                started = time.perf_counter()
                await bulk.record_events(events)
                native = time.perf_counter() - started
            async with build_slot(mem0(place, "replayed")) as slot:
                started = time.perf_counter()
                await replay(journal, slot, f"target-{number}")
                ratios.append(native / (time.perf_counter() - started))
    ratio = statistics.median(ratios)
    show(
        f"replay of {PAST:,} events into mem0, speed over its bulk",
        f"x {ratio:.2f}",
        ">= 0.9",
        ratio >= 0.9,
        failed=ratio < 0.5,
    )


async def main() -> None:
    await cost("process", 0.3)
    await cost("machine", 5.0)
    await replaying()
    finish()


if __name__ == "__main__":
    anyio.run(main)
