"""Prints what the journal costs a write.

python tests/perf/journal_figures.py
"""

import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
from figures import SCOPE, event, finish, show

from memory import MemorySlot
from memory.storage.journal import Journal
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore
from memory.testing import FakeBackend

WRITES, ROUNDS = 3000, 10
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


async def main() -> None:
    await cost("process", 0.3)
    await cost("machine", 5.0)
    finish()


if __name__ == "__main__":
    anyio.run(main)
