"""Prints what memslot adds to Graphiti's own calls, in turns with them within one run. Not a timed test.

python tests/perf/graphiti_figures.py [rounds] [driver ...]

On Kuzu and on falkordblite, where they are installed; what is left out is said.

In turns with a careful caller by hand: a recipe of its own, the group named, times in UTC. Whole calls are
compared. The line below says what a call of the slot takes outside the native call that it makes, less what the
caller by hand does there; other load on the machine hardly touches that. Both sides hold the same few hundred
facts. The scripted LLM answers at once, so the ratios are the worst there can be: a real model takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import psutil
from figures import START, event, finish, percentile, request, show

from memory import MemoryEvent, MemoryScope, MemorySlot, RetrieveRequest, open_memory
from memory.testing import ScriptedLLM

FACTS, PAIRS = 300, 4
MODULES = {"kuzu": "kuzu", "falkordblite": "redislite"}
DRIVER = "kuzu"
"""Which of them is measured."""
Rounds = tuple[list[tuple[float, float]], list[float]]
"""Of :func:`abba`."""
THINGS = [
    "passport",
    "bicycle",
    "teapot",
    "umbrella",
    "violin",
    "camera",
    "garden",
    "sofa",
    "kettle",
    "lantern",
    "atlas",
    "kayak",
]


def resident() -> int:
    """Bytes of this process, and of a server it started."""
    process = psutil.Process()
    return int(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))))


def said(number: int) -> str:
    thing = THINGS[number % len(THINGS)]
    return f"I keep my {thing} number {number} in room {number % 17}, next to the {THINGS[number % 7]}."


async def seed(graphiti: Any, group_id: str, facts: int = FACTS) -> None:
    """The same facts, saved as Graphiti saves them, without asking a model three hundred times."""
    from graphiti_core.edges import EntityEdge
    from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode
    from graphiti_core.utils.bulk_utils import add_nodes_and_edges_bulk

    common: dict[str, Any] = {"group_id": group_id, "created_at": START}
    names = ["user", *THINGS]
    nodes = [EntityNode(name=name, labels=["Entity"], **common) for name in names]
    episodes, edges = [], []
    for number in range(facts):
        episode = EpisodicNode(
            name=f"seed {number}",
            source=EpisodeType.message,
            source_description="{}",
            content=f"user: {said(number)}",
            valid_at=START,
            **common,
        )
        edge = EntityEdge(
            source_node_uuid=nodes[0].uuid,
            target_node_uuid=nodes[1 + number % len(THINGS)].uuid,
            name="KEEPS",
            fact=said(number),
            episodes=[episode.uuid],
            valid_at=START,
            reference_time=START,
            **common,
        )
        episodes.append(episode)
        edges.append(edge)
    await add_nodes_and_edges_bulk(graphiti.driver, episodes, [], nodes, edges, graphiti.embedder)


def by_hand(graphiti: Any, group_id: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(search, add) as a careful caller writes them."""
    from graphiti_core.nodes import EpisodeType
    from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_RRF
    from graphiti_core.search.search_filters import SearchFilters

    async def search(asked: RetrieveRequest) -> Any:
        recipe = EDGE_HYBRID_SEARCH_RRF.model_copy(deep=True)
        recipe.limit = asked.budget.max_items or 10
        assert recipe.edge_config is not None
        recipe.edge_config.sim_min_score = 0.0
        found = await graphiti.search_(
            asked.query, config=recipe, group_ids=[group_id], search_filter=SearchFilters()
        )
        for edge in found.edges:
            for name in ("created_at", "valid_at", "invalid_at", "expired_at", "reference_time"):
                moment = getattr(edge, name)
                if moment is not None and moment.tzinfo is None:
                    setattr(edge, name, moment.replace(tzinfo=UTC))
        return found

    async def add(event: MemoryEvent) -> Any:
        return await graphiti.add_episode(
            name=event.event_id,
            episode_body="\n".join(f"{message.role}: {message.content}" for message in event.messages),
            source_description=f"session {event.session_id}, turn {event.turn_id}",
            reference_time=event.timestamp.astimezone(UTC),
            source=EpisodeType.message,
            group_id=group_id,
        )

    return search, add


