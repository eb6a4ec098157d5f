"""One person's part of a slot that many share: its methods with the scope filled in, and set up when needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

import anyio

from memory.contract.adapter import SupportsReadiness
from memory.contract.receipts import BackendReadiness, ResetReceipt, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.slot.turns import HostCalls, RecallFields, TurnFields


class ScopeLeases:
    """Which scopes views have set up: the one used longest ago is released where there are too many.

    Args:
        slot: the slot whose scopes they are.
        max_idle: scopes kept set up while nobody uses them.
    """

    def __init__(self, slot: HostCalls, max_idle: int) -> None:
        self._slot = slot
        self._max_idle = max_idle
        self._users: OrderedDict[MemoryScope, int] = OrderedDict()
        self._setting_up: dict[MemoryScope, anyio.Lock] = {}

    @asynccontextmanager
    async def lease(self, scope: MemoryScope) -> AsyncIterator[None]:
        """Keep a scope set up while the body runs; set it up first where it is not.

        Raises:
            BackendError: it could not be set up; the next use tries again.
        """
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


class ScopedMemory:
    """A light view of a slot; hundreds of them cost what their memories cost, and need no closing.

    Made by :meth:`MemorySlot.for_scope`. The scope is set up at its first use, and again where the slot released it
    because many others were used since.

    Args:
        slot: the shared slot.
        leases: of its scopes.
        scope: whose memory.
    """

    __slots__ = ("_leases", "_slot", "scope")

    def __init__(self, slot: HostCalls, leases: ScopeLeases, scope: MemoryScope) -> None:
        self._slot = slot
        self._leases = leases
        self.scope = scope

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
