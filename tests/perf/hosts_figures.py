"""What a binding adds to a host's turn, with a memory that answers at once, and what a hook costs.

Each host plays the same turn bare, bound and bare again, so that other load of the machine falls on all three. The
figure is how far the 95th percentile of the bound turns is above that of the bare ones; beside it stands how far it
is apart between the bare turns before and those after, which is what this machine cannot tell just now.

python tests/perf/hosts_figures.py [HOST ...]    in an environment that has the hosts' SDKs; others are left out
python tests/perf/hosts_figures.py stage [HOST ...]    the rows of the table of the stage in docs/hosts.md
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import anyio

from memory.hosts._installing import ClaudeCodeFolder, CodexFolder, CursorFolder, HookFolder
from memory.hosts._table import HOSTS
from memory.testing import HostModel

ROOT = Path(__file__).resolve().parents[2]
TURNS, WARM, MAX_MS, MAX_LINES, HOOKS, MAX_CPU_MS = 200, 5, 5.0, 200, 20, 60.0
CLASSES = {
    "nanobot": "TestNanobot",
    "langchain": "TestMiddleware",
    "openai-agents": "TestOpenAIAgents",
    "llama-index": "TestLlamaIndex",
    "crewai": "TestCrewAI",
    "strands": "TestStrands",
    "adk": "TestADK",
    "pydantic-ai": "TestPydanticAI",
    "agent-framework": "TestAgentFramework",
    "hermes": "TestHermes",
}


async def played(host: Any, at: int) -> tuple[float, float]:
    """Wall and CPU milliseconds of one turn; what the host does behind its answer counts as CPU alone."""
    began, cpu = time.perf_counter(), time.process_time()
    await host.ask(f"I like tea number {at}.", conversation=f"c{at % 5}")
    wall = time.perf_counter() - began
    await host.flush()
    return wall * 1000, (time.process_time() - cpu) * 1000


async def measure(suite: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"before": [], "bound": [], "after": [], "cpu": []}
    async with suite.on_stage(HostModel()) as stage:
        bare, again = suite.host(None, HostModel()), suite.host(None, HostModel())
        for at in range(TURNS + WARM):
            before = await played(bare, at)
            bound = await played(stage.host, at)
            began = time.process_time()
            await stage.turns.drain(20)
            written = (time.process_time() - began) * 1000
            for row in list(stage.store.rows)[2:]:  # the suite's memory searches all it has: keep it at 0 ms
                del stage.store.rows[row]
            after = await played(again, at)
            if at >= WARM:
                for name, turn in (("before", before), ("bound", bound), ("after", after)):
                    found[name].append(turn[0])
                found["cpu"].append(bound[1] + written - (before[1] + after[1]) / 2)
        await bare.aclose()
        await again.aclose()
    return {name: sorted(values) for name, values in found.items()}


def at(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def bindings(wanted: list[str]) -> None:
    for name in wanted or CLASSES:
        if HOSTS[name].installed is None:
            print(f"{name:16} not installed here")
            continue
        module = importlib.import_module("test_suite" if name == "nanobot" else f"test_{HOSTS[name].module}")
        found = anyio.run(measure, getattr(module, CLASSES[name])())
        bare = sorted(found["before"] + found["after"])
        middle, added = (at(found["bound"], share) - at(bare, share) for share in (0.5, 0.95))
        apart = abs(at(found["before"], 0.95) - at(found["after"], 0.95))
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)  # a longer turn is interrupted more often
        verdict = "ok" if added < MAX_MS else "MISSED"
        if apart > MAX_MS / 2 or (busy and added >= MAX_MS):
            verdict = "the machine is too busy to say"
        print(
            f"{name:16} adds {middle:5.2f} ms, p95 {added:5.2f} of {MAX_MS:g} ({verdict}); "
            f"CPU {at(found['cpu'], 0.5):5.2f} ms, p95 {at(found['cpu'], 0.95):5.2f}, writing included; "
            f"bare {at(bare, 0.5):6.2f} ms, p95 {at(bare, 0.95):6.2f}, known to {apart:.2f}",
            flush=True,
        )


def on_the_stage(wanted: list[str]) -> None:
    """The rows of the table in docs/hosts.md: what became of long turns of one conversation, by host."""
    stage = importlib.import_module("stage")
    for name in wanted or CLASSES:
        if HOSTS[name].installed is None:
            continue
        module = importlib.import_module("test_suite" if name == "nanobot" else f"test_{HOSTS[name].module}")
        suite = getattr(module, CLASSES[name])()

        async def play(suite: Any = suite) -> tuple[dict[str, int], int]:
            async with suite.on_stage(stage.LongModel()) as played:
                judged = await stage.play(played, stage.TURNS)
                return judged, played.turns.status()["recorded"]

        judged, recorded = anyio.run(play)
        figures = " | ".join(str(judged[what]) for what in ("lost", "duplicated", "false"))
        print(f"| {HOSTS[name].title} | {stage.TURNS} | {recorded} | {figures} |", flush=True)


def lines() -> None:
    print(f"\nlines a host, at most {MAX_LINES}")
    for name, host in HOSTS.items():
        place = ROOT / "memory" / "hosts" / host.module
        files = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        files = [file if file.exists() else ROOT / "memory" / "hosts" / "hooks.py" for file in files]
        counted = {file.name: len(file.read_text("utf-8").splitlines()) for file in files}
        longest = max(counted.values())
        print(
            f"{name:16} {sum(counted.values()):4} ({', '.join(f'{n} {c}' for n, c in counted.items())})",
            end="",
        )
        print("" if longest <= MAX_LINES else "  MISSED")


def hooks() -> None:
    print(f"\nCPU of one hook, of {HOOKS}, where no server answers")
    for kind in (ClaudeCodeFolder, CodexFolder, CursorFolder):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            memory = {"backend": "full_history", "scope": {"run_id": "r", "persona_id": "p"}}
            (place / "memslot.yaml").write_text(json.dumps({"memory": memory}), encoding="utf-8")
            folder: HookFolder = kind(place)
            folder.install(place / "memslot.yaml")
            for event in folder.events:
                print(f"{folder.name:16} {event:20} {hook_ms(folder, event):5.1f} ms of {MAX_CPU_MS:g}")


def hook_ms(folder: HookFolder, event: str) -> float:
    """The 95th percentile of a hook's CPU, in milliseconds."""
    given = {"hook_event_name": event, "session_id": "s", "prompt": "Hello.", "text": "Hello."}
    spent = []
    for _ in range(HOOKS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-I", "-S", str(folder.hook)],
            input=json.dumps(given).encode(),
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return at(sorted(spent), 0.95)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("LOGURU_LEVEL", "ERROR")  # Nanobot's
    sys.path[:0] = [
        str(ROOT / "tests" / path) for path in ("hosts/with_sdks", "hosts/with_nanobot", "support")
    ]
    if sys.argv[1:2] == ["stage"]:
        on_the_stage(sys.argv[2:])
        return
    bindings(sys.argv[1:])
    if not sys.argv[1:]:
        lines()
        hooks()


if __name__ == "__main__":
    main()
