"""Provenance and diagnostics of single records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import PositiveInt

from memory import (
    MemoryScope,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    ScopeError,
)
from memory.adapter import BaseAdapter, Operation
from memory.adapter.fields import NotBlank
from memory.adapter.http import none_if_404
from memory.backends.honcho.client import all_rows
from memory.backends.honcho.options import MAX_ROWS
from memory.backends.honcho.translate import IDS, native_json
from memory.backends.honcho.workspace import HonchoScope

QUERIES = {
    "card": Operation(),
    "chat": Operation({"session_id": NotBlank, "reasoning_level": str}, required={"query": NotBlank}),
    "conclusions": Operation({"page": PositiveInt, "size": PositiveInt}),
    "queue_status": Operation(),
    "representation": Operation(
        {
            "session_id": NotBlank,
            "search_query": str,
            "search_top_k": PositiveInt,
            "max_conclusions": PositiveInt,
        }
    ),
}
_MAX_RECORDS = 1000


class HonchoRecords(BaseAdapter):
    workspace: Callable[[MemoryScope], HonchoScope]

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """Return a message with its event, or a conclusion with the peer's messages in its session.

        Honcho names the session of a conclusion, but not its message. The id of a representation is its
        peer's; it gives all conclusions on that peer. Without ``native_id``, return the conclusions derived
        in the time range, by the server's clock.

        Raises:
            ScopeError: the scope has no such record.
        """
        workspace = self.workspace(request.scope)
        raw: dict[str, Any]
        if request.native_id is None:
            times = {"gte": request.since, "lte": request.until}
            bounds = {name: moment.isoformat() for name, moment in times.items() if moment is not None}
            raw = {"conclusions": await _conclusions(workspace, {"created_at": bounds} if bounds else None)}
        elif request.native_id in workspace.observed:
            found = await _conclusions(workspace, {"observed_id": request.native_id})
            sessions = dict.fromkeys(record["session_id"] for record in found if record["session_id"])
            said = [await _said(workspace, session, request.native_id) for session in sessions]
            raw = {"peer_id": request.native_id, "conclusions": found, "said_in_those_sessions": said}
        else:
            raw = await self._of_record(workspace, request.native_id)
        message = [raw["message"]] if "message" in raw else []
        ids = tuple(record["id"] for record in (*message, *raw.get("conclusions", ())))
        events = [record["metadata"].get("event_id") for record in message]
        found_ids = tuple(event_id for event_id in events if isinstance(event_id, str))
        trace = self.trace(request.scope, "Conclusions.list", native_ids=ids)
        return ProvenanceResult(raw=raw, native_ids=ids, event_ids=found_ids, trace=trace)

    async def _of_record(self, workspace: HonchoScope, native_id: str) -> dict[str, Any]:
        found = await _conclusions(workspace, {"id": native_id})
        if found:
            session_id, peer_id = found[0]["session_id"], found[0]["observed_id"]
            said = await _said(workspace, session_id, peer_id) if session_id else []
            return {"conclusions": found, "said_in_that_session": said}
        for session in await workspace.sessions():
            if message := await none_if_404(session.aio.get_message(native_id)):
                return {"message": native_json(message)}
        raise ScopeError("native_id: belongs to another scope, or to none")

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """Run a query. ``chat`` calls the server's model."""
        workspace = self.workspace(request.scope)
        raw = native_json(await _query(workspace, request.operation, dict(request.arguments)))
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, request.operation))


async def _conclusions(workspace: HonchoScope, filters: dict[str, Any] | None) -> list[dict[str, Any]]:
    page = await workspace.reader.aio.conclusions.list(size=MAX_ROWS, filters=filters)
    return [native_json(record) for record in await all_rows(page, _MAX_RECORDS)]


async def _said(workspace: HonchoScope, native_id: str, peer_id: str) -> list[dict[str, Any]]:
    page = await workspace.native_session(native_id).aio.messages(filters={"peer_id": peer_id}, size=MAX_ROWS)
    return [native_json(record) for record in await all_rows(page, _MAX_RECORDS)]


async def _query(workspace: HonchoScope, operation: str, given: dict[str, Any]) -> Any:
    reader, user = workspace.reader.aio, workspace.user.aio
    session_id = given.pop("session_id", None)
    native_id = session_id and IDS.encode(session_id)

    async def chat() -> dict[str, Any]:
        await user.get_card()  # 404 for an unknown user, whom the chat would create
        return {"content": await user.chat(given.pop("query"), session=native_id, **given)}

    async def conclusions() -> dict[str, Any]:
        page = await reader.conclusions.list(**given)
        return {"items": page.items, "total": page.total, "page": page.page}

    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "card": user.get_card,
        "chat": chat,
        "conclusions": conclusions,
        "queue_status": reader.queue_status,
        "representation": lambda: user.representation(native_id, **given),
    }
    return await calls[operation]()
