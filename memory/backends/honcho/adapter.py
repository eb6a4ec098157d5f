"""Honcho as a memory backend: a peer for the user, sessions of messages, and conclusions (spec 5.1).

Writes are queued, because Honcho derives conclusions later (:mod:`workspace`). A context keeps Honcho's
order: prose on the user, the card, the summary, the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from pydantic import PositiveInt

from memory import (
    BackendError,
    BackendHealth,
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BackendProtocolError,
    BackendRejected,
    BaseAdapter,
    ContextEntry,
    Operation,
    ShieldedCalls,
    normalise_error,
)
from memory.adapter.fields import NotBlank
from memory.adapter.http import none_if_404
from memory.backends.honcho import translate
from memory.backends.honcho.client import Connections, all_rows
from memory.backends.honcho.options import CLOUD, MAX_ROWS, MAX_TOKENS, HonchoOptions
from memory.backends.honcho.workspace import HonchoScope, clear, wait_until_idle

_FILTERS = frozenset({"eq", "ne", "in", "nin", "icontains"})
_BEHIND = "Honcho does not tell whether its worker and models run; a wait for readiness may"
_CLOUD_BY_DEFAULT = f"base_url is not set: what is said goes to Honcho's public cloud, {CLOUD}"


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


class HonchoAdapter(BaseAdapter):
    def __init__(self, settings: AdapterSettings[HonchoOptions]) -> None:
        self.backend_name = settings.name
        self.options = settings.options
        searches = settings.options.retrieval == "search"
        filters = _FILTERS if searches and settings.options.supplement == "none" else frozenset()
        self.traits = AdapterTraits(
            consistency="async_derived",
            cs_filtering="hard" if filters else "soft",
            # A representation is prose without a time or version. Its derivation time is not always known.
            pet_observability="dated" if filters else "weak",
            filter_operators=filters,
            setup_writes=False,
            write_retries=1,  # safe: only messages that are not stored are sent again
            native_memory_types=("message", "summary", "representation", "conclusion", "peer card"),
            native_ingest_modes=("message",),
            store=settings.options.address,
            packages=("honcho-ai",),
            native_queries=QUERIES,
        )
        self.shielded: ShieldedCalls = ShieldedCalls()
        self.readiness_pauses_s = (settings.options.poll_s, settings.options.poll_s)
        self._reset_s = settings.deadlines.get("reset_s", 300.0)
        self._connections = Connections(settings.options, settings.name)
        self._ids = translate.HonchoIds(settings.options, settings.where)
        self._workspaces: dict[MemoryScope, HonchoScope] = {}

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return self._ids.native_scope(scope)

    def workspace(self, scope: MemoryScope) -> HonchoScope:
        if scope not in self._workspaces:
            native = self.native_scope(scope)
            self._workspaces[scope] = HonchoScope(scope, native, self.options, self._connections)
        return self._workspaces[scope]

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Check access to the workspace. This creates nothing; the first write creates the workspace."""
        await self.workspace(scope).check_access()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return (await self.record_events([event]))[0]

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Write up to a hundred messages per call, session by session, in order.

        Raises:
            BackendError: ``receipts`` are of the events stored before. A repeat sends only the missing messages.
        """
        if not events:
            return []
        said = {event.event_id: translate.event_parts(event) for event in events}
        workspace = self.workspace(events[0].scope)
        uncertain = workspace.uncertain & said.keys()
        # A caller may give up at any time, and later repeat an event that was stored meanwhile.
        workspace.uncertain |= said.keys()
        try:
            write = partial(self._write, workspace, events, said, uncertain)
            receipts = await self.shielded.run(workspace.workspace_id, write)
        except BackendError as error:
            workspace.uncertain -= {receipt.event_id for receipt in error.receipts}
            if not error.ambiguous:
                workspace.uncertain -= said.keys() - uncertain
            raise
        workspace.uncertain -= said.keys()
        return receipts

    async def _write(
        self,
        workspace: HonchoScope,
        events: Sequence[MemoryEvent],
        said: Mapping[str, list[translate.Part]],
        uncertain: Collection[str],
    ) -> list[WriteReceipt]:
        stored: dict[str, dict[tuple[int, int], str]] = {event.event_id: {} for event in events}
        for event in events:
            if event.event_id in uncertain:
                stored[event.event_id] = await workspace.stored(event)
        sessions: dict[str, list[translate.Part]] = {}
        for event_id, parts in said.items():
            todo = [part for part in parts if part.key not in stored[event_id]]
            sessions.setdefault(parts[0].event.session_id, []).extend(todo)
        batches = [
            rows[at : at + MAX_ROWS] for rows in sessions.values() for at in range(0, len(rows), MAX_ROWS)
        ]
        for batch in batches:
            try:
                ids = await workspace.add(batch)
            except Exception as error:
                failure = normalise_error(
                    error, backend_name=self.backend_name, operation="Session.add_messages"
                )
                failure.sent = failure.sent or any(stored[part.event.event_id] for part in batch)
                done = [event for event in events if len(stored[event.event_id]) == len(said[event.event_id])]
                failure.receipts = tuple(self._receipt(event, stored[event.event_id]) for event in done)
                raise failure from (error.__cause__ if failure is error else error)
            for part, native_id in zip(batch, ids, strict=True):
                stored[part.event.event_id][part.key] = native_id
        return [self._receipt(event, stored[event.event_id]) for event in events]

    def _receipt(self, event: MemoryEvent, stored: Mapping[tuple[int, int], str]) -> WriteReceipt:
        return self.receipt(event, "Session.add_messages", _in_order(stored), status="queued")

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        workspace = self.workspace(event.scope)
        stored = await workspace.stored(event)
        if len(stored) < len(translate.event_parts(event)):
            return None
        workspace.uncertain.discard(event.event_id)
        return _in_order(stored)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        workspace, options = self.workspace(request.scope), self.options
        limit = min(request.budget.max_items or options.top_k, MAX_ROWS)
        text, shortened = translate.search_text(request, with_cs=not self.traits.filter_operators)
        raw: dict[str, Any] = {"workspace_id": workspace.workspace_id, "peer_id": workspace.peer_id}
        ask = self._context if options.retrieval == "context" else self._search
        found: list[ContextEntry] = []
        if options.supplement == "representation":
            found += await self._representation(workspace, text, limit, raw)
        found += await ask(workspace, request, text, limit, raw)
        warnings = ("the question was shortened to what Honcho can look for",) if shortened else ()
        trace = self.trace(
            request.scope,
            "Session.context" if options.retrieval == "context" else "Honcho.search",
            native_ids=tuple(dict.fromkeys(entry.native_id for entry in found if entry.native_id)),
            consistency="committed" if workspace.watch.derived else "pending",
            last_derived_at=workspace.watch.derived_at,
            warnings=warnings,
        )
        return RetrieveResult(request=request, raw=raw, entries=tuple(found), trace=trace)

    async def _context(
        self, workspace: HonchoScope, request: RetrieveRequest, text: str, limit: int, raw: dict[str, Any]
    ) -> list[ContextEntry]:
        options = self.options
        tokens = min(request.budget.max_tokens or options.context_tokens, MAX_TOKENS)
        asked: dict[str, Any] = {"summary": options.summary, "tokens": tokens}
        if options.supplement == "none":
            asked |= {"peer_target": workspace.peer_id, **_about(text, limit)}
        # Honcho answers 404 for an unknown user, and 200 without messages for an unknown session.
        context = await workspace.none_if_no_user(workspace.session(request.session_id).aio.context(**asked))
        raw["context"] = translate.native_json(context)
        if context is None:
            return []
        # The SDK's own order for a prompt: the user, the past, the present messages.
        entries = translate.about_entries(context.peer_representation, context.peer_card, workspace.peer_id)
        if (summary := context.summary) is not None:
            labels = (("summary", summary.summary_type), ("until", summary.message_id))
            entries.append(ContextEntry(summary.content, group="Summary", labels=labels))
        return [*entries, *map(translate.message_entry, context.messages)]

    async def _search(
        self, workspace: HonchoScope, request: RetrieveRequest, text: str, limit: int, raw: dict[str, Any]
    ) -> list[ContextEntry]:
        filters = translate.native_filters(request) if self.traits.filter_operators else None
        messages = await workspace.reader.aio.search(text, filters=filters, limit=limit)
        raw["messages"] = translate.native_json(messages)
        return [translate.message_entry(message) for message in messages]

    async def _representation(
        self, workspace: HonchoScope, text: str, limit: int, raw: dict[str, Any]
    ) -> list[ContextEntry]:
        about = await workspace.none_if_no_user(workspace.user.aio.context(**_about(text, limit)))
        raw["peer_context"] = translate.native_json(about)
        if about is None:
            return []
        return translate.about_entries(about.representation, about.peer_card, workspace.peer_id)

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """An idle queue alone is ``pending``, because rows enter it after the answer to a write."""
        return await self.workspace(scope).watch.look()

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """Return a message with its event, or a conclusion with the peer's messages in its session.

        Honcho does not name a conclusion's message. The id of a representation is its peer's, with all conclusions.
        Without ``native_id``, return the conclusions derived in the time range, by the server's clock.
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
                return {"message": translate.native_json(message)}
        raise ScopeError("native_id: belongs to another scope, or to none")

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """Run a query. ``chat`` calls the server's model."""
        workspace = self.workspace(request.scope)
        raw = translate.native_json(await _query(workspace, request.operation, dict(request.arguments)))
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, request.operation))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear the workspace except for its peers, which Honcho cannot delete. The worker must be done."""
        workspace = self.workspace(scope)
        await self.shielded.idle(workspace.workspace_id)
        began = anyio.current_time()
        await wait_until_idle(workspace, self._reset_s * 0.6)
        rest_s = self._reset_s * 0.9 - (anyio.current_time() - began)
        with self.clearing():
            removed, verified = await clear(workspace, rest_s)
        left = ["the workspace and its peers, empty"] if removed else []
        if not verified:
            left = ["what Honcho's worker has not deleted, for it does not run or has failed"]
        trace = self.trace(scope, "Session.delete")
        return ResetReceipt(scope=scope, verified=verified, removed=removed, left=tuple(left), trace=trace)

    async def health(self) -> BackendHealth:
        """Ask ``GET /health``, which says little, then list workspaces to test the database and the key."""
        reads = self._connections.reads
        if (await reads.get("/health")).get("status") != "ok":
            raise BackendProtocolError("GET /health: expected status ok in the answer")
        await reads.post("/v3/workspaces/list", body={"filters": {"id": "memslot"}}, query={"size": 1})
        versions = {}
        with suppress(BackendRejected, BackendProtocolError, LookupError, TypeError):  # may be switched off
            versions["honcho"] = str((await reads.get("/openapi.json"))["info"]["version"])
        options = self.options
        modes = (options.retrieval, *((options.supplement,) if options.supplement != "none" else ()))
        details = {"base_url": options.address, "retrieval": modes}
        cloud = (_CLOUD_BY_DEFAULT,) if options.base_url is None and options.address == CLOUD else ()
        return self.health_of(versions=versions, details=details, warnings=(*cloud, _BEHIND))

    async def aclose_native(self) -> None:
        await self._connections.aclose()


def _about(text: str, limit: int) -> dict[str, Any]:
    return {"search_query": text, "search_top_k": limit, "max_conclusions": limit}


def _in_order(stored: Mapping[tuple[int, int], str]) -> tuple[str, ...]:
    return tuple(native_id for _, native_id in sorted(stored.items()))


async def _conclusions(workspace: HonchoScope, filters: dict[str, Any] | None) -> list[dict[str, Any]]:
    page = await workspace.reader.aio.conclusions.list(size=MAX_ROWS, filters=filters)
    return [translate.native_json(record) for record in await all_rows(page, _MAX_RECORDS)]


async def _said(workspace: HonchoScope, native_id: str, peer_id: str) -> list[dict[str, Any]]:
    page = await workspace.native_session(native_id).aio.messages(filters={"peer_id": peer_id}, size=MAX_ROWS)
    return [translate.native_json(record) for record in await all_rows(page, _MAX_RECORDS)]


async def _query(workspace: HonchoScope, operation: str, given: dict[str, Any]) -> Any:
    reader, user = workspace.reader.aio, workspace.user.aio
    session_id = given.pop("session_id", None)
    native_id = session_id and translate.IDS.encode(session_id)

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
