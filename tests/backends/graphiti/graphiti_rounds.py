"""Processes that share an embedded graph and are killed: run by ``test_graphiti_rounds``, not by pytest.

``python graphiti_rounds.py <directory> <base_url>`` reads rounds from its stdin, one JSON object a line, forks a
process for each job of a round, kills those that are to be killed, and answers with their exit codes. What each did
is in a file of its own, line by line, each written before or after the fact: ``<time> <what> <word>``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from memory import (
    BackendUnavailable,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    NativeQueryRequest,
    SupportsNativeQuery,
    open_memory,
)
from memory.backends.graphiti.opening import import_sdk

_MAX_WAIT_S = 60.0


def main(directory: Path, base_url: str) -> None:
    """Serve rounds until there are no more."""
    _warm_up(directory, base_url)
    for line in sys.stdin:
        given = json.loads(line)
        started = time.monotonic()
        running = {_fork(directory, base_url, job): job for job in given["jobs"]}
        ended: dict[int, int] = {}
        while len(ended) < len(running):
            passed = time.monotonic() - started
            for pid, job in running.items():
                if pid in ended:
                    continue
                limit = job.get("kill_after_s")
                if passed > (_MAX_WAIT_S if limit is None else limit):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        sys.stdout.write(json.dumps([ended[pid] for pid in running]) + "\n")
        sys.stdout.flush()


def _config(directory: Path, base_url: str) -> dict[str, Any]:
    block = {"ingest": "triplet", "llm": {"model": "scripted", "base_url": base_url, "api_key": "unused"}}
    return {"memory": {"backend": "graphiti", "data_dir": str(directory), "backends": {"graphiti": block}}}


def _warm_up(directory: Path, base_url: str) -> None:
    """Import all that is imported by a write, and make the blank database: a second each, in every process."""
    import_sdk()
    job = {
        "scope": "warm",
        "log": os.devnull,
        "seed": 0,
        "steps": [("write", "one"), ("write", "two"), ("look", "")],
    }
    assert asyncio.run(Process(directory, base_url, job).run()) == 0
    assert threading.active_count() == 1, "threads do not fork"


def _fork(directory: Path, base_url: str, job: dict[str, Any]) -> int:
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        code = asyncio.run(Process(directory, base_url, job).run())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Process:
    """What one process does: open the scope as soon as it may, then write, look or reset."""

    def __init__(self, directory: Path, base_url: str, job: dict[str, Any]) -> None:
        self._directory = directory
        self._base_url = base_url
        self._job = job
        self._chance = random.Random(job["seed"])
        self._scope = MemoryScope(run_id="rounds", persona_id=job["scope"])
        self._log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def log_line(self, what: str, word: str = "-") -> None:
        os.write(self._log, f"{time.monotonic_ns()} {what} {word}\n".encode())

    async def run(self) -> int:
        async with AsyncExitStack() as stack:
            slot = await self._opened(stack)
            self.log_line("opened")
            for step, word in self._job["steps"]:
                await getattr(self, f"_{step}")(slot, word)
        self.log_line("closed")
        return 0

    async def _opened(self, stack: AsyncExitStack) -> MemorySlot:
        config = _config(self._directory, self._base_url)
        until = time.monotonic() + _MAX_WAIT_S
        while True:
            try:
                return await stack.enter_async_context(open_memory(config, scope=self._scope))
            except BackendUnavailable as error:
                if "open elsewhere" not in str(error) or time.monotonic() > until:
                    raise
            await anyio.sleep(0.01)

    async def _write(self, slot: MemorySlot, word: str) -> None:
        fact = {"source": "Ada", "relation": "KEEPS", "target": "box", "fact": f"Ada keeps the {word}"}
        self.log_line("sent", word)
        receipt = await slot.record_event(self._event(word, [fact]))
        assert receipt.status == "committed", receipt
        self.log_line("stored", word)

    async def _give_up(self, slot: MemorySlot, word: str) -> None:
        with anyio.move_on_after(self._chance.uniform(0, 0.15)):
            await self._write(slot, word)

    async def _reset(self, slot: MemorySlot, _: str) -> None:
        self.log_line("resetting")
        assert (await slot.reset_scope(self._scope)).verified
        self.log_line("reset")

    async def _look(self, slot: MemorySlot, _: str) -> None:
        health = await slot.health()
        assert health.status == "ok", health.warnings
        query = slot.capability(SupportsNativeQuery)
        assert query is not None
        found = await query.native_query(NativeQueryRequest(scope=self._scope, operation="edges"))
        for row in found.raw["edges"]:
            self.log_line("found", row["fact"].rpartition(" ")[2])

    async def _search(self, slot: MemorySlot, word: str) -> None:
        """By the word alone: a vector would find it without its index."""
        adapter: Any = slot._adapter
        async with adapter.graph(self._scope) as graph:
            rows, _, _ = await graph.driver.execute_query(
                "CALL QUERY_FTS_INDEX('RelatesToNode_', 'edge_name_and_fact', $word) RETURN node.fact AS fact",
                word=word,
            )
        self.log_line("recalled" if any(row["fact"].endswith(word) for row in rows) else "not_recalled", word)

    def _event(self, word: str, facts: list[dict[str, str]]) -> MemoryEvent:
        return MemoryEvent(
            event_id=f"{word} {time.monotonic_ns()}",  # a word may be told again
            scope=self._scope,
            session_id="s",
            turn_id=word,
            timestamp=datetime(2024, 1, 1, tzinfo=UTC),
            messages=(Message(role="user", content="unused"),),
            metadata={"triplets": facts},
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
