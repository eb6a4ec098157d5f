"""A host's two calls of a turn, and what is said in it as the contract's request and event."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Unpack

from memory.contract.errors import InputError, ScopeError
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import strip_json
from memory.contract.receipts import RetrieveResult, WriteReceipt
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.view import RecallFields, TurnFields


class HostCalls(ABC):
    """``before_turn`` and ``after_turn``, by the contract alone.

    Args:
        scope: their default scope.
        budget: default budget of :meth:`before_turn`.
    """

    def __init__(self, scope: MemoryScope | None, budget: ContextBudget) -> None:
        self.scope = scope
        self.budget = budget

    @abstractmethod
    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """As :meth:`MemoryAdapter.retrieve`."""

    @abstractmethod
    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """As :meth:`MemoryAdapter.record_event`."""

    async def before_turn(
        self,
        user: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        budget: ContextBudget | None = None,
        scenario: str | None = None,
        context: str | None = None,
        attribute: str | None = None,
        filters: Mapping[str, Any] | None = None,
        exclude_session: bool = False,
    ) -> str:
        """The context section for the prompt of the coming turn, or ``""`` where nothing is remembered.

        Args:
            user: what the user just said; recalled context in it is ignored.
            session_id: the conversation.
            scope, budget: in place of the slot's defaults.
            scenario, context, attribute, filters: as in :class:`RetrieveRequest`.
            exclude_session: leave out what was said in this conversation, where the backend tells; for hosts whose
                chat window still shows it.
        """
        request = request_of(
            user,
            session_id,
            self.scope_or_default(scope),
            budget=budget or self.budget,
            scenario=scenario,
            context=context,
            attribute=attribute,
            filters=filters,
            exclude_session=exclude_session,
        )
        return (await self.retrieve(request)).formatted_context

    async def after_turn(
        self,
        *,
        session_id: str,
        user: str | None = None,
        assistant: str | None = None,
        messages: Iterable[Message] = (),
        scope: MemoryScope | None = None,
        event_id: str | None = None,
        turn_id: str | None = None,
        timestamp: datetime | None = None,
        agent_id: str = "agent",
        scenario: str | None = None,
        context: str | None = None,
        attribute: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> WriteReceipt:
        """Record what was said in a turn.

        Args:
            session_id: the conversation.
            user, assistant: what each said; blank ones are left out.
            messages: further messages between the two, such as tool results.
            scope: in place of the slot's default.
            event_id, turn_id: fresh ids by default; give your own where a turn may be recorded twice.
            timestamp: when it was said; now by default.
            agent_id, scenario, context, attribute, metadata: as in :class:`MemoryEvent`.
        """
        event = event_from_turn(
            session_id,
            self.scope_or_default(scope),
            user=user,
            assistant=assistant,
            messages=messages,
            event_id=event_id,
            turn_id=turn_id,
            timestamp=timestamp,
            agent_id=agent_id,
            scenario=scenario,
            context=context,
            attribute=attribute,
            metadata=metadata,
        )
        return await self.record_event(event)

    def scope_or_default(self, scope: MemoryScope | None = None) -> MemoryScope:
        """``scope``, or the slot's own.

        Raises:
            ScopeError: there is neither.
        """
        chosen = scope or self.scope
        if chosen is None:
            raise ScopeError("no scope: give scope=, or set memory.scope in the configuration")
        return chosen


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


def event_from_turn(session_id: str, scope: MemoryScope, **fields: Unpack[TurnFields]) -> MemoryEvent:
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
