"""mem0 without memslot, and the calls that both sides of ``mem0_figures.py`` make in turns.

Bare mem0 uses one collection for all users, embedded Qdrant and memslot's embedder, so both sides do the same work.
"""

import inspect
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from memory.adapter.models import LexicalHashEmbedder
from memory.backends.mem0.adapter import set_environment

RUN = "perf"
TOP_K = 20
# Returns the call to time, so that building events and requests is not timed. Each call has another number.
Call = Callable[[int], Callable[[], Awaitable[object]]]
Times = dict[Any, list[float]]
"""Milliseconds of each call, by round."""


def _config(directory: str) -> dict[str, Any]:
    model = {"provider": "openai", "config": {"api_key": "unused"}}
    store = {"collection_name": "bare", "embedding_model_dims": 1024, "path": f"{directory}/qdrant"}
    return {
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": f"{directory}/history.db",
        "embedder": model,
        "llm": model,
    }


class BareMem0:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        set_environment(directory)
        from mem0 import AsyncMemory, Memory

        from memory.backends.mem0.models import lexical_embedding

        self._memory = Memory.from_config(_config(str(directory)))
        self._memory.embedding_model = lexical_embedding()
        # The constructor of AsyncMemory would open the store that ``Memory`` has locked.
        self._async = AsyncMemory.__new__(AsyncMemory)
        vars(self._async).update(vars(self._memory))

    def add(self, text: str, user: str) -> object:
        return self._memory.add(text, user_id=user, run_id=RUN, infer=False)

    def search(self, query: str, user: str) -> list[str]:
        filters = {"user_id": user, "run_id": RUN}
        found = self._memory.search(query, filters=filters, top_k=TOP_K, threshold=0.0)
        return [row["memory"] for row in found["results"]]

    async def search_async(self, query: str, user: str) -> object:
        filters = {"user_id": user, "run_id": RUN}
        return await self._async.search(query, filters=filters, top_k=TOP_K, threshold=0.0)

    def close(self) -> None:
        """Close the clients first: mem0's own ``close`` leaves the store open and locked."""
        for part in (self._memory.llm, self._memory.vector_store):
            part.client.close()
        self._memory.close()


# Runs in a separate process, which loads only the embedder's file from memslot.
_COLD_BARE = f"""
import importlib.util, os, sys, types
from typing import Any
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=sys.argv[1])
from mem0 import Memory
spec = importlib.util.spec_from_file_location("lexical", {inspect.getfile(LexicalHashEmbedder)!r})
lexical = sys.modules["lexical"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lexical)
class Embedding:
    def __init__(self):
        self.embedder = lexical.LexicalHashEmbedder(1024)
        self.config = types.SimpleNamespace(embedding_dims=1024)
    def embed(self, text, action=None):
        return self.embedder.embed_query(text)
directory, query, user = sys.argv[1:]
{inspect.getsource(_config)}
memory = Memory.from_config(_config(directory))
memory.embedding_model = Embedding()
filters = {{"user_id": user, "run_id": "{RUN}"}}
print(len(memory.search(query, filters=filters, top_k={TOP_K}, threshold=0.0)["results"]))
memory.vector_store.client.close()
memory.close()
"""
_COLD_MEMSLOT = f"""
import asyncio, sys
from memory import ContextBudget, MemoryScope, RetrieveRequest, open_memory
directory, query, user = sys.argv[1:]
async def main():
    scope = MemoryScope(run_id="{RUN}", persona_id=user)
    config = {{"memory": {{"backend": "mem0", "data_dir": directory}}}}
    async with open_memory(config, scope=scope) as memory:
        budget = ContextBudget(max_items={TOP_K})
        asked = RetrieveRequest(query=query, scope=scope, session_id="s", budget=budget)
        print(len((await memory.retrieve(asked)).entries))
asyncio.run(main())
"""


def cold_starts(store: Path, query: str, user: str, rounds: int) -> Times:
    """The time of a whole process that opens a store and asks once. Each side has its directory below ``store``."""
    times: Times = {"bare": [], "memslot": []}
    programs = {"bare": _COLD_BARE, "memslot": _COLD_MEMSLOT}
    # Both run from bytecode, as installed libraries do, even if the environment disables it.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(store / "bytecode")}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **compiled}
    for number in range(rounds + 1):
        for side in alternating(list(programs), number):
            command = [sys.executable, "-c", programs[side], str(store / side), query, user]
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            taken = (time.perf_counter() - started) * 1000
            assert done.stdout.split()[-1:] == [str(TOP_K)], f"cold start of {side}: {done.stderr[-400:]}"
            if number:  # round 0 compiles and warms the disk cache
                times[side].append(taken)
    return times


async def in_turns(calls: Mapping[Any, Call], rounds: int, inner: int = 3) -> Times:
    """The median time of ``inner`` calls in each round. The order changes each round."""
    times: Times = {contestant: [] for contestant in calls}
    for number in range(rounds + 1):
        for contestant in alternating(list(calls), number):
            taken = []
            for turn in range(inner):
                call = calls[contestant](number * inner + turn)
                started = time.perf_counter()
                await call()
                taken.append((time.perf_counter() - started) * 1000)
            if number:  # round 0 only warms up
                times[contestant].append(statistics.median(taken))
    return times


def alternating(contestants: list[Any], number: int) -> list[Any]:
    turned = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
    return turned if number % 2 else turned[::-1]


def search_once(directory: Path, query: str, user: str) -> object:
    with closing(BareMem0(directory)) as memory:
        return memory.search(query, user)
