"""The memory of a stock Nanobot: an entry point of the group ``nanobot.tools``. Only Nanobot imports it.

Nanobot keeps a context provider's result in the session's file and shows it again in every later turn.
Without removal, old sections would pile up in the prompt and be recorded as if a person had said them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import anyio

from memory import MemorySlot, MemslotError
from memory.hosts._shared import tested
from memory.hosts._tools import DESCRIPTIONS, SEARCH, ModelTools, schema
from memory.hosts.nanobot._turns import SOURCE, claim_workspace, said, without_section
from memory.runtime import HostTurns, TurnPolicy, build_slot, turns_of

with tested("nanobot"):
    from nanobot.agent.tools.base import Tool
    from nanobot.bus.runtime_events import (
        SessionTurnPersisted,
        SessionTurnStarted,
        TurnCompleted,
        TurnRunStatusChanged,
    )
    from nanobot.runtime_context import RuntimeContextBlock, public_history_messages

log = logging.getLogger("memslot.nanobot")

_MACHINES = frozenset(
    {"cron", "runtime", "session", "session_timeout", "subagent", "system:recovery", "trigger"}
)
_MACHINE_SESSIONS = ("heartbeat", "dream:", "cron:")
_OPENING_S = 10.0
_open: dict[Path, MemorySlot] = {}
"""Open slots, shared because an embedded store has one owner and Nanobot may build its tools twice."""


def _slot_for(workspace: str) -> MemorySlot | None:
    """Return the memory of ``MEMSLOT_CONFIG``, else of ``memslot.yaml`` in the workspace; None without either."""
    named = os.environ.get("MEMSLOT_CONFIG")
    config = Path(named or Path(workspace, "memslot.yaml")).absolute()
    if not (named or config.exists()):
        return None
    if config not in _open:
        slot = _open[config] = build_slot(config)
        turns_of(slot, TurnPolicy(exclude_session=True))
    return _open[config]


async def _closing_with_the_loop(slot: MemorySlot) -> AsyncGenerator[None, None]:
    """Close a slot when the event loop ends its generators, because Nanobot tells no tool that it ends."""
    try:
        yield
    finally:
        for config in [config for config, opened in _open.items() if opened is slot]:
            del _open[config]
        await slot.aclose()


class MemslotTool(Tool):  # type: ignore[misc]
    """Recalls before each turn and records after it. To the model, it is a search tool."""

    name, description, parameters, read_only = SEARCH, DESCRIPTIONS[SEARCH], schema(SEARCH), True

    def __init__(self, slot: MemorySlot, sessions: Any) -> None:
        self._ending: AsyncGenerator[None, None] | None = None
        self._sessions = sessions
        self._turns = HostTurns(slot, "nanobot")
        self._memory, self._tools = self._turns.memory, ModelTools(self._turns)
        self._asked: dict[str, str] = {}  # the user's own words in each session's turn
        self._delivered: set[str] = set()

    @classmethod
    def enabled(cls, ctx: Any) -> bool:
        """Whether a configuration is named and its memory can be used. A problem is logged in one line."""
        # The check is here, because Nanobot logs a traceback for an error in create.
        try:
            if (slot := _slot_for(ctx.workspace)) is not None:
                claim_workspace(Path(ctx.workspace), slot.delivery.scope_or_default())
            return slot is not None
        except MemslotError as error:
            log.warning("memslot is not used: %s", error)
            return False

    @classmethod
    def create(cls, ctx: Any) -> Self:
        slot = _slot_for(ctx.workspace)
        assert slot is not None
        tool = cls(slot, ctx.sessions)
        if ctx.bus is not None:
            for handler, kind in (
                (tool._begin, SessionTurnStarted),
                (tool._record, SessionTurnPersisted),
                (tool._answered, TurnCompleted),
                (tool._settle, TurnRunStatusChanged),
            ):
                ctx.bus.subscribe(handler, kind)
        return tool

    async def execute(self, query: str = "", **_: Any) -> str:
        """Search the memory. Returns memories as a JSON list, or an error in words."""
        return await self._tools.answer(SEARCH, query, None, "memory_search")

    def runtime_context_provider(self) -> Any:
        return self._recall

    async def _recall(self, request: Any) -> RuntimeContextBlock | None:
        key = request.session_key or "sdk:default"
        asked = self._asked[key] = request.original_user_text or ""
        recall = await self._turns.recall(request.turn_id or key, asked, session_id=key)
        return RuntimeContextBlock(SOURCE, recall.section) if recall.section else None

    async def _begin(self, event: Any) -> None:
        """Open the memory, and remove a dead process's sections before Nanobot reads the history."""
        if self._ending is None:
            self._ending = _closing_with_the_loop(self._memory.slot)
            await anext(self._ending)
            # Opening a store may take longer than a recall may, and a process may live for one turn only.
            with anyio.move_on_after(_OPENING_S), suppress(MemslotError):
                await self._memory.slot.setup_scope(self._memory.slot.delivery.scope_or_default())
        key = event.context.session_key
        self._delivered.discard(key)
        self._asked.pop(key, None)
        self._clean(key)

    async def _record(self, event: Any) -> None:
        """Record a saved turn, unless Nanobot's own timers or helpers asked in it."""
        key = str(event.context.session_key)
        # Blocks of other providers were not said either.
        talk, parts = said(public_history_messages(self._clean(key)), self._asked.pop(key, ""))
        if talk and not (event.sender_id in _MACHINES or key.startswith(_MACHINE_SESSIONS)):
            await self._turns.record(event.turn_id, session_id=key, messages=talk, left_out=parts)

    def _answered(self, event: Any) -> None:
        self._delivered.add(event.context.session_key)

    async def _settle(self, event: Any) -> None:
        """Write waiting events if this process ends after one answer. A longer process need not wait."""
        if event.status == "idle" and event.context.session_key not in self._delivered:
            policy, state = self._memory.policy, self._memory.status()["recall_circuit"]
            await self._memory.drain(policy.drain_s if state == "closed" else 0.0)

    def _clean(self, key: str) -> list[dict[str, Any]]:
        """Remove memslot's sections from a session and its file."""
        session = self._sessions.get_cached(key)
        if session is None:
            return []
        cleaned = [without_section(message) for message in session.messages]
        if any(cleaned):
            session.messages[:] = [new or old for new, old in zip(cleaned, session.messages, strict=True)]
            self._sessions.save(session)
        return list(session.messages)
