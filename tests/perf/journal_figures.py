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
from memory.runtime._replay import replay
from memory.storage.journal import Journal
from memory.storage.resets import JournalKey
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore
from memory.testing import FakeBackend

WRITES, ROUNDS, PAST = 3000, 10, 1000
logging.disable(logging.WARNING)


async def cost(durability: Durability, target_ms: float) -> None:
    """Writes over the in-memory backend, with and without a journal in turns, so that other load hits both."""
    rounds: list[list[float]] = []
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(SqliteStore(Path(directory, "memslot.db")), durability=durability)
        async with (
            MemorySlot(FakeBackend(), scope=SCOPE) as bare,
            MemorySlot(FakeBackend(), scope=SCOPE, journal=journal) as kept,
        ):
            for first in range(0, WRITES, WRITES // ROUNDS):
                took: dict[MemorySlot, list[float]] = {bare: [], kept: []}
                for number in range(first, first + WRITES // ROUNDS):
                    turn = event(number)
                    for slot in (bare, kept) if number % 2 else (kept, bare):
                        started = time.perf_counter()
                        await slot.record_event(turn)
                        took[slot].append((time.perf_counter() - started) * 1000)
                rounds.append([at(took[kept], share) - at(took[bare], share) for share in (0.5, 0.95)])
    p50, p95 = (statistics.median(column) for column in zip(*rounds, strict=True))
    name = f"journal adds to a write, durability {durability}, p50/p95"
    least = min(p95 for _, p95 in rounds)
    show(name, f"{p50:.3f} / {p95:.3f} (least {least:.3f}) ms", f"< {target_ms} ms p95", p95 < target_ms)


def at(times: list[float], share: float) -> float:
    return sorted(times)[int(share * len(times))]


def mem0(place: str, name: str) -> MemslotConfig:
    return load_config(
        {"memory": {"backend": "mem0", "backends": {"mem0": {}}, "data_dir": f"{place}/{name}"}}
    )


async def replaying() -> None:
    """Into embedded mem0, beside its own bulk call. The questions that a replay ends with are shown apart."""
    ratios, asking = [], []
    events = [event(number) for number in range(PAST)]
    for number in range(6):
        with (
            tempfile.TemporaryDirectory() as place,
            Journal(SqliteStore(Path(place, "memslot.db"))) as journal,
        ):
            await journal.append(JournalKey.of("mem0", "", SCOPE, {}), events, send=False)

            async def native(slot: MemorySlot) -> object:
                bulk = slot.capability(SupportsBulkIngest)
                assert bulk is not None
                return await bulk.record_events(events)

            written: list[float] = []

            async def replayed(slot: MemorySlot, written: list[float] = written) -> object:
                return await replay(
                    journal, slot, "target", progress=lambda *_: written.append(time.perf_counter())
                )

            took = {}
            for way in (native, replayed) if number % 2 else (replayed, native):
                async with build_slot(mem0(place, way.__name__)) as slot:
                    await slot.setup_scope(SCOPE)
                    started = time.perf_counter()
                    await way(slot)
                    ended = time.perf_counter()
                    if way is replayed:
                        asking.append(ended - written[-1])
                        ended = written[-1]
                    took[way.__name__] = ended - started
            ratios.append(took["native"] / took["replayed"])
    ratio = statistics.median(ratios)
    show("  the questions a replay asks afterwards", f"{statistics.median(asking):.2f} s", "")
    show(
        f"replay of {PAST:,} events into mem0, speed over its bulk",
        f"x {ratio:.2f} (most {max(ratios):.2f})",
        ">= 0.9",
        ratio >= 0.9,
        failed=max(ratios) < 0.3,
    )


async def main() -> None:
    await cost("process", 0.3)
    await cost("machine", 5.0)
    await replaying()
    finish()


if __name__ == "__main__":
    anyio.run(main)
