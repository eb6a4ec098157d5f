"""What the adapter does with a MemOS: requests built, sent and understood, one method for each purpose.
``http`` asks a product server; ``inprocess`` (:mod:`inprocess`) runs the same handlers here. A transport
changes neither bodies nor answers, and imports no MemOS, which would take ten seconds and change logging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import anyio

from memory import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    MemoryEvent,
    RetrieveRequest,
    ScopeError,
)
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRejected,
    ErrorTable,
    JsonHttp,
    NativeError,
    ShieldedCalls,
    bearer,
)
from memory.backends.memos.answers import (
    Added,
    Item,
    added,
    by_id,
    count_busy,
    data_of,
    event_ids,
    is_by,
    metadata_of,
    relativity_of,
    task_states,
)
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Body, Requests, native_filter

# Calls at a time. More exhaust its database connections: of eight searches at once one in five came back empty.
MAX_CONCURRENCY = 4

Operation = Literal[
    "add", "search", "get_memory", "delete_memory", "feedback", "all_status", "task_status", "health"
]
# Never ``task_queue_status``: without Redis it starts a Redis, on every interface.
ROUTES: Mapping[Operation, tuple[str, str]] = {
    "add": ("POST", "/product/add"),
    "search": ("POST", "/product/search"),
    "get_memory": ("POST", "/product/get_memory"),
    "delete_memory": ("POST", "/product/delete_memory"),
    "feedback": ("POST", "/product/feedback"),
    "all_status": ("GET", "/product/scheduler/allstatus"),
    "task_status": ("GET", "/product/scheduler/status"),
    "health": ("GET", "/health"),
}

# Of MemOS in this process. A request is many calls, so that none of these says that nothing is stored.
ERRORS: ErrorTable = {
    **OPENAI_ERRORS,
    "fastapi.exceptions.HTTPException": NativeError(sent=True),
    "memos.exceptions.MemOSError": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.UnexpectedResponse": NativeError(sent=True),
    "qdrant_client.http.exceptions.ResponseHandlingException": NativeError(BackendUnavailable),
    "qdrant_client.http.exceptions.ApiException": NativeError(BackendProtocolError),
    "neo4j.exceptions.AuthError": NativeError(BackendAuthError, sent=True),
    "neo4j.exceptions.ClientError": NativeError(BackendRejected, sent=True),
    "neo4j.exceptions.Neo4jError": NativeError(BackendUnavailable),
    "neo4j.exceptions.DriverError": NativeError(BackendUnavailable),
}


class Transport(Protocol):
    """A way to one MemOS; ``name`` is that of the option."""

    name: str

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """``{"code": 200, "message": ..., "data": ...}``, else BackendError; failures inside are not seen."""

    async def aclose(self) -> None:
        """Release connections, threads and clients. Idempotent."""


class HttpTransport:
    """Each request is sent once, because an add sent twice is stored twice."""

    name = "http"

    def __init__(self, options: MemosOptions, backend_name: str) -> None:
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
        method, path = ROUTES[operation]
        sent: dict[str, Any] = {"params" if method == "GET" else "json": body, "headers": self._headers}
        return await self._http.request(method, path, operation=f"{method} {path}", **sent)


@dataclass(eq=False)
class Native:
    transport: Transport
    requests: Requests

    async def add(self, event: MemoryEvent, cube: str, place: str) -> tuple[Added, ...]:
        return added(await self.transport.call("add", self.requests.add(event, cube, place)))

    async def search(self, request: RetrieveRequest, cube: str, mode: str | None = None) -> Any:
        body = self.requests.search(request, cube, mode)
        return data_of(await self.transport.call("search", body), "search")

    async def found(self, text: str, cube: str, session_id: str | None = None) -> dict[str, Item]:
        """With ``fine`` they would be others."""
        return await self.asked(self.requests.ask(text, cube, session_id=session_id, mode="fast"))

    async def asked(self, body: Body) -> dict[str, Item]:
        return by_id(data_of(await self.transport.call("search", body), "search"), "search")

    async def groups(self, cube: str, native_id: str | None = None) -> Any:
        """The cube's memories in their groups, or at least the one of ``native_id``."""
        body = self.requests.listing(cube, native_id=native_id)
        return data_of(await self.transport.call("get_memory", body), "get_memory")

    async def listing(self, cube: str, native_id: str | None = None) -> dict[str, Item]:
        """PostgreSQL puts every memory into every group."""
        return by_id(await self.groups(cube, native_id), "get_memory")

    async def stored(self, cube: str, place: str) -> Mapping[str, Item]:
        """What a scope has in a cube, by id: all of its own cube, of a shared one what it has written."""
        rows = (await self.listing(place)).items()
        return {native_id: item for native_id, item in rows if place == cube or is_by(cube, item)}

    async def rows_of(self, event_id: str, cube: str, place: str) -> tuple[Added, ...]:
        """What a scope has of an event in a cube, as the answer to its add would have named it."""
        rows = [row for row in (await self.stored(cube, place)).values() if event_id in event_ids(row)]
        return tuple(Added(str(row.get("id")), str(row.get("memory"))) for row in rows)

    async def own(self, native_id: str, cube: str, shared: Sequence[str]) -> tuple[str, Item]:
        """The cube and the memory, looked for in those of the scope: the routes by id answer for every cube."""
        if item := (await self.listing(cube, native_id)).get(native_id):
            return cube, item
        for place in shared:
            if item := (await self.stored(cube, place)).get(native_id):
                return place, item
        raise ScopeError("native_id: belongs to another scope, or to none")

    async def clear(self, cube: str, shared: Sequence[str]) -> tuple[int, bool, tuple[str, ...]]:
        """Delete all of a cube, and in those that scopes share what is its alone; MemOS' own answer is wrong
        more often than not. How many memories went; whether all did that are the scope's alone; and what stays."""
        before = await self.listing(cube)
        data_of(await self.transport.call("delete_memory", self.requests.clear(cube)), "delete_memory")
        rest = tuple(await self.listing(cube))
        if rest:  # written into this cube by another user than ours
            await self.delete(rest, cube)
            rest = tuple(await self.listing(cube))
        removed, gone = len(before) - len(rest), not rest
        left: list[str] = []
        for place in shared:
            mine = await self.stored(cube, place)
            # One that MemOS has merged may be another scope's as well.
            alone = [native_id for native_id, item in mine.items() if len(event_ids(item)) < 2]
            if alone:
                await self.delete(alone, place)
            after = await self.stored(cube, place) if alone else mine
            removed += len(mine) - len(after)
            gone = gone and after.keys().isdisjoint(alone)
            if merged := len(mine) - len(alone):
                left.append(f"{merged} memories in the shared cube {place}, made of more than one event")
        return removed, gone, tuple(left)

    async def delete(self, native_ids: Sequence[str], cube: str) -> Any:
        """The answer is the same for ids that do not exist."""
        return await self.transport.call("delete_memory", self.requests.delete(native_ids, cube))

    async def remove(self, native_id: str, cube: str) -> Any:
        """Delete one memory, and look whether it is gone."""
        answer = await self.delete([native_id], cube)
        try:
            left = await self.listing(cube, native_id)
        except BackendError as error:
            error.sent = True  # the delete was, whatever became of the look after it
            raise
        if native_id in left:
            problem = "delete_memory: MemOS answered 200 and the memory is still there"
            raise BackendProtocolError(problem, sent=False)
        return answer

    async def busy(self, cubes: Sequence[str]) -> int:
        """Of these users with Redis; of all users with the local queue."""
        if not self.requests.options.redis:
            return await self.busy_for_all()
        states = [state for cube in cubes for state in (await self.tasks(cube)).values()]
        return sum(state in ("waiting", "pending", "in_progress") for state in states)

    async def busy_for_all(self) -> int:
        return count_busy(await self.transport.call("all_status", {}))

    async def tasks(self, cube: str) -> dict[str, str]:
        """Always empty without Redis."""
        return task_states(await self.transport.call("task_status", {"user_id": cube}))


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


