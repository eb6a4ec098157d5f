"""Prints mem0's figures, memslot side by side with the plain library, as ratios within one run. Not a timed test.

python tests/perf/mem0_figures.py            all of them
python tests/perf/mem0_figures.py pgvector   those whose name starts so
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from figures import event, finish, request, show

from memory import MemoryScope, MemorySlot, SupportsBulkIngest
from memory.bench.perf.measure import Report, Sizes, measure
from memory.cli.perf import show as show_table
from memory.plugins.opening import build_slot

FIGURES: dict[str, Callable[[], Awaitable[None]]] = {}
IN_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


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
    """What ``memslot tools perf`` measures, at its full sizes, in half as many rounds."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(dir=IN_MEMORY) as fast:
        report = await measure("mem0", Path(place), sizes=Sizes(rounds=15), in_memory=Path(fast))
    show_table(report)
    judge(report)


def judge(report: Report) -> None:
    ratio("search: 50 scopes of 200 over one", report.growth("memslot")["search"], 1.3)
    ratio("search, 1 scope of 10,000: over bare mem0", report.large.ratios(), 0.2)
    ratio("search, 1 scope of 200: over bare mem0", report.single.ratios(), 0.7)
    ratio("search, 50 scopes of 200: over bare mem0", report.many.ratios(), 0.05)
    ratio("search, 1 scope of 200: over AsyncMemory", report.single.ratios("async"), 1.0)
    ratio("record_event over bare add", report.add.ratios(), 1.05)
    ratio("adds spread over 50 scopes over one", report.growth("memslot")["add"], 1.3)
    ratio("cold start to the first result over bare mem0", report.cold.ratios(), 0.95)


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
