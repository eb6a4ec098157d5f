"""The two calls that a host makes in each turn, and one person's view of a shared slot."""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import anyio

from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message, read_message
from memory.contract.formatting import strip_json
from memory.contract.receipts import BackendReadiness, ResetReceipt, WriteReceipt
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.calls import NativeCalls

T = TypeVar("T")


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
    two, read as by :meth:`Message.from_any`; ``metadata.left_out`` counts their parts without words.
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
    """The coming turn's request, without recalled context; fields as for :meth:`MemorySlot.before_turn`."""
    _check_text("user", user)
    given = _given(fields, RecallFields)
    return RetrieveRequest(query=strip_json(user), scope=scope, session_id=session_id, **given)


def event_from_turn(session_id: str, scope: MemoryScope, **fields: Unpack[TurnFields]) -> MemoryEvent:
    """The event of a turn; fields as for :meth:`MemorySlot.after_turn`.

    Raises:
        InputError: a field is malformed, or nothing was said.
    """
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


MAX_IDLE_SCOPES = 256


class ScopeLeases:
    """The scopes that views have set up.

    Beyond :data:`MAX_IDLE_SCOPES`, the least recently used idle ones are released, but none that the host set up.
    """

    def __init__(self, set_up: Callable[[MemoryScope], Awaitable[None]], calls: NativeCalls) -> None:
        self._set_up = set_up
        self._calls = calls
        self._users: OrderedDict[MemoryScope, int] = OrderedDict()
        self._of_host: set[MemoryScope] = set()
        self._setting_up: dict[MemoryScope, anyio.Lock] = {}

    def keep(self, scope: MemoryScope) -> None:
        """Note that the host sets this scope up itself, so that it is never released here."""
        self._of_host.add(scope)

    @asynccontextmanager
    async def lease(self, scope: MemoryScope) -> AsyncIterator[None]:
        """Keep a scope set up while the body runs. Set it up first if necessary."""
        is_set_up = self._calls.scopes.get
        if scope in self._of_host and is_set_up(scope, False):
            yield
            return
        self._users[scope] = self._users.get(scope, 0) + 1
        try:
            if not is_set_up(scope, False):
                async with self._setting_up.setdefault(scope, anyio.Lock()):
                    if not is_set_up(scope, False):
                        await self._set_up(scope)
            yield
        finally:
            self._users[scope] -= 1
            self._users.move_to_end(scope)
            if not self._users[scope]:
                self._setting_up.pop(scope, None)
                if not is_set_up(scope, False):
                    del self._users[scope]
            self._release_idle()

    def _release_idle(self) -> None:
        if (too_many := len(self._users) - MAX_IDLE_SCOPES) <= 0:
            return
        for idle in [scope for scope, users in self._users.items() if not users][:too_many]:
            del self._users[idle]
            if idle not in self._of_host:
                self._calls.drop_scope(idle)


class _Slot(Protocol):
    """The part of a slot that a view uses; see :class:`~memory.slot.slot.MemorySlot`."""

    backend_name: str

    async def before_turn(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> str: ...
    async def after_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> WriteReceipt: ...
    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt: ...
    def capability(self, protocol: Callable[..., T]) -> T | None: ...


@dataclass(slots=True, eq=False)
class ScopedMemory:
    """A light view of a slot, which needs no closing.

    Its first use sets its scope up. A later use repeats that if the slot has released the scope meanwhile.
    """

    _slot: _Slot
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
        """Wait at most ``timeout_s`` seconds until all writes are retrievable.

        The state is ``unknown`` if the backend cannot tell.
        """
        async with self._leases.lease(self.scope):
            readiness = self._slot.capability(SupportsReadiness)
            if readiness is None:
                return BackendReadiness(state="unknown", detail=f"{self._slot.backend_name} does not tell")
            return await readiness.wait_until_ready(self.scope, timeout_s)
