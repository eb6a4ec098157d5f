"""Prints the Stigmem figures: rendering and hooks. Not a timed test.

python tests/perf/stigmem_figures.py
"""

import logging
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "stigmem"))

from figures import finish, show
from stigmem_double import StigmemDouble

from memory.stigmem.facts import Fact, StoredValue, render_context

AGENT = "stigmem://node.example/agent/"
RENDERED, ROUNDS = 10_000, 15
HOOKS = 9


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
    show("hook without a node", f"{without:.0f} ms, {bare:.0f} ms of it Python's")
    show("hook with a node", f"{with_node:.0f} ms")


def main() -> None:
    logging.getLogger("memslot.stigmem").setLevel(logging.CRITICAL)
    hooks()
    rendering()
    finish()


if __name__ == "__main__":
    main()
