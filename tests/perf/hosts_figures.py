"""What a binding adds to a host's turn, with a memory that answers at once: the time a turn spends in it.

python tests/perf/hosts_figures.py        in an environment that has the hosts' SDKs
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import anyio

from memory.hosts._table import HOSTS
from memory.runtime import HostTurns
from memory.testing import HostModel

SUITE = Path(__file__).resolve().parents[1] / "hosts" / "with_sdks"
TURNS = 60
CLASSES = {
    "langchain": "TestMiddleware",
    "openai-agents": "TestOpenAIAgents",
    "llama-index": "TestLlamaIndex",
    "crewai": "TestCrewAI",
    "strands": "TestStrands",
    "adk": "TestADK",
    "pydantic-ai": "TestPydanticAI",
    "agent-framework": "TestAgentFramework",
    "hermes": "TestHermes",
}
spent: list[float] = []


def timed(name: str) -> None:
    inner = getattr(HostTurns, name)

    if name.endswith("_blocking"):

        def call(self: Any, *arguments: Any, **fields: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(self, *arguments, **fields)
            finally:
                spent.append(time.perf_counter() - began)

        setattr(HostTurns, name, call)
        return

    async def acall(self: Any, *arguments: Any, **fields: Any) -> Any:
        began = time.perf_counter()
        try:
            return await inner(self, *arguments, **fields)
        finally:
            spent.append(time.perf_counter() - began)

    setattr(HostTurns, name, acall)


async def measure(suite: Any) -> tuple[float, float, float]:
    """Milliseconds of a turn in the memory, median and 95 %, and of the whole turn."""
    inside, whole = [], []
    async with suite.on_stage(HostModel()) as stage:
        for at in range(TURNS + 5):
            spent.clear()
            began = time.perf_counter()
            await stage.host.ask(f"I like tea number {at}.", conversation=f"c{at % 5}")
            await stage.host.flush()
            if at >= 5:
                whole.append((time.perf_counter() - began) * 1000)
                inside.append(sum(spent) * 1000)
    inside.sort()
    return statistics.median(inside), inside[int(len(inside) * 0.95)], statistics.median(whole)


def main() -> None:
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(SUITE), str(SUITE.parents[1] / "support")]
    for name in ("recall", "recall_blocking", "record", "record_blocking"):
        timed(name)
    for name, suite in CLASSES.items():
        if HOSTS[name].installed is None:
            print(f"{name:16} not installed here")
            continue
        module = importlib.import_module(f"test_{HOSTS[name].module}")
        p50, p95, turn = anyio.run(measure, getattr(module, suite)())
        print(f"{name:16} in the memory {p50:6.2f} ms, p95 {p95:6.2f} ms; the whole turn {turn:7.2f} ms")


if __name__ == "__main__":
    main()
