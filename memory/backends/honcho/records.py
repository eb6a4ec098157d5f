"""Single records of a scope: where they come from, diagnostics, corrections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from memory import (
    CapabilityNotSupported,
    InputError,
    MemoryScope,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    ScopeError,
)
from memory.adapter import (
    BaseAdapter,
    NativeMutationReceipt,
    NativeQueryResult,
    ProvenanceResult,
    ShieldedCalls,
)
from memory.backends.honcho.ids import HonchoScope, all_rows, unless_missing
from memory.backends.honcho.options import MAX_ROWS
from memory.backends.honcho.translate import METADATA_PREFIX, native_json

__all__ = ["QUERIES", "HonchoRecords"]

_PAGE = frozenset({"page", "size"})
QUERIES: Mapping[str, frozenset[str]] = {
    "card": frozenset(),
    "chat": frozenset({"query", "session_id", "reasoning_level"}),
    "conclusions": _PAGE,
    "messages": _PAGE | {"session_id"},
    "queue_status": frozenset(),
    "representation": frozenset({"search_query", "search_top_k", "max_conclusions", "session_id"}),
    "sessions": _PAGE,
    "summaries": frozenset({"session_id"}),
}
"""Native queries, and the arguments of each."""
MUTATIONS: Mapping[str, frozenset[str]] = {
    "create": frozenset({"content", "session_id"}),
    "delete": frozenset(),
    "set_card": frozenset({"peer_card"}),
    "update": frozenset({"session_id", "metadata"}),
}
"""Native mutations, and the arguments of each."""
_MOST = 1000


class HonchoRecords(BaseAdapter):
    """The part of the adapter that deals with records, not with memory as a whole."""

    shielded: ShieldedCalls

    def home(self, scope: MemoryScope) -> HonchoScope:
        """The scope's workspace."""
        raise NotImplementedError

    # -- where it comes from ----------------------------------------------------------------------------

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """A message with its event; a conclusion, or all the user's, with what the user said in those sessions.

        Honcho says from which session a conclusion is, not from which message. A representation has no id but its
        peer's. A time range lists the conclusions derived in it, by the server's clock.

        Raises:
            ScopeError: the scope has no such record.
        """
        home = self.home(request.scope)
        async with home.reading():
            if request.native_id is None:
                raw = await self._derived_between(home, request)
            elif request.native_id in home.observed:
                raw = await self._of_peer(home, request.native_id)
            else:
                raw = await self._of_record(home, request.native_id)
        said = [raw["message"]] if "message" in raw else []
        ids = [one["id"] for one in (*said, *raw.get("conclusions", ()))]
        events = [one["metadata"].get("event_id") for one in said]
        return ProvenanceResult(
            raw=raw,
            native_ids=tuple(ids),
            event_ids=tuple(one for one in events if isinstance(one, str)),
            trace=self.trace(request.scope, "Conclusions.list", native_ids=tuple(ids)),
        )

    async def _derived_between(self, home: HonchoScope, request: ProvenanceRequest) -> dict[str, Any]:
        times = {"gte": request.since, "lte": request.until}
        filters = {name: moment.isoformat() for name, moment in times.items() if moment is not None}
        return {"conclusions": await _conclusions(home, {"created_at": filters} if filters else None)}

    async def _of_peer(self, home: HonchoScope, peer_id: str) -> dict[str, Any]:
        found = await _conclusions(home, {"observed_id": peer_id})
        sessions = dict.fromkeys(one["session_id"] for one in found if one["session_id"])
        said = [row for native_id in sessions for row in await _said(home, native_id, peer_id)]
        return {"peer_id": peer_id, "conclusions": found, "said_in_those_sessions": said}

    async def _of_record(self, home: HonchoScope, native_id: str) -> dict[str, Any]:
        found = await _conclusions(home, {"id": native_id})
        if found:
            one = found[0]
            said = await _said(home, one["session_id"], one["observed_id"]) if one["session_id"] else []
            return {"conclusions": found, "said_in_that_session": said}
        for session in await all_rows(await home.reader.aio.sessions(size=MAX_ROWS)):
            message = await unless_missing(session.aio.get_message(native_id))
            if message is not None:
                return {"message": native_json(message)}
        raise ScopeError("native_id: belongs to another scope, or to none")

    # -- diagnostics ------------------------------------------------------------------------------------

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """One call of the SDK, by its own name: see :data:`QUERIES`. ``chat`` asks the server's model.

        Raises:
            CapabilityNotSupported: another operation.
            InputError: an argument it does not have, or lacks.
        """
        if request.operation not in QUERIES:
            raise CapabilityNotSupported(
                f"{self.backend_name}: native_query knows the operations {', '.join(QUERIES)}"
            )
        given = _checked(request.arguments, request.operation, QUERIES)
        home = self.home(request.scope)
        async with home.reading():
            raw = native_json(await _query(home, request.operation, given))
        return NativeQueryResult(raw=raw, trace=self.trace(request.scope, request.operation))

    # -- corrections ------------------------------------------------------------------------------------

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """What the SDK can change: ``delete`` or ``create`` a conclusion on the user, ``set_card`` of the user,
        ``update`` a message's metadata (ours stays). Nothing deletes a message.

        Raises:
            CapabilityNotSupported: another operation.
            InputError: an argument it does not have, or lacks.
            BackendRejected: the scope has no such record.
        """
        if request.operation not in MUTATIONS:
            raise CapabilityNotSupported(
                f"{self.backend_name}: native_mutation knows the operations {', '.join(MUTATIONS)}"
            )
        given = _checked(request.arguments, request.operation, MUTATIONS)
        home = self.home(request.scope)
        if request.operation in ("delete", "update") and request.native_id is None:
            raise InputError(f"native_id: is required to {request.operation}")
        changed = await self.shielded.run(home.workspace_id, lambda: _mutate(home, request, given))
        ids = [request.native_id] if request.native_id else []
        if request.operation == "create":
            ids = [one.id for one in changed]
        return NativeMutationReceipt(
            status="committed",
            native_ids=tuple(ids),
            raw=native_json(changed),
            trace=self.trace(request.scope, request.operation, native_ids=tuple(ids)),
        )


