"""What a host says in a turn, as the contract's request and event."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Unpack

from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import strip_json
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.view import RecallFields, TurnFields

__all__ = ["event_of", "request_of"]


def request_of(
    user: str, session_id: str, scope: MemoryScope, **fields: Unpack[RecallFields]
) -> RetrieveRequest:
    """The question of the coming turn, without recalled context; fields as for :meth:`MemorySlot.before_turn`.

    Raises:
        InputError: a field is malformed, or nothing but recalled context was said.
    """
    _check_text("user", user)
    return RetrieveRequest(
        query=strip_json(user),
        scope=scope,
        session_id=session_id,
        budget=fields.get("budget") or ContextBudget(),
        scenario=fields.get("scenario"),
        context=fields.get("context"),
        attribute=fields.get("attribute"),
        filters=dict(fields.get("filters") or {}),
        exclude_session=fields.get("exclude_session", False),
    )


def event_of(session_id: str, scope: MemoryScope, **fields: Unpack[TurnFields]) -> MemoryEvent:
    """What was said in a turn; fields as for :meth:`MemorySlot.after_turn`.

    Raises:
        InputError: a field is malformed, or nothing was said.
    """
    user, assistant, timestamp = fields.get("user"), fields.get("assistant"), fields.get("timestamp")
    for name, half in (("user", user), ("assistant", assistant)):
        if half is not None:
            _check_text(name, half)
    said = [Message(role="user", content=user)] if user and user.strip() else []
    said.extend(fields.get("messages", ()))
    if assistant and assistant.strip():
        said.append(Message(role="assistant", content=assistant))
    event_id, turn_id = fields.get("event_id"), fields.get("turn_id")
    return MemoryEvent(
        event_id=uuid.uuid4().hex if event_id is None else event_id,
        turn_id=uuid.uuid4().hex if turn_id is None else turn_id,
        timestamp=datetime.now(UTC) if timestamp is None else timestamp,
        scope=scope,
        session_id=session_id,
        messages=tuple(said),
        agent_id=fields.get("agent_id", "agent"),
        scenario=fields.get("scenario"),
        context=fields.get("context"),
        attribute=fields.get("attribute"),
        metadata=dict(fields.get("metadata") or {}),
    )


def _check_text(name: str, said: object) -> None:
    if not isinstance(said, str):
        raise InputError(f"{name} must be text, not {type(said).__name__}; leave a turn without it out")
