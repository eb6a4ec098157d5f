"""Prints mem0's figures, memslot side by side with the plain library, as ratios within one run. Not a timed test.

python tests/perf/mem0_figures.py            all of them
python tests/perf/mem0_figures.py pgvector   those whose name starts so
"""

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from bare_mem0 import TOP_K, BareMem0, Call, Times, cold_starts, in_turns, search_once
from figures import event, finish, request, show

from memory import MemoryEvent, MemoryScope, MemorySlot, RetrieveRequest, SupportsBulkIngest
from memory.plugins.opening import build_slot

FIGURES: dict[str, Callable[[], Awaitable[None]]] = {}
IN_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


ROUNDS = 15
MARGIN = 1.5
"""A busy machine may miss a figure by such a factor before the script fails."""


def figure(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    FIGURES[function.__name__] = function
    return function


def ratio(name: str, ratios: list[float], limit: float) -> None:
    """A row: the median of the rounds' ratios is judged, the least is what the machine allows when it is quiet."""
    median = statistics.median(ratios)
    show(
        name,
        f"{median:.2f} (least {min(ratios):.2f})",
        f"<= {limit}",
        median <= limit,
        failed=median > limit * MARGIN,
    )


def mem0(data_dir: Path, **block: Any) -> MemorySlot:
    return build_slot({"memory": {"backend": "mem0", "backends": {"mem0": block}}}, data_dir=data_dir)


@figure
async def side_by_side() -> None:
    """Searches, adds, openings and cold starts of both sides, in turns."""
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=IN_MEMORY) as fast:
        searched = {"one": (1, 200), "large": (1, 10_000), "many": (50, 200)}
        search = await called(Path(fast), searched, _searches)
        add = await called(Path(disk), {"one": (1, 2), "many": (50, 2)}, _adds)
        opened = await in_turns(_openings(Path(fast) / "many"), ROUNDS // 5, inner=1)
        asked = _question(1), _scope(0).persona_id, ROUNDS // 3
        cold = await anyio.to_thread.run_sync(cold_starts, Path(fast) / "one", *asked)

    def beside(times: Times, more: object, less: object) -> list[float]:
        return [late / early for late, early in zip(times[more], times[less], strict=True)]

    def over_bare(times: Times, name: str) -> list[float]:
        return beside(times, (name, "memslot"), (name, "bare"))

    many, one = ("many", "memslot"), ("one", "memslot")
    ratio("search: 50 scopes of 200 over one", beside(search, many, one), 1.3)
    ratio("search, 1 scope of 10,000: over bare mem0", over_bare(search, "large"), 0.2)
    ratio("search, 1 scope of 200: over bare mem0", over_bare(search, "one"), 0.7)
    ratio("search, 50 scopes of 200: over bare mem0", over_bare(search, "many"), 0.05)
    ratio("search, 1 scope of 200: over AsyncMemory", beside(search, one, ("one", "async")), 1.0)
    ratio("record_event over bare add", over_bare(add, "one"), 1.05)
    ratio("adds spread over 50 scopes over one", beside(add, many, one), 1.3)
    least = min(beside(opened, "memslot", "bare"))
    show("  opening 50 scopes to the first result over bare mem0", f"least {least:.2f}")
    ratio("cold start to the first result over bare mem0", beside(cold, "memslot", "bare"), 0.95)


async def called(
    directory: Path,
    stores: dict[str, tuple[int, int]],
    calls_of: Callable[[BareMem0, MemorySlot, int], dict[str, Call]],
) -> Times:
    """The times of both sides by store, which is a number of scopes with a number of memories each."""
    calls: dict[object, Call] = {}
    async with AsyncExitStack() as stack:
        for name, (scopes, memories) in stores.items():
            bare = BareMem0(directory / name / "bare")
            stack.callback(bare.close)
            slot = await stack.enter_async_context(mem0(directory / name / "memslot"))
            for number in range(scopes):
                await _fill(bare, slot, _scope(number), memories)
            calls |= {(name, side): call for side, call in calls_of(bare, slot, scopes).items()}
        return await in_turns(calls, ROUNDS)


async def _fill(bare: BareMem0, slot: MemorySlot, scope: MemoryScope, memories: int) -> None:
    await slot.setup_scope(scope)
    bulk = slot.capability(SupportsBulkIngest)
    assert bulk is not None
    events = [event(turn, scope) for turn in range(memories)]
    for start in range(0, memories, 100):
        await bulk.record_events(events[start : start + 100])

    def add() -> None:
        for each in events:
            bare.add(each.messages[0].content, scope.persona_id)

    await anyio.to_thread.run_sync(add)
    if memories >= TOP_K:  # an empty search would be a fast one
        asked = request(scope, max_items=TOP_K)
        assert len((await slot.retrieve(asked)).entries) == TOP_K
        assert len(bare.search(asked.query, scope.persona_id)) == TOP_K


def _searches(bare: BareMem0, slot: MemorySlot, scopes: int) -> dict[str, Call]:
    def asked(number: int) -> tuple[str, str]:
        return _question(number), _scope(number % scopes).persona_id

    return {
        "bare": lambda number: partial(anyio.to_thread.run_sync, bare.search, *asked(number)),
        "memslot": lambda number: partial(slot.retrieve, _asked(number, _scope(number % scopes))),
        "async": lambda number: partial(bare.search_async, *asked(number)),
    }


def _adds(bare: BareMem0, slot: MemorySlot, scopes: int) -> dict[str, Call]:
    def added(number: int) -> MemoryEvent:
        return event(10**6 + number, _scope(number % scopes))

    def plain(number: int) -> Callable[[], Awaitable[object]]:
        told = added(number)
        words = told.messages[0].content, told.scope.persona_id
        return partial(anyio.to_thread.run_sync, bare.add, *words)

    return {"bare": plain, "memslot": lambda number: partial(slot.record_event, added(number))}


def _openings(store: Path) -> dict[str, Call]:
    """Opens a store of 50 scopes and searches one of them."""

    async def memslot(number: int) -> object:
        scope = _scope(number % 50)
        async with mem0(store / "memslot") as slot:
            await slot.setup_scope(scope)
            return await slot.retrieve(_asked(number, scope))

    def bare(number: int) -> Callable[[], Awaitable[object]]:
        asked = _question(number), _scope(number % 50).persona_id
        return partial(anyio.to_thread.run_sync, search_once, store / "bare", *asked)

    return {"bare": bare, "memslot": lambda number: partial(memslot, number)}


def _scope(number: int) -> MemoryScope:
    return MemoryScope(run_id="perf", persona_id=f"user{number}")


def _question(number: int) -> str:
    return f"Which tea would I rather have than number {number % 89}?"


def _asked(number: int, scope: MemoryScope) -> RetrieveRequest:
    return request(scope, max_items=TOP_K).model_copy(update={"query": _question(number)})


MANY = """
import anyio, gc, json, os, resource, statistics, sys, time
from pathlib import Path
import psutil
sys.path.insert(0, sys.argv[1])
from mem0_figures import event, mem0, request, MemoryScope
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
process, data, count = psutil.Process(), Path(sys.argv[2]), int(sys.argv[3])
scopes = [MemoryScope(run_id="perf", persona_id=f"user{number}") for number in range(count)]
def used():
    gc.collect()
    return process.memory_info().rss / 2**20
async def main():
    slot = mem0(data)
    async with slot:
        await slot.setup_scope(scopes[0])
        await slot.retrieve(request(scopes[0], max_items=5))
        seen, opened, files = [used()], [], 0
        for number, scope in enumerate(scopes, 1):
            started = time.perf_counter()
            await slot.setup_scope(scope)
            assert (await slot.retrieve(request(scope, max_items=5))).entries
            opened.append((time.perf_counter() - started) * 1000)
            files = max(files, process.num_fds())
            if number in (128, count):  # as many as stay open
                seen.append(used())
    print(json.dumps({"rss": seen, "opened": opened, "files": files}))
anyio.run(main)
"""


@figure
async def many_scopes() -> None:
    """500 scopes of 20 memories, visited one after the other in a process that may open 1,024 files."""
    count, each = 500, 20
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        text = 0
        async with mem0(Path(folder)) as slot:
            bulk = slot.capability(SupportsBulkIngest)
            assert bulk is not None
            for number in range(count):
                scope = MemoryScope(run_id="perf", persona_id=f"user{number}")
                await slot.setup_scope(scope)
                events = [event(turn, scope) for turn in range(each)]
                text += sum(len(event.messages[0].content) for event in events)
                await bulk.record_events(events)
        program = [sys.executable, "-c", MANY, str(Path(__file__).parent), folder, str(count)]
        done = await anyio.run_process(program, stderr=None)
    found = json.loads(done.stdout)
    start, bound, end = found["rss"]
    opened = statistics.median(found["opened"])
    show("500 scopes of 20: to open one and search it", f"{opened:.1f} ms", "< 50 ms", opened < 50)
    show(
        "500 scopes of 20: files open at most",
        f"{found['files']}",
        "< 1,024",
        found["files"] < 1024,
        failed=found["files"] >= 1024,
    )
    per = (bound - start) / 128
    show("  resident memory of an open partition, text", f"{per:.2f} MB, {text / count / 1024:.1f} KB")
    grown = end - bound
    show(
        "500 scopes of 20: resident memory beyond the 128 that stay open",
        f"{grown:+.1f} MB",
        "LRU-bound: < 20 MB",
        grown < 20,
        failed=grown > 60,
    )


@figure
async def pgvector() -> None:
    """64 scopes with 10 searches each, over eight threads that a program sizes by hand for plain mem0."""
    if find_spec("pgserver") is None:
        show("pgvector: pgserver is not installed", "skipped")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        from pgserver import get_server  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        server = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            await _pgvector(server.get_uri(), Path(folder))
        finally:
            server.cleanup()


async def _pgvector(uri: str, folder: Path) -> None:
    from mem0 import Memory

    from memory.backends.mem0.models import lexical_embedding

    store = {"connection_string": uri, "minconn": 8, "maxconn": 10}
    scopes = [MemoryScope(run_id="perf", persona_id=f"user{number}") for number in range(64)]
    block = {"vector_store": {"provider": "pgvector", "config": store}, "workers": 8}
    async with mem0(folder, **block) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        for scope in scopes:
            await slot.setup_scope(scope)
            await bulk.record_events([event(number, scope) for number in range(20)])
        model = {"provider": "openai", "config": {"api_key": "unused"}}
        native = {**store, "collection_name": "memslot", "embedding_model_dims": 1024, "hnsw": False}
        plain = Memory.from_config(
            {
                "vector_store": {"provider": "pgvector", "config": native},
                "history_db_path": str(folder / "plain.db"),
                "embedder": model,
                "llm": model,
            }
        )
        plain.embedding_model = lexical_embedding()
        asked = request(max_items=20).query
        ids = [dict(slot.native_scope(scope)) for scope in scopes]

        def search(number: int) -> int:
            filters = ids[number % len(ids)]
            return len(plain.search(asked, filters=filters, top_k=20, threshold=0.0)["results"])

        def by_hand() -> None:
            with ThreadPoolExecutor(8) as pool:
                assert set(pool.map(search, range(10 * len(scopes)))) == {20}

        async def work(scope: MemoryScope) -> None:
            for _ in range(10):
                assert len((await slot.retrieve(request(scope, max_items=20))).entries) == 20

        async def behind_the_slot() -> None:
            async with anyio.create_task_group() as group:
                for scope in scopes:
                    group.start_soon(work, scope)

        async def threads() -> None:
            await anyio.to_thread.run_sync(by_hand)

        rates: dict[str, list[float]] = {"bare": [], "memslot": []}
        contestants = {"bare": threads, "memslot": behind_the_slot}
        for number in range(14):
            for name in list(contestants)[:: 1 if number % 2 else -1]:
                started = time.perf_counter()
                await contestants[name]()
                if number > 1:
                    rates[name].append(10 * len(scopes) / (time.perf_counter() - started))
        plain.vector_store.connection_pool.close()
        plain.close()
    shares = [ours / bare for ours, bare in zip(rates["memslot"], rates["bare"], strict=True)]
    share = statistics.median(shares)
    show(
        "  searches per second: 8 threads by hand, memslot",
        " ".join(f"{statistics.median(r):.0f}" for r in rates.values()),
    )
    show(
        "pgvector, 64 scopes x 10 searches: over 8 hand threads",
        f"{share:.2f} (most {max(shares):.2f})",
        ">= 0.97",
        share >= 0.97,
        failed=share < 0.97 / MARGIN,
    )


async def main(wanted: list[str]) -> None:
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    for name, measure_it in FIGURES.items():
        if not wanted or any(name.startswith(prefix) for prefix in wanted):
            await measure_it()
    finish()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
