"""What the adapter does with a MemOS: requests built, sent and understood, one method for each purpose.
``http`` asks a product server; ``inprocess`` (:mod:`inprocess`) runs the same handlers here. A transport
changes neither bodies nor answers, and imports no MemOS, which would take ten seconds and change logging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from memory import BackendError, BackendUnavailable, MemoryEvent, MemoryFeedback, RetrieveRequest, ScopeError
from memory.adapter import (
    OPENAI_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRejected,
    ErrorTable,
    JsonHttp,
    NativeError,
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
    feedback_ids,
    is_by,
    task_states,
)
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Body, Requests

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
        """The whole answer, ``{"code": 200, "message": ..., "data": ...}``; failures that hide in one are not
        looked for."""
        ...

    async def aclose(self) -> None:
        """Release connections, threads and clients. Idempotent."""
        ...


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


_ACTIVE = frozenset({"waiting", "pending", "in_progress"})


@dataclass(eq=False)
class Native:
    transport: Transport
    requests: Requests

    async def health(self) -> dict[str, Any]:
        """What the server says of itself, which is always that it is healthy."""
        answer = await self.transport.call("health", {})
        return answer if isinstance(answer, dict) else {}

    async def add(self, event: MemoryEvent, cube: str, place: str) -> tuple[Added, ...]:
        return added(await self.transport.call("add", self.requests.add(event, cube, place)))

    async def note(self, text: str, cube: str, info: dict[str, str]) -> tuple[Added, ...]:
        return added(await self.transport.call("add", self.requests.note(text, cube, info)))

    async def search(self, request: RetrieveRequest, cube: str, mode: str | None = None) -> Any:
        body = self.requests.search(request, cube, mode)
        return data_of(await self.transport.call("search", body), "search")

    async def found(
        self,
        text: str,
        cube: str,
        *,
        session_id: str | None = None,
        where: Body | None = None,
        mode: str | None = "fast",
    ) -> dict[str, Item]:
        """With ``fine`` they would be others."""
        body = self.requests.ask(text, cube, session_id=session_id, where=where, mode=mode)
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
        rows = await self.listing(place)
        if place == cube:
            return rows
        return {native_id: item for native_id, item in rows.items() if is_by(cube, item)}

    async def rows_of(self, event_id: str, cube: str, place: str) -> Mapping[str, Item]:
        stored = await self.stored(cube, place)
        return {native_id: item for native_id, item in stored.items() if event_id in event_ids(item)}

    async def stored_before(self, event_id: str, cube: str, place: str) -> tuple[Added, ...]:
        """The rows of an event that was sent before, as the answer to its add would have named them."""
        rows = await self.rows_of(event_id, cube, place)
        return tuple(Added(native_id, str(row.get("memory"))) for native_id, row in rows.items())

    async def own(self, native_id: str, cube: str, shared: Sequence[str]) -> tuple[str, Item]:
        """The cube and the memory, looked for in those of the scope: the routes by id answer for every cube."""
        item = (await self.listing(cube, native_id)).get(native_id)
        if item is not None:
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
        removed, gone, left = len(before) - len(rest), not rest, []
        for place in shared:
            mine = await self.stored(cube, place)
            # One that MemOS has merged may be another scope's as well.
            alone = [native_id for native_id, item in mine.items() if len(event_ids(item)) < 2]
            after = mine
            if alone:
                await self.delete(alone, place)
                after = await self.stored(cube, place)
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
            raise BackendProtocolError(
                "delete_memory: MemOS answered 200 and the memory is still there", sent=False
            )
        return answer

    async def feedback(self, feedback: MemoryFeedback, cube: str) -> tuple[str, ...]:
        return feedback_ids(await self.transport.call("feedback", self.requests.feedback(feedback, cube)))

    async def busy(self, cubes: Sequence[str]) -> int:
        """Of these users with Redis; of all users with the local queue."""
        if not self.requests.options.redis:
            return await self.busy_for_all()
        states = [state for cube in cubes for state in (await self.tasks(cube)).values()]
        return sum(state in _ACTIVE for state in states)

    async def busy_for_all(self) -> int:
        return count_busy(await self.transport.call("all_status", {}))

    async def tasks(self, cube: str) -> dict[str, str]:
        """Always empty without Redis."""
        return task_states(await self.transport.call("task_status", {"user_id": cube}))
