"""Prints memslot's figures, each as a ratio or difference measured within one run. Not a timed test.

python tests/perf/figures.py              all of them
python tests/perf/figures.py overhead     those whose name starts so
"""

import gc
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import psutil

from memory import (
    BackendHealth,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import BaseAdapter, ContextEntry, NativeWorker
from memory.plugins.opening import build_slot
from memory.testing import FakeBackend, FakeNativeStore, validate

SCOPE = MemoryScope(run_id="perf", persona_id="p")
START = datetime(2024, 1, 1, tzinfo=UTC)
FIGURES: dict[str, Callable[[], Awaitable[None]]] = {}


def figure(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    FIGURES[function.__name__] = function
    return function


FAILED: list[str] = []
"""Rows that failed: counts, and ratios so far off that a busy machine does not explain it."""


def show(
    name: str, measured: str, target: str = "", met: bool | None = None, *, failed: bool | None = None
) -> None:
    """A row; ``failed`` where it fails the script at its :func:`finish`, as the machine's milliseconds never do."""
    verdict = {True: "met", False: "MISSED", None: ""}[met]
    print(f"{name:<58} {measured:>28}   {target:<26} {'FAILED' if failed else verdict}", flush=True)
    if failed:
        FAILED.append(name.strip())


def finish() -> None:
    """End with an error that names the rows that failed, where there are any."""
    if FAILED:
        sys.exit(f"failed, with a margin for a busy machine: {'; '.join(FAILED)}")


def event(number: int, scope: MemoryScope = SCOPE, text: str | None = None) -> MemoryEvent:
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=f"s{number // 50}",
        turn_id=str(number),
        timestamp=START + timedelta(minutes=number),
        messages=(
            Message(
                role="user", content=text or f"Turn {number}: I would rather have tea number {number % 97}."
            ),
        ),
    )


def request(scope: MemoryScope = SCOPE, **budget: int) -> RetrieveRequest:
    return RetrieveRequest(
        query="which tea number 7", scope=scope, session_id="probe", budget=ContextBudget(**budget)
    )


async def paired(
    bare: Callable[[], Awaitable[object]], wrapped: Callable[[], Awaitable[object]], rounds: int
) -> list:
    """Times (ms) of both, taken in turns and in alternating order, so that nothing falls on one of them alone."""
    times: list[tuple[float, float]] = []
    for number in range(rounds):
        pair = {}
        for call in (bare, wrapped) if number % 2 else (wrapped, bare):
            started = time.perf_counter()
            await call()
            pair[call] = (time.perf_counter() - started) * 1000
        times.append((pair[bare], pair[wrapped]))
    return times


def percentile(values: list[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(len(values) * percent / 100) - 1)]


class Native:
    """The smallest native system: twenty rows, found at once."""

    def __init__(self) -> None:
        self.rows = [
            {"id": f"n{number}", "text": f"I like tea number {number}", "score": 0.5} for number in range(20)
        ]
        self.stored = 0

    def search(self, query: str, limit: int | None) -> list[dict]:
        return self.rows[:limit]

    def add(self, text: str) -> str:
        self.stored += 1
        return f"n{self.stored}"


class Thin(BaseAdapter):
    """An adapter over :class:`Native`, async or on a worker thread as a synchronous SDK needs."""

    backend_name = "thin"

    def __init__(self, native: Native, worker: NativeWorker | None = None) -> None:
        self.native, self.worker = native, worker

    async def call(self, function: Callable[[], Any]) -> Any:
        return await self.worker.run(function) if self.worker else function()

    def native_scope(self, scope: MemoryScope) -> dict[str, str]:
        return {"space": scope.label}

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        native_id = await self.call(lambda: self.native.add(event.messages[0].content))
        trace = self.trace(event.scope, "add")
        return WriteReceipt(event_id=event.event_id, status="committed", native_ids=(native_id,), trace=trace)

    async def retrieve(self, asked: RetrieveRequest) -> RetrieveResult:
        rows = await self.call(lambda: self.native.search(asked.query, asked.budget.max_items))
        entries = tuple(
            ContextEntry(
                row["text"], native_id=row["id"], score=row["score"], scope_ids={"space": asked.scope.label}
            )
            for row in rows
        )
        return RetrieveResult(
            request=asked, raw=rows, entries=entries, trace=self.trace(asked.scope, "search")
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        return ResetReceipt(scope=scope, verified=True)

    async def health(self) -> BackendHealth:
        return BackendHealth(status="ok", backend_name="thin", consistency_model="immediate")


@figure
async def overhead_async_native() -> None:
    await _overhead("async native", None, 0.3)


@figure
async def overhead_sync_native() -> None:
    await _overhead("sync native (worker thread)", NativeWorker(), 1.0)


async def _overhead(label: str, worker: NativeWorker | None, target_ms: float) -> None:
    native = Native()
    turn, asked = event(1), request(max_items=20, max_tokens=2000)

    async def bare_search() -> object:
        return native.search(asked.query, 20)

    async def bare_add() -> object:
        return native.add(turn.messages[0].content)

    async with MemorySlot(Thin(native, worker), scope=SCOPE) as slot:
        for name, bare, wrapped in (
            ("record_event", bare_add, lambda: slot.record_event(turn)),
            ("retrieve of 20 rows", bare_search, lambda: slot.retrieve(asked)),
        ):
            await paired(bare, wrapped, 200)
            extra = [after - before for before, after in await paired(bare, wrapped, 3000)]
            p50, p95 = statistics.median(extra), percentile(extra, 95)
            show(
                f"slot + adapter over {label}: {name}",
                f"p50 {p50:.3f}  p95 {p95:.3f} ms",
                f"p95 < {target_ms} ms",
                p95 < target_ms,
            )


@figure
async def import_cost() -> None:
    """Imports in fresh processes, the least of several each, so that disk caches are warm for all."""
    rooms: dict[str, float] = {}
    for room, ms in _least_by_module("from memory import *").items():
        owner = ".".join(room.split(".")[: 2 if room.startswith("memory.") else 1])
        rooms[owner] = rooms.get(owner, 0.0) + ms
    package, everything = sum(_least_by_module("import memory").values()), sum(rooms.values())
    show("import memory", f"{package:.0f} ms", "< 120 ms", package < 120)
    show("every name of it, and so all rooms and pydantic", f"{everything:.0f} ms")
    dearest = sorted(rooms.items(), key=lambda room: -room[1])[:6]
    show("  of which", "  ".join(f"{room} {ms:.0f}" for room, ms in dearest))
    command = "import sys; sys.argv[1:] = ['--help']\nfrom memory.cli import main\nmain()"
    for name, code in (("import memory", "import memory"), ("memslot --help", command)):
        with_it = sum(_least_by_module(code).values())
        without = sum(_least_by_module(f"import sys; sys.modules['fastembed'] = None\n{code}").values())
        ratio = with_it / without
        met = ratio <= 1.1
        show(f"{name}: with fastembed over without", f"{ratio:.2f}x", "1x", met, failed=ratio > 2)


def _least_by_module(code: str) -> dict[str, float]:
    """Each module's own milliseconds; beyond what the interpreter loads to start."""
    runs = [_import_times(code) for _ in range(7)]
    idle = _import_times("pass")
    return {
        name: min(run.get(name, math.inf) for run in runs) for name in set().union(*runs) if name not in idle
    }


def _import_times(code: str) -> dict[str, float]:
    """What ``-X importtime`` says, in ms."""
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True)
    rows = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if "|" in line]
    return {name.strip(): int(own) / 1000 for own, _, name in rows if own.strip().isdecimal()}


