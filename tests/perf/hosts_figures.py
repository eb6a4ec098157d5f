"""What a binding adds to a host's turn, with a memory that answers at once, and what a hook costs.

Each host plays the same turn bare, bound and bare again, so that other load of the machine falls on all three. The
figure is CPU time of this process, so it also holds on a busy machine. It says how far the 95th percentile of bound
turns, writing included, is above that of bare ones. The first turn of a conversation makes the agent and its memory
manager; its cost has a figure of its own.

python tests/perf/hosts_figures.py [HOST ...]    in an environment that has the hosts' SDKs; others are left out
python tests/perf/hosts_figures.py lines       how many lines each binding has
python tests/perf/hosts_figures.py hooks       what a hook of a coding agent costs, alone and with 50 at once
python tests/perf/hosts_figures.py sessions    what 1,500 sessions that nobody ends cost an MCP server
python tests/perf/hosts_figures.py store       what a filter costs in a LangGraph store of 10,000 items
"""

import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from memory.hosts._coding_agents import ClaudeCodeFolder, CodexFolder, CursorFolder
from memory.hosts._installing import HermesFolder, HookFolder
from memory.hosts.table import HOSTS

ROOT = Path(__file__).resolve().parents[2]
HOSTS_ROOM = ROOT / "memory" / "hosts"
TURNS, CONVERSATION, MAX_MS, HOOKS, MAX_CPU_MS = 210, 10, 5.0, 20, 60.0
AT_ONCE = 50
SESSIONS, MAX_GROWN_MB = 1500, 5.0
ITEMS, FEW, MAX_TO_ONE = 10_000, 5, 1.7
MAX_LINES = 200
OWN_FILES = {
    **{
        host: (f"{HOSTS[host].module}.py",)
        for host in HOSTS
        if (HOSTS_ROOM / f"{HOSTS[host].module}.py").exists()
    },
    "hermes": ("hermes.py", "_files/hermes/plugin.py.txt"),
    "langgraph store": ("langgraph_store.py", "_item_store.py"),
    "mcp": ("mcp/__init__.py", "mcp/command.py", "mcp/lines.py", "mcp/running.py", "mcp/server.py"),
    "nanobot": ("nanobot/tool.py",),
}
OWN_CLASSES = {
    "claude-code": ClaudeCodeFolder,
    "codex": CodexFolder,
    "cursor": CursorFolder,
    "hermes": HermesFolder,
}
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


async def played(host: Any, at: int) -> float:
    """CPU milliseconds of one turn, with what the host does behind its answer."""
    began = time.process_time()
    await host.ask(f"I like tea number {at}.", conversation=f"c{at // CONVERSATION}")
    await host.flush()
    return (time.process_time() - began) * 1000


async def measure(suite: Any) -> tuple[list[float], list[float]]:
    """CPU milliseconds of bare turns, two for each turn, and of bound ones."""
    from host_model import HostModel

    bare: list[float] = []
    bound: list[float] = []
    async with suite.on_stage(HostModel()) as stage:
        before, after = suite.host(None, HostModel()), suite.host(None, HostModel())
        for at in range(TURNS):
            bare.append(await played(before, at))
            began = time.process_time()
            await played(stage.host, at)
            while stage.memory.delivery.waiting():
                await anyio.lowlevel.checkpoint()
            bound.append((time.process_time() - began) * 1000)
            for row in list(stage.store.rows)[2:]:  # the suite's memory searches all it has: keep it at 0 ms
                del stage.store.rows[row]
            bare.append(await played(after, at))
        await before.aclose()
        await after.aclose()
    return bare, bound


