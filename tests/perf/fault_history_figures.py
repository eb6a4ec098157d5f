"""Writers through faults, over the reference adapter and embedded stores: what was acknowledged and lost.

python tests/perf/fault_history_figures.py [OPERATIONS]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "contract"), str(ROOT / "support")]

from fault_history import History, play  # noqa: E402
from mutant_runs import FakeProfile  # noqa: E402

from conditions._conformance import InTables  # noqa: E402
from memory.backends.mem0.conformance import Mem0Conformance  # noqa: E402
from memory.plugins.config import load_config  # noqa: E402
from memory.plugins.registry import MemoryAdapterRegistry  # noqa: E402
from memory.testing import FakeBackend, FakeNativeStore  # noqa: E402

_AT_A_TIME = 400
STORES = [
    ("mem0", "backend", Mem0Conformance),
    ("simple_rag", "condition", Mem0Conformance),
    ("full_history", "condition", InTables),
]


def row(name: str, make: Callable[[], Any], profile: Any, kinds: tuple[str, ...], operations: int) -> None:
    async def run() -> History:
        """Scopes of their own every few hundred operations: who looks for a word goes through all of its scope."""
        whole = History()
        while whole.operations < operations:
            few = min(_AT_A_TIME, operations - whole.operations)
            part = await play(make, profile.native_fault, kinds, operations=few, seed=whole.operations + 1)
            whole.operations += part.operations
            whole.outcomes += part.outcomes
            for name in ("lost", "foreign", "invented", "doubled"):
                getattr(whole, name).extend(getattr(part, name))
        return whole

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
        registry, place = MemoryAdapterRegistry(), Path(directory)
        for name, kind, profile in STORES:
            settings = load_config({"memory": {kind: name, f"{kind}s": {name: {}}}})
            made = partial(registry.create, settings, data_dir=place)
            row(name, made, profile(place), ("500",), operations)


if __name__ == "__main__":
    main()