@dataclass
class Canary:
    """Whether a MemOS really works. It answers 200 where its embedder, model, reranker or index fails, and search
    is then empty. So one known memory lives in a cube of its own, and is searched for at the first setup, by
    ``health`` and where an answer is empty. One that was stored without a vector is never found again; a good one
    takes its place. ``shielded`` carries out writes that a mode switch is to wait for."""

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
        problem = await self.shielded.run(CANARY, self._renew)
        if problem is not None:
            problem = f"{operation}: MemOS answered 200 with nothing, and {problem}"
            raise BackendUnavailable(problem, diagnostics={"status": 200}, sent=False)
        return not self.read_only

    async def check(self) -> bool:
        """Store the canary where none is found, find it, and see, where that can be, whether cubes and all else
        hold."""
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
        return self.options.scheduler != "redis" or await self._check_tasks()

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
        stored = await self._store()
        try:
            for _ in range(20):
                if await self.native.tasks(CANARY):
                    return True
                await anyio.sleep(0.05)
            return False
        finally:
            await self.native.delete(stored, CANARY)

    async def _renew(self) -> str | None:
        """Store a new canary where none is found; None once one is, else why not. Lost ones are deleted last."""
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
        body = self.native.requests.add_text(_TEXT, CANARY, {"context": CANARY})
        stored = added(await self.native.transport.call("add", body))
        if not stored:
            raise BackendUnavailable("setup_scope: MemOS answered 200 and stored nothing; see its log")
        return [memory.native_id for memory in stored]

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
