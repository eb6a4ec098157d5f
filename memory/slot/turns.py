"""The two calls that a host makes in each turn, and one person's view of a shared slot."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message, read_message
from memory.contract.formatting import strip_json
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope


class RecallFields(TypedDict, total=False):
    """Further arguments of ``before_turn``; an absent one, or None, stands for the default.

    ``budget`` replaces the slot's. ``exclude_session=False`` also shows rows of this session. The other
    fields are as in :class:`RetrieveRequest`.
    """

    budget: ContextBudget | None
    scenario: str | None
    context: str | None
    attribute: str | None
    filters: Mapping[str, object] | None
    exclude_session: bool


class TurnFields(TypedDict, total=False):
    """Further arguments of ``after_turn``; an absent one, or None, stands for the default.

    ``user`` and ``assistant`` are the words of each; blank ones are left out. ``messages`` go between the
    two; ``metadata.left_out`` counts their parts without words.
    ``event_id`` and ``turn_id`` are fresh by default: give your own if a turn may be recorded twice.
    ``timestamp`` is the time of the turn, now by default. The other fields are as in :class:`MemoryEvent`.
    """

    user: str | None
    assistant: str | None
    messages: Iterable[object]
    event_id: str | None
    turn_id: str | None
    timestamp: datetime | None
    agent_id: str
    scenario: str | None
    context: str | None
    attribute: str | None
    metadata: Mapping[str, object] | None


def request_of(
    user: str, session_id: str, scope: MemoryScope, **fields: Unpack[RecallFields]
) -> RetrieveRequest:
    """The coming turn's request, without recalled context."""
    _check_text("user", user)
    given = _given(fields, RecallFields)
    return RetrieveRequest(query=strip_json(user), scope=scope, session_id=session_id, **given)


def event_from_turn(session_id: str, scope: MemoryScope, **fields: Unpack[TurnFields]) -> MemoryEvent:
    """The event of a turn. Raises InputError if a field is malformed, or nothing was said."""
    given = _given(fields, TurnFields)
    user, assistant = given.pop("user", ""), given.pop("assistant", "")
    _check_text("user", user)
    _check_text("assistant", assistant)
    said = [Message(role="user", content=user)] if user.strip() else []
    messages = given.pop("messages", ())
    if not isinstance(messages, Iterable):
        raise InputError(f"messages must be a list of messages, not {type(messages).__name__}")
    left_out: Counter[str] = Counter()
    for number, value in enumerate(messages):
        try:
            message, without_words = read_message(value)
        except InputError as error:
            raise InputError(f"messages.{number}: {error}") from None
        left_out += without_words
        if message is not None:
            said.append(message)
    if left_out:
        given["metadata"] = {**given.get("metadata", {}), "left_out": dict(left_out)}
    if assistant.strip():
        said.append(Message(role="assistant", content=assistant))
    fresh = {"event_id": uuid.uuid4().hex, "turn_id": uuid.uuid4().hex, "timestamp": datetime.now(UTC)}
    return MemoryEvent(scope=scope, session_id=session_id, messages=tuple(said), **{**fresh, **given})


def _given(fields: Mapping[str, Any], known: type) -> dict[str, Any]:
    """The fields that are not None. An unknown field raises TypeError, as any unknown argument does."""
    for name in fields.keys() - known.__annotations__.keys():
        raise TypeError(f"{name!r} is no argument of it; there are {', '.join(known.__annotations__)}")
    return {name: value for name, value in fields.items() if value is not None}


def _check_text(name: str, said: object) -> None:
    if not isinstance(said, str):
        raise InputError(f"{name} must be text, not {type(said).__name__}; leave a turn without it out")
