"""The SDK's objects over memslot's connection, with one pool for all scopes. Reads create nothing.

``honcho-ai`` itself builds an HTTP client for every workspace, repeats writes that may have been carried out, has
no public close, and creates a workspace before it reads. ``test_honcho_drift`` checks the two private attributes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partialmethod
from typing import Any, TypeVar

import anyio
import httpx
from honcho import Honcho, Peer, Session

from memory import MemoryEvent
from memory.adapter.fields import without_nul
from memory.adapter.http import JsonHttp, bearer, expect, none_if_404
from memory.adapter.sdk import warnings_only
from memory.backends.honcho.options import MAX_ROWS, HonchoOptions
from memory.backends.honcho.translate import IDS

_FIXED = frozenset({"", "v3", "workspaces", "list", "query", "status"})
_LISTS = frozenset({"messages", "search", "conclusions", "query"})  # routes that answer with a bare list


@dataclass(frozen=True, repr=False)  # the headers contain the key
class Transport:
    """The interface of ``honcho.http.AsyncHonchoHTTPClient`` over one :class:`JsonHttp`."""

    http: JsonHttp
    headers: dict[str, str]
    retry_pause_s: float | None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a request, and check the shape of its answer: the SDK's own errors would not name the route."""
        named = _named(method, path)
        with anyio.fail_after(timeout):
            answer = await self.http.request(
                method,
                path,
                params=query,
                json=body,
                headers={**self.headers, **(headers or {})},
                operation=named,
                retry_pause_s=self.retry_pause_s,
            )
        if method == "DELETE":
            return answer
        if method == "POST" and path.rpartition("/")[2] in _LISTS:
            return [expect(dict, row, named) for row in expect(list, answer, named)]
        if path.endswith("/list"):
            for row in expect(list, expect(dict, answer, named).get("items"), named):
                expect(dict, row, named)
        return expect(dict, answer, named)

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    delete = partialmethod(request, "DELETE")


class Connections:
    def __init__(self, options: HonchoOptions, backend: str) -> None:
        warnings_only("honcho")
        self._base_url = options.address
        self._http = JsonHttp(
            options.address,
            backend=backend,
            server="Honcho server",
            timeout_s=options.timeout_s,
            hints={
                401: "the API key is missing, wrong or expired, or no admin key; every scope is a workspace"
            },
        )
        headers = bearer(options.api_key)
        self.reads = Transport(self._http, headers, options.retry_pause_s)
        self.writes = Transport(self._http, headers, None)
        # The SDK's synchronous client, which is not used here, would load certificates for every scope.
        self._unused = httpx.Client(transport=httpx.BaseTransport())

    async def aclose(self) -> None:
        self._unused.close()
        await self._http.aclose()

    def client(self, workspace_id: str, *, reads: bool) -> Honcho:
        """A client of a workspace. Reads assume that the workspace exists; only writes create it."""
        client = Honcho(
            api_key="unused", base_url=self._base_url, workspace_id=workspace_id, http_client=self._unused
        )
        # The SDK's objects use these two attributes.
        client._async_http = self.reads if reads else self.writes  # type: ignore[assignment]
        client._workspace_ensured = reads
        return client


def _named(method: str, path: str) -> str:
    """Method and path without ids, for errors. Every second part below ``/v3/workspaces`` is an id."""
    parts = path.split("/")
    shown = [part if at < 3 or at % 2 == 0 or part in _FIXED else "{id}" for at, part in enumerate(parts)]
    return f"{method} {'/'.join(shown)}"


T = TypeVar("T")


async def all_rows(page: Any, limit: int | None = None) -> list[Any]:
    """The rows of all pages, up to ``limit``. Not by ``async for``: trio warns of abandoned generators."""
    rows: list[Any] = []
    while page is not None:
        rows.extend(page.items)
        if limit is not None and len(rows) >= limit:
            return rows[:limit]
        page = await page.get_next_page()
    return rows


class WorkspaceReader:
    """A workspace for reading. The SDK's objects ``user`` (the peer ``peer_id``) and ``reader`` create nothing."""

    def __init__(self, native: Mapping[str, str], options: HonchoOptions, connections: Connections) -> None:
        self.workspace_id = native["workspace_id"]
        self.peer_id = native["peer_id"]
        self.observed = (self.peer_id, *((options.assistant_peer,) if options.observe_assistant else ()))
        self.reader = connections.client(self.workspace_id, reads=True)
        self.user = Peer(self.peer_id, self.reader)

    def session(self, session_id: str) -> Session:
        return self.native_session(IDS.encode(session_id))

    def native_session(self, native_id: str) -> Session:
        return Session(native_id, self.reader)

    async def check_access(self) -> None:
        """Check that a Honcho server accepts the key. The queue's status needs no workspace."""
        await self.reader.aio.queue_status()

    async def none_if_no_user(self, call: Awaitable[T]) -> T | None:
        """The answer, or None if Honcho answers 404 because it does not know the user yet."""
        answer = await none_if_404(call)
        if answer is None:
            await self.check_access()
        return answer

    async def stored(self, event: MemoryEvent) -> dict[tuple[int, int], str]:
        filters: dict[str, Any] = {"metadata": {"event_id": without_nul(event.event_id)}}
        page = await self.session(event.session_id).aio.messages(filters=filters, size=MAX_ROWS)
        return {_key(message.metadata): message.id for message in await all_rows(page)}

    async def sessions(self) -> list[Session]:
        return await all_rows(await self.reader.aio.sessions(size=MAX_ROWS))

    async def count_messages(self, native_id: str, peer_id: str | None = None) -> int:
        filters: dict[str, Any] | None = None if peer_id is None else {"peer_id": peer_id}
        page = await self.native_session(native_id).aio.messages(filters=filters, size=1)
        return page.total or 0

    async def under_way(self) -> tuple[int, int]:
        status = await self.reader.aio.queue_status()
        return status.pending_work_units, status.in_progress_work_units

    async def conclusions(self, filters: dict[str, Any] | None = None) -> tuple[int, datetime | None]:
        page = await self.reader.aio.conclusions.list(size=1, filters=filters)
        return page.total or 0, page.items[0].created_at if page.items else None


def _key(metadata: Mapping[str, Any]) -> tuple[int, int]:
    part = metadata.get("part")
    number = int(part.partition("/")[0]) - 1 if isinstance(part, str) else 0
    position = metadata.get("message")
    return (position if isinstance(position, int) else -1, number)
