"""Whether a MemOS really works: something is stored, and looked for. MemOS answers 200 where its embedder,
model, reranker or index fails, and search is then empty. So one known memory lives in a cube of its own, and is
searched for at the first setup of a scope, by ``health`` and where an answer is empty. One that was stored
without a vector is never found again; a good one takes its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

from memory import BackendUnavailable, ConfigError
from memory.adapter import ShieldedCalls
from memory.backends.memos.answers import metadata_of, relativity_of
from memory.backends.memos.client import Native
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import native_filter

CANARY = "memslot-canary"  # the cube of a scope has a "." or "_" in its name
_EMPTY = "memslot-empty"
_TEXT = "This memory shows memslot that writing and searching work."
_UNRANKED = {
    0.0: "what is found is not ranked: the reranker behind MemOS does not answer",
    0.5: "what is found is not ranked: with postgres MOS_RERANKER_BACKEND=cosine_local rates everything 0.5",
}
_LOST = (
    "what is stored is not found again: the embedder, reranker or model behind MemOS does not work, or the vector "
    "index loses rows (ivfflat.probes), or relativity, dedup or search_mode leave everything out; see its log"
)
_TASK_LOOKS, _TASK_PAUSE_S = 20, 0.05


@dataclass
class Canary:
    """One known memory on the server. ``shielded`` carries out writes that a mode switch is to wait for."""

    native: Native
    options: MemosOptions
    shielded: ShieldedCalls
    where: str
    filters: str | None = None  # ``honoured`` or ``ignored`` by the server's search; None until :meth:`check`
    relativity: float | None = None  # of the canary to its own text, as the server last found it
    read_only: bool = False

    async def report(self) -> tuple[Literal["ok", "degraded", "unavailable"], str, tuple[str, ...]]:
        """How the server is by a search for the canary, how that ended, and what to warn of."""
        if await self._found():
            if self.relativity not in _UNRANKED or not self.options.rerank:
                return "ok", "found", ()
            return "degraded", "found, unranked", (_UNRANKED[self.relativity],)
        if await self.native.listing(CANARY):
            return "unavailable", "not found", (await self._why(),)
        return "degraded", "not stored yet", ("no scope is set up yet, so nothing is known to search for",)

    async def probe(self, operation: str) -> bool:
        """MemOS answered with nothing: whether another answer may come now, as the canary was stored again."""
        if await self._found():
            return False
        problem = await self._heal()
        if problem is not None:
            raise BackendUnavailable(
                f"{operation}: MemOS answered 200 with nothing, and {problem}",
                diagnostics={"status": 200},
                sent=False,
            )
        return not self.read_only

    async def check(self) -> bool:
        """Store the canary where none is found, find it, and see whether cubes, filters and scheduler hold; if all
        could be seen."""
        problem = None if await self._found() else await self._heal()
        if problem is not None:
            raise BackendUnavailable(f"setup_scope: {problem}")
        if self.read_only and not await self._found():
            return False
        if await self._found(cube=_EMPTY):
            raise ConfigError(
                f"{self.where}.graph_db: this server's searches mix all cubes, so scopes would share memory; "
                "with GRAPH_DB_BACKEND=neo4j run it with MOS_NEO4J_SHARED_DB=true"
            )
        await self._check_filters()
        return self.options.scheduler != "redis" or await self._check_tasks()

    async def _check_filters(self) -> None:
        matching = await self._found(context=CANARY)
        self.filters = "ignored" if await self._found(context="another context") else "honoured"
        if self.options.filters and not (matching and self.filters == "honoured"):
            did = (
                "ignored a filter" if self.filters == "ignored" else "found nothing by a filter that matches"
            )
            raise ConfigError(
                f"{self.where}.graph_db: says {self.options.graph_db}, which filters, but this server {did}; "
                "give its GRAPH_DB_BACKEND"
            )

    async def _check_tasks(self) -> bool:
        """With Redis every add is a task that can be asked for; a local queue tells of none."""
        if await self.native.tasks(CANARY):
            return True
        if self.read_only:
            return False
        if await self.shielded.run(CANARY, self._lists_a_task):
            return True
        raise ConfigError(
            f"{self.where}.scheduler: says redis, but this server tells of no task that it was given, so "
            "memory would be called ready too early; run it with MEMSCHEDULER_USE_REDIS_QUEUE=true, or say local"
        )

    async def _lists_a_task(self) -> bool:
        added = await self._store()
        try:
            for _ in range(_TASK_LOOKS):
                if await self.native.tasks(CANARY):
                    return True
                await anyio.sleep(_TASK_PAUSE_S)
            return False
        finally:
            await self.native.delete(added, CANARY)

    async def _heal(self) -> str | None:
        """Nothing is found: None once a canary is, else why not."""
        return await self.shielded.run(CANARY, self._renew)

    async def _renew(self) -> str | None:
        """The good one is stored first: only then goes what is stored and never found."""
        if await self._found():
            return None  # by another call meanwhile
        if self.read_only:
            return await self._why() if await self.native.listing(CANARY) else None
        if not await self.native.found(_TEXT, CANARY):
            fresh = await self._store()
            found = await self.native.found(_TEXT, CANARY)
            stored = await self.native.listing(CANARY)
            lost = [memory for memory in stored if memory not in found and (memory in fresh or found)]
            if lost:
                await self.native.delete(lost, CANARY)
        return None if await self._found() else await self._why()

    async def _store(self) -> Sequence[str]:
        added = await self.native.note(_TEXT, CANARY, {"context": CANARY})
        if not added:
            raise BackendUnavailable(
                "setup_scope: MemOS answered 200 and stored nothing; see the server's log"
            )
        return [memory.native_id for memory in added]

    async def _why(self) -> str:
        mode = self.options.search_mode
        if mode != "fast" and await self.native.found(_TEXT, CANARY):
            return unfound_by(mode)
        return _LOST

    async def _found(self, cube: str = CANARY, context: str | None = None) -> bool:
        where = native_filter({"context": {"eq": context}} if context else {}, self.options.graph_db)
        found = await self.native.found(_TEXT, cube, where=where, mode=self.options.search_mode)
        for item in found.values():
            self.relativity = relativity_of(metadata_of(item))
        return bool(found)


def unfound_by(mode: str) -> str:
    return (
        f"search_mode: {mode} finds nothing where fast does: the language model behind MemOS fails, or its answers "
        "cannot be read; see the server's log, or say search_mode: fast"
    )