@figure
async def full_history_packing() -> None:
    bounded, unlimited = {}, {}
    for turns in (1_000, 10_000, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            config = {"memory": {"backend": "full_history", "data_dir": folder}}
            async with build_slot(config, scope=SCOPE) as slot:
                for number in range(turns):
                    await slot.record_event(event(number))
                bounded[turns] = await _best_of(lambda: slot.retrieve(request(max_tokens=8000)), 9)
                unlimited[turns] = await _best_of(lambda: slot.retrieve(request()), 3)
    ratio = bounded[100_000] / bounded[1_000]
    show(
        "  full history at 8k tokens: 1k / 10k / 100k turns",
        " / ".join(f"{ms:.1f}" for ms in bounded.values()) + " ms",
    )
    show(
        "full history at 8k tokens: 100k turns over 1k turns",
        f"{ratio:.2f}x",
        "<= 1.5x",
        ratio <= 1.5,
        failed=ratio > 4,
    )
    per_turn = {turns: ms / turns * 1000 for turns, ms in unlimited.items()}
    spread = max(per_turn.values()) / min(per_turn.values())
    show(
        "  full history unlimited: 1k / 10k / 100k turns",
        " / ".join(f"{us:.1f}" for us in per_turn.values()) + " us/turn",
    )
    show(
        "full history unlimited: slowest over quickest per turn",
        f"{spread:.2f}x",
        "linear: < 2x",
        spread < 2,
        failed=spread > 6,
    )


@figure
async def controls() -> None:
    """What a turn of 20,000 costs the two conditions that keep them, in CPU time: disks and neighbours differ."""
    turns = 20_000
    events = [event(number) for number in range(turns)]
    at_once = [turn.model_copy(update={"session_id": "s"}) for turn in events]
    for name, said, how, target in (
        ("rolling_summary", events, "sessions of 50", 0.2),
        ("rolling_summary", at_once, "one session", 0.2),
        ("full_history", events, "sessions of 50", None),
    ):
        with tempfile.TemporaryDirectory() as folder:
            config = {"memory": {"condition": name, "data_dir": folder}}
            async with build_slot(config, scope=SCOPE) as slot:
                started = time.process_time()
                for turn in said:
                    await slot.record_event(turn)
                per_write = (time.process_time() - started) / turns * 1000
        show(
            f"{name}, {turns:,} turns, {how}: a write",
            f"{per_write:.3f} ms",
            f"< {target} ms" if target else "",
            per_write < target if target else None,
        )


async def _best_of(call: Callable[[], Awaitable[object]], rounds: int) -> float:
    best = math.inf
    for _ in range(rounds):
        gc.collect()
        started = time.perf_counter()
        await call()
        best = min(best, time.perf_counter() - started)
    return best * 1000


@figure
async def thousand_cycles() -> None:
    """Setup, record, retrieve, reset: on one open slot over fresh scopes, and slots opened anew."""
    process = psutil.Process()
    for name in ("full_history", "mem0"):
        field = "backend" if name == "mem0" else "condition"
        with tempfile.TemporaryDirectory() as folder:
            config = {"memory": {field: name, f"{field}s": {name: {}}, "data_dir": folder}}
            async with build_slot(config) as slot:
                for number in range(1100):
                    if number == 100:
                        gc.collect()
                        before = (threading.active_count(), process.num_fds(), process.memory_info().rss)
                    scope = MemoryScope(run_id=f"r{number}", persona_id="p")
                    await slot.setup_scope(scope)
                    await slot.record_event(event(number, scope))
                    assert (await slot.retrieve(request(scope, max_items=5))).entries
                    assert (await slot.reset_scope(scope)).verified
                gc.collect()
                after = (threading.active_count(), process.num_fds(), process.memory_info().rss)
        threads, files, rss = (late - early for late, early in zip(after, before, strict=True))
        show(
            f"1,000 setup/record/retrieve/reset cycles: {name}",
            f"{threads:+d} threads {files:+d} files {rss / 2**20:+.1f} MB",
            "none, none, < 20 MB",
            threads <= 0 and files <= 0 and rss < 20 * 2**20,
            failed=threads > 0 or files > 0 or rss > 60 * 2**20,
        )


@figure
async def kit() -> None:
    """Every spec over the in-memory backend, on one event loop."""
    store, began = FakeNativeStore(latency_s=0.001), time.perf_counter()
    report = await validate(lambda: FakeBackend(store))
    took = time.perf_counter() - began
    show(f"kit over the in-memory backend: {len(report.results)} specs", f"{took:.1f} s", "< 5 s", took < 5)


async def main(wanted: list[str]) -> None:
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    print(f"{'figure':<58} {'measured':>28}   {'target':<26}")
    for name, measure in FIGURES.items():
        if not wanted or any(name.startswith(prefix) for prefix in wanted):
            await measure()
    finish()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
