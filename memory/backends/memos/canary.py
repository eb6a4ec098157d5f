"""Whether a MemOS really works: something is stored, and looked for.

MemOS answers 200 where its embedder, model, reranker or index fails, and search is then empty. So one known memory
lives in a cube of its own, ``memslot-canary``, and is searched for at the first setup of a scope and by ``health``.
"""

from __future__ import annotations

from memory import BackendUnavailable, ConfigError
from memory.backends.memos.native import Native
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.requests import Home, native_filter

__all__ = ["CANARY", "Canary"]

CANARY = Home("memslot-canary")  # scopes have a "." in theirs
_TEXT = "This memory shows memslot that writing and searching work."
_CONTEXT = "memslot-canary"
_LOST = (
    "what is stored is not found again: the embedder, reranker or model behind MemOS does not work, or the vector "
    "index loses rows (ivfflat.probes), or relativity or dedup leave everything out; see the server's log"
)


class Canary:
    """One known memory on the server.

    Args:
        native: the MemOS.
        options: the block.
        where: names the block in errors.

    Attributes:
        filters: ``honoured`` or ``ignored`` by the server's search; None until :meth:`check`.
    """

    def __init__(self, native: Native, options: MemosOptions, where: str) -> None:
        self._native = native
        self._options = options
        self._where = where
        self.filters: str | None = None

    async def sings(self) -> bool:
        """Whether a search finds the canary. Writes nothing."""
        return await self._found()

    async def exists(self) -> bool:
        """Whether the canary is stored, found or not."""
        return bool((await self._native.listing(CANARY)).by_id)

    async def check(self) -> None:
        """Store the canary where there is none, find it, and see what a filter does.

        Raises:
            BackendUnavailable: it is stored and not found, or is not stored although MemOS says so.
            ConfigError: ``graph_db`` promises filters that this server does not apply, or applies otherwise.
        """
        if not await self._found():
            await self._renew()
        matching = await self._found(_CONTEXT)
        self.filters = "ignored" if await self._found("another context") else "honoured"
        if not self._options.filters:
            return
        if self.filters == "ignored":
            raise ConfigError(
                f"{self._where}.graph_db: {self._options.graph_db} filters, but this server ignored a filter; "
                "give its GRAPH_DB_BACKEND, such as postgres"
            )
        if not matching:
            raise ConfigError(
                f"{self._where}.graph_db: a filter that matches found nothing, so this server's graph database is "
                f"not {self._options.graph_db}; give its GRAPH_DB_BACKEND"
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

    async def _found(self, context: str | None = None) -> bool:
        where = None
        if context is not None:
            where = native_filter({"context": {"eq": context}}, self._options.graph_db)
        found = await self._native.found(_TEXT, CANARY, where=where)
        return bool(found)
