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

import kuzu
from figures import event, percentile, request, show

from memory import MemoryScope, open_memory
from memory.testing import ScriptedLLM

BARE_GROUP = "bare"


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


def stock(directory: str, clients: Any) -> Any:
    """Graphiti on its own Kuzu driver, with the two lines that make it run."""
    from graphiti_core import Graphiti
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.driver.kuzu_driver import KuzuDriver
    from graphiti_core.graph_queries import get_fulltext_indices

    driver = KuzuDriver(f"{directory}/stock.kuzu")
    driver._database = BARE_GROUP
    with kuzu.Connection(driver.db) as connection:
        for query in get_fulltext_indices(GraphProvider.KUZU):
            connection.execute(query)
    return Graphiti(
        graph_driver=driver,
        llm_client=clients.llm,
        embedder=clients.embedder,
        cross_encoder=clients.cross_encoder,
    )


async def measure(slot: Any, graphiti: Any, recipe: Any, rounds: int) -> tuple[list[Any], list[Any]]:
    """(bare, ours) of as many adds and searches, in turns."""
    from graphiti_core.nodes import EpisodeType

    adds, searches = [], []
    group_id = graphiti.driver._database
    for number in range(rounds):
        told = event(number, slot.scope, f"I like my tea number zq{number} very much.")

        async def bare_add(told: Any = told) -> None:
            await graphiti.add_episode(
                name=told.event_id,
                episode_body=f"user: {told.messages[0].content}",
                source_description="chat",
                reference_time=told.timestamp,
                source=EpisodeType.message,
                group_id=group_id,
            )

        async def our_add(told: Any = told) -> None:
            await slot.record_event(told)

        async def bare_search() -> None:
            await graphiti.search_("which tea number 7", config=recipe, group_ids=[group_id])

        async def our_search() -> None:
            await slot.retrieve(request(slot.scope, max_items=10))

        for bare, ours, pairs in ((bare_add, our_add, adds), (bare_search, our_search, searches)):
            order = (bare, ours) if number % 2 else (ours, bare)
            took = {call: await timed(call) for call in order}
            pairs.append((took[bare], took[ours]))
    return adds[5:], searches[5:]


async def main(rounds: int) -> None:
    with ScriptedLLM() as llm, tempfile.TemporaryDirectory() as directory:
        options = {"llm": {"model": "scripted", "base_url": llm.base_url}}
        memory = {"backend": "graphiti", "data_dir": directory, "backends": {"graphiti": options}}
        for bare in ("Graphiti on its own driver", "Graphiti on memslot's driver"):
            scope = MemoryScope(run_id="perf", persona_id=bare)
            async with open_memory({"memory": memory}, scope=scope) as slot:
                other = MemoryScope(run_id="perf", persona_id=f"bare {bare}")
                await slot.setup_scope(other)
                adapter: Any = slot._adapter
                graph = adapter._graphs[adapter.native_scope(other)["group_id"]]
                own = bare.endswith("own driver")
                graphiti = stock(directory, adapter._clients) if own else graph.graphiti
                adds, searches = await measure(slot, graphiti, graph._recipe(10), rounds)
                print(f"bare: {bare}")
                report("add_episode", adds, 1)
                report("search_", searches, 2)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
