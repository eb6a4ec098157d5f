"""Prints what memslot adds to Graphiti's own calls, in turns with them within one run. Not a timed test.

python tests/perf/graphiti_figures.py [rounds]

The scripted LLM answers at once, so the ratios are the worst there can be: a real model takes seconds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from figures import event, percentile, request, show

from memory import MemoryScope, open_memory
from memory.testing import ScriptedLLM

BARE, OURS = (MemoryScope(run_id="perf", persona_id=name) for name in ("bare", "ours"))


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


def report(name: str, pairs: list[tuple[float, float]], target: float) -> None:
    bare, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    extra = statistics.median(b - a for a, b in pairs)
    share = 100 * extra / bare
    p95 = [percentile(list(side), 95) for side in zip(*pairs, strict=True)]
    show(
        f"{name}: bare {bare:.2f} ms, with adapter and slot {ours:.2f} ms",
        f"{extra:+.3f} ms, {share:+.2f} %",
        f"< {target:g} % (p95 {p95[0]:.1f} / {p95[1]:.1f})",
        share < target,
    )


async def main(rounds: int) -> None:
    from graphiti_core.nodes import EpisodeType

    with ScriptedLLM() as llm, tempfile.TemporaryDirectory() as directory:
        options = {"llm": {"model": "scripted", "base_url": llm.base_url}}
        memory = {"backend": "graphiti", "data_dir": directory, "backends": {"graphiti": options}}
        async with open_memory({"memory": memory}, scope=OURS) as slot:
            await slot.setup_scope(BARE)
            adapter: Any = slot._adapter
            graph = adapter._graphs[adapter.native_scope(BARE)["group_id"]]
            recipe = graph._recipe(10)
            adds, searches = [], []
            for number in range(rounds):
                told = event(number, OURS, f"I like my tea number zq{number} very much.")

                async def bare_add(told: Any = told) -> None:
                    await graph.graphiti.add_episode(
                        name=told.event_id,
                        episode_body=f"user: {told.messages[0].content}",
                        source_description="chat",
                        reference_time=told.timestamp,
                        source=EpisodeType.message,
                        group_id=graph.group_id,
                    )

                async def our_add(told: Any = told) -> None:
                    await slot.record_event(told)

                async def bare_search() -> None:
                    await graph.graphiti.search_(
                        "which tea number 7", config=recipe, group_ids=[graph.group_id]
                    )

                async def our_search() -> None:
                    await slot.retrieve(request(BARE, max_items=10))

                for bare, ours, pairs in ((bare_add, our_add, adds), (bare_search, our_search, searches)):
                    order = (bare, ours) if number % 2 else (ours, bare)
                    took = {call: await timed(call) for call in order}
                    pairs.append((took[bare], took[ours]))
            report("add_episode", adds[5:], 1)
            report("search_", searches[5:], 2)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
