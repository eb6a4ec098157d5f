"""The adapter's calls to a MemOS product server, and the canary that shows whether the server works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    MemoryEvent,
    RetrieveRequest,
    ScopeError,
)
from memory.adapter import BackendProtocolError, ShieldedCalls
from memory.adapter.http import JsonHttp, bearer
from memory.backends.memos.answers import (
    Added,
    Item,
    added,
    by_id,
    count_busy,
    data_of,
    event_ids,
    metadata_of,
    relativity_of,
)
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Body, Requests, native_filter

# More concurrent calls exhaust MemOS' database connections: of eight searches, one in five came back empty.
MAX_CONCURRENCY = 4

Operation = Literal["add", "search", "get_memory", "delete_memory", "feedback", "all_status", "health"]
# Never call ``task_queue_status``: without Redis, it starts a Redis that listens on every interface.
ROUTES: Mapping[Operation, tuple[str, str]] = {
    "add": ("POST", "/product/add"),
    "search": ("POST", "/product/search"),
    "get_memory": ("POST", "/product/get_memory"),
    "delete_memory": ("POST", "/product/delete_memory"),
    "feedback": ("POST", "/product/feedback"),
    "all_status": ("GET", "/product/scheduler/allstatus"),
    "health": ("GET", "/health"),
}


class Native:
    """A MemOS server. It sends each request once, because MemOS would store a repeated add."""

    def __init__(self, options: MemosOptions, backend_name: str) -> None:
        self.requests = Requests(options)
        self._headers = bearer(options.api_key)
        self._http = JsonHttp(
            options.url,
            backend=backend_name,
            server="MemOS server",
            timeout_s=options.timeout_s,
            connections=MAX_CONCURRENCY,
        )
        self.aclose = self._http.aclose

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """Return the JSON of an answer, without a check for failures that MemOS hides in it."""
        method, path = ROUTES[operation]
        sent: dict[str, Any] = {"params" if method == "GET" else "json": body, "headers": self._headers}
        return await self._http.request(method, path, operation=f"{method} {path}", **sent)

    async def add(self, event: MemoryEvent, cube: str) -> tuple[Added, ...]:
        return added(await self.call("add", self.requests.add(event, cube)))

    async def search(self, request: RetrieveRequest, cube: str, mode: str | None = None) -> Any:
        body = self.requests.search(request, cube, mode)
        return data_of(await self.call("search", body), "search")

    async def found(self, text: str, cube: str) -> dict[str, Item]:
        """The memories that a ``fast`` search finds, by id. A ``fine`` search changes texts and ids."""
        return await self.asked(self.requests.ask(text, cube, mode="fast"))

    async def asked(self, body: Body) -> dict[str, Item]:
        return by_id(data_of(await self.call("search", body), "search"), "search")

    async def groups(self, cube: str) -> Any:
        return data_of(await self.call("get_memory", self.requests.listing(cube)), "get_memory")

    async def listing(self, cube: str) -> dict[str, Item]:
        """The cube's memories by id, because PostgreSQL lists every memory in every group."""
        return by_id(await self.groups(cube), "get_memory")

    async def rows_of(self, event_id: str, cube: str) -> tuple[Added, ...]:
        """The memories of an event in a cube, in the form of an add's answer."""
        rows = [row for row in (await self.listing(cube)).values() if event_id in event_ids(row)]
        return tuple(Added(str(row.get("id")), str(row.get("memory"))) for row in rows)

    async def own(self, native_id: str, cube: str) -> Item:
        """A memory of this cube, from its listing, because MemOS' routes by id answer for every cube."""
        if item := (await self.listing(cube)).get(native_id):
            return item
        raise ScopeError("native_id: belongs to another scope, or to none")

    async def clear(self, cube: str) -> tuple[int, bool]:
        """Delete everything in a cube. Returns the number of deleted memories, and whether a listing shows none."""
        before = await self.listing(cube)
        data_of(await self.call("delete_memory", self.requests.clear(cube)), "delete_memory")
        rest = tuple(await self.listing(cube))
        if rest:  # another user wrote them into this cube
            await self.delete(rest, cube)
            rest = tuple(await self.listing(cube))
        return len(before) - len(rest), not rest

    async def delete(self, native_ids: Sequence[str], cube: str) -> Any:
        """Delete memories by id. MemOS gives the same answer for ids that do not exist."""
        return await self.call("delete_memory", self.requests.delete(native_ids, cube))

    async def remove(self, native_id: str, cube: str) -> Any:
        answer = await self.delete([native_id], cube)
        try:
            left = await self.listing(cube)
        except BackendError as error:
            error.sent = True  # the delete was sent, although the check failed
            raise
        if native_id in left:
            problem = "delete_memory: MemOS answered 200 and the memory is still there"
            raise BackendProtocolError(problem, sent=False)
        return answer

    async def busy(self) -> int:
        return count_busy(await self.call("all_status", {}))


