"""Writers through faults, over the reference adapter and embedded mem0: what was acknowledged and lost, as a table.

python tests/perf/fault_history_figures.py [OPERATIONS]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "contract"), str(ROOT / "support")]

from fault_history import play  # noqa: E402
from mutant_runs import FakeProfile  # noqa: E402
from profiles import Mem0  # noqa: E402

from memory.plugins.config import load_config  # noqa: E402
from memory.plugins.registry import MemoryAdapterRegistry  # noqa: E402
from memory.testing import FakeBackend, FakeNativeStore  # noqa: E402


def row(name: str, make: Callable[[], Any], profile: Any, kinds: tuple[str, ...], operations: int) -> None:
    async def run() -> Any:
        return await play(make, profile.native_fault, kinds, operations=operations, seed=1)

    history = anyio.run(run)
    outcomes = ", ".join(f"{count} {status}" for status, count in history.outcomes.most_common())
    wrong = f"{len(history.lost)} | {len(history.foreign)} | {len(history.invented)} | {len(history.doubled)}"
    print(f"| {name} | {history.operations} ({outcomes}) | {wrong} |", flush=True)


def main() -> None:
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(
        "| Memory | Operations | Acknowledged, lost | Foreign | Invented | Doubled |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as directory:
        store, fake = FakeNativeStore(), FakeProfile(Path())
        kinds = ("500", "refused", "lost", "unreadable", "429")
        row("reference adapter", lambda: FakeBackend(store, write_retries=1), fake, kinds, operations)
        settings = load_config({"memory": {"backend": "mem0", "backends": {"mem0": {}}}})
        registry, place = MemoryAdapterRegistry(), Path(directory)
        row("mem0", lambda: registry.create(settings, data_dir=place), Mem0(place), ("500",), operations)


if __name__ == "__main__":
    main()
