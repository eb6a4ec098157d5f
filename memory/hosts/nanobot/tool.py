"""The memory of a stock Nanobot: an entry point of the group ``nanobot.tools``. Only Nanobot imports it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Self

import anyio

from memory import MemorySlot, MemslotError, ScopeError
from memory.hosts._shared import tested
from memory.hosts.nanobot.sdk import SOURCE, claim_workspace, is_of_a_machine, said, without_section
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

_OPENING_S = 10.0
_open: dict[Path, MemorySlot] = {}
"""Open slots, shared because an embedded store has one owner and Nanobot may build its tools twice."""


def _config(workspace: str) -> Path | None:
    """Return ``MEMSLOT_CONFIG``, else ``memslot.yaml`` in the workspace; None if there is neither."""
    if named := os.environ.get("MEMSLOT_CONFIG"):
        return Path(named).absolute()
    file = Path(workspace, "memslot.yaml").absolute()
    return file if file.exists() else None


def _opened(config: Path) -> MemorySlot:
    if config not in _open:
        slot = build_slot(config)
        if slot.scope is None:
            raise ScopeError(f"{config}: memory.scope says whose memory this is; add run_id and persona_id")
        turns_of(slot, TurnPolicy(exclude_session=True))
        _open[config] = slot
    return _open[config]


async def _closing_with_the_loop(config: Path, slot: MemorySlot) -> AsyncGenerator[None, None]:
    """Close a slot when the event loop ends its generators, because Nanobot tells no tool that it ends."""
    try:
        yield
    finally:
        _open.pop(config, None)
        await slot.aclose()


class MemslotTool(Tool):  # type: ignore[misc]
    """Recalls before each turn and records after it. To the model, it is a search tool."""

    def __init__(self, config: Path, slot: MemorySlot, sessions: Any) -> None:
        self._config = config
        self._ending: AsyncGenerator[None, None] | None = None
        self._sessions = sessions
        self._turns = HostTurns(slot, "nanobot")
        self._memory = self._turns.memory
        self._asked: dict[str, str] = {}
        self._delivered: set[str] = set()

    @classmethod
    def enabled(cls, ctx: Any) -> bool:
        """Whether a configuration is named and its memory can be used. A problem is logged in one line.

        The check is here because Nanobot logs a traceback for an error in ``create``.
        """
        config = _config(ctx.workspace)
        if config is None:
            return False
        try:
            claim_workspace(Path(ctx.workspace), _opened(config).delivery.scope_or_default())
        except MemslotError as error:
            log.warning("memslot is not used: %s", error)
            return False
        return True

    @classmethod
    def create(cls, ctx: Any) -> Self:
        config = _config(ctx.workspace)
        assert config is not None
        _warn_of_file_memory(Path(ctx.workspace))
        tool = cls(config, _opened(config), ctx.sessions)
        if ctx.bus is not None:
            for handler, kind in (
                (tool._begin, SessionTurnStarted),
                (tool._record, SessionTurnPersisted),
                (tool._answered, TurnCompleted),
                (tool._settle, TurnRunStatusChanged),
            ):
                ctx.bus.subscribe(handler, kind)
        return tool

    name = "memory_search"
    description = "Search long-term memory of earlier conversations. What fits this turn is shown already."

    @property
    def parameters(self) -> dict[str, Any]:
        query = {"type": "string", "description": "What to look for, as a question.", "minLength": 1}
        return {"type": "object", "properties": {"query": query}, "required": ["query"]}

    read_only = True

    async def execute(self, query: str = "", **_: Any) -> Any:
        """Search the memory. Returns the context section, or an error as a result."""
        recall = await self._memory.recall(query, session_id="memory_search")
        if recall.failure is not None:
            return self.error(f"memory is not available now: {type(recall.failure).__name__}")
        return recall.section or "nothing is remembered"

    def runtime_context_provider(self) -> Any:
        return self._recall

    async def _recall(self, request: Any) -> RuntimeContextBlock | None:
        self._asked[request.session_key or ""] = request.original_user_text or ""
        try:
            recall = await self._memory.recall(
                request.original_user_text or "", session_id=request.session_key or "nanobot"
            )
        except Exception as error:  # otherwise Nanobot would abandon the turn
            log.warning("nothing is recalled in this turn: %s", type(error).__name__)
            return None
        return RuntimeContextBlock(SOURCE, recall.section) if recall.section else None

    async def _begin(self, event: Any) -> None:
        """Open the memory, and remove a dead process's sections before Nanobot reads the history."""
        if self._ending is None:
            self._ending = _closing_with_the_loop(self._config, self._memory.slot)
            await anext(self._ending)
            # Opening a store may take longer than a recall may, and a process may live for one turn only.
            with anyio.move_on_after(_OPENING_S), suppress(MemslotError):
                await self._memory.slot.setup_scope(self._turns.scope_of(None))
        key = event.context.session_key
        self._delivered.discard(key)
        self._asked.pop(key, None)
        self._clean(key)

    async def _record(self, event: Any) -> None:
        key = event.context.session_key
        messages = self._clean(key)
        spoken = public_history_messages(messages)  # blocks of other providers were not said either
        talk, parts = said(spoken, self._asked.pop(key, ""))
        if talk and not is_of_a_machine(event):
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
        changed = False
        for at, message in enumerate(session.messages):
            cleaned = without_section(message)
            if cleaned is not None:
                session.messages[at] = cleaned
                changed = True
        if changed:
            self._sessions.save(session)
        messages: list[dict[str, Any]] = session.messages
        return messages


def _warn_of_file_memory(workspace: Path) -> None:
    try:
        text = (workspace / "memory" / "MEMORY.md").read_text(encoding="utf-8")
        template = (
            resources.files("nanobot").joinpath("templates/memory/MEMORY.md").read_text(encoding="utf-8")
        )
    except OSError:
        return
    if text.strip() not in ("", template.strip()):
        log.warning("memory/MEMORY.md is not empty: Nanobot shows it in every turn beside this memory")