def of_turns(values: list[float], each: int, *, first: bool) -> list[float]:
    """Either the first turns of conversations or the others, from the least; without the first conversation."""
    turns = range(CONVERSATION, len(values) // each)
    kept = [at for at in turns if (at % CONVERSATION == 0) is first]
    return sorted(value for at in kept for value in values[at * each : (at + 1) * each])


def at(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def bindings(wanted: list[str]) -> None:
    for name in wanted or CLASSES:
        if HOSTS[name].installed is None:
            print(f"{name:16} not installed here")
            continue
        module = importlib.import_module("test_suite" if name == "nanobot" else f"test_{HOSTS[name].module}")
        every = anyio.run(measure, getattr(module, CLASSES[name])())
        begins = [
            at(of_turns(values, each, first=True), 0.5) for values, each in zip(every, (2, 1), strict=True)
        ]
        bare, bound = (
            of_turns(values, each, first=False) for values, each in zip(every, (2, 1), strict=True)
        )
        middle, added = (at(bound, share) - at(bare, share) for share in (0.5, 0.95))
        print(
            f"{name:16} adds {middle:5.2f} ms of CPU, p95 {added:5.2f} of {MAX_MS:g}"
            f" ({'ok' if added < MAX_MS else 'MISSED'}); bare {at(bare, 0.5):6.2f} ms, p95 {at(bare, 0.95):6.2f};"
            f" a conversation's first turn adds {begins[1] - begins[0]:.2f}",
            flush=True,
        )


def lines() -> None:
    """Lines of each binding. What serves several bindings counts for none of them."""
    of: dict[str, int] = {}
    for name, own in OWN_FILES.items():
        of[name] = sum(len((HOSTS_ROOM / file).read_text("utf-8").splitlines()) for file in own)
    for name, owner in OWN_CLASSES.items():
        of[name] = of.get(name, 0) + len(inspect.getsource(owner).splitlines())
    print(f"lines of a binding, at most {MAX_LINES}")
    for name, count in of.items():
        print(f"{name:16} {count:4}{'' if count <= MAX_LINES else '  MISSED'}")
    files = [*HOSTS_ROOM.rglob("*.py"), *HOSTS_ROOM.glob("_files/h*/*.txt")]
    total = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    print(f"{'of several':16} {total - sum(of.values()):4}\n{'in all':16} {total:4}")


def hooks() -> None:
    print(f"\nCPU of one hook at p95, at most {MAX_CPU_MS:g} ms, where no server answers")
    for kind in (ClaudeCodeFolder, CodexFolder, CursorFolder):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            memory = {"backend": "full_history", "scope": {"run_id": "r", "persona_id": "p"}}
            (place / "memslot.yaml").write_text(json.dumps({"memory": memory}), encoding="utf-8")
            folder: HookFolder = kind(place)
            folder.install(place / "memslot.yaml")
            for event in folder.events:
                alone, crowded = (hook_ms(folder, event, count) for count in (1, AT_ONCE))
                verdict = "ok" if max(alone, crowded) <= MAX_CPU_MS else "MISSED"
                said = f"{alone:5.1f} ms alone, {crowded:5.1f} with {AT_ONCE} at once ({verdict})"
                print(f"{folder.name:16} {event:20} {said}", flush=True)


def hook_ms(folder: HookFolder, event: str, at_once: int) -> float:
    """The 95th percentile of a hook's CPU, in milliseconds, while so many run at once."""
    given = {"hook_event_name": event, "session_id": "s", "prompt": "Hello.", "text": "Hello."}
    command, spent = [sys.executable, "-I", "-S", str(folder.hook)], []
    while len(spent) < HOOKS:
        started = []
        for _ in range(at_once):
            hook = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            assert hook.stdin is not None
            hook.stdin.write(json.dumps(given).encode())
            hook.stdin.close()
            started.append(hook)
        for hook in started:
            _, status, used = os.wait4(hook.pid, 0)
            hook.returncode = os.waitstatus_to_exitcode(status)
            assert hook.returncode == 0
            spent.append((used.ru_utime + used.ru_stime) * 1000)
    return at(sorted(spent), 0.95)


SERVER = """
import resource, sys, threading, anyio
from memory.runtime import load_config
from memory.runtime._serving import serve, settings_of

def tell():
    for _ in sys.stdin:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)

threading.Thread(target=tell, daemon=True).start()
loaded = load_config(sys.argv[1])
anyio.run(serve, loaded, settings_of(loaded, None, 0), lambda url: print(f"{url}/mcp", flush=True))
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def sessions() -> None:
    """How far a server over HTTP grows by clients that initialize a session and never end it."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "memslot.yaml")
        scope = "{run_id: r, persona_id: p}"
        config.write_text(f"memory: {{backend: full_history, scope: {scope}}}", encoding="utf-8")
        command = [sys.executable, "-c", SERVER, str(config)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            request = urllib.request.Request(
                server.stdout.readline().strip(), json.dumps(INITIALIZE).encode(), headers
            )

            def most_after(count: int) -> int:
                """The most memory that the server ever had, in KiB, after so many more clients."""
                for _ in range(count):
                    with urllib.request.urlopen(request) as answer:
                        answer.read()
                print(file=server.stdin, flush=True)
                return int(server.stdout.readline())

            before = most_after(200)  # the first ones fill caches
            grown = (most_after(SESSIONS) - before) / 2**10
            server.terminate()
    verdict = "ok" if grown <= MAX_GROWN_MB else "MISSED"
    version = HOSTS["mcp"].installed
    print(f"\nmcp {version}: {SESSIONS} sessions add {grown:.1f} MB of {MAX_GROWN_MB:g} ({verdict})")


async def store() -> None:
    """CPU of a search whose filter keeps few of 10,000 items, over one search for all rows of the memory."""
    from langgraph.store.base import PutOp, SearchOp

    from memory import open_memory
    from memory.hosts.langgraph_store import SlotStore
    from memory.runtime import MemoryItems

    def item(at: int) -> PutOp:
        colour = "red" if at % (ITEMS // FEW) == 0 else "blue"
        return PutOp(("tea",), f"cup {at}", {"text": f"Cup {at} holds oolong.", "colour": colour})

    with tempfile.TemporaryDirectory() as directory:
        scope = {"run_id": "r", "persona_id": "p"}
        memory = {"backend": "full_history", "scope": scope, "data_dir": directory}
        async with open_memory({"memory": memory}) as slot:
            items = SlotStore(slot)
            await items.abatch([item(at) for at in range(ITEMS)])
            plain = MemoryItems(slot, slot.scope.model_copy(update={"persona_id": "tea"}))
            await plain.search("oolong", ITEMS)  # the first one reads the disk
            took = []
            for filtered in (True, False) * 3:
                began = time.process_time()
                if filtered:
                    asked = SearchOp(("tea",), query="oolong", filter={"colour": "red"}, limit=10)
                    (found,) = await items.abatch([asked])
                    assert len(found) == FEW
                else:
                    assert len(await plain.search("oolong", ITEMS)) == ITEMS
                took.append(time.process_time() - began)
            items.close()
    ratio = sum(took[::2]) / sum(took[1::2])
    verdict = "ok" if ratio <= MAX_TO_ONE else "MISSED"
    print(
        f"\nstore of {ITEMS} items: a filter that keeps {FEW} takes {ratio:.2f} times one search ({verdict})"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("LOGURU_LEVEL", "ERROR")  # Nanobot's
    sys.path[:0] = [
        str(ROOT / "tests" / path) for path in ("hosts/with_sdks", "hosts/with_nanobot", "support")
    ]
    if sys.argv[1:] == ["lines"]:
        lines()
        return
    if sys.argv[1:] == ["hooks"]:
        hooks()
        return
    if sys.argv[1:] == ["sessions"]:
        sessions()
        return
    if sys.argv[1:] == ["store"]:
        anyio.run(store)
        return
    bindings(sys.argv[1:])
    if not sys.argv[1:]:
        lines()
        hooks()
        if HOSTS["mcp"].installed:
            sessions()
        if HOSTS["langchain"].installed:
            anyio.run(store)


if __name__ == "__main__":
    main()