async def abba(
    bare: Callable[[int], Awaitable[Any]],
    ours: Callable[[int], Awaitable[Any]],
    inside: tuple[Inside, Inside],
    rounds: int,
) -> Rounds:
    """(bare, ours) in ms per round, each once in either order; and what ours took outside its native calls, less
    what the caller by hand did there."""
    pairs: list[tuple[float, float]] = []
    added: list[float] = []
    for number in range(-5, rounds):
        order = (bare, ours, ours, bare) if number % 2 else (ours, bare, bare, ours)
        took, outside = {bare: 0.0, ours: 0.0}, {bare: 0.0, ours: 0.0}
        for at, call in enumerate(order):
            started = time.perf_counter()
            await call(2 * (number + 5) + at // 2)
            passed = (time.perf_counter() - started) * 1000
            took[call] += passed / 2
            outside[call] += (passed - inside[call is ours].took[-1]) / 2
        if number >= 0:
            pairs.append((took[bare], took[ours]))
            added.append(outside[ours] - outside[bare])
    return pairs, added


class Inside:
    """How long a native call takes, each time it is made."""

    def __init__(self, graphiti: Any, name: str) -> None:
        self.took: list[float] = []
        call = getattr(graphiti, name)

        async def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return await call(*args, **kwargs)
            finally:
                self.took.append((time.perf_counter() - started) * 1000)

        setattr(graphiti, name, timed)


def report(name: str, times: Sequence[Rounds], target: float) -> None:
    pairs = [pair for seen, _ in times for pair in seen]
    added = [extra for _, extras in times for extra in extras]
    bare, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    extra = statistics.median(added)
    extras = [b - a for a, b in pairs]
    low, middle, high = statistics.quantiles(extras, n=4)
    # Of the median, as box plots are notched.
    uncertainty = 157 * (high - low) / math.sqrt(len(extras)) / bare
    show(
        f"{name}: by hand {bare:.2f} ms, by memslot {ours:.2f} ms",
        f"{100 * middle / bare:+.1f} ± {uncertainty:.1f} %",
        f"< {target:g} %",
        100 * middle / bare < target,
    )
    each = [100 * statistics.median(b - a for a, b in seen) / bare for seen, _ in times]
    show("    pair by pair", "  ".join(f"{percent:+.1f}" for percent in each) + " %")
    show(
        "    outside the native call: median, p95",
        f"{extra:.3f} ms = {100 * extra / bare:.2f} %, {percentile(added, 95):.3f} ms",
        failed=100 * extra / bare > 10 * target,
    )


def config(
    base_url: str, directory: str, driver: str = "", retrieve_s: float = 15.0, **options: Any
) -> dict[str, Any]:
    model = {"model": "scripted", "base_url": base_url, "api_key": "unused"}
    block = {"llm": model, "driver": driver or DRIVER, **options}
    deadlines = {"retrieve_s": retrieve_s}
    memory = {
        "backend": "graphiti",
        "data_dir": directory,
        "deadlines": deadlines,
        "backends": {"graphiti": block},
    }
    return {"memory": memory}


@asynccontextmanager
async def opened(llm: ScriptedLLM, directory: str, name: str, **options: Any) -> AsyncIterator[MemorySlot]:
    async with open_memory(
        config(llm.base_url, directory, **options), scope=MemoryScope(run_id="perf", persona_id=name)
    ) as slot:
        yield slot


async def native(slot: MemorySlot, name: str) -> tuple[Any, str]:
    """A ``Graphiti`` on memslot's driver for a scope of its own, and its group id."""
    other = MemoryScope(run_id="perf", persona_id=name)
    await slot.setup_scope(other)
    adapter: Any = slot._adapter
    group_id = adapter.native_scope(other)["group_id"]
    return adapter._graphs.opened[group_id].graphiti, group_id


def stock(directory: str, clients: Any) -> tuple[Any, str]:
    """Graphiti on its own Kuzu driver, with the two lines that make it run."""
    import kuzu
    from graphiti_core import Graphiti
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.driver.kuzu_driver import KuzuDriver
    from graphiti_core.graph_queries import get_fulltext_indices

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        driver = KuzuDriver(f"{directory}/stock.kuzu")
    driver._database = "stock"
    with kuzu.Connection(driver.db) as connection:
        for query in get_fulltext_indices(GraphProvider.KUZU):
            connection.execute(query)
    parts = {"llm_client": clients.llm, "embedder": clients.embedder, "cross_encoder": clients.cross_encoder}
    return Graphiti(graph_driver=driver, **parts), "stock"


async def overhead(llm: ScriptedLLM, rounds: int, where: str) -> None:
    """The same search, and an add of the same text, by hand and by slot and adapter.

    On several pairs of graphs: where its memory happens to lie makes one up to 3 % slower than the other, by hand
    too, and most often the one that is made first.
    """
    print(f"bare: Graphiti on {where}, {FACTS} facts, {PAIRS} pairs of graphs")
    seen = [await compared(llm, rounds, where, ours_first=at % 2 == 0) for at in range(PAIRS)]
    for name, target, times in zip(("search_", "add_episode"), (2, 1), zip(*seen, strict=True), strict=True):
        report(name, times, target)


async def compared(llm: ScriptedLLM, rounds: int, where: str, *, ours_first: bool) -> tuple[Rounds, Rounds]:
    """Searches and adds on one pair of graphs."""
    with tempfile.TemporaryDirectory() as directory:
        async with opened(llm, directory, "other") as slot:
            adapter: Any = slot._adapter
            made = {}
            for name in ("ours", "bare") if ours_first else ("bare", "ours"):
                own = where.startswith("its") and name == "bare"
                made[name] = stock(directory, adapter._models) if own else await native(slot, name)
                await seed(*made[name])
            (ours, _), (bare, group_id) = made["ours"], made["bare"]
            search, add = by_hand(bare, group_id)
            scope = MemoryScope(run_id="perf", persona_id="ours")
            asked = [
                request(scope, max_items=10).model_copy(update={"query": f"the {thing} in room {at}?"})
                for at, thing in enumerate(THINGS)
            ]
            turns = [event(number, scope, said(1000 + number)) for number in range(8 * rounds + 20)]
            searches = await abba(
                lambda at: search(asked[at % len(asked)]),
                lambda at: slot.retrieve(asked[at % len(asked)]),
                (Inside(bare, "search_"), Inside(ours, "search_")),
                8 * rounds // PAIRS,
            )
            adds = await abba(
                lambda at: add(turns[at]),
                lambda at: slot.record_event(turns[at]),
                (Inside(bare, "add_episode"), Inside(ours, "add_episode")),
                4 * rounds // PAIRS,
            )
    return searches, adds


async def growth(llm: ScriptedLLM) -> None:
    """Memory of a graph that is asked again and again, beside Graphiti's own driver."""
    calls = 500
    with tempfile.TemporaryDirectory() as directory:
        async with opened(llm, directory, "ours") as slot:
            adapter: Any = slot._adapter
            own = DRIVER == "kuzu"
            bare, group_id = stock(directory, adapter._models) if own else await native(slot, "bare")
            search, _ = by_hand(bare, group_id)
            asked = request(slot.scope, max_items=10)
            grown = []
            for call in (slot.retrieve, search):
                for at in range(50 + calls):
                    if at == 50:
                        before = resident()
                    await call(asked)
                grown.append((resident() - before) / 1e6)
    show(
        f"{calls} searches",
        f"{grown[0]:+.0f} MB; by hand {grown[1]:+.0f} MB",
        "no growth (< 10 MB)",
        grown[0] < 10,
        failed=grown[0] > 40,
    )


VISITOR = """
import asyncio, gc, json, sys, time
sys.path.insert(0, sys.argv[1])
from graphiti_figures import *
from memory.plugins.opening import build_slot
def used():
    gc.collect()
    return resident() / 1e6
async def visit(base_url, directory, count, driver):
    slot = build_slot(config(base_url, directory, driver))
    import graphiti_core
    async with slot:
        seen = [used()]
        for number in range(count):
            scope = MemoryScope(run_id="perf", persona_id=f"p{number}")
            await slot.setup_scope(scope)
            asked = request(scope, max_items=10).model_copy(update={"query": "where is my violin?"})
            assert (await slot.retrieve(asked)).entries
            seen.append(used())
    print(json.dumps([*seen, used()]))
asyncio.run(visit(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
"""


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


async def footprint(llm: ScriptedLLM) -> None:
    """Resident memory of a process that searches one scope after the other, and their size on disk."""
    count, facts = 40, 100
    with tempfile.TemporaryDirectory() as directory:
        async with opened(llm, directory, "p0") as slot:
            adapter: Any = slot._adapter
            for number in range(count):
                scope = MemoryScope(run_id="perf", persona_id=f"p{number}")
                await slot.setup_scope(scope)
                async with adapter.graph(scope) as graph:
                    await seed(graph.graphiti, graph.group_id, facts)
        disk = size_of(Path(directory)) / 1e6 / count
        program = [
            sys.executable,
            "-c",
            VISITOR,
            str(Path(__file__).parent),
            llm.base_url,
            directory,
            str(count),
            DRIVER,
        ]
        done = await anyio.run_process(program, stderr=None)
    start, *visited, closed = json.loads(done.stdout)
    peak, left = max(visited) - start, closed - start
    kept = 4
    show(
        f"{count} scopes of {facts} facts visited, {kept} kept open",
        f"{peak:+.0f} MB",
        "<= +350 MB",
        peak <= 350,
        failed=peak > 500,
    )
    show("    after closing", f"{left:+.0f} MB", "<= +60 MB", left <= 60, failed=left > 150)
    show(
        "    a scope: in memory while open, on disk",
        f"{(visited[kept - 1] - visited[0]) / (kept - 1):.0f} MB, {disk:.0f} MB",
    )


async def main(rounds: int, *drivers: str) -> None:
    global DRIVER
    with ScriptedLLM() as llm:
        for DRIVER in drivers or MODULES:
            if find_spec(MODULES[DRIVER]) is None:
                print(f"{DRIVER}: left out, {MODULES[DRIVER]} is not installed here")
                continue
            print(f"== {DRIVER} ==")
            for where in ("memslot's driver", "its own driver")[: 2 if DRIVER == "kuzu" else 1]:
                await overhead(llm, rounds, where)
            await footprint(llm)
            await growth(llm)
    finish()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30, *sys.argv[2:]))
