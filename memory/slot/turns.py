"""A host's two calls of a turn, and one person's part of a slot that many share."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar, Unpack

import anyio

from memory.contract.adapter import MemoryAdapter, SupportsReadiness
from memory.contract.errors import InputError, ScopeError
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import strip_json
from memory.contract.receipts import BackendReadiness, ResetReceipt, WriteReceipt
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope

T = TypeVar("T")


class RecallFields(TypedDict, total=False):
    """What ``before_turn`` takes beside the words and the session; absent or None is the default. ``budget`` is in
    place of the slot's, ``exclude_session`` leaves out what was said in this conversation, for hosts whose chat
    window still shows it, and the rest is as in :class:`RetrieveRequest`."""

    budget: ContextBudget | None
    scenario: str | None
    context: str | None
    attribute: str | None
    filters: Mapping[str, object] | None
    exclude_session: bool


class TurnFields(TypedDict, total=False):
    """What ``after_turn`` takes beside the session; absent or None is the default. ``user`` and ``assistant`` are
    what each said, blank ones are left out; ``messages`` stand between the two, such as tool results. ``event_id``
    and ``turn_id`` are fresh by default: give your own where a turn may be recorded twice. ``timestamp`` is when it
    was said, now by default; the rest is as in :class:`MemoryEvent`."""

    user: str | None
    assistant: str | None
    messages: Iterable[Message]
    event_id: str | None
    turn_id: str | None
    timestamp: datetime | None
    agent_id: str
    scenario: str | None
    context: str | None
    attribute: str | None
    metadata: Mapping[str, object] | None


class HostCalls(MemoryAdapter):
    """``before_turn`` and ``after_turn``, by the contract alone."""

    def __init__(self, scope: MemoryScope | None, budget: ContextBudget) -> None:
        self.scope = scope
        self.budget = budget

    @abstractmethod
    def capability(self, protocol: Callable[..., T]) -> T | None:
        """See :meth:`MemorySlot.capability`."""

    @abstractmethod
    def is_set_up(self, scope: MemoryScope) -> bool:
        """See :meth:`MemorySlot.is_set_up`."""

    @abstractmethod
    def release_scope(self, scope: MemoryScope) -> None:
        """See :meth:`MemorySlot.release_scope`."""

    async def before_turn(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> str:
        """The context section for the prompt of the coming turn, or ``""`` where nothing is remembered.

        Args:
            user: what the user just said; recalled context in it is ignored.
            session_id: the conversation.
            scope: in place of the slot's default.
            fields: ``budget``, ``scenario``, ``context``, ``attribute``, ``filters``, ``exclude_session``, see
                :class:`~memory.slot.turns.RecallFields`.
        """
        fields["budget"] = fields.get("budget") or self.budget
        request = request_of(user, session_id, self.scope_or_default(scope), **fields)
        return (await self.retrieve(request)).formatted_context

    async def after_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> WriteReceipt:
        """Record what was said in a turn.

        Args:
            session_id: the conversation.
            scope: in place of the slot's default.
            fields: ``user``, ``assistant``, ``messages``, ``event_id``, ``turn_id``, ``timestamp``, ``agent_id``,
                ``scenario``, ``context``, ``attribute``, ``metadata``, see :class:`~memory.slot.turns.TurnFields`.
        """
        return await self.record_event(event_from_turn(session_id, self.scope_or_default(scope), **fields))

    def scope_or_default(self, scope: MemoryScope | None = None) -> MemoryScope:
        """``scope``, or the slot's own; ScopeError where there is neither."""
        if (chosen := scope or self.scope) is None:
            raise ScopeError("no scope: give scope=, or set memory.scope in the configuration")
        return chosen


def request_of(
    user: str, session_id: str, scope: MemoryScope, **fields: Unpack[RecallFields]
) -> RetrieveRequest:
    """The question of the coming turn, without recalled context; fields as for :meth:`MemorySlot.before_turn`."""
    _check_text("user", user)
    given = _given(fields, RecallFields)
    return RetrieveRequest(query=strip_json(user), scope=scope, session_id=session_id, **given)


