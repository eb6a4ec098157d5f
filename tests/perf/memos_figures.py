"""Prints what memslot adds to requests to a MemOS server, and what 64 scopes at once do. Not a timed test.

python tests/perf/memos_figures.py [rounds]

The server is the model of the tests, in another process. Bare means: the same body, posted by an httpx client, and
its answer parsed. A real server takes 20 to 70 ms for what the model does in one.
"""

from __future__ import annotations

import statistics
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "memos"))

from figures import event, finish, paired, percentile, request, show
from memos_double import MemosDouble

from memory import MemoryEvent, MemoryScope, MemorySlot, SupportsBulkIngest, SupportsReadiness, open_memory
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Requests, cube_of
from memory.testing import LoopbackProcess

SCOPE = MemoryScope(run_id="perf", persona_id="p")
SCOPES, TURNS, BULK, LATENCY_S, STRETCHES = 64, 4, 200, 0.02, 20


class Bare:
    """A client written by hand: bodies as ours, nothing else."""

    def __init__(self, url: str, block: dict[str, Any]) -> None:
        self.http = httpx.AsyncClient(base_url=url, trust_env=False)
        self.build = Requests(MemosOptions.model_validate({**block, "url": url}))

    async def add(self, event: MemoryEvent) -> Any:
        answer = await self.http.post("/product/add", json=self.build.add(event, cube_of(event.scope)))
        return answer.raise_for_status().json()["data"]

    async def search(self, asked: Any) -> Any:
        answer = await self.http.post("/product/search", json=self.build.search(asked, cube_of(asked.scope)))
        return answer.raise_for_status().json()["data"]


async def overhead(slot: MemorySlot, bare: Bare, rounds: int) -> None:
    """The difference of the 95th percentiles: the median of twenty stretches, for one shows the machine's load."""
    # Each turn is an event of its own: one that is sent again is looked up first.
    turns, asked = count(100_000), request(SCOPE, max_items=10)
    for name, native, ours in (
        ("retrieve of 10 rows", lambda: bare.search(asked), lambda: slot.retrieve(asked)),
        (
            "record_event",
            lambda: bare.add(event(next(turns), SCOPE)),
            lambda: slot.record_event(event(next(turns), SCOPE)),
        ),
    ):
        await paired(native, ours, 20)
        middle, high = [], []
        for _ in range(STRETCHES):
            pairs = await paired(native, ours, rounds // STRETCHES)
            middle.append(statistics.median(after - before for before, after in pairs))
            before, after = (percentile(list(side), 95) for side in zip(*pairs, strict=True))
            high.append(after - before)
        p50, p95 = statistics.median(middle), statistics.median(high)
        measured = f"p50 {p50:+.3f}  p95 {p95:+.3f} ms"
        show(f"slot + adapter over an httpx client: {name}", measured, "p95 < 0.5 ms", p95 < 0.5)


async def bulk(slot: MemorySlot, bare: Bare, server: LoopbackProcess) -> None:
    """In turns, event for event the same; the server takes the time of a real one."""
    capability = slot.capability(SupportsBulkIngest)
    assert capability is not None
    server.set(latency_s=LATENCY_S)
    ratios = []
    for part in range(10):
        events = [event(part * BULK + number, SCOPE) for number in range(BULK // 10)]
        took = {}
        for name in ("loop", "bulk") if part % 2 else ("bulk", "loop"):
            began = time.perf_counter()
            if name == "bulk":
                await capability.record_events(events)
            else:
                for turn in events:
                    await bare.add(turn)
            took[name] = time.perf_counter() - began
        ratios.append(took["loop"] / took["bulk"])
    server.set(latency_s=0.0)
    ratio = statistics.median(ratios)
    show(
        f"bulk ingest, {LATENCY_S * 1000:.0f} ms a request",
        f"x {ratio:.3f} of a loop by hand",
        ">= 0.95",
        ratio >= 0.95,
        failed=ratio < 0.5,
    )


async def scopes(slot: MemorySlot) -> None:
    """Sixty-four scopes write and read at once; each finds its own and nothing else."""
    strangers = 0
    readiness = slot.capability(SupportsReadiness)
    assert readiness is not None

    async def live(number: int) -> None:
        nonlocal strangers
        scope = MemoryScope(run_id="many", persona_id=f"p{number}")
        await slot.setup_scope(scope)
        for turn in range(TURNS):
            await slot.record_event(event(turn, scope, f"I would rather have tea owner{number}."))
        await readiness.wait_until_ready(scope, 60)
        found = await slot.retrieve(request(scope, max_items=10))
        strangers += sum(f"owner{number}." not in entry.text for entry in found.entries)
        strangers += len(found.entries) != TURNS

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(SCOPES):
            tasks.start_soon(live, number)
    took = time.perf_counter() - began
    show(
        f"{SCOPES} scopes at once: {SCOPES * TURNS / took:.0f} turns/s",
        f"{strangers} strange rows",
        "0",
        not strangers,
        failed=strangers > 0,
    )


async def main(rounds: int) -> None:
    block = {"graph_db": "postgres"}
    with LoopbackProcess(MemosDouble) as server:
        config = {"memory": {"backend": "memos", "backends": {"memos": {**block, "url": server.url}}}}
        bare = Bare(server.url, block)
        async with bare.http, open_memory(config, scope=SCOPE) as slot:
            for number in range(40):
                await bare.add(event(number, SCOPE))
            await overhead(slot, bare, rounds)
            await bulk(slot, bare, server)
            await scopes(slot)
    finish()


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 1600)