CANARY = "memslot-canary"  # differs from every scope's cube, which has a "." or "_" in its name
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


@dataclass
class Canary:
    """One known memory in a separate cube, which shows whether a MemOS server really works.

    MemOS answers 200 even if its embedder, model, reranker or index fails, and searches are then empty. So
    the adapter searches for the canary at the first setup, in ``health``, and after an empty answer. A canary
    that was stored without a vector is never found, so another one is stored.
    """

    native: Native
    options: MemosOptions
    shielded: ShieldedCalls
    where: str
    filters: Literal["honoured", "ignored"] | None = None
    relativity: float | None = None
    read_only: bool = False

    async def report(self) -> tuple[Literal["ok", "degraded", "unavailable"], str, tuple[str, ...]]:
        """Search for the canary. Returns the health status, the result in words, and warnings."""
        if await self._found():
            if self.relativity not in _UNRANKED or not self.options.rerank:
                return "ok", "found", ()
            return "degraded", "found, unranked", (_UNRANKED[self.relativity],)
        if await self.native.listing(CANARY):
            return "unavailable", "not found", (await self._why(),)
        return "degraded", "not stored yet", ("no scope is set up yet, so nothing is known to search for",)

    async def probe(self, operation: str) -> bool:
        """Raise if the canary is not found either. Returns whether it was stored again, so that a retry helps."""
        if await self._found():
            return False
        problem = await self.shielded.run(CANARY, self._renew)
        if problem is not None:
            problem = f"{operation}: MemOS answered 200 with nothing, and {problem}"
            raise BackendUnavailable(problem, diagnostics={"status": 200}, sent=False)
        return not self.read_only

    async def check(self) -> bool:
        """Store the canary if it is missing, and test cubes and filters with it. False if the mode prevents it."""
        problem = None if await self._found() else await self.shielded.run(CANARY, self._renew)
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
        return True

    async def _check_filters(self) -> None:
        matching = await self._found(context=CANARY)
        self.filters = "ignored" if await self._found(context="another context") else "honoured"
        if self.options.filters and not (matching and self.filters == "honoured"):
            ignored = self.filters == "ignored"
            did = "ignored a filter" if ignored else "found nothing by a filter that matches"
            raise ConfigError(
                f"{self.where}.graph_db: says {self.options.graph_db}, which filters, but this server {did}; "
                "give its GRAPH_DB_BACKEND"
            )

    async def _renew(self) -> str | None:
        """Store another canary, and delete it unless it is found. Returns why none is found, or None."""
        if self.read_only:
            return await self._why() if await self.native.listing(CANARY) else None
        body = self.native.requests.add_text(_TEXT, CANARY, {"context": CANARY})
        stored = added(await self.native.call("add", body))
        if not stored:
            raise BackendUnavailable("setup_scope: MemOS answered 200 and stored nothing; see its log")
        if await self._found():
            return None
        why = await self._why()
        await self.native.delete([memory.native_id for memory in stored], CANARY)
        return why

    async def _why(self) -> str:
        mode = self.options.search_mode
        if mode != "fast" and await self.native.found(_TEXT, CANARY):
            return unfound_by(mode)
        return _LOST

    async def _found(self, cube: str = CANARY, context: str | None = None) -> bool:
        where = native_filter({"context": {"eq": context}} if context else {}, self.options.graph_db)
        found = await self.native.asked(self.native.requests.ask(_TEXT, cube, where=where))
        for item in found.values():
            self.relativity = relativity_of(metadata_of(item))
        return bool(found)


def unfound_by(mode: str) -> str:
    return (
        f"search_mode: {mode} finds nothing where fast does: the language model behind MemOS fails, or its answers "
        "cannot be read; see the server's log, or say search_mode: fast"
    )