def event_from_turn(session_id: str, scope: MemoryScope, **fields: Unpack[TurnFields]) -> MemoryEvent:
    """What was said in a turn; fields as for :meth:`MemorySlot.after_turn`. Raises :class:`InputError` where one is
    malformed, or nothing was said."""
    given = _given(fields, TurnFields)
    user, assistant = given.pop("user", ""), given.pop("assistant", "")
    _check_text("user", user)
    _check_text("assistant", assistant)
    said = [Message(role="user", content=user)] if user.strip() else []
    messages = given.pop("messages", ())
    if not isinstance(messages, Iterable):
        raise InputError(f"messages must be a list of Message, not {type(messages).__name__}")
    said.extend(messages)
    if assistant.strip():
        said.append(Message(role="assistant", content=assistant))
    fresh = {"event_id": uuid.uuid4().hex, "turn_id": uuid.uuid4().hex, "timestamp": datetime.now(UTC)}
    return MemoryEvent(scope=scope, session_id=session_id, messages=tuple(said), **{**fresh, **given})


def _given(fields: Mapping[str, Any], known: type) -> dict[str, Any]:
    """The fields that are not left to their defaults; a misspelt one is refused as Python refuses any argument."""
    for name in fields.keys() - known.__annotations__.keys():
        raise TypeError(f"{name!r} is no argument of it; there are {', '.join(known.__annotations__)}")
    return {name: value for name, value in fields.items() if value is not None}


def _check_text(name: str, said: object) -> None:
    if not isinstance(said, str):
        raise InputError(f"{name} must be text, not {type(said).__name__}; leave a turn without it out")


class ScopeLeases:
    """Which scopes views have set up: the one used longest ago is released where over ``max_idle`` are idle."""

    def __init__(self, slot: HostCalls, max_idle: int) -> None:
        self._slot = slot
        self._max_idle = max_idle
        self._users: OrderedDict[MemoryScope, int] = OrderedDict()
        self._setting_up: dict[MemoryScope, anyio.Lock] = {}

    @asynccontextmanager
    async def lease(self, scope: MemoryScope) -> AsyncIterator[None]:
        """Keep a scope set up while the body runs; set it up first where it is not."""
        if scope not in self._users and self._slot.is_set_up(scope):
            yield  # the host did it, and answers for it
            return
        self._users[scope] = self._users.get(scope, 0) + 1
        try:
            if not self._slot.is_set_up(scope):
                async with self._setting_up.setdefault(scope, anyio.Lock()):
                    if not self._slot.is_set_up(scope):
                        await self._slot.setup_scope(scope)
            yield
        finally:
            self._users[scope] -= 1
            self._users.move_to_end(scope)
            if not self._users[scope]:
                self._setting_up.pop(scope, None)
                if not self._slot.is_set_up(scope):
                    del self._users[scope]
            if (too_many := len(self._users) - self._max_idle) > 0:
                for idle in [scope for scope, users in self._users.items() if not users][:too_many]:
                    del self._users[idle]
                    self._slot.release_scope(idle)


@dataclass(slots=True, eq=False)
class ScopedMemory:
    """A light view of a slot; hundreds of them cost what their memories cost, and need no closing. Its scope is set
    up at its first use, and again where the slot released it because many others were used since."""

    _slot: HostCalls
    _leases: ScopeLeases
    scope: MemoryScope

    def __repr__(self) -> str:
        return f"<memory of {self.scope.label} on {self._slot.backend_name}>"

    async def before_turn(self, user: str, *, session_id: str, **fields: Unpack[RecallFields]) -> str:
        """As :meth:`MemorySlot.before_turn`."""
        async with self._leases.lease(self.scope):
            return await self._slot.before_turn(user, session_id=session_id, scope=self.scope, **fields)

    async def after_turn(self, *, session_id: str, **fields: Unpack[TurnFields]) -> WriteReceipt:
        """As :meth:`MemorySlot.after_turn`."""
        async with self._leases.lease(self.scope):
            return await self._slot.after_turn(session_id=session_id, scope=self.scope, **fields)

    async def reset(self) -> ResetReceipt:
        """As :meth:`MemorySlot.reset_scope`."""
        async with self._leases.lease(self.scope):
            return await self._slot.reset_scope(self.scope)

    async def wait_until_ready(self, timeout_s: float) -> BackendReadiness:
        """Wait at most ``timeout_s`` seconds until what was written is retrievable; ``unknown`` if nobody tells."""
        async with self._leases.lease(self.scope):
            readiness = self._slot.capability(SupportsReadiness)
            if readiness is None:
                return BackendReadiness(state="unknown", detail=f"{self._slot.backend_name} does not tell")
            return await readiness.wait_until_ready(self.scope, timeout_s)