def _checked(
    arguments: Mapping[str, Any], operation: str, known: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    unknown = arguments.keys() - known[operation]
    if unknown:
        takes = ", ".join(sorted(known[operation])) or "none"
        raise InputError(f"arguments.{min(unknown)}: is not known; {operation!r} takes {takes}")
    return dict(arguments)


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"arguments.{name}: is required, as text that is not blank")
    return value


async def _conclusions(home: HonchoScope, filters: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The newest conclusions, at most a thousand."""
    page = await home.reader.aio.conclusions.list(size=MAX_ROWS, filters=filters)
    return [native_json(one) for one in await all_rows(page, _MOST)]


async def _said(home: HonchoScope, native_id: str, peer_id: str) -> list[dict[str, Any]]:
    """What a peer said in a session, at most the first thousand messages."""
    page = await home.native_session(native_id).aio.messages(filters={"peer_id": peer_id}, size=MAX_ROWS)
    return [native_json(one) for one in await all_rows(page, _MOST)]


async def _query(home: HonchoScope, operation: str, given: dict[str, Any]) -> Any:
    reader, user = home.reader.aio, home.user.aio
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "card": user.get_card,
        "chat": lambda: _chat(home, given),
        "conclusions": lambda: _page(reader.conclusions.list(**given)),
        "queue_status": reader.queue_status,
        "sessions": lambda: _page(reader.sessions(**given)),
    }
    if operation in calls:
        return await calls[operation]()
    if operation == "representation":
        session_id = given.pop("session_id", None)
        return await user.representation(home.session_id(session_id) if session_id else None, **given)
    session = home.session(_text(given, "session_id"))
    del given["session_id"]
    return await (
        session.aio.summaries() if operation == "summaries" else _page(session.aio.messages(**given))
    )


async def _page(call: Awaitable[Any]) -> dict[str, Any]:
    page = await call
    return {"items": [_row(one) for one in page.items], "total": page.total, "page": page.page}


def _row(record: Any) -> Any:
    """A session object holds its client; what it is of the session are its public fields."""
    if hasattr(record, "aio"):
        return {"id": record.id, "metadata": native_json(record.metadata)}
    return native_json(record)


async def _chat(home: HonchoScope, given: dict[str, Any]) -> dict[str, Any]:
    query = _text(given, "query")
    await home.user.aio.get_card()  # 404 for a user Honcho does not know; the chat would make one
    session_id = given.get("session_id")
    content = await home.user.aio.chat(
        query,
        session=home.session_id(session_id) if session_id else None,
        reasoning_level=given.get("reasoning_level"),
    )
    return {"content": content}


async def _mutate(home: HonchoScope, request: NativeMutationRequest, given: dict[str, Any]) -> Any:
    view = home.user.conclusions.aio
    if request.operation == "delete":
        return await view.delete(request.native_id)
    if request.operation == "create":
        session_id = given.get("session_id")
        native_id = home.session_id(session_id) if session_id else None
        return await view.create([{"content": _text(given, "content"), "session_id": native_id}])
    if request.operation == "set_card":
        card = given.get("peer_card")
        if not isinstance(card, list) or not all(isinstance(line, str) for line in card):
            raise InputError("arguments.peer_card: is required, as a list of lines")
        return await home.user.aio.set_card(card)
    session = home.session(_text(given, "session_id"))
    metadata = given.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError("arguments.metadata: is required, as an object")
    message = await session.aio.get_message(request.native_id)
    ours = {METADATA_PREFIX + key: value for key, value in metadata.items()}
    return await session.aio.update_message(request.native_id, {**message.metadata, **ours})
