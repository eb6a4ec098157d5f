"""Whether a MemOS really works: something is stored, and looked for.

MemOS answers 200 where its embedder, model, reranker or index fails, and search is then empty. So one known memory
lives in a cube of its own, ``memslot-canary``, and is searched for at the first setup of a scope and by ``health``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memory import BackendUnavailable, ConfigError
from memory.backends.memos.native import Native
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.parsing import metadata_of, relativity_of
from memory.backends.memos.requests import MemosScope, native_filter

__all__ = ["CANARY", "Canary"]

CANARY = MemosScope("memslot-canary")  # the cube of a scope has a "." or "_" in its name
_EMPTY = MemosScope("memslot-empty")
_TEXT = "This memory shows memslot that writing and searching work."
_CONTEXT = "memslot-canary"
_UNRANKED = {
    0.0: "what is found is not ranked: the reranker behind MemOS does not answer",
    0.5: "what is found is not ranked: with postgres MOS_RERANKER_BACKEND=cosine_local rates everything 0.5",
}
_LOST = (
    "what is stored is not found again: the embedder, reranker or model behind MemOS does not work, or the vector "
    "index loses rows (ivfflat.probes), or relativity, dedup or search_mode leave everything out; see its log"
)


@dataclass(frozen=True, slots=True)
class Report:
    """How the server is, what became of the canary, and what to warn of."""

    status: Literal["ok", "degraded", "unavailable"]
    seen: str
    warnings: tuple[str, ...] = ()


class Canary:
    """One known memory on the server.

    Args:
        native: the MemOS.
        options: the block.
        where: names the block in errors.

    Attributes:
        filters: ``honoured`` or ``ignored`` by the server's search; None until :meth:`check`.
        relativity: how relevant the server last found the canary to its own text.
    """

    def __init__(self, native: Native, options: MemosOptions, where: str) -> None:
        self._native = native
        self._options = options
        self._where = where
        self.filters: str | None = None
        self.relativity: float | None = None

    async def answers_probe(self) -> bool:
        """Whether a search finds the canary. Writes nothing."""
        return await self._found()

    async def report(self) -> Report:
        """What a search for the canary shows of the server. Writes nothing."""
        if await self.answers_probe():
            if self.relativity not in _UNRANKED or not self._options.rerank:
                return Report("ok", "found")
            return Report("degraded", "found, unranked", (_UNRANKED[self.relativity],))
        if await self.exists():
            return Report("unavailable", "not found", (_LOST,))
        return Report(
            "degraded", "not stored yet", ("no scope is set up yet, so nothing is known to search for",)
        )

    async def probe(self, operation: str) -> None:
        """MemOS answered with nothing: whether that may be so, or it failed.

        Raises:
            BackendUnavailable: the canary is stored, and not found either.
        """
        if not await self.answers_probe() and await self.exists():
            raise BackendUnavailable(
                f"{operation}: MemOS answered 200 with nothing, and {_LOST}",
                diagnostics={"status": 200},
                sent=False,
            )

    async def exists(self) -> bool:
        """Whether the canary is stored, found or not."""
        return bool((await self._native.listing(CANARY)).by_id)

    async def check(self) -> None:
        """Store the canary where there is none, find it, and see whether cubes and filters hold.

        Raises:
            BackendUnavailable: it is stored and not found, or is not stored although MemOS says so.
            ConfigError: another cube finds it as well, or ``graph_db`` promises filters that this server ignores.
        """
        if not await self._found():
            await self._renew()
        if await self._found(home=_EMPTY):
            raise ConfigError(
                f"{self._where}.graph_db: this server's searches mix all cubes, so scopes would share memory; "
                "with GRAPH_DB_BACKEND=neo4j run it with MOS_NEO4J_SHARED_DB=true"
            )
        matching = await self._found(context=_CONTEXT)
        self.filters = "ignored" if await self._found(context="another context") else "honoured"
        if self._options.filters and not (matching and self.filters == "honoured"):
            did = (
                "ignored a filter" if self.filters == "ignored" else "found nothing by a filter that matches"
            )
            raise ConfigError(
                f"{self._where}.graph_db: says {self._options.graph_db}, which filters, but this server {did}; "
                "give its GRAPH_DB_BACKEND"
            )

    async def _renew(self) -> None:
        """Store it again: an older one may have been stored while the embedder was down, and is lost for good."""
        await self._native.clear(CANARY)
        if not await self._native.note(_TEXT, CANARY, {"context": _CONTEXT}):
            raise BackendUnavailable(
                "setup_scope: MemOS answered 200 and stored nothing; see the server's log"
            )
        if not await self._found():
            raise BackendUnavailable(f"setup_scope: {_LOST}")

    async def _found(self, home: MemosScope = CANARY, context: str | None = None) -> bool:
        where = None
        if context is not None:
            where = native_filter({"context": {"eq": context}}, self._options.graph_db)
        found = await self._native.found(_TEXT, home, where=where, mode=self._options.search_mode)
        for item in found.values():
            self.relativity = relativity_of(metadata_of(item))
        return bool(found)
