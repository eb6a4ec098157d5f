"""Prints the Stigmem figures: rendering, write surfaces, the bound of the queue, hooks. Not a timed test.

python tests/perf/stigmem_figures.py
"""

from __future__ import annotations

import logging
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "stigmem"))

from figures import finish, show
from stigmem_double import StigmemDouble

from memory.stigmem.abi import StigmemAbi
from memory.stigmem.facts import Fact, StoredValue, render_context
from memory.stigmem.queue import MAX_QUEUED_FACTS, Written
from memory.testing import LoopbackProcess
from memory.testing._faults import FaultKind

AGENT = "stigmem://node.example/agent/"
RENDERED, ROUNDS = 10_000, 15
HOOKS = 9
CALLS, FLOOD = 600, 5_000
PAUSE_S = 0.001


def facts(count: int) -> list[Fact]:
    """Facts as a boot pulls them: some namespaces, all value types, confidences and clocks in no order."""
    chance = random.Random(12)
    namespaces = [
        f"{name}:kind{number}"
        for name in ("preference", "roadmap", "intent", "x-own")
        for number in range(50)
    ]
    values = [
        StoredValue(
            type="text", v="prefers oolong, brewed for three minutes; never `black` tea, whatever the hour"
        ),
        StoredValue(type="number", v=42.5),
        StoredValue(type="boolean", v=True),
        StoredValue(type="null"),
        StoredValue(type="ref", v=AGENT + "reviewer"),
    ]
    return [
        Fact(
            id=str(number),
            entity=f"stigmem://node.example/user/u{chance.randrange(500)}",
            relation=chance.choice(namespaces),
            value=chance.choice(values),
            confidence=chance.choice((1.0, 0.9, 0.75)),
            hlc=f"{1_795_292_050_000 + chance.randrange(10**6)}.{chance.randrange(40)}",
        )
        for number in range(count)
    ]


def rendering() -> None:
    sample = facts(RENDERED)
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        text = render_context(sample, AGENT + "alice")
        seconds.append(time.perf_counter() - began)
    lines = text.count("\n- **") + text.startswith("- **")
    assert lines == RENDERED, "every fact has a line"
    median, worst = statistics.median(seconds) * 1000, max(seconds) * 1000
    show(f"rendering {RENDERED:,} facts", f"p50 {median:.1f} ms, max {worst:.1f} ms", "< 100 ms", worst < 100)


@contextmanager
def no_node() -> Iterator[str]:
    """The address of a port that nobody listens on, kept for us so that nobody will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def node(fault: FaultKind | None) -> Iterator[str]:
    """A node in another process, so that its work is not ours."""
    with LoopbackProcess(StigmemDouble) as double:
        if fault is not None:
            double.fault(fault, times=None, delay_s=0.5)
        yield double.url


NODES = {
    "healthy": lambda: node(None),
    "down": no_node,
    "slow": lambda: node("late"),
    "answering 500": lambda: node("500"),
}


def calls(abi: StigmemAbi) -> list[Callable[[int], Written]]:
    refs = [f"{AGENT}fact-{number}" for number in range(3)]
    return [
        lambda number: abi.checkout(f"PROJ-{number}"),
        lambda number: abi.done(f"PROJ-{number}"),
        lambda number: abi.blocked(f"PROJ-{number}", f"PROJ-{number + 1}"),
        lambda number: abi.ping(f"PROJ-{number}"),
        lambda number: abi.handoff(AGENT + "reviewer", "Done but for the tests.", refs, f"page {number}"),
        lambda number: abi.decide(f"choice-{number}", "SQLite, because it is there."),
        lambda number: abi.escalate(AGENT + "boss", f"cannot reach the store of PROJ-{number}", "high"),
    ]


def p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


def surfaces(name: str) -> None:
    """What one call costs the agent, spread over time as an agent's calls are, and then as a flood."""
    with NODES[name]() as url:
        abi = StigmemAbi(url, None, AGENT + "perf", timeout_s=2.0, retry_pause_s=0.05)
        surface, spread, flood, peak = calls(abi), [], [], 0
        writes: list[Written] = []
        for number in range(CALLS):
            began = time.perf_counter()
            writes.append(surface[number % len(surface)](number))
            spread.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
        for number in range(FLOOD):
            began = time.perf_counter()
            writes.append(surface[number % len(surface)](CALLS + number))
            flood.append(time.perf_counter() - began)
            peak = max(peak, abi.queued_facts)
        began = time.perf_counter()
        abandoned = abi.close(0.5)
        closing = time.perf_counter() - began
    met = p95(spread) < 0.001 and p95(flood) < 0.001
    measured = f"p95 {p95(spread) * 1e6:.0f} us, in a flood {p95(flood) * 1e6:.0f} us"
    show(f"write surface, node {name}", measured, "p95 < 1 ms", met)
    bounded, target = peak <= MAX_QUEUED_FACTS, f"<= {MAX_QUEUED_FACTS:,}"
    show(f"  queue in a flood of {FLOOD:,}", f"{peak:,} facts at most", target, bounded, failed=not bounded)
    counted = all(written.done() for written in writes)
    measured = f"{len(writes):,} calls, {abandoned:,} abandoned"
    show(f"  closed in {closing:.2f} s", measured, "all ended", counted, failed=not counted)


def hooks() -> None:
    """A whole shell hook, in processor time: without a node it waits for nothing, and the machine may be busy."""

    def run(*command: str, url: str = "") -> float:
        env, before = {**os.environ, "STIGMEM_URL": url}, resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", *command], env=env, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    hook = ("from memory.cli import main; main()", "tools", "stigmem", "done", "PROJ-12")
    with StigmemDouble() as double:
        rounds = [(run("pass"), run(*hook), run(*hook, url=double.url)) for _ in range(HOOKS)]
    bare, without, with_node = (statistics.median(each) * 1000 for each in zip(*rounds, strict=True))
    show("hook without a node", f"{without:.0f} ms, {bare:.0f} ms of it Python's", "< 200 ms", without < 200)
    show("hook with a node", f"{with_node:.0f} ms")


def main() -> None:
    logging.getLogger("memslot.stigmem").setLevel(logging.CRITICAL)
    hooks()
    rendering()
    for name in NODES:
        surfaces(name)
    finish()


if __name__ == "__main__":
    main()
