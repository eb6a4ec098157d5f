"""Prints how much memory and disk embedded graphs take. Not a timed test.

python tests/perf/graphiti_figures.py [driver ...]

On Kuzu and on falkordblite, where they are installed; what is left out is said. The scripted LLM answers at once.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import psutil
from figures import START, finish, request, show

from memory import MemoryScope, MemorySlot, open_memory
from memory.testing import ScriptedLLM

FACTS = 300
MODULES = {"kuzu": "kuzu", "falkordblite": "redislite"}
DRIVER = "kuzu"
"""Which of them is measured."""
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


async def growth(llm: ScriptedLLM) -> None:
    """Memory of a graph that is asked again and again."""
    calls = 500
    with tempfile.TemporaryDirectory() as directory:
        async with opened(llm, directory, "ours") as slot:
            asked = request(slot.scope, max_items=10)
            for at in range(50 + calls):
                if at == 50:
                    before = resident()
                await slot.retrieve(asked)
            grown = (resident() - before) / 1e6
    show(f"{calls} searches", f"{grown:+.0f} MB", "no growth (< 10 MB)", grown < 10, failed=grown > 40)


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


async def main(*drivers: str) -> None:
    global DRIVER
    with ScriptedLLM() as llm:
        for DRIVER in drivers or MODULES:
            if find_spec(MODULES[DRIVER]) is None:
                print(f"{DRIVER}: left out, {MODULES[DRIVER]} is not installed here")
                continue
            print(f"== {DRIVER} ==")
            await footprint(llm)
            await growth(llm)
    finish()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
